"""Target: what generation asks of the machine that code is made for (LLVM's TargetTransformInfo).

A target is one object, which the program that is being generated holds (`builder.target`). What is
computed is decided without it; it says how its machine computes it best. The answers here are those of
a machine of which nothing is known: a method that answers None, or False, leaves the matter to loops.
"""

from collections.abc import Callable, Sequence
from copy import copy
from math import prod
from typing import Any, Protocol, Self

from fnx.core import policy, recipe
from fnx.core.backend import PORTABLE, Machine
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Loop, Stmt, Store
from fnx.lowering.planning import fusion_policy
from fnx.lowering.transform.statements import Statements

from .values import Materialized, Shape, Value

Pass = Callable[[Statements], None]


class Routines(Protocol):
    """The library recipes that a target has code for (`lowering/cpu/routines/table.py`, say)."""

    def known(self, r: recipe.Library) -> bool:
        """Whether there is code; if not, the primitive's `impl` is called on the host."""
        ...

    def functions(self, r: recipe.Library, outs: list[Value]) -> Any:
        """The results by index, where they are few operations; or None."""
        ...

    def total(self, r: recipe.Library, outs: list[Value]) -> recipe.Fold | None:
        """The result as a reduction, where it is one."""
        ...

    def computes_matrix(self, r: recipe.Library) -> bool:
        """Whether the reduction of `total` saves storing what it reduces."""
        ...

    def library(self, builder: Any, r: recipe.Library, outs: list[Value]) -> None:
        """Emit the statements."""
        ...


class ReductionInStrips(Protocol):
    """A reduction to many results that a target makes in a way of its own."""

    count: int

    def places(self) -> list: ...

    def loop(self, first: Expr, count: Expr, places: list) -> list[Stmt]: ...

    def parts(self, each: int) -> tuple[Loop, list[Stmt], list]: ...

    def results(self, places: list) -> list[Expr]: ...


class Target:
    """A machine, as generation sees it: where values live, what is fused, how loops are shaped."""

    name: str
    small = policy.SMALL  # elements of a value that lives in registers
    machine: Machine = PORTABLE
    routines: Routines
    passes: tuple[
        Pass, ...
    ] = ()  # over the Kernel IR of a whole program, in order; memory is planned after

    # Whether each result of a reduction has an accumulator of its own, in the loops over results: threads
    # are independent of one another; or several share a vector, or memory.
    results_apart: bool = False
    # Whether updates here and there have their positions ready, a block of them at a time.
    updates_in_blocks: bool = True

    # Whether an array of pieces is one nest, whose elements ask which of them they are of, or is pulled so
    # by its readers: a choice takes no time where threads wait for memory. Else each piece has a nest.
    chooses_pieces: bool = False

    def runs_at_once(self, loop: Loop) -> bool:
        """Whether the iterations of a loop are dealt out, so that none waits for those before it."""
        return loop.kind.parallel

    # --- values

    def is_small(self, shape: Shape) -> bool:
        """Whether a value lives in registers, its operations unrolled; scalars must."""
        return prod(shape) <= self.small

    def wide(self) -> Self:
        """The same, where arrays of several times the size live in registers: in a step of one of many."""
        found = copy(self)
        found.small = policy.MEMBER_VALUE
        return found

    def inlined(self, cost: int, uses: int) -> bool:
        """Whether a value is computed again by each reader, rather than stored for them."""
        return fusion_policy.inlined(cost, uses)

    def math(self, name: str, dtype: str) -> bool:
        """Whether there is code for an elementwise primitive; if not, the host calls its `impl`."""
        return True

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
        consts: list[Value],
        xs: list[Value],
        stacks: list[Materialized],
        row: Callable,
    ) -> bool:
        """Emit a scan whose iterations are loops of their own, side by side; False, and nothing, if not."""
        return False

    def products(self, builder: Any, r: recipe.Products, out: Value) -> None:
        """Emit the nest of a sum of products: a convolution."""
        raise NotImplementedError
