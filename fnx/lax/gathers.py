"""Gathers and scatters of fnx.lax: windows of an array at indices."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import Array
from fnx.lax.elementwise import full, full_like, neg, select
from fnx.numpy.indexing import getitem
from fnx.numpy.util import named, to_array
from fnx.ops.indexing import Gather, ScatterAdd
from fnx.ops.scatter import Scatter, ScatterMax, ScatterMin, ScatterMul
from fnx.ops.windows import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers

__all__ = [
    "GatherDimensionNumbers",
    "GatherScatterMode",
    "ScatterDimensionNumbers",
    "gather",
    "index_take",
    "scatter",
    "scatter_add",
    "scatter_apply",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_sub",
]


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Array:
    """Windows of the operand at start indices."""
    x, i = to_array(operand, "gather"), to_array(start_indices, "gather", 1)
    kind = GatherScatterMode.from_any(mode)
    prim = Gather(
        dimension_numbers,
        fill_value,
        indices_are_sorted,
        kind,
        tuple(int(n) for n in slice_sizes),
        unique_indices,
    )
    return prim(x, i)


def _scatter(name: str, prim: Callable) -> Callable:
    @named(name, "The operand with windows at the scatter indices combined with the updates.")
    def fn(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
    ) -> Array:
        x, i, u = (
            to_array(operand, name),
            to_array(scatter_indices, name, 1),
            to_array(updates, name, 2),
        )
        kind = GatherScatterMode.from_any(mode)
        return prim(dimension_numbers, indices_are_sorted, kind, unique_indices)(x, i, u)

    return fn


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Array:
    """The operand with `func` of its elements at the scatter indices, applied once to each."""
    x = to_array(operand, "scatter_apply")
    there = scatter(
        full_like(x, False, bool), scatter_indices, full(update_shape, True), dimension_numbers,
        indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode,
    )  # fmt: skip
    return select(there, to_array(func(x)), x)


scatter = _scatter("scatter", Scatter)
scatter_add = _scatter("scatter_add", ScatterAdd)
scatter_mul = _scatter("scatter_mul", ScatterMul)
scatter_min = _scatter("scatter_min", ScatterMin)
scatter_max = _scatter("scatter_max", ScatterMax)


def scatter_sub(
    operand: Any, scatter_indices: Any, updates: Any, *args: Any, **kwargs: Any
) -> Array:
    """The operand with updates subtracted."""
    return scatter_add(operand, scatter_indices, neg(to_array(updates)), *args, **kwargs)


def index_take(src: Any, idxs: Any, axes: Sequence[int]) -> Array:
    """Positions along several axes at once."""
    index: list = [slice(None)] * to_array(src).ndim
    for axis, i in zip(axes, idxs, strict=True):
        index[axis] = i
    return getitem(to_array(src), tuple(index))
