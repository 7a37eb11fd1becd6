"""What the modules of this room may ask of the program that is being generated.

`Storage` (where values are) and `Builder` (equations) are that program; the modules that they are
written with know them by this protocol, so that nobody imports in a circle.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from fnx.core.backend import Machine
from fnx.core.jaxpr import Jaxpr, Var
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer, Nest, Stmt

from .target import Target
from .values import Materialized, Shape, Value


class Generation(Protocol):
    """One program: its statements, its buffers, its values and the fusion groups that are open."""

    machine: Machine
    target: Target
    scope: Any
    block: list[Stmt]
    buffers: list[Buffer]
    notes: list[str]
    plain: dict[Nest, list[Stmt]]
    depth: int  # of loops and branches around the current block
    loops: int  # how many of them are loops
    showing: bool  # whether one of them tells how far it is
    unrolled: int  # points of reductions that were written out
    chooses: int  # whether branches are both computed, and their results selected
    copies: dict[Value, dict]
    lent: set[Buffer]  # of two halves, the second of which is for loops inside

    # --- statements and buffers

    def emit(self, stmt: Stmt) -> None: ...

    def put(self, buffer: Buffer, position: Expr, value: Expr) -> None: ...

    def emit_nest(
        self,
        names: Sequence[str],
        body: list[Stmt],
        results: list[Expr],
        note: str,
        plain: list[Stmt] | None = None,
    ) -> None: ...

    def new_buffer(self, dtype: str, size: int) -> Buffer: ...

    def new_stack(self, dtype: str, size: int) -> Buffer: ...

    def new_stored(self, value: Value) -> Materialized: ...

    def copy(self, destination: Materialized, source: Materialized, size: int) -> None: ...

    def mark(self) -> tuple: ...

    def back_to(self, mark: tuple) -> None: ...

    # --- values

    def evaluated(self, make: Callable[[], Any]) -> Any: ...

    def element(self, h: Value) -> Expr: ...

    def sources(self, h: Value) -> frozenset[Buffer]: ...

    def registers(self, out: Value, fn: Callable[..., Expr]) -> None: ...

    def settle_registers(self, out: Value, elements: list[Expr]) -> None: ...

    def load_registers(self, value: Value) -> None: ...

    def kept(self, elements: list[Expr]) -> list[Expr]: ...

    def store(self, value: Value) -> Materialized: ...

    def store_into(self, value: Value, destination: Materialized) -> None: ...

    def store_reusing(self, value: Value) -> None: ...

    def settle(self, value: Value) -> Value: ...

    def settled(self, inputs: Sequence[Value]) -> list[Value]: ...

    def settled_region(self, inputs: Sequence[Value], keep: Sequence[int] = ()) -> list[Value]: ...

    def adopt(self, out: Value, made: Value) -> None: ...

    def dies(self, value: Value) -> bool: ...

    def readers(self, buffer: Buffer, now: bool) -> Iterator[Value]: ...

    def save_readers(self, buffer: Buffer, now: bool = False) -> None: ...

    def jaxpr(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[Value],
        destinations: dict[Var, Materialized] | None = None,
        carry_buffers: dict[Var, Materialized] | None = None,
    ) -> list[Value]: ...

    # --- fusion groups

    def join(
        self, out: Value, fn: Callable[..., Expr], name: str, regional: bool = False
    ) -> None: ...

    def member(
        self,
        shape: Shape,
        fn: Callable[..., Expr],
        value: Value | None,
        name: str,
        destination: Callable | None = None,
        regional: bool = False,
    ) -> None: ...

    def join_reduction(
        self, joined: Any, axes: tuple[int, ...], regional: bool = False
    ) -> None: ...

    def in_group(self, shape: Shape, make: Callable, fits: Callable = ...) -> tuple[Any, Any]: ...

    def group_of(self, shape: Shape) -> Any: ...

    def stores_of(self, group: Any, wanted: Value | None) -> list: ...

    def flush(self, group: Any, wanted: Value | None = None) -> None: ...

    def flush_all(self) -> None: ...

    def flush_writers(self) -> None: ...
