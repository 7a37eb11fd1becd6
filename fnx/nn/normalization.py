"""Functions of whole axes: softmax and its logarithm, logsumexp, standardize, one_hot."""

import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.source import warn_user
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.util import (
    canonical_axes,
    canonical_axis,
    convert,
    integer,
    promote_inexact,
    times_strong,
    to_array,
)
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.reductions import averages, reduce
from fnx.ops.base.broadcast import broadcast_to, insert_axes
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.structure.join import Iota


def logsumexp(a, axis=None, b=None, keepdims=False, return_sign=False, where=None):
    """log(sum(b * exp(a))) over axes, without overflow.

    With `return_sign` also the sign of the sum, whose size the logarithm then is of.

    >>> fnx.nn.logsumexp(jnp.array([1000.0, -jnp.inf]))
    Array(1000., dtype=float64)
    """
    if b is None:
        (x,) = promote_inexact("logsumexp", a)
        weights = None
    else:
        x, weights = promote_inexact("logsumexp", a, b)
        x = u.where3(weights != 0, x, -math.inf)
    axes = canonical_axes(axis, x.ndim)
    if where is not None:
        x = u.where3(u.truth(where), x, -math.inf)
    real = u.real(x)
    top = reduce.max(real, axes, keepdims=True, initial=-math.inf)
    top = ops.stop_gradient(u.where3(u.isfinite(top), top, 0.0))
    terms = u.exp(u.subtract(times_strong(x), convert(top, x.dtype)))
    if weights is not None:
        terms = u.multiply(terms, weights)
    total = reduce.sum(terms, axes, keepdims=True)
    sign = u.sign(total)
    if return_sign or weights is not None:
        size = u.abs(total)
    else:
        size = total
    out = u.add(u.log(size), convert(top, size.dtype))
    if weights is not None and not return_sign:
        out = u.where3(u.real(sign) < 0, math.nan, out)
    if not keepdims:
        shape = tuple([n for k, n in enumerate(x.shape) if k not in axes])
        out, sign = out.reshape(shape), sign.reshape(shape)
    return (out, sign) if return_sign else out


def logmeanexp(x, axis=None, where=None, keepdims=False):
    """log(mean(exp(x))) over axes, without overflow.

    >>> fnx.nn.logmeanexp(jnp.array([1000.0, 1000.0]))
    Array(1000., dtype=float64)
    """
    x = to_array(x, "logmeanexp")
    total = logsumexp(x, axis, where=where, keepdims=keepdims)
    if where is None:
        count: Any = math.prod([x.shape[k] for k in canonical_axes(axis, x.ndim)])
        return total - math.log(count)
    mask = broadcast_to(u.truth(where), x.shape)
    return total - u.log(reduce.sum(mask, axis, keepdims=keepdims))


def softmax(x, axis=-1, where=None, initial=-math.inf):
    """exp(x) / sum(exp(x)) along axes.

    >>> fnx.nn.softmax(jnp.zeros(2))
    Array([0.5, 0.5], dtype=float64)
    """
    (x,) = promote_inexact("softmax", x)
    axes = canonical_axes(axis, x.ndim)
    top = ops.stop_gradient(reduce.max(x, axes, keepdims=True, initial=initial, where=where))
    if where is not None:
        x = u.where3(u.truth(where), x, -math.inf)
    terms = u.exp(u.subtract(x, top))
    out = u.true_divide(terms, reduce.sum(terms, axes, keepdims=True, where=where))
    return out if where is None else u.where3(u.truth(where), out, 0.0)


def log_softmax(x, axis=-1, where=None, initial=-math.inf):
    """The logarithm of `softmax`, without cancellation.

    >>> fnx.nn.log_softmax(jnp.array([0.0, 0.0]))
    Array([-0.69314718, -0.69314718], dtype=float64)
    """
    (x,) = promote_inexact("log_softmax", x)
    axes = canonical_axes(axis, x.ndim)
    top = ops.stop_gradient(reduce.max(x, axes, keepdims=True, initial=initial, where=where))
    if where is not None:
        x = u.where3(u.truth(where), x, -math.inf)
    shifted = u.subtract(x, top)
    total = reduce.sum(u.exp(shifted), axes, keepdims=True, where=where)
    out = u.subtract(shifted, u.log(total))
    return out if where is None else u.where3(u.truth(where), out, -math.inf)


def standardize(
    x, axis=-1, mean=None, variance=None, epsilon=1e-5, where=None, *, algorithm="fast"
):
    """x less its mean, divided by the square root of its variance + epsilon.

    ValueError for an unknown algorithm.

    >>> fnx.nn.standardize(jnp.array([1.0, 2.0, 3.0]), epsilon=0.0)
    Array([-1.22474487,  0.        ,  1.22474487], dtype=float64)
    """
    (x,) = promote_inexact("standardize", x)
    axes = canonical_axes(axis, x.ndim)
    if mean is None:
        mean = averages.mean(x, axes, keepdims=True, where=where)
    if variance is None:
        if algorithm not in ("fast", "stable"):
            raise InvalidValue(
                f"standardize with algorithm={algorithm!r}; expected 'fast' or 'stable'"
            )
        # The difference of squares, which "fast" means, cancels; two passes cost as little here.
        variance = averages.mean(u.square(u.subtract(x, mean)), axes, keepdims=True, where=where)
    return u.multiply(u.subtract(x, mean), ops.rsqrt(u.add(variance, epsilon)))


def one_hot(x, num_classes, *, dtype=None, axis=-1):
    """For each number k a vector that is 1 at place k and 0 elsewhere; numbers outside give zeros.

    >>> fnx.nn.one_hot(jnp.array([0, 2]), 3)
    Array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float64)
    """
    x = array(x) if isinstance(x, (list, tuple)) else to_array(x, "one_hot")
    if not dtypes.is_integer(x.dtype):
        if x.dtype == dtypes.bool_:
            raise TypeMismatch("one_hot of bools; expected integers: x.astype(int)")
        warn_user(f"one_hot of dtype {x.dtype}; expected integers", DeprecationWarning)
    n = integer(num_classes, "num_classes")
    if dtypes.is_integer(x.dtype) and n > dtypes.iinfo(x.dtype).max:
        x = convert(x, np.dtype(np.int64))
    k = canonical_axis(axis, x.ndim + 1)
    wanted = dtypes.canonical(float if dtype is None else dtype)
    shape = (*x.shape[:k], n, *x.shape[k:])
    wide = broadcast_to(insert_axes(x, (k,)), shape)
    places = Iota(k, x.dtype if dtypes.is_integer(x.dtype) else np.dtype(np.int64), shape)()
    return convert(u.equal(wide, places), wanted)


__all__ = ["log_softmax", "logmeanexp", "logsumexp", "one_hot", "softmax", "standardize"]
