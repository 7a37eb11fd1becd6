"""Counting: bincount, histogram and its kin."""

import builtins
import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.util import (
    INT,
    convert,
    integer,
    promote_inexact,
    reshape_to,
    strong,
    to_array,
)
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions.reduce import max as max_
from fnx.numpy.reductions.reduce import min as min_
from fnx.numpy.reductions.reduce import sum as sum_
from fnx.numpy.structure.joining import stack
from fnx.numpy.structure.nonzero import need_known
from fnx.numpy.structure.ranges import linspace
from fnx.numpy.structure.selection import where
from fnx.numpy.structure.shapes import ravel
from fnx.numpy.structure.sorting import searchsorted
from fnx.ops.base.broadcast import full as _full
from fnx.ops.base.broadcast import scalar

# --- counting -----------------------------------------------------------------------------------


def bincount(x, weights=None, minlength=0, *, length=None, out_sharding=None):
    """How often each number 0, 1, 2, ... stands in x; `length` makes the length static.

    Shape (max(x) + 1,), or that of `length`; under jit `length` must be given.

    TypeError for dtypes other than integers; ValueError for what is no vector.

    >>> jnp.bincount(jnp.array([0, 2, 2, 3]), length=5)
    Array([1, 0, 2, 1, 0], dtype=int64)
    """
    at = to_array(x, "bincount")
    if not dtypes.is_integer(at.dtype) and at.dtype != dtypes.bool_:
        raise TypeMismatch(f"bincount of dtype {at.dtype}; expected integers")
    if at.ndim != 1:
        raise InvalidValue(f"bincount of shape {at.shape}; expected a vector")
    if length is None:
        known = need_known(at, "bincount", "pass length=, the static length of the result")
        top = max(int(known.max()), 0) + 1 if known.size else 0
        length = max(top, integer(minlength, "minlength"))
    at = ufuncs.clip(convert(at, INT), 0, None)
    w = _full((), 1, dtypes.default_for("i")) if weights is None else to_array(weights, "bincount")
    zeros = _full((int(length),), 0, w.dtype)
    return zeros.at[at].add(w, mode="drop")


def histogram_bin_edges(a, bins=10, range=None, weights=None):
    """The edges of bins of equal width.

    ValueError for names of rules.

    >>> jnp.histogram_bin_edges(jnp.array([0.0, 3.0, 4.0]), bins=4)
    Array([0., 1., 2., 3., 4.], dtype=float64)
    """
    del weights
    if isinstance(bins, str):
        raise InvalidValue(f"histogram with bins={bins!r}; expected a number or edges")
    (x,) = promote_inexact("histogram", a)
    if np.ndim(bins) == 1:
        edges = array(bins) if isinstance(bins, (list, tuple)) else to_array(bins, "histogram")
        return strong(convert(edges, x.dtype))
    if range is None:
        low, high = (min_(x), max_(x)) if x.aval.size else (scalar(0, x.dtype), scalar(1, x.dtype))
    else:
        low, high = (convert(to_array(v), x.dtype) for v in range)
    same = ufuncs.equal(low, high)
    low, high = where(same, low - 0.5, low), where(same, high + 0.5, high)
    count = integer(bins, "bins")
    if count < 1:
        raise InvalidValue(f"histogram with bins={count}; expected at least 1")
    return linspace(low, high, count + 1, dtype=x.dtype)


def histogram(a, bins=10, range=None, weights=None, density=None):
    """How many elements lie in each bin, and the bins' edges.

    >>> jnp.histogram(jnp.array([0.1, 0.4, 0.9, 1.0]), bins=2, range=(0.0, 1.0))
    (Array([2., 2.], dtype=float64), Array([0. , 0.5, 1. ], dtype=float64))
    """
    given = (a,) if weights is None else (a, weights)
    x, *w = [ravel(v) for v in promote_inexact("histogram", *given, strictly=False)]
    w = w[0] if w else _full(x.shape, 1, x.dtype)
    edges = histogram_bin_edges(x, bins, range)
    n = edges.shape[0] - 1
    at = searchsorted(edges, x, "right")
    # The last bin holds its right edge too; bin 0 here is what lies before all, and is left out.
    at = where(ufuncs.equal(x, edges[-1]), n, at)
    counts = _full((n + 1,), 0, w.dtype).at[at].add(w, mode="drop")[1:]
    if density:
        width = edges[1:] - edges[:-1]
        counts = counts / width / sum_(counts)
    return counts, edges


def histogram2d(x, y, bins=10, range=None, weights=None, density=None):
    """How many points (x, y) lie in each box of a grid, and its edges along x and along y.

    ShapeError, a ValueError, for x and y of different lengths.

    >>> x = jnp.array([0.1, 0.2, 0.9])
    >>> jnp.histogram2d(x, x, bins=2, range=((0, 1), (0, 1)))[0]
    Array([[2, 0],
           [0, 1]], dtype=int64)
    """
    if isinstance(bins, (list, tuple)):
        bins = bins if len(bins) == 2 else [array(bins)] * 2
    elif np.ndim(bins) == 1:
        bins = [bins, bins]
    sample = stack([ravel(x), ravel(y)], axis=1)
    counts, edges = histogramdd(sample, bins, range, weights, density)
    return counts, edges[0], edges[1]


def histogramdd(sample, bins=10, range=None, weights=None, density=None):
    """How many points lie in each box of a grid, and the grid's edges.

    >>> counts, edges = jnp.histogramdd(jnp.array([[0.1, 0.2, 0.9]]).T, bins=2, range=[(0, 1)])
    >>> counts, edges[0]
    (Array([2, 1], dtype=int64), Array([0. , 0.5, 1. ], dtype=float64))
    """
    points = stack(list(sample), axis=-1) if isinstance(sample, (list, tuple)) else to_array(sample)
    (points,) = promote_inexact("histogramdd", points)
    dims = points.shape[1]
    per_axis = bins if isinstance(bins, (list, tuple)) else [bins] * dims
    ranges = range if range is not None else [None] * dims
    edges = [
        histogram_bin_edges(points[:, k], per_axis[k], ranges[k]) for k in builtins.range(dims)
    ]
    sizes = [e.shape[0] + 1 for e in edges]
    flat: Any = 0
    for k, e in enumerate(edges):
        at = searchsorted(e, points[:, k], "right")
        at = where(ufuncs.equal(points[:, k], e[-1]), at - 1, at)
        flat = flat * sizes[k] + at
    w = None if weights is None else promote_inexact("histogramdd", weights)[0]
    counts = reshape_to(bincount(flat, w, length=math.prod(sizes)), tuple(sizes))
    counts = counts[(slice(1, -1),) * dims]
    if density:
        counts = counts / sum_(counts)
        for k, e in enumerate(edges):
            width = convert(e[1:] - e[:-1], counts.dtype)
            shape = tuple([width.shape[0] if j == k else 1 for j in builtins.range(dims)])
            counts = counts / reshape_to(width, shape)
    return counts, edges


__all__ = ["bincount", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]
