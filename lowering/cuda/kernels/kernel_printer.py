"""Prints kernels as Python source in the dialect of Numba-CUDA: one flat function each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

from fnx.core import scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.ir import kernel, traversal
from fnx.lowering.ir.kernel import Buffer, LoopKind, Stmt
from fnx.lowering.ir.number_formats import KIND
from fnx.lowering.numba.expression_printer import FORMULAS, bare, stem_of
from fnx.lowering.numba.program_printer import Code, uses

from . import rows
from . import scalar as forms
from .block_printer import TYPES, BlockCode
from .plan import Axes, Halo, Kernel
from .thresholds import Limits
from .update import Atomic


@dataclass(eq=False)
class Printed:
    """The source of a kernel: one function `name`, whose arguments are `buffers` in this order."""

    name: str
    source: str
    buffers: list[Buffer]
    arrays: list[bool]  # whether each is passed as an array, rather than as a pointer
    threads: tuple[int, int]


def printed(k: Kernel, limits: Limits) -> Printed:
    """The source of a kernel."""
    code = KernelCode(k, limits)
    code.framed()
    buffers = list(code.names)
    name = "".join(c if c.isalnum() else "_" for c in k.name)
    arguments = ", ".join(code.names[b] for b in buffers)
    head = [f"def {name}({arguments}):"]
    if k.note:
        head.append(f'    """{k.note}"""')
    source = "\n".join([*head, *code.arrays, *code.lines]) + "\n"
    arrays = [b in k.atomic for b in buffers]
    return Printed(name, source, buffers, arrays, _threads(k, limits))


def _threads(k: Kernel, limits: Limits) -> tuple[int, int]:
    if k.shape == "single":
        return 1, 1
    return limits.tile if k.shape in ("tile", "square") else (limits.threads, 1)


class KernelCode(BlockCode):
    """The function of a kernel: where each thread begins, then statements as in the other printer."""

    forms = forms
    methods: ClassVar[dict[type, str]] = {
        **Code.methods,
        Atomic: "atomic",
        kernel.Barrier: "barrier",
    }

    def __init__(self, k: Kernel, limits: Limits):
        super().__init__(uses(k.statements()), limits)
        self.k = k
        self.shares = True  # among the threads of the GPU: none of the host's take part
        self.private: set[Buffer] = set()
        self.together = False  # whether all threads of the block do the same
        self.contracts = 0  # how many loops are around whose order of additions is free

    # --- names -----------------------------------------------------------------------------------

    def buffer(self, b: Buffer) -> str:
        if b.space in ("private", "shared"):
            return self._own(b)
        return super().buffer(b)

    def _own(self, b: Buffer) -> str:
        name = f"{b.name}_own" if b.space == "private" else b.name
        if b not in self.private:
            self.private.add(b)
            where = "local" if b.space == "private" else "shared"
            kind = "numba.uint8" if b.dtype == "bool" else TYPES[b.dtype]
            size = rows.touched(b, self.k.statements()) if b.space == "private" else b.size
            self.arrays.append(f"    {name} = cuda.{where}.array({max(size, 1)}, {kind})")
        return name

    def named(self, e):  # type: ignore[no-untyped-def]
        """Operands as names or numbers, for texts that say them more than once; or new variables."""
        if isinstance(e, Expr):
            return [t if a.op in ("const", "size", "literal") else self.assigned(t)
                    for a, t in zip(e.args, self.operands(e, bare=False), strict=True)]  # fmt: skip
        return super().named(e)

    def formula(self, name: str, x: str = "") -> str:  # type: ignore[override]
        """The conversion of a 16-bit format, written out."""
        dtype, build = FORMULAS[name]
        given = scalar.var(dtype)
        self.bind(given, self.assigned(x))
        root = build(given)
        self.uses[root] += 1
        return self.inline(root)

    # --- the frame -------------------------------------------------------------------------------

    def framed(self) -> None:
        for buffer, place, wanted in self.k.guards:
            self.put(f"if {self.buffer(buffer)}[{place}] {'==' if wanted else '!='} 0:")
            self.put("    return")
        for v, (buffer, place) in self.k.slots.items():
            name = self.fresh(stem_of(v))
            self.put(f"{name} = {self._slot(v, buffer, place)}")
            self.bind(v, name)
        for e, v in self.k.names.items():
            if v in self.memo:
                self.bind(e, self.memo[v])
        self.statements(self.k.first)
        frame = {
            "single": self._single,
            "flat": self._flat,
            "tile": self._tile,
            "square": self._square,
            "block": self._block,
        }
        frame[self.k.shape]()

    def _slot(self, v: Expr, buffer: Buffer, place: int) -> str:
        text = f"{self.buffer(buffer)}[{place}]"
        if v.dtype == "bool":
            return f"({text} != 0)"
        return forms.from_bits(self, text, v.dtype) if KIND[v.dtype] == "h" else text

    def _single(self) -> None:
        self.statements(self.k.body)
        for v, (buffer, place) in self.k.stored.items():
            self.store(kernel.Store(buffer, scalar.size(place), v))
        if not self.lines:
            self.put("pass")

    def _over(self, loops: Sequence[tuple[str, str, str, str]], body: Sequence[Stmt]) -> None:
        """Loops of a thread over its share: (index, first, end, step), then the body."""
        for index, first, end, step in loops:
            self.put(f"for {index} in range({first}, {end}, {step}):")
            self.depth += 1
        with self.scope():
            self._bind_axes([x[0] for x in loops])
            self.statements(body)
        self.depth -= len(loops)

    def _bind_axes(self, given: list[str], axes: Axes | None = None) -> None:
        """The indices of axes, of which the first ones may be one number."""
        axes = self.k.axes if axes is None else axes
        for i, _ in axes:
            self.indices.add(i)
        if not axes:
            return
        if len(given) == len(axes):
            self.bind_all([i for i, _ in axes], given)
            return
        rest = given[0]
        count = len(axes) - len(given) + 1  # how many the first one stands for
        found: list[str] = []
        for k in range(count - 1, 0, -1):
            n = bare(self.index(axes[k][1]))
            index, more = self.fresh("i"), self.fresh("i")
            self.put(f"{index} = {rest} % {n}")
            self.put(f"{more} = {rest} // {n}")
            found, rest = [index, *found], more
        self.bind_all([i for i, _ in axes], [rest, *found, *given[1:]])

    def _total(self, axes: Sequence[tuple[Expr, Expr]]) -> str:
        return " * ".join(f"({bare(self.index(n))})" for _, n in axes) if axes else "1"

    def _size(self, axes: Sequence[tuple[Expr, Expr]]) -> str:
        total = 1
        for _, n in axes:
            if n.op not in ("size", "const"):
                return self._total(axes)
            total *= int(n.attr)
        return str(total)

    def _flat(self) -> None:
        start, step = "np.int64(cuda.grid(1))", "np.int64(cuda.gridsize(1))"
        self._over([(self.fresh("i"), start, self._size(self.k.axes), step)], self.k.body)

    def _tile(self) -> None:
        *outer, last = self.k.axes
        loops = [
            (
                self.fresh("i"),
                f"np.int64(cuda.blockIdx.{d} * cuda.blockDim.{d} + cuda.threadIdx.{d})",
                self._size(axes),
                f"np.int64(cuda.gridDim.{d} * cuda.blockDim.{d})",
            )
            for d, axes in (("y", outer), ("x", [last]))
        ]
        self._over(loops, self.k.body)

    def _square(self) -> None:
        """Squares of the last two axes: a block first makes what is staged, and then runs the body."""
        assert self.k.staged is not None
        side, (stores, lane, row, rows, halos) = self.limits.tile[0], self.k.staged
        *outer, (a, a_size), (b, b_size) = self.k.axes
        counts = [-(-int(n.attr) // m) for n, m in ((a_size, rows), (b_size, side))]
        self.put("lane = np.int64(cuda.threadIdx.x)")
        self.bind(lane, "lane")
        self.indices.update((lane, row, a, b))
        index, rest, p, q = (self.fresh("i") for _ in range(4))
        total = " * ".join(f"({n})" for n in (self._size(outer) if outer else "1", *counts))
        self.put(
            f"for {index} in range(np.int64(cuda.blockIdx.x), {total}, np.int64(cuda.gridDim.x)):"
        )
        self.depth += 1
        with self.scope():
            self.put(f"{q} = {index} % {counts[1]} * {side}")
            self.put(f"{p} = {index} // {counts[1]} % {counts[0]} * {rows}")
            self.put(f"{rest} = {index} // {counts[1] * counts[0]}")
            self._bind_axes([rest], outer)
            for h, store in zip(halos, stores, strict=False):
                self._with_halo(h, store, (p, q))
            if halos:
                self.put("cuda.syncthreads()")
            else:
                self._of_square({a: f"{p} + lane", b: f"{q} + {{}}"}, stores)
            self._of_square({b: f"{q} + lane", a: f"{p} + {{}}"}, self.k.body)
        self.depth -= 1

    def _of_square(self, places: dict[Expr, str], body: Sequence[Stmt]) -> None:
        """Statements of a square's elements, of which a thread has some; all of the block end together."""
        assert self.k.staged is not None
        rows, step = self.k.staged.rows, self.limits.tile[1]
        number, row = self.fresh("i"), self.fresh("i")
        self.put(f"for {number} in range({rows // step}):")
        self.depth += 1
        with self.scope():
            self.put(f"{row} = np.int64(cuda.threadIdx.y) + {number} * {step}")
            self.bind(self.k.staged.row, row)
            sizes = dict(self.k.axes)
            for e, text in places.items():
                name = self.fresh("i")
                self.put(f"{name} = {text.format(row)}")
                self.bind(e, name)
            inside = " and ".join(f"{self.memo[e]} < {self.index(sizes[e])}" for e in places)
            self.put(f"if {inside}:")
            self.depth += 1
            with self.scope():
                self.statements(body)
            self.depth -= 1
        self.depth -= 1
        self.put("cuda.syncthreads()")

    def _with_halo(self, h: Halo, store: Stmt, first: tuple[str, str]) -> None:
        """What is staged of a square and its surroundings, an element a thread at a time."""
        side, down = self.limits.tile
        number, place, row, lane = (self.fresh("i") for _ in range(4))
        count, threads = h.rows * h.columns, side * down
        self.put(f"for {number} in range({-(-count // threads)}):")
        self.depth += 1
        with self.scope():
            thread = f"np.int64(cuda.threadIdx.y) * {side} + lane"
            self.put(f"{place} = {thread} + {number} * {threads}")
            self.put(f"{row} = {first[0]} + {place} // {h.columns}")
            self.put(f"{lane} = {first[1]} + {place} % {h.columns}")
            self.indices.update(h[:3])
            self.bind_all(h[:3], [place, row, lane])
            sizes = [int(n.attr) for _, n in self.k.axes[-2:]]
            ends = [sizes[0] + h.rows - down, sizes[1] + h.columns - side]
            self.put(f"if {place} < {count} and {row} < {ends[0]} and {lane} < {ends[1]}:")
            self.depth += 1
            with self.scope():
                self.statements([store])
            self.depth -= 1
        self.depth -= 1

    def _block(self) -> None:
        start, step = "np.int64(cuda.blockIdx.x)", "np.int64(cuda.gridDim.x)"
        if self.k.group is None:
            self.put("thread = np.int64(cuda.threadIdx.x)")
        else:
            self.width, group, number = self.k.lanes, self.fresh("w"), self.fresh("n")
            self.put(f"{number} = np.int64(cuda.threadIdx.x)")
            self.put(f"{group} = {number} // {self.width}")
            self.put(f"thread = {number} % {self.width}")
            self.bind(self.k.group, group)
            self.indices.add(self.k.group)
            count = self.limits.threads // self.width
            start, step = f"{start} * {count} + {group}", f"{step} * {count}"
        if self.k.thread is not None:
            self.bind(self.k.thread, "thread")
            self.indices.add(self.k.thread)
        index = self.fresh("i")
        self.put(f"for {index} in range({start}, {self._size(self.k.axes)}, {step}):")
        self.depth += 1
        with self.scope():
            self._bind_axes([index])
            self.together = self.k.thread is None
            self.statements(self.k.body)
            self.together = True
            for v, (buffer, place) in self.k.stored.items():
                self.store(kernel.Store(buffer, scalar.size(place), v))
        self.depth -= 1

    # --- statements that differ ------------------------------------------------------------------

    def poll(self, s: kernel.Loop | kernel.While) -> None:
        """Nobody can ask a GPU to stop; the host stops between launches."""

    def store(self, s: kernel.Store) -> None:
        """As in the other printer; by one thread, if all of a block are at the same iteration."""
        if not self.together:
            super().store(s)
            return
        self.put("if thread == 0:")
        self.depth += 1
        with self.scope():
            super().store(s)
        self.depth -= 1
        self.kill(s.buffer)
        self.meet()

    def barrier(self, s: kernel.Barrier) -> None:
        self.put("cuda.syncthreads()")
        for b in self.private:
            self.kill(b)

    def atomic(self, s: Atomic) -> None:
        index, value = self.index(s.index), self.value(s.value)
        self.put(f"cuda.atomic.{s.op}({self.buffer(s.buffer)}, {bare(index)}, {bare(value)})")
        self.kill(s.buffer)

    def kept(self, value: str, dtype: str) -> str:
        """A value as it lies in memory."""
        if dtype == "bool":
            return f"np.uint8({bare(value)})"
        return super().kept(value, dtype)

    def loop(self, s: kernel.Loop) -> None:
        if s.kind is LoopKind.THREAD:
            together, self.together = self.together, False
            with self._contracting(s):
                self.share(s)
            self.together = together
            if traversal.all_writes(s):
                self.meet()
            return
        if s.extent.op in ("size", "const") and s.extent.attr == 1 and not s.carries:
            with self.scope():
                self.bind(s.index, "np.int64(0)")
                self.statements(s.body)
            return
        with self._contracting(s):
            super().loop(s)

    @contextmanager
    def _contracting(self, s: kernel.Loop) -> Iterator[None]:
        self.contracts += s.reassociate
        yield
        self.contracts -= s.reassociate


__all__ = ["LoopKind", "Printed", "printed"]
