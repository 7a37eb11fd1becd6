"""The CPU as a target: what its caches, registers and vectors make of nests, and its passes in order."""

from typing import Any

from fnx.core import recipe
from fnx.core.backend import Machine
from fnx.lowering.generate.target import Target
from fnx.lowering.generate.values import Value
from fnx.lowering.transform import (
    lookup_tables,
    loop_coalescing,
    loop_fusion,
    sliding_window,
    stencil_fusion,
    strip_mining,
)

from .processor import thresholds
from .routines import matrix_vector_pairs, table
from .schedule import (
    blocked_reductions,
    lane_refill,
    packing,
    polling,
    register_tiling,
    short_vectors,
    tiling,
)


class CpuTarget(Target):
    """This machine's CPU."""

    name = "cpu"
    routines = table
    passes = (
        loop_fusion.fuse,
        strip_mining.steps_of_strips,
        stencil_fusion.of_stencils,
        sliding_window.roll,
        loop_coalescing.coalesce,
        lookup_tables.in_memory,
        packing.rows,
        matrix_vector_pairs.in_one_pass,
        polling.of_long_loops,
    )
    rows_are_vectors = staticmethod(short_vectors.rows_are_vectors)
    divergent_loops = staticmethod(lane_refill.side_by_side)
    tiled = staticmethod(tiling.tiled)
    reduction_in_strips = staticmethod(blocked_reductions.in_strips)

    @property
    def machine(self) -> Machine:
        return thresholds.machine()

    def products(self, builder: Any, r: recipe.Products, out: Value) -> None:
        register_tiling.products(builder, r, out)
