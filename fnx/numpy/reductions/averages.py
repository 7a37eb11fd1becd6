"""Means, weighted ones too, variances and standard deviations over axes."""

import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    PYTHON,
    canonical_axes,
    convert,
    no_out,
    promote_inexact,
    reshape_to,
    strong,
    to_array,
)
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions.reduce import as_mask, keep, sum
from fnx.ops.base.broadcast import Sum, scalar
from fnx.ops.base.broadcast import broadcast_to as _broadcast_to
from fnx.ops.base.permute import Transpose
from fnx.ops.elementwise import arithmetic as ops

_WIDE = frozenset(np.dtype(d) for d in ("f4", "f8", "c8", "c16"))


def _size(x: Array, axes: tuple[int, ...], dtype: np.dtype) -> Array:
    """How many elements lie along axes."""
    return scalar(math.prod([x.shape[k] for k in axes]), dtype)


def _count(x: Array, axes: tuple[int, ...], where: Any, keepdims: bool, dtype: np.dtype) -> Array:
    if where is None:
        return _size(x, axes, dtype)
    mask = _broadcast_to(as_mask("mean", where), x.shape)
    return sum(mask, axes, dtype, keepdims=keepdims)


def mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None):
    """The mean over axes, by default all.

    >>> jnp.mean(jnp.arange(4))
    Array(1.5, dtype=float64)
    """
    no_out("mean", out)
    x = to_array(a, "mean")
    axes = canonical_axes(axis, x.ndim)
    if dtype is None and where is None and x.dtype in _WIDE:
        total = keep(strong(Sum(axes)(x) if axes else x), x, axes, keepdims)
        return ops.div(total, _size(x, axes, x.dtype))
    final = dtypes.canonical(dtype) if dtype is not None else dtypes.to_inexact(x.dtype)
    wide = dtypes.float32 if dtypes.is_float(final) and final.itemsize < 4 else final
    total = sum(x, axes, wide, keepdims=keepdims, where=where)
    if not dtypes.is_inexact(final):  # the sum is one of integers, as NumPy's
        wide = dtypes.default_for("f")
        total = convert(total, wide)
    count = _count(x, axes, where, keepdims, wide)
    return convert(ufuncs.true_divide(total, count), final)


def average(a, axis=None, weights=None, returned=False, keepdims=False):
    """The mean over axes, weighted.

    ValueError for weights of another shape than the array's or its axes'.

    >>> jnp.average(jnp.array([1.0, 2.0, 6.0]), weights=jnp.array([2.0, 1.0, 1.0]))
    Array(2.5, dtype=float64)
    """
    if weights is None:
        out = mean(a, axis, keepdims=keepdims)
        x = to_array(a, "average")
        total = _count(x, canonical_axes(axis, x.ndim), None, keepdims, out.dtype)
    else:
        x, w = promote_inexact("average", a, weights)
        axes = canonical_axes(axis, x.ndim)
        if w.shape != x.shape:
            if axis is None or w.shape != tuple([x.shape[k] for k in axes]):
                raise InvalidValue(
                    f"average of shape {x.shape} over axis {axis} with weights of shape {w.shape}; "
                    "expected the array's shape, or that of the axes"
                )
            w = Transpose(tuple(np.argsort(axes).tolist()))(w)
            w = reshape_to(w, tuple([n if k in axes else 1 for k, n in enumerate(x.shape)]))
            w = _broadcast_to(w, x.shape)
        total = sum(w, axes, keepdims=keepdims)
        out = ufuncs.true_divide(sum(ops.mul(x, w), axes, keepdims=keepdims), total)
    return (out, _broadcast_to(total, out.shape)) if returned else out


@replayed()
def var(
    a,
    axis=None,
    dtype=None,
    out=None,
    ddof=0,
    keepdims=False,
    *,
    where=None,
    mean=None,
    correction=None,
):
    """The mean square of the distance to the mean; divided by the count less `ddof`.

    ValueError for both `ddof` and `correction`, and for a dtype that is no inexact one.

    >>> jnp.var(jnp.array([1.0, 3.0]))
    Array(1., dtype=float64)
    """
    no_out("var", out)
    if correction is not None:
        if type(ddof) in PYTHON and ddof:
            raise InvalidValue("variance with both ddof= and correction=; expected one of the two")
        ddof = correction
    (x,) = promote_inexact("var", a)
    axes = canonical_axes(axis, x.ndim)
    x, result_dtype = _for_variance(x, dtype)
    if mean is None:
        center = _mean(x, axes, where)
    else:
        center = to_array(mean, "var")
        if center.dtype.itemsize < x.dtype.itemsize:
            center = convert(center, x.dtype)
    delta = ufuncs.subtract(x, center)
    if dtypes.is_complex(x.dtype):
        delta = ops.real(ops.mul(delta, ops.conj(delta)))
    else:
        delta = ops.square(delta)
    total = sum(delta, axes, keepdims=keepdims, where=where)
    if where is None and type(ddof) in PYTHON:
        left = math.prod([x.shape[k] for k in axes]) - ddof
        divisor = scalar(float(left) if left > 0 else math.nan, total.dtype)
        return convert(ops.div(total, divisor), result_dtype)
    count = ufuncs.subtract(_count(x, axes, where, keepdims, delta.dtype), ddof)
    out = ufuncs.true_divide(total, count)
    # Without degrees of freedom there is no estimate.
    out = ufuncs.where3(ufuncs.greater(count, 0), out, math.nan)
    return convert(out, result_dtype)


def _for_variance(x: Array, dtype: Any) -> tuple[Array, Any]:
    """The elements in the dtype that sums are made in, and the dtype of the result."""
    narrow = dtypes.is_float(x.dtype) and x.dtype.itemsize < 4
    wide = convert(x, dtypes.float32) if narrow else x
    if dtype is None:
        return wide, dtypes.real_of(x.dtype)
    final = dtypes.canonical(dtype)
    if not dtypes.is_inexact(final):
        raise InvalidValue(f"variance with dtype={final}; expected a floating-point dtype")
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(final):
        raise InvalidValue(
            f"variance of dtype {x.dtype} with dtype={final}; expected a complex dtype"
        )
    pair = ((wide.dtype, False), (final, False))
    return convert(wide, dtypes.promote_cached(pair, False)[0]), final


def _mean(x: Array, axes: tuple[int, ...], where: Any) -> Array:
    return mean(x, axes, keepdims=True, where=where)


@replayed()
def std(
    a,
    axis=None,
    dtype=None,
    out=None,
    ddof=0,
    keepdims=False,
    *,
    where=None,
    mean=None,
    correction=None,
):
    """The standard deviation over axes, by default all: the square root of `var`, with its arguments.

    >>> jnp.std(jnp.array([1.0, 3.0]))
    Array(1., dtype=float64)
    """
    no_out("std", out)
    return ufuncs.sqrt(
        var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    )


__all__ = [
    "average",
    "mean",
    "std",
    "var",
]
