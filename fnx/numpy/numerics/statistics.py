"""Statistics: quantiles and medians, covariances and correlations."""

import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, MissingRule
from fnx.numpy.algebra.products import dot
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    canonical_axes,
    convert,
    no_out,
    promote_inexact,
    reshape_to,
    strong,
    to_array,
)
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions import averages, cumulative, reduce
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.selection import take_along_axis, where
from fnx.numpy.structure.shapes import moveaxis
from fnx.numpy.structure.sorting import argsort, sort
from fnx.ops.base.broadcast import broadcast_to, scalar
from fnx.ops.elementwise import arithmetic as ops

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


@replayed("q")
def quantile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input=False,
    method="linear",
    keepdims=False,
    *,
    weights=None,
):
    """The values below which a share q of the elements lies, along axes, by default all.

    The axes of q come first in the result. `method` is 'linear', 'lower', 'higher', 'midpoint', 'nearest'
    or, which `weights` ask for, 'inverted_cdf'. ValueError for another one, and for complex numbers.

    >>> jnp.quantile(jnp.array([1.0, 2.0, 3.0]), 0.5)
    Array(2., dtype=float64)
    """
    no_out("quantile", out)
    return _quantile(a, q, axis, method, keepdims, weights, skip_nan=False)


@replayed("q")
def nanquantile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input=False,
    method="linear",
    keepdims=False,
    *,
    weights=None,
):
    """`quantile` of what is not nan; nan where nothing is left.

    >>> jnp.nanquantile(jnp.array([1.0, jnp.nan, 2.0, 3.0]), 0.5)
    Array(2., dtype=float64)
    """
    no_out("nanquantile", out)
    return _quantile(a, q, axis, method, keepdims, weights, skip_nan=True)


@replayed("q")
def percentile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input=False,
    method="linear",
    keepdims=False,
    *,
    weights=None,
    out_sharding=None,
):
    """The values below which q percent of the elements lie: `quantile` of q / 100, which see.

    >>> jnp.percentile(jnp.array([0.0, 10.0, 20.0]), jnp.array([25, 50]))
    Array([ 5., 10.], dtype=float64)
    """
    no_out("percentile", out)
    return _quantile(a, _percent(q), axis, method, keepdims, weights, skip_nan=False)


@replayed("q")
def nanpercentile(
    a,
    q,
    axis=None,
    out=None,
    overwrite_input=False,
    method="linear",
    keepdims=False,
    *,
    weights=None,
):
    """`percentile` of what is not nan; nan where nothing is left.

    >>> jnp.nanpercentile(jnp.array([0.0, jnp.nan, 20.0]), 25)
    Array(5., dtype=float64)
    """
    no_out("nanpercentile", out)
    return _quantile(a, _percent(q), axis, method, keepdims, weights, skip_nan=True)


def _percent(q: Any) -> Array:
    q = array(q) if isinstance(q, (list, tuple)) else q
    return ufuncs.divide(to_array(q, "percentile"), 100)


@replayed()
def median(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    """The middle value, or the mean of the two middle ones.

    >>> jnp.median(jnp.array([7.0, 1.0, 3.0, 5.0]))
    Array(4., dtype=float64)
    """
    no_out("median", out)
    return _quantile(a, 0.5, axis, "midpoint", keepdims, None, skip_nan=False)


@replayed()
def nanmedian(a, axis=None, out=None, overwrite_input=False, keepdims=False):
    """`median` of what is not nan.

    >>> jnp.nanmedian(jnp.array([7.0, jnp.nan, 3.0]))
    Array(5., dtype=float64)
    """
    no_out("nanmedian", out)
    return strong(_quantile(a, 0.5, axis, "midpoint", keepdims, None, skip_nan=True))


def _quantile(
    a: Any, q: Any, axis: Any, method: str, keepdims: bool, weights: Any, skip_nan: bool
) -> Array:
    if method not in _METHODS:
        raise InvalidValue(
            f"quantile with method={method!r}; expected one of {', '.join(_METHODS)}"
        )
    if weights is not None and method != "inverted_cdf":
        raise MissingRule(
            f"quantile with weights and method={method!r}; expected method='inverted_cdf'"
        )
    if isinstance(a, (list, tuple)):
        a = array(a)
    if isinstance(q, (list, tuple)):
        q = array(q)
    w = None if weights is None else to_array(weights, "quantile")
    x, *_ = promote_inexact("quantile", a, *(() if w is None else (w,)))
    final = x.dtype  # whatever the dtype of q
    narrow = dtypes.is_float(final) and final.itemsize < 4
    x, q = promote_inexact(
        "quantile", convert(x, dtypes.float32) if narrow else x, q, strictly=False
    )
    if dtypes.is_complex(x.dtype):
        raise InvalidValue(
            "quantiles of complex numbers are not defined; take real or imaginary parts"
        )
    axes = canonical_axes(axis, x.ndim)
    kept = tuple([1 if k in axes else n for k, n in enumerate(x.shape)])
    rest = [k for k in range(x.ndim) if k not in axes]
    lead = tuple([x.shape[k] for k in rest])
    flat = moveaxis(x, axes, range(len(rest), x.ndim)) if axes else x
    flat = reshape_to(flat, (*lead, math.prod([x.shape[k] for k in axes])))
    qs = reshape_to(q, (q.aval.size,))
    if method == "inverted_cdf":
        w = None if w is None else convert(_weights(w, x, axes, flat.shape), x.dtype)
        out = _by_weight(flat, qs, w, skip_nan)
    else:
        out = _by_rank(flat, qs, method, skip_nan)
    out = convert(moveaxis(out, -1, 0), final)
    shape = kept if keepdims else lead
    return reshape_to(out, (*q.shape, *shape))


def _by_rank(x: Array, qs: Array, method: str, skip_nan: bool) -> Array:
    """Quantiles along the last axis, one for each q, as the last axis."""
    n = x.shape[-1]
    x = sort(x)
    dtype = x.dtype
    bad = ops.ne(x, x)
    if skip_nan:
        good = reduce.sum(convert(ops.not_(bad), dtype), axis=-1, keepdims=True)
        top = ufuncs.maximum(good - 1.0, 0.0)
        place = ufuncs.multiply(qs, top)
    else:
        place = ufuncs.multiply(qs, convert(scalar(n - 1, dtype), dtype))
        place = broadcast_to(place, (*x.shape[:-1], qs.shape[0]))
    low, high = ufuncs.floor(place), ufuncs.ceil(place)
    share = ufuncs.subtract(place, low)
    at = lambda p: take_along_axis(
        x, convert(ufuncs.clip(p, 0, n - 1), np.dtype(np.int64)), -1, mode="clip"
    )
    below, above = at(low), at(high)
    if method == "lower":
        out = below
    elif method == "higher":
        out = above
    elif method == "nearest":
        out = where(ufuncs.less_equal(share, 0.5), below, above)
    elif method == "midpoint":
        out = ufuncs.multiply(ufuncs.add(below, above), 0.5)
    else:
        out = ufuncs.add(ufuncs.multiply(below, 1.0 - share), ufuncs.multiply(above, share))
    if skip_nan:
        return out
    some = reduce.any(bad, axis=-1, keepdims=True)
    return ufuncs.where3(some, scalar(math.nan, dtype), out)


def _weights(w: Array, x: Array, axes: tuple, shape: tuple) -> Array:
    """Weights of all elements, or of those along the axes, in rows as the elements are."""
    along = tuple([x.shape[k] for k in axes])
    if dtypes.is_complex(w.dtype) or w.shape not in (x.shape, along):
        raise InvalidValue(
            f"quantile with weights of shape {w.shape} and dtype {w.dtype} for an array of {x.shape}; "
            f"expected real ones of its shape, or of the shape along the axes, {along}"
        )
    if w.shape == x.shape:
        w = moveaxis(w, axes, range(x.ndim - len(axes), x.ndim)) if axes else w
        return reshape_to(w, shape)
    return broadcast_to(reshape_to(w, shape[-1:]), shape)


def _by_weight(x: Array, qs: Array, w: Array | None, skip_nan: bool) -> Array:
    """Quantiles along the last axis by the inverse of the cumulative distribution of weights."""
    if w is None:
        w = broadcast_to(scalar(1, x.dtype), x.shape)
    order = argsort(x)
    x, w = (take_along_axis(z, order, -1, mode="clip") for z in (x, w))
    bad, missing = ops.or_(ufuncs.less(w, 0), ops.ne(w, w)), ops.ne(x, x)
    w = ufuncs.where3(ops.or_(bad, missing), scalar(0, w.dtype), w)
    total = cumulative.cumsum(w, axis=-1)
    target = ufuncs.multiply(qs, total[..., -1:])
    before = ufuncs.less(total[..., None, :], target[..., None])
    valid = reduce.sum(convert(ops.not_(missing), np.dtype(np.int64)), axis=-1, keepdims=True)
    last = ufuncs.maximum(valid - 1, 0)
    at = ufuncs.minimum(reduce.sum(convert(before, last.dtype), axis=-1), last)
    lost = (
        ops.eq(valid, scalar(0, valid.dtype))
        if skip_nan
        else reduce.any(missing, -1, keepdims=True)
    )
    lost = ops.or_(lost, reduce.any(bad, axis=-1, keepdims=True))
    found = take_along_axis(x, at, -1, mode="clip")
    return ufuncs.where3(lost, scalar(math.nan, x.dtype), found)


@replayed()
def cov(m, y=None, rowvar=True, bias=False, ddof=None, fweights=None, aweights=None, dtype=None):
    """The covariance matrix of variables that are rows (or columns).

    ValueError for more than two axes, and for a dtype that is no inexact one.

    >>> jnp.cov(jnp.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float64)
    """
    x = to_array(m, "cov")
    if x.ndim > 2 or (y is not None and np.ndim(y) > 2):
        raise InvalidValue(f"cov of shape {x.shape}; expected at most 2 axes")
    (x,) = promote_inexact("cov", x)
    rows = lambda z: reshape_to(z, (1, z.aval.size)) if z.ndim < 2 else z if rowvar else z.T
    x = rows(x)
    if y is not None:
        x = concatenate([x, rows(promote_inexact("cov", y)[0])])
        (x,) = promote_inexact("cov", x)
    if dtype is not None:
        x = convert(x, dtypes.canonical(dtype))
        if not dtypes.is_inexact(x.dtype):
            raise InvalidValue(
                f"covariance with dtype={x.dtype}; expected a float or complex dtype"
            )
    if ddof is None:
        ddof = 0 if bias else 1
    w = None
    for given in (fweights, aweights):
        if given is not None:
            given = to_array(given, "cov")
            w = given if w is None else ufuncs.multiply(w, given)
    n = x.shape[1]
    if w is None:
        center = averages.mean(x, axis=1, keepdims=True)
        total: Any = n
        spread: Any = n - ddof if n > ddof else 0  # without degrees of freedom the result is nan
    else:
        center, total = averages.average(x, 1, w, True)
        center, total = center[:, None], total[0]
        share = (
            1.0
            if aweights is None
            else ufuncs.divide(reduce.sum(ufuncs.multiply(w, to_array(aweights))), total)
        )
        spread = ufuncs.subtract(total, ufuncs.multiply(ddof, share))
    delta = ufuncs.subtract(x, center)
    other = delta if w is None else ufuncs.multiply(delta, convert(w, delta.dtype))
    out = ufuncs.divide(dot(delta, ufuncs.conj(other).T), spread)
    return reshape_to(out, ()) if out.shape == (1, 1) else out


@replayed()
def corrcoef(x, y=None, rowvar=True, dtype=None):
    """The matrix of correlation coefficients.

    >>> jnp.corrcoef(jnp.array([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).round(6)
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float64)
    """
    c = cov(x, y, rowvar, dtype=dtype)
    if c.ndim == 0:
        return ufuncs.divide(c, c)
    d = ufuncs.sqrt(ufuncs.real(c[np.arange(c.shape[0]), np.arange(c.shape[0])]))
    c = ufuncs.divide(c, convert(ufuncs.multiply(d[:, None], d[None]), c.dtype))
    if dtypes.is_complex(c.dtype):
        return ops.complex_(ufuncs.clip(ops.real(c), -1, 1), ufuncs.clip(ops.imag(c), -1, 1))
    return ufuncs.clip(c, -1, 1)


__all__ = [
    "corrcoef",
    "cov",
    "median",
    "nanmedian",
    "nanpercentile",
    "nanquantile",
    "percentile",
    "quantile",
]
