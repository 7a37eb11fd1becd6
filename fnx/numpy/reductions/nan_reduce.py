"""Reductions of what is not nan."""

import math
from collections.abc import Callable
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import named, promote_inexact, select, shown, to_array
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions.averages import mean, var
from fnx.numpy.reductions.reduce import any, argmax, argmin, as_mask, max, min, prod, sum
from fnx.ops.base.broadcast import scalar, scalar_like
from fnx.ops.elementwise import arithmetic as ops


def _without_nan(x: Array, value: Any) -> tuple[Array, Array | None]:
    """x with a value for nan, and where it is not nan."""
    if not dtypes.is_inexact(x.dtype):
        return x, None
    bad = ops.ne(x, x)
    return select(bad, scalar_like(value, x), x), ops.not_(bad)


def nansum(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
    """The sum over axes, by default all, of what is not nan; 0 where nothing is left.

    >>> jnp.nansum(jnp.array([1.0, jnp.nan, 3.0]))
    Array(4., dtype=float64)
    """
    x, _ = _without_nan(to_array(a, "nansum"), 0)
    return sum(x, axis, dtype, out, keepdims, initial, where)


def nanprod(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
    """The product over axes, by default all, of what is not nan; 1 where nothing is left.

    >>> jnp.nanprod(jnp.array([2.0, jnp.nan, 3.0]))
    Array(6., dtype=float64)
    """
    x, _ = _without_nan(to_array(a, "nanprod"), 1)
    return prod(x, axis, dtype, out, keepdims, initial, where)


def _nan_extremum(name: str, fn: Callable, worst: float) -> Callable:
    says = f"`{name}` of what is not nan; nan where nothing is left."

    @named("nan" + name, shown(says, f"jnp.nan{name}(jnp.array([jnp.nan, 2.0]))", "2."))
    def nan_fn(a, axis=None, out=None, keepdims=False, initial=None, where=None):
        x, good = _without_nan(to_array(a, name), worst)
        result = fn(x, axis, out, keepdims, initial, where)
        if good is None or initial is not None:
            return result
        some = any(good, axis, keepdims=keepdims)
        return (
            select(some, result, scalar(math.nan, result.dtype))
            if some.shape == result.shape
            else result
        )

    return nan_fn


nanmax = _nan_extremum("max", max, -math.inf)
nanmin = _nan_extremum("min", min, math.inf)


def _nan_arg(name: str, fn: Callable, worst: float) -> Callable:
    says = f"`{name}` of what is not nan; -1 where nothing is left."

    @named("nan" + name, shown(says, f"jnp.nan{name}(jnp.array([jnp.nan, 2.0]))", "1", "int64"))
    def nan_fn(a, axis=None, out=None, keepdims=None):
        x, good = _without_nan(to_array(a, name), worst)
        place = fn(x, axis, out, keepdims)
        if good is None:
            return place
        return select(any(good, axis, keepdims=bool(keepdims)), place, scalar(-1, place.dtype))

    return nan_fn


nanargmax = _nan_arg("argmax", argmax, -math.inf)
nanargmin = _nan_arg("argmin", argmin, math.inf)


def _good(name: str, x: Array, where: Any) -> Array:
    """Where a mask holds and x is not nan."""
    good = ufuncs.logical_not(ufuncs.isnan(x))
    return good if where is None else ufuncs.logical_and(good, as_mask(name, where))


@replayed()
def nanmean(a, axis=None, dtype=None, out=None, keepdims=False, where=None):
    """The mean over axes, by default all, of what is not nan; nan where nothing is left.

    >>> jnp.nanmean(jnp.array([1.0, jnp.nan, 3.0]))
    Array(2., dtype=float64)
    """
    x = to_array(a, "nanmean")
    good = _good("nanmean", x, where)
    return mean(_without_nan(x, 0)[0], axis, dtype, out, keepdims, where=good)


@replayed()
def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, where=None, mean=None):
    """The variance over axes, by default all, of what is not nan; nan where nothing is left.

    >>> jnp.nanvar(jnp.array([1.0, jnp.nan, 3.0]))
    Array(1., dtype=float64)
    """
    (x,) = promote_inexact("nanvar", a)
    good = _good("nanvar", x, where)
    clean = _without_nan(x, 0)[0]
    return var(clean, axis, dtype, out, ddof, keepdims, where=good, mean=mean)


@replayed()
def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, where=None, mean=None):
    """The standard deviation over axes, by default all, of what is not nan; nan where nothing is left.

    >>> jnp.nanstd(jnp.array([1.0, jnp.nan, 5.0]))
    Array(2., dtype=float64)
    """
    return ufuncs.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


__all__ = [
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
]
