"""What code generation asks of a target, and the answers of one that needs nothing but loops.

A target is one object, which the program that is being generated holds (`builder.target`). What is
computed, and in which order, is decided without it; it says how its machine computes it best. Each
method that may answer None, or False, leaves the matter to loops that any target has.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fnx.core import recipe
from fnx.core.jaxpr import Eqn
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Loop, Stmt, Store
from fnx.lowering.transform.machine import PORTABLE, Machine
from fnx.lowering.transform.statements import Statements

from .values import Handle, Shape, Stored

Pass = Callable[[Statements], None]


class Routines(Protocol):
    """The library recipes that a target has code for (`lowering/cpu/routines/table.py`, say)."""

    def known(self, r: recipe.Library) -> bool:
        """Whether there is code; if not, the primitive's `impl` is called on the host."""
        ...

    def functions(self, r: recipe.Library, outs: list[Handle]) -> Any:
        """The results by index, where they are few operations; or None."""
        ...

    def total(self, r: recipe.Library, outs: list[Handle]) -> recipe.Fold | None:
        """The result as a reduction, where it is one."""
        ...

    def computes_matrix(self, r: recipe.Library) -> bool:
        """Whether the reduction of `total` saves storing what it reduces."""
        ...

    def library(self, builder: Any, r: recipe.Library, outs: list[Handle]) -> None:
        """Emit the statements."""
        ...


class HostRoutines:
    """No library at all: whatever is one is computed by the primitive's own `impl`, on the host."""

    def known(self, r: recipe.Library) -> bool:
        return False

    def functions(self, r: recipe.Library, outs: list[Handle]) -> None:
        return None


class ReductionInStrips(Protocol):
    """A reduction to many results that a target makes in a way of its own."""

    count: int

    def places(self) -> list: ...

    def loop(self, first: Expr, count: Expr, places: list) -> list[Stmt]: ...

    def parts(self, each: int) -> tuple[Loop, list[Stmt], list]: ...

    def results(self, places: list) -> list[Expr]: ...


class Target:
    """The portable target: scalar loops, host routines, no tiles; others override what they can do."""

    name = "portable"
    machine: Machine = PORTABLE
    routines: Any = HostRoutines()

    @property
    def passes(self) -> tuple[Pass, ...]:
        """What is done to the Kernel IR of a whole program, in order, before memory is planned."""
        return ()

    # --- nests

    def rows_are_vectors(self, stores: list[Store], index: list[Expr], shape: Shape) -> bool:
        """Whether a short last axis is computed as vectors, rather than written out."""
        return False

    def tiled(
        self,
        builder: Any,
        dims: list[tuple[Expr, int]],
        stores: list[Store],
        index: list[Expr],
        shape: Shape,
    ) -> list[Stmt] | None:
        """The nest tile by tile, where arrays are read along different axes."""
        return None

    def reduction_in_strips(
        self,
        builder: Any,
        dim: tuple[Expr, int],
        stores: list[Store],
        carries: tuple[list[Expr], list[Expr], list[Expr]],
        order: Sequence[int],
        combine: Callable,
    ) -> ReductionInStrips | None:
        """A way to make more results than registers hold; `carries`: variables, first values, next."""
        return None

    def divergent_loops(
        self,
        builder: Any,
        r: recipe.Loop,
        consts: list[Handle],
        xs: list[Handle],
        stacks: list[Stored],
        row: Callable,
    ) -> bool:
        """Emit a scan whose iterations are loops of their own, side by side; False, and nothing, if not."""
        return False

    def products(self, builder: Any, eqn: Eqn, r: recipe.Products, out: Handle) -> bool:
        """Emit a sum of products; False, and nothing, if the host is to compute it."""
        return False
