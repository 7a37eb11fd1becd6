"""Statements and buffers of a program while it is built."""

from collections.abc import Sequence

from fnx.core.backend import Machine
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer, Nest, Stmt, Store

from . import index_set_splitting, trim_loops


class Statements:
    """The block that statements are added to, and the buffers that there are."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.buffers: list[Buffer] = []
        self.block: list[Stmt] = []
        self.depth = 0  # of loops and branches around the current block
        self.loops = 0  # how many of them are loops
        self.showing = False  # whether one of them tells how far it is
        self.kernels = self.stacks = 0
        self.notes: list[str] = []
        self.plain: dict[Nest, list[Stmt]] = {}  # nests that go tile by tile: without tiles

    def emit(self, stmt: Stmt) -> None:
        self.block.append(stmt)

    def put(self, buffer: Buffer, position: Expr, value: Expr) -> None:
        """Store one element."""
        self.emit(Store(buffer, position, value))

    def emit_nest(
        self,
        names: Sequence[str],
        body: list[Stmt],
        results: list[Expr],
        note: str,
        plain: list[Stmt] | None = None,
    ) -> None:
        if self.depth:
            body = index_set_splitting.cut(trim_loops.shorten(body))
        name = "_".join(n.replace("-", "_") for n in names[:4])[:60]
        self.kernels += 1
        nest = Nest(f"k{self.kernels}_{name}", body, results, note)
        if plain is not None:
            self.plain[nest] = plain
        self.emit(nest)
        self.notes.append(f"kernel k{self.kernels}_{name}: {note}")

    def new_buffer(self, dtype: str, size: int) -> Buffer:
        buffer = Buffer(f"b{len(self.buffers)}", dtype, max(size, 1), "global", -1)
        self.buffers.append(buffer)
        return buffer

    def new_stack(self, dtype: str, size: int) -> Buffer:
        """A few elements that one nest works with; indexed by constants, they are registers."""
        self.stacks += 1
        return Buffer(f"s{self.stacks}", dtype, size, "private")
