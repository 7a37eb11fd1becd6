"""Gathers and scatters of fnx.lax: windows of an array at indices."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import Array
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.source import indexing_by
from fnx.lax.elementwise import neg
from fnx.lax.parameterized import full, full_like, select
from fnx.numpy.arrays.indexing import getitem
from fnx.numpy.arrays.util import integer, named, to_array
from fnx.ops.structure.gather import Gather, ScatterAdd
from fnx.ops.structure.gather_dimension_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from fnx.ops.structure.scatter import Scatter, ScatterMax, ScatterMin, ScatterMul

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


def _check_sorted(name: str, *groups: Sequence[int]) -> None:
    """Raise for axes of the operand in another order: results would be those of this one."""
    for axes in groups:
        if list(axes) != sorted(axes):
            raise ShapeError(f"{name}: axes {tuple(axes)} of the operand; expected them sorted")


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
    """Windows of the operand, of `slice_sizes`, at start indices; meaning and parameters are XLA's.

    The last axis of `start_indices` holds one start for each axis in `start_index_map`. Windows out of
    bounds go by `mode`, a `GatherScatterMode`; without one they are moved inside. TypeError for indices
    that are no integers.

    >>> rows = lax.GatherDimensionNumbers((1,), (0,), (0,))
    >>> lax.gather(jnp.arange(6).reshape(3, 2), jnp.array([[2], [0]]), rows, (1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int64)
    """
    x, i = to_array(operand, "gather"), to_array(start_indices, "gather", 1)
    kind, dims = GatherScatterMode.PROMISE_IN_BOUNDS, dimension_numbers
    if mode is not None:
        kind = GatherScatterMode.from_any(mode)
    _check_sorted("gather", dims.collapsed_slice_dims, dims.operand_batching_dims)
    prim = Gather(
        dims,
        fill_value,
        indices_are_sorted,
        kind,
        tuple(integer(n, "an entry of slice_sizes") for n in slice_sizes),
        unique_indices,
    )
    with indexing_by(mode):
        return prim(x, i)


def _scatter(name: str, prim: Callable, what: str, gives: str) -> Callable:
    doc = f"""The operand with windows at the scatter indices {what} the updates.

    >>> one = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.{name}(jnp.array([1.0, 2.0, 3.0]), jnp.array([[2], [0]]), jnp.array([5.0, 0.0]), one)
    Array({gives}, dtype=float64)
    """

    @named(name, doc)
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
        if u.dtype != x.dtype and not u.aval.weak_type:
            raise TypeMismatch(
                f"lax.{name} of an array of dtype {x.dtype} with updates of dtype {u.dtype}; expected "
                f"one dtype: convert the updates with .astype({x.dtype})"
            )
        kind, dims = GatherScatterMode.from_any(mode), dimension_numbers
        _check_sorted(name, dims.inserted_window_dims, dims.operand_batching_dims)
        with indexing_by(mode):
            return prim(dims, indices_are_sorted, kind, unique_indices)(x, i, u)

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
    """The operand with `func` of its elements at the scatter indices, applied once to each.

    >>> one = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x, at = jnp.array([1.0, 4.0, 9.0]), jnp.array([[2], [1]])
    >>> lax.scatter_apply(x, at, jnp.sqrt, one, update_shape=(2,))
    Array([1., 2., 3.], dtype=float64)
    """
    x = to_array(operand, "scatter_apply")
    there = scatter(
        full_like(x, False, bool), scatter_indices, full(update_shape, True), dimension_numbers,
        indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode,
    )  # fmt: skip
    return select(there, to_array(func(x)), x)


scatter = _scatter("scatter", Scatter, "replaced by", "[0., 2., 5.]")
scatter_add = _scatter("scatter_add", ScatterAdd, "increased by", "[1., 2., 8.]")
scatter_mul = _scatter("scatter_mul", ScatterMul, "multiplied by", "[ 0.,  2., 15.]")
scatter_min = _scatter(
    "scatter_min", ScatterMin, "replaced, where they are larger, by", "[0., 2., 3.]"
)
scatter_max = _scatter(
    "scatter_max", ScatterMax, "replaced, where they are smaller, by", "[1., 2., 5.]"
)


def scatter_sub(
    operand: Any, scatter_indices: Any, updates: Any, *args: Any, **kwargs: Any
) -> Array:
    """The operand with updates subtracted.

    >>> one = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_sub(jnp.zeros(3), jnp.array([[2], [2]]), jnp.array([1.0, 4.0]), one)
    Array([ 0.,  0., -5.], dtype=float64)
    """
    return scatter_add(operand, scatter_indices, neg(to_array(updates)), *args, **kwargs)


def index_take(src: Any, idxs: Any, axes: Sequence[int]) -> Array:
    """Positions along several axes at once.

    >>> lax.index_take(jnp.arange(12).reshape(3, 4), jnp.array([[2, 0]]), axes=(0,))
    Array([[ 8,  9, 10, 11],
           [ 0,  1,  2,  3]], dtype=int64)
    """
    index: list = [slice(None)] * to_array(src).ndim
    for axis, i in zip(axes, idxs, strict=True):
        index[axis] = i
    return getitem(to_array(src), tuple(index))
