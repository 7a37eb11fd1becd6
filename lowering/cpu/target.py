"""The CPU as a target: its scheduling, its routines, its passes in their order."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fnx.core import recipe
from fnx.core.scalar import Expr
from fnx.lowering.generate.target import At, Dims, Pass, Target
from fnx.lowering.generate.values import Handle, Shape, Stored
from fnx.lowering.ir.kernel import Stmt, Store
from fnx.lowering.transform import (
    lookup_tables,
    loop_coalescing,
    loop_fusion,
    sliding_window,
    stencil_fusion,
    strip_mining,
)

from .routines import table
from .schedule import (
    blocked_reductions,
    lane_refill,
    packing,
    register_tiling,
    short_vectors,
    tiling,
)

if TYPE_CHECKING:
    from fnx.lowering.generate.accumulators import Accumulators, ReductionLoop


class CpuTarget(Target):
    """Cores with caches and vectors."""

    name = "cpu"
    routines = table
    passes: tuple[Pass, ...] = (
        loop_fusion.fuse,
        strip_mining.steps_of_strips,
        stencil_fusion.of_stencils,
        sliding_window.roll,
        lambda builder: loop_coalescing.even(builder.block),
        lookup_tables.in_memory,
        packing.rows,
    )

    def blocked_reduction(
        self, nest: "Accumulators", loop: "ReductionLoop", points: int
    ) -> tuple[list[Stmt], list[Expr]] | None:
        return blocked_reductions.by_strips(nest, loop, points)

    def rows_are_vectors(self, stores: list[Store], index: list[Expr], shape: Shape) -> bool:
        return short_vectors.rows_are_vectors(stores, index, shape)

    def tiled(self, builder: Any, dims: Dims, stores: list[Store]) -> list[Stmt] | None:
        return tiling.tiled(builder, dims, stores)

    def batch_loop(
        self,
        builder: Any,
        r: recipe.Loop,
        consts: list[Handle],
        xs: list[Handle],
        stacks: Sequence[Stored],
        at_step: At,
    ) -> bool:
        return lane_refill.lanes(builder, r, consts, xs, list(stacks), at_step)

    def products(self, builder: Any, r: recipe.Products, out: Handle) -> None:
        register_tiling.products(builder, r, out)


TARGET = CpuTarget()
