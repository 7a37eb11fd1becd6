"""Statistics of samples: ranks, the most common value, the standard error of the mean."""

import math
from typing import Any, NamedTuple

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.creation import full
from fnx.numpy.arrays.util import canonical_axis, promote_inexact, to_array
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.numerics.vectorize import apply_along_axis
from fnx.numpy.reductions import averages, cumulative, nan_reduce, reduce
from fnx.numpy.structure import sorting
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.selection import take_along_axis, where


class ModeResult(NamedTuple):
    """The most common values, and how often they occur.

    >>> fnx.scipy.stats.mode(jnp.array([1, 3, 3])).count
    Array(2, dtype=int64)
    """

    mode: Array
    count: Array


def _propagate(name: str, nan_policy: str) -> None:
    if nan_policy not in ("propagate", "omit", "raise"):
        raise InvalidValue(f"{name} with nan_policy={nan_policy!r}; expected 'propagate'")
    if nan_policy != "propagate":
        raise NotImplementedError(f"{name} has nan_policy='propagate' only, got {nan_policy!r}")


def mode(a, axis=0, nan_policy="propagate", keepdims=False):
    """The most common value along an axis, the least of them if there are many, and its count.

    >>> fnx.scipy.stats.mode(jnp.array([3, 1, 3, 1, 2])).mode
    Array(1, dtype=int64)
    """
    _propagate("mode", nan_policy)
    x = to_array(a, "mode")
    if axis is None:
        x, k = x.reshape(-1), 0
        shape: Any = (1,) * to_array(a, "mode").ndim if keepdims else ()
    else:
        k = canonical_axis(axis, x.ndim, "axis of mode")
        shape = (*x.shape[:k], *((1,) if keepdims else ()), *x.shape[k + 1 :])
    if not x.shape[k]:
        dtype = x.dtype if dtypes.is_inexact(x.dtype) else dtypes.default_for("f")
        return ModeResult(full(shape, math.nan, dtype), full(shape, 0, dtypes.default_for("i")))
    values = sorting.sort(x, axis=k)
    lanes = values.swapaxes(k, -1)
    counts = reduce.sum(u.equal(lanes[..., :, None], lanes[..., None, :]), axis=-1)
    best = reduce.argmax(counts, axis=-1)[..., None]
    found, often = (take_along_axis(v, best, axis=-1).swapaxes(k, -1) for v in (lanes, counts))
    return ModeResult(found.reshape(shape), often.reshape(shape))


def rankdata(a, method="average", *, axis=None, nan_policy="propagate"):
    """Ranks from 1; equal values share the 'average', 'min', 'max', 'dense' or 'ordinal' rank.

    ValueError for another method.

    >>> fnx.scipy.stats.rankdata(jnp.array([10.0, 30.0, 20.0, 20.0]))
    Array([1. , 4. , 2.5, 2.5], dtype=float64)
    """
    _propagate("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise InvalidValue(
            f"rankdata with method={method!r}; expected 'average', 'min', 'max', 'dense' or 'ordinal'"
        )
    x = to_array(a, "rankdata")
    if axis is not None:
        return apply_along_axis(lambda v: rankdata(v, method), axis, x)
    x = x.reshape(-1)
    n = x.shape[0]
    if not n:
        return x.astype(float)
    order = sorting.argsort(x)
    place = sorting.argsort(order)
    ranks = _ranks(x, order, place, method)
    return where(reduce.any(u.isnan(x)), np.nan, ranks) if dtypes.is_inexact(x.dtype) else ranks


def _ranks(x: Array, order: Array, place: Array, method: str) -> Array:
    if method == "ordinal":
        return (place + 1).astype(float)
    ranked = x[order]
    starts = concatenate([np.ones(1, bool), ranked[1:] != ranked[:-1]])
    dense = cumulative.cumsum(starts)[place]
    if method == "dense":
        return dense.astype(float)
    first = sorting.searchsorted(ranked, x, side="left") + 1
    last = sorting.searchsorted(ranked, x, side="right")
    first, last = first.astype(float), last.astype(float)
    if method == "min":
        return first
    return last if method == "max" else 0.5 * (first + last)


def sem(a, axis=0, ddof=1, nan_policy="propagate", *, keepdims=False):
    """The standard error of the mean along an axis.

    ValueError for another `nan_policy` than 'propagate' or 'omit'.

    >>> fnx.scipy.stats.sem(jnp.array([1.0, 2.0, 3.0, 4.0]))
    Array(0.64549722, dtype=float64)
    """
    if nan_policy not in ("propagate", "omit"):
        raise InvalidValue(f"sem with nan_policy={nan_policy!r}; expected 'propagate' or 'omit'")
    (x,) = promote_inexact("sem", a)
    if nan_policy == "omit":
        count = reduce.sum(u.logical_not(u.isnan(x)), axis=axis, keepdims=keepdims)
        return nan_reduce.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / u.sqrt(
            count.astype(x.dtype)
        )
    n = x.size if axis is None else x.shape[axis]
    return averages.std(x, axis, ddof=ddof, keepdims=keepdims) / math.sqrt(n)


__all__ = ["ModeResult", "mode", "rankdata", "sem"]
