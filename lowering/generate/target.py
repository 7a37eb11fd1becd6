"""Target: what generation asks of the machine that code is made for (LLVM's TargetTransformInfo).

Generation, the transformations and the pipeline know machines by this protocol alone. The answers here
are those of a machine of which nothing is known; a target overrides what it does better.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from fnx.core import recipe
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Stmt, Store

from . import fusion_policy
from .values import Handle, Shape, Stored

if TYPE_CHECKING:
    from .accumulators import Accumulators, ReductionLoop

Dims = list[tuple[Expr, int]]  # loops: their variables and extents
Pass = Callable[[Any], None]  # rewrites the statements of a builder
At = Callable[[Handle, Expr], Handle]  # element `t` of a stacked value


class Routines(Protocol):
    """The library recipes that a target has code of its own for."""

    def known(self, r: recipe.Library) -> bool:
        """Whether there is native code for it; if not, the primitive's impl is called on the host."""
        ...

    def functions(self, r: recipe.Library, outs: list[Handle]) -> list[Callable] | None:
        """The results by index, where they are few operations: of each of many small matrices."""
        ...

    def total(self, r: recipe.Library, outs: list[Handle]) -> recipe.Fold | None:
        """The result as a reduction, where it is one."""
        ...

    def computes_matrix(self, r: recipe.Library) -> bool:
        """Whether the reduction of `total` saves storing what it reduces."""
        ...

    def library(self, builder: Any, r: recipe.Library, outs: list[Handle]) -> None:
        """Emit the statements of a library recipe."""
        ...


class Target:
    """A machine, as generation sees it: where values live, what is fused, how loops are shaped."""

    name: str
    routines: Routines
    passes: tuple[Pass, ...] = ()  # over the Kernel IR of a whole program, in order

    # --- values

    def is_small(self, shape: Shape) -> bool:
        """Whether a value lives in registers, its operations unrolled; scalars must."""
        return fusion_policy.is_small(shape)

    def inlined(self, cost: int, uses: int) -> bool:
        """Whether a value is computed again by each reader, rather than stored for them."""
        return fusion_policy.inlined(cost, uses)

    def math(self, name: str, dtype: str) -> bool:
        """Whether there is code for an elementwise primitive; if not, the host calls its impl."""
        return True

    # --- loops

    def blocked_reduction(
        self, nest: "Accumulators", loop: "ReductionLoop", points: int
    ) -> tuple[list[Stmt], list[Expr]] | None:
        """A reduction to many results, a block of iterations at a time: its statements, and the totals."""
        return None

    def rows_are_vectors(self, stores: list[Store], index: list[Expr], shape: Shape) -> bool:
        """Whether a short last axis is a loop of its own, rather than written out."""
        return False

    def tiled(self, builder: Any, dims: Dims, stores: list[Store]) -> list[Stmt] | None:
        """A nest by tiles, if that brings together what it reads along rows and along columns."""
        return None

    def batch_loop(
        self,
        builder: Any,
        r: recipe.Loop,
        consts: list[Handle],
        xs: list[Handle],
        stacks: Sequence[Stored],
        at_step: At,
    ) -> bool:
        """Emit a scan over batch elements that loop by themselves; False, and nothing, if it need not
        differ from any other scan.
        """
        return False

    def products(self, builder: Any, r: recipe.Products, out: Handle) -> None:
        """Emit the nest of a sum of products: a convolution."""
        raise NotImplementedError
