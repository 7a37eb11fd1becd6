"""Sums and products of all elements up to each one."""

from collections.abc import Callable
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.util import (
    canonical_axis,
    convert,
    named,
    no_out,
    reshape_to,
    select,
    strong,
    to_array,
)
from fnx.numpy.reductions.reduce import sum_dtype
from fnx.ops.base.broadcast import full as _full
from fnx.ops.base.broadcast import scalar_like
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.reduction.cumulative import Cumulative


def _cumulative(name: str, kind: str, doc: str, fill: float | None = None) -> Callable:
    @named(name, doc)
    def fn(a, axis=None, dtype=None, out=None):
        no_out(name, out)
        x = to_array(a, name)
        if axis is None or x.ndim == 0:
            x, axis = reshape_to(x, (x.aval.size,)), 0
        k = canonical_axis(axis, x.ndim)
        if fill is not None and dtypes.is_inexact(x.dtype):
            x = select(ops.ne(x, x), scalar_like(fill, x), x)
        wanted = dtypes.canonical(dtype) if dtype is not None else x.dtype
        x = convert(x, wanted)
        if wanted != dtypes.bool_:
            return Cumulative(kind, k)(strong(x))
        counts = Cumulative(kind, k)(convert(x, dtypes.default_for("i")))
        return counts if dtype is None else convert(counts, dtypes.bool_)

    return fn


cumsum = _cumulative(
    "cumsum",
    "cumsum",
    """The sums of all elements up to each one.

    >>> jnp.cumsum(jnp.arange(4))
    Array([0, 1, 3, 6], dtype=int64)
    """,
)
cumprod = _cumulative(
    "cumprod",
    "cumprod",
    """The products of all elements up to each one.

    >>> jnp.cumprod(jnp.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int64)
    """,
)
nancumsum = _cumulative(
    "nancumsum",
    "cumsum",
    """`cumsum`, with nan taken for 0.

    >>> jnp.nancumsum(jnp.array([2.0, jnp.nan, 3.0]))
    Array([2., 2., 5.], dtype=float64)
    """,
    0.0,
)
nancumprod = _cumulative(
    "nancumprod",
    "cumprod",
    """`cumprod`, with nan taken for 1.

    >>> jnp.nancumprod(jnp.array([2.0, jnp.nan, 3.0]))
    Array([2., 2., 6.], dtype=float64)
    """,
    1.0,
)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """The sums of all elements up to each one, along one axis.

    >>> jnp.cumulative_sum(jnp.array([1, 2, 3]), include_initial=True)
    Array([0, 1, 3, 6], dtype=int64)
    """
    return _array_api_cumulative("cumulative_sum", cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """The products of all elements up to each one, along one axis.

    >>> jnp.cumulative_prod(jnp.array([1, 2, 3]), include_initial=True)
    Array([1, 1, 2, 6], dtype=int64)
    """
    return _array_api_cumulative("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


def _array_api_cumulative(
    name: str, fn: Callable, first: int, x: Any, axis: Any, dtype: Any, include_initial: bool
) -> Array:
    from fnx.ops.structure.join import Concatenate

    x = to_array(x, name)
    if x.ndim == 0 or (axis is None and x.ndim != 1):
        raise InvalidValue(f"{name} of shape {x.shape} needs an axis")
    k = canonical_axis(0 if axis is None else axis, x.ndim)
    if dtype is None:
        dtype = sum_dtype(x.dtype)
    out = fn(x, k, dtype)
    if not include_initial:
        return out
    shape = tuple([1 if j == k else n for j, n in enumerate(out.shape)])
    return Concatenate(k)(_full(shape, first, out.dtype), out)


__all__ = [
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "nancumprod",
    "nancumsum",
]
