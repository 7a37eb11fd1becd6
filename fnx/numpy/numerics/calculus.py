"""Numerical functions of samples: differences, integrals, interpolation, convolution."""

import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    canonical_axes,
    canonical_axis,
    convert,
    promote,
    promote_inexact,
    reshape_to,
    strong,
    to_array,
)
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions import reduce
from fnx.numpy.reductions.cumulative import cumsum
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.selection import take, where
from fnx.numpy.structure.shapes import moveaxis, ravel
from fnx.numpy.structure.sorting import searchsorted
from fnx.numpy.structure.tiling import flip
from fnx.ops.base.broadcast import broadcast_to, scalar
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.elementwise.special import bessel_i0e
from fnx.ops.linalg.conv_layout import ConvDimensionNumbers

# --- differences and integrals ------------------------------------------------------------------


def diff(a, n=1, axis=-1, prepend=None, append=None):
    """Differences of neighbours, n times.

    ValueError for negative n, and for arrays of rank 0.

    >>> jnp.diff(jnp.array([1, 4, 9]))
    Array([3, 5], dtype=int64)
    """
    x = to_array(a, "diff")
    if n < 0:
        raise InvalidValue(f"diff with n={n}; expected at least 0")
    if x.ndim == 0:
        raise InvalidValue("diff of an array of rank 0; expected an axis")
    k = canonical_axis(axis, x.ndim)
    if n == 0:
        return x
    parts = [x]
    for given, before in ((prepend, True), (append, False)):
        if given is not None:
            y = to_array(given, "diff")
            if y.ndim == 0:
                y = broadcast_to(y, tuple([1 if j == k else m for j, m in enumerate(x.shape)]))
            parts = [y, *parts] if before else [*parts, y]
    x = concatenate(parts, k)
    lead = (slice(None),) * k
    for _ in range(n):
        later, earlier = x[(*lead, slice(1, None))], x[(*lead, slice(None, -1))]
        x = ops.ne(later, earlier) if x.dtype == dtypes.bool_ else ops.sub(later, earlier)
    return x


def ediff1d(ary, to_end=None, to_begin=None):
    """Differences of neighbours of the flat array, with ends put on.

    >>> jnp.ediff1d(jnp.array([1, 4, 9]), to_end=0)
    Array([3, 5, 0], dtype=int64)
    """
    x = ravel(to_array(ary, "ediff1d"))
    parts = [x[1:] - x[:-1]]
    if to_begin is not None:
        parts.insert(0, ravel(to_array(to_begin, "ediff1d")))
    if to_end is not None:
        parts.append(ravel(to_array(to_end, "ediff1d")))
    joined = concatenate([convert(p, x.dtype) for p in parts])
    return joined if to_begin is to_end is None else strong(joined)


def gradient(f, *varargs, axis=None, edge_order=None):
    """Central differences inside, one-sided ones at the ends, for each axis.

    ValueError for another `edge_order` than 1 or 2, and for another number of spacings than
    axes.

    >>> jnp.gradient(jnp.array([0.0, 1.0, 4.0]))
    Array([1., 2., 3.], dtype=float64)
    """
    if edge_order not in (None, 1, 2):
        raise InvalidValue(f"gradient with edge_order={edge_order}; expected 1 or 2")
    (x,) = promote_inexact("gradient", f)
    axes = canonical_axes(axis, x.ndim)
    spacings = list(varargs) if varargs else [1.0]
    spacings = spacings * len(axes) if len(spacings) == 1 else spacings
    if len(spacings) != len(axes):
        raise InvalidValue(f"gradient with {len(varargs)} spacings for {len(axes)} axes")
    outs = [_gradient(x, h, k, edge_order or 1) for h, k in zip(spacings, axes)]
    return outs[0] if len(outs) == 1 else outs


def _gradient(x: Array, h: Any, axis: int, order: int) -> Array:
    n = x.shape[axis]
    if n < order + 1:
        raise InvalidValue(f"gradient along axis {axis} of size {n}; expected at least {order + 1}")
    lead = (slice(None),) * axis
    at = lambda a, b: x[(*lead, slice(a, b))]
    if np.ndim(h) == 0:
        inner = ufuncs.divide(at(2, None) - at(None, -2), 2.0 * h)
        if order == 1:
            first, last = ((at(1, 2) - at(0, 1)) / h, (at(n - 1, n) - at(n - 2, n - 1)) / h)
        else:
            first = (-1.5 * at(0, 1) + 2.0 * at(1, 2) - 0.5 * at(2, 3)) / h
            last = (0.5 * at(n - 3, n - 2) - 2.0 * at(n - 2, n - 1) + 1.5 * at(n - 1, n)) / h
        return concatenate([first, inner, last], axis)
    (places,) = promote_inexact("gradient", array(h) if isinstance(h, list) else h)
    d = reshape_to(
        places[1:] - places[:-1], tuple([n - 1 if k == axis else 1 for k in range(x.ndim)])
    )
    left, right = d[(*lead, slice(None, -1))], d[(*lead, slice(1, None))]
    inner = (
        -right / (left * (left + right)) * at(None, -2)
        + (right - left) / (left * right) * at(1, -1)
        + left / (right * (left + right)) * at(2, None)
    )
    if order == 1:
        first = (at(1, 2) - at(0, 1)) / d[(*lead, slice(0, 1))]
        last = (at(n - 1, n) - at(n - 2, n - 1)) / d[(*lead, slice(n - 2, n - 1))]
        return concatenate([first, inner, last], axis)
    a, b = d[(*lead, slice(0, 1))], d[(*lead, slice(1, 2))]
    first = (
        -(2 * a + b) / (a * (a + b)) * at(0, 1)
        + (a + b) / (a * b) * at(1, 2)
        - a / (b * (a + b)) * at(2, 3)
    )
    a, b = d[(*lead, slice(n - 3, n - 2))], d[(*lead, slice(n - 2, n - 1))]
    last = (
        b / (a * (a + b)) * at(n - 3, n - 2)
        - (a + b) / (a * b) * at(n - 2, n - 1)
        + (2 * b + a) / (b * (a + b)) * at(n - 1, n)
    )
    return concatenate([first, inner, last], axis)


@replayed("dx")
def trapezoid(y, x=None, dx=1.0, axis=-1):
    """The integral by the trapezoidal rule.

    >>> jnp.trapezoid(jnp.array([0.0, 1.0, 4.0]), x=jnp.array([0.0, 1.0, 2.0]))
    Array(3., dtype=float64)
    """
    if x is None:
        (y,) = promote_inexact("trapezoid", y)
        k = canonical_axis(axis, y.ndim)
        lead = (slice(None),) * k
        both = y[(*lead, slice(1, None))] + y[(*lead, slice(None, -1))]
        return 0.5 * reduce.sum(ufuncs.multiply(dx, both), axis=k)
    else:
        y, x = promote_inexact("trapezoid", y, x)
        if x.ndim == 1:
            y = moveaxis(y, axis, -1)
            width: Any = x[1:] - x[:-1]
        else:
            y, x = moveaxis(y, axis, -1), moveaxis(x, axis, -1)
            width = x[..., 1:] - x[..., :-1]
    return 0.5 * reduce.sum(ufuncs.multiply(width, y[..., 1:] + y[..., :-1]), axis=-1)


@replayed("discont", "period")
def unwrap(p, discont=None, axis=-1, period=2 * math.pi):
    """Angles without jumps of a period.

    >>> jnp.unwrap(jnp.array([0.0, 170.0, 350.0, 20.0]), period=360.0)
    Array([  0., 170., 350., 380.], dtype=float64)
    """
    x, full_turn = promote("unwrap", p, period)
    if x.ndim == 0:
        return x
    k = canonical_axis(axis, x.ndim)
    steps = diff(x, axis=k)
    discont = period / 2 if discont is None else discont
    # Of integers, turned by an integer period, the half that is not above it.
    half = full_turn / 2 if dtypes.is_inexact(x.dtype) else ufuncs.floor_divide(full_turn, 2)
    turned = ufuncs.subtract(ufuncs.remainder(steps + half, full_turn), half)
    if dtypes.is_inexact(x.dtype) or period % 2 == 0:
        turned = where(ufuncs.logical_and(turned == -half, steps > 0), half, turned)
    correction = where(ufuncs.abs(steps) < discont, 0, turned - steps)
    lead = (slice(None),) * k
    rest = x[(*lead, slice(1, None))] + cumsum(correction, axis=k)
    return concatenate([x[(*lead, slice(0, 1))], rest], k)


def interp(x, xp, fp, left=None, right=None, period=None):
    """Linear interpolation in a table of increasing xp.

    ValueError for complex positions, for xp and fp that are not vectors of one length, and for
    other ends than numbers or 'extrapolate'.

    >>> jnp.interp(jnp.array([0.5, 5.0]), jnp.array([0.0, 1.0, 2.0]), jnp.array([0.0, 10.0, 40.0]))
    Array([ 5., 40.], dtype=float64)
    """
    if isinstance(xp, (list, tuple)) or isinstance(fp, (list, tuple)):
        xp, fp = array(xp), array(fp)
    x, xp = promote_inexact("interp", x, xp)
    (fp,) = promote_inexact("interp", fp)
    if dtypes.is_complex(x.dtype):
        raise InvalidValue("interp at complex positions; expected real ones (fp may be complex)")
    for name, end in (("left", left), ("right", right)):
        if isinstance(end, str) and end != "extrapolate":
            raise InvalidValue(f"interp with {name}={end!r}; expected a number or 'extrapolate'")
    if xp.ndim != 1 or fp.shape != xp.shape:
        raise InvalidValue(
            f"interp with xp of shape {xp.shape} and fp of {fp.shape}; expected equal vectors"
        )
    if period is not None:
        from fnx.numpy.structure.sorting import argsort

        if np.ndim(period):
            raise InvalidValue(
                f"interp with a period of shape {np.shape(period)}; expected a number"
            )
        x, xp = ufuncs.remainder(x, period), ufuncs.remainder(xp, period)
        order = argsort(xp)
        xp, fp = take(xp, order, mode="clip"), take(fp, order, mode="clip")
        xp = concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = concatenate([fp[-1:], fp, fp[:1]])
        left = right = None
    n = xp.shape[0]
    if n == 1:
        inside = broadcast_to(fp[0], x.shape)
    else:
        i = ufuncs.clip(searchsorted(xp, x, side="right"), 1, n - 1)
        x0, y0 = take(xp, i - 1, mode="clip"), take(fp, i - 1, mode="clip")
        width, rise = take(xp, i, mode="clip") - x0, take(fp, i, mode="clip") - y0
        # Of two equal xp there is no slope.
        flat = ufuncs.abs(width) <= float(np.spacing(np.finfo(width.dtype).eps))
        inside = where(flat, y0, y0 + (x - x0) / where(flat, 1.0, width) * rise)
    ends = zip((left, right), (fp[0], fp[-1]))
    below, above = (
        inside if isinstance(given, str) else end if given is None else given for given, end in ends
    )
    return where(x < xp[0], below, where(x > xp[-1], above, inside))


# --- convolution -------------------------------------------------------------------------------


def _convolve(x: Array, y: Array, mode: str, dtype: Any) -> Array:
    """The full, same or valid part of sum_k x[i + k] y[k] over a reversed y."""
    from fnx.ops.linalg.convolution import ConvGeneralDilated  # most programs have no use for it

    n, k = x.shape[0], y.shape[0]
    lo, hi = {"full": (k - 1, k - 1), "same": (k // 2, k - 1 - k // 2), "valid": (0, 0)}[mode]
    numbers = ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2))
    whole = dtype is not None and not dtypes.is_inexact(dtype)  # the sums are then rounded
    made = None if whole else dtype
    conv = ConvGeneralDilated((1,), ((lo, hi),), (1,), (1,), numbers, 1, 1, made)
    out = conv(Reshape((1, 1, n))(x), Reshape((1, 1, k))(y))
    out = convert(ops.Round(0)(out), dtype) if whole else out
    return Reshape((n + lo + hi - k + 1,))(out)


def _prepared(name: str, a: Any, v: Any, mode: str) -> tuple[Array, Array]:
    if mode not in ("full", "same", "valid"):
        raise InvalidValue(f"{name} with mode={mode!r}; expected 'full', 'same' or 'valid'")
    x, y = promote_inexact(name, a, v)
    if x.ndim != 1 or y.ndim != 1 or not x.shape[0] or not y.shape[0]:
        raise InvalidValue(
            f"{name} of shapes {x.shape} and {y.shape}; expected vectors that are not empty"
        )
    return x, y


@replayed()
def convolve(a, v, mode="full", *, precision=None, preferred_element_type=None):
    """The convolution of two vectors.

    >>> jnp.convolve(jnp.array([1, 2, 3]), jnp.array([1, 1]))
    Array([1., 3., 5., 3.], dtype=float64)
    """
    x, y = _prepared("convolve", a, v, mode)
    if x.shape[0] < y.shape[0]:
        x, y = y, x
    wanted = None if preferred_element_type is None else dtypes.canonical(preferred_element_type)
    return _convolve(x, flip(y), mode, wanted)


@replayed()
def correlate(a, v, mode="valid", *, precision=None, preferred_element_type=None):
    """The cross-correlation of two vectors.

    >>> jnp.correlate(jnp.array([1, 2, 3, 4]), jnp.array([1, 10]))
    Array([21., 32., 43.], dtype=float64)
    """
    x, y = _prepared("correlate", a, v, mode)
    y = ufuncs.conj(y)
    turned = x.shape[0] < y.shape[0]
    if turned:
        x, y = y, x
    wanted = None if preferred_element_type is None else dtypes.canonical(preferred_element_type)
    out = _convolve(x, y, mode, wanted)
    return flip(out) if turned else out


# --- other -------------------------------------------------------------------------------------


def i0(x):
    """The modified Bessel function of the first kind, order 0.

    TypeError for complex numbers.

    >>> jnp.i0(jnp.array([0.0, 1.0]))
    Array([1.        , 1.26606588], dtype=float64)
    """
    (x,) = promote_inexact("i0", x)
    if dtypes.is_complex(x.dtype):
        raise TypeMismatch("i0 of complex numbers is not implemented")
    size = ops.mul(x, ops.sign(x))  # |x| with derivative 0 at 0, where i0 has its minimum
    return ops.mul(ops.exp(size), bessel_i0e(x))


def spacing(x, /):
    """The distance to the next larger float.

    >>> jnp.spacing(jnp.float64(1.0)) == jnp.finfo(jnp.float64).eps
    Array(True, dtype=bool)
    """
    (x,) = promote_inexact("spacing", x)
    if x.dtype == np.float16:  # as in NumPy, towards the next one above
        return ops.sub(ops.nextafter(x, scalar(math.inf, x.dtype)), x)
    size = ops.abs_(x)
    step = ops.sub(ops.nextafter(size, scalar(math.inf, x.dtype)), size)
    return where(ops.lt(x, scalar(0, x.dtype)), ops.neg(step), step)


__all__ = [
    "convolve",
    "correlate",
    "diff",
    "ediff1d",
    "gradient",
    "i0",
    "interp",
    "spacing",
    "trapezoid",
    "unwrap",
]
