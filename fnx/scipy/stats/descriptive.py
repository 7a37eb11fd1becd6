"""Statistics of samples: ranks, the most frequent value, the standard error."""

import math
from typing import Any, NamedTuple

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy import reduce
from fnx.numpy import ufuncs as u
from fnx.numpy.functional import apply_along_axis
from fnx.numpy.shape import ravel, take, take_along_axis
from fnx.numpy.sorting import argsort, searchsorted, sort
from fnx.numpy.util import canonical_axis, convert, reshape_to, to_array


class ModeResult(NamedTuple):
    """The most frequent value and how often it stands there."""

    mode: Array
    count: Array


def mode(a, axis=0, nan_policy="propagate", keepdims=False):
    """The most frequent value along an axis, the smallest of several."""
    _propagate(nan_policy)
    x = to_array(a, "mode")
    if axis is None:
        shape = (1,) * x.ndim
        x, k = ravel(x), 0
    else:
        k = canonical_axis(axis, x.ndim)
        shape = tuple([1 if j == k else n for j, n in enumerate(x.shape)])
    x = sort(x, axis=k)
    counts = apply_along_axis(lambda v: searchsorted(v, v, "right") - searchsorted(v, v, "left"), k, x)
    at = reduce.argmax(counts, axis=k, keepdims=True)
    outs = [take_along_axis(z, at, k, mode="clip") for z in (x, counts)]
    final = shape if keepdims else tuple([n for j, n in enumerate(x.shape) if j != k])
    return ModeResult(*[reshape_to(o, final) for o in outs])


def _propagate(nan_policy: str) -> None:
    if nan_policy not in ("propagate", "omit"):
        raise InvalidValue(f"nan_policy={nan_policy!r}; expected 'propagate'")


def rankdata(a, method="average", *, axis=None, nan_policy="propagate"):
    """Ranks from 1; equal elements share the "average", "min", "max", "dense" rank, or "ordinal"."""
    _propagate(nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise InvalidValue(f"rankdata with method={method!r}")
    x = to_array(a, "rankdata")
    if axis is None:
        ranks = _ranks(ravel(x), method)
    else:
        ranks = apply_along_axis(lambda v: _ranks(v, method), axis, x)
    return convert(ranks, dtypes.default_for("f"))


def _ranks(x: Array, method: str) -> Array:
    order = argsort(x)
    if method == "ordinal":
        return argsort(order) + 1
    ordered = take(x, order, mode="clip")
    low, high = searchsorted(ordered, x, "left"), searchsorted(ordered, x, "right")
    if method == "min":
        return low + 1
    if method == "max":
        return high
    if method == "average":
        return (low + high + 1) / 2.0
    fresh = u.where3(searchsorted(ordered, ordered, "left") == u.subtract(reduce.cumsum(ordered == ordered), 1), 1, 0)
    return take(reduce.cumsum(fresh), low, mode="clip")


def sem(a, axis=0, ddof=1, nan_policy="propagate", *, keepdims=False):
    """The standard error of the mean."""
    x = to_array(a, "sem")
    if nan_policy == "omit":
        count: Any = reduce.sum(u.logical_not(u.isnan(x)), axis=axis, keepdims=keepdims)
        return reduce.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / u.sqrt(count)
    _propagate(nan_policy)
    n = x.size if axis is None else x.shape[axis]
    return reduce.std(x, axis, ddof=ddof, keepdims=keepdims) / math.sqrt(n)


__all__ = ["ModeResult", "mode", "rankdata", "sem"]
