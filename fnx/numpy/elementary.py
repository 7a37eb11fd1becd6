"""Powers, exponentials, trigonometry and complex parts, element by element."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import InvalidValue
from fnx.numpy.arithmetic import float_binary, imag, one, real, times, zero
from fnx.numpy.rounding import trunc
from fnx.numpy.util import (
    constant,
    convert,
    fit,
    named,
    no_out,
    promote_inexact,
    select,
    to_array,
    to_arrays,
    ufunc_operands,
)
from fnx.ops import elementwise as ops
from fnx.ops.broadcast import full

# --- what they are made of ----------------------------------------------------------------------


def _float_unary(name: str, prim: Any, doc: str) -> Callable:
    @named(name, doc)
    def fn(x, /):
        if type(x) is not ConcreteArray or x.dtype.kind not in "fc":
            (x,) = promote_inexact(name, x)
        return prim(x)

    return fn


arctan2 = float_binary("arctan2", ops.atan2, "The angle of the point (x2, x1), in (-pi, pi].")
atan2 = arctan2


def nextafter(x, y, /):
    """The next float after x towards y."""
    return ops.nextafter(*fit("nextafter", promote_inexact("nextafter", x, y)))


# --- exponentials, trigonometry ----------------------------------------------------------------

sqrt = _float_unary(
    "sqrt",
    ops.sqrt,
    """The square root.

    >>> jnp.sqrt(jnp.array([1.0, 4.0]))
    Array([1., 2.], dtype=float64)
    """,
)
cbrt = _float_unary("cbrt", ops.cbrt, "The cube root.")
exp = _float_unary(
    "exp",
    ops.exp,
    """e ** x.

    >>> jnp.exp(0.0)
    Array(1., dtype=float64, weak_type=True)
    """,
)
exp2 = _float_unary("exp2", ops.exp2, "2 ** x.")
expm1 = _float_unary("expm1", ops.expm1, "exp(x) - 1, exact for small x.")
log = _float_unary(
    "log",
    ops.log,
    """The natural logarithm.

    >>> jnp.log(jnp.array([1.0, jnp.inf]))
    Array([ 0., inf], dtype=float64)
    """,
)
log1p = _float_unary(
    "log1p",
    ops.log1p,
    """log(1 + x), exact for small x.

    >>> jnp.log1p(1e-20)
    Array(1.e-20, dtype=float64, weak_type=True)
    """,
)
sin = _float_unary(
    "sin",
    ops.sin,
    """The sine of x in radians.

    >>> jnp.sin(0.0)
    Array(0., dtype=float64, weak_type=True)
    """,
)
cos = _float_unary(
    "cos",
    ops.cos,
    """The cosine of x in radians.

    >>> jnp.cos(0.0)
    Array(1., dtype=float64, weak_type=True)
    """,
)
tan = _float_unary("tan", ops.tan, "The tangent of x in radians.")
arcsin = _float_unary("arcsin", ops.asin, "The angle whose sine is x.")
arccos = _float_unary("arccos", ops.acos, "The angle whose cosine is x.")
arctan = _float_unary("arctan", ops.atan, "The angle whose tangent is x.")
sinh = _float_unary("sinh", ops.sinh, "The hyperbolic sine.")
cosh = _float_unary("cosh", ops.cosh, "The hyperbolic cosine.")
tanh = _float_unary(
    "tanh",
    ops.tanh,
    """The hyperbolic tangent.

    >>> jnp.tanh(jnp.array([0.0, 100.0]))
    Array([0., 1.], dtype=float64)
    """,
)
arcsinh = _float_unary("arcsinh", ops.asinh, "The inverse of the hyperbolic sine.")
arccosh = _float_unary("arccosh", ops.acosh, "The inverse of the hyperbolic cosine.")
arctanh = _float_unary("arctanh", ops.atanh, "The inverse of the hyperbolic tangent.")
asin, acos, atan = arcsin, arccos, arctan
asinh, acosh, atanh = arcsinh, arccosh, arctanh


def _scaled(name: str, inner: Callable | None, factor: float, doc: str) -> Callable:
    @named(name, doc)
    def fn(x, /):
        (x,) = promote_inexact(name, x)
        return times(x if inner is None else inner(x), factor)

    return fn


def log2(x, /):
    """The logarithm to base 2."""
    (x,) = promote_inexact("log2", x)
    return ops.div(ops.log(x), constant(math.log(2), x.dtype))


def log10(x, /):
    """The logarithm to base 10."""
    (x,) = promote_inexact("log10", x)
    return ops.div(ops.log(x), constant(math.log(10), x.dtype))


deg2rad = _scaled("deg2rad", None, math.pi / 180, "Degrees as radians.")
rad2deg = _scaled("rad2deg", None, 180 / math.pi, "Radians as degrees.")
radians, degrees = deg2rad, rad2deg


def sinc(x, /):
    """sin(pi x) / (pi x), 1 at 0."""
    (x,) = promote_inexact("sinc", x)
    pi_x = times(x, math.pi)
    # Near 0 the series, so that derivatives are right there too.
    near = ops.lt(ops.abs_(pi_x), constant(0.5, dtypes.real_of(x.dtype)))
    safe = select(near, one(x), pi_x)
    square, series = ops.square(pi_x), one(x)
    for k in range(7, 0, -1):
        share = ops.mul(square, constant(-1 / (2 * k * (2 * k + 1)), x.dtype))
        series = ops.add(one(x), ops.mul(share, series))
    return select(near, series, ops.div(ops.sin(safe), safe))


def hypot(x1, x2, /):
    """sqrt(x1**2 + x2**2) without overflow on the way."""
    x, y = fit("hypot", promote_inexact("hypot", x1, x2))
    if dtypes.is_complex(x.dtype):
        raise InvalidValue("hypot is not defined for complex numbers")
    x, y = ops.abs_(x), ops.abs_(y)
    big, small = _ordered(x, y)
    ratio = ops.div(small, select(ops.eq(big, zero(big)), one(big), big))
    out = ops.mul(big, ops.sqrt(ops.add(ops.square(ratio), one(big))))
    infinite = constant(math.inf, big.dtype)
    return select(ops.eq(big, infinite), infinite, out)


def logaddexp(*args, out=None, where=None):
    """log(exp(x1) + exp(x2)) without overflow."""
    operands = ufunc_operands("logaddexp", args, 2, out, where)
    x, y = fit("logaddexp", promote_inexact("logaddexp", *operands))
    return _logaddexp(x, y, ops.exp, ops.log1p, 1.0)


def logaddexp2(*args, out=None, where=None):
    """log2(2**x1 + 2**x2) without overflow."""
    operands = ufunc_operands("logaddexp2", args, 2, out, where)
    x, y = fit("logaddexp2", promote_inexact("logaddexp2", *operands))
    log2_1p = lambda z: ops.div(ops.log1p(z), constant(math.log(2), z.dtype))
    return _logaddexp(x, y, ops.exp2, log2_1p, 1 / math.log(2))


def _logaddexp(x: Array, y: Array, exp_: Callable, log1p_: Callable, scale: float) -> Array:
    if dtypes.is_complex(x.dtype):
        first = ops.gt(ops.real(x), ops.real(y))
        big = select(first, x, y)
        delta = ops.sub(select(first, y, x), big)
        out = ops.add(big, log1p_(exp_(delta)))
        turn = constant(2 * math.pi * scale, dtypes.real_of(x.dtype))
        angle = ops.imag(out)  # the principal one
        half = ops.mul(turn, constant(0.5, turn.dtype))
        turns = ops.floor(ops.div(ops.sub(half, angle), turn))
        return ops.complex_(ops.real(out), ops.add(angle, ops.mul(turns, turn)))
    big, small = _ordered(x, y)
    delta = ops.sub(small, big)
    # nan where both are the same infinity, or either is nan: their sum says which.
    return select(ops.ne(delta, delta), ops.add(x, y), ops.add(big, log1p_(exp_(delta))))


def _ordered(x: Array, y: Array) -> tuple[Array, Array]:
    """The larger and the smaller, chosen together: functions of both stay smooth where they are equal."""
    first = ops.ge(x, y)
    return select(first, x, y), select(first, y, x)


def heaviside(x1, x2, /):
    """0 for x1 < 0, x2 at 0, 1 for x1 > 0."""
    x, y = fit("heaviside", promote_inexact("heaviside", x1, x2))
    step = select(ops.lt(x, zero(x)), zero(x), select(ops.gt(x, zero(x)), one(x), y))
    return select(ops.ne(x, x), x, step)


def copysign(x1, x2, /):
    """x1 with the sign of x2."""
    x, y = fit("copysign", promote_inexact("copysign", x1, x2))
    size = ops.abs_(x)
    return select(signbit(y), ops.neg(size), size)


def signbit(x, /):
    """Whether the sign bit is set."""
    x = to_array(x, "signbit")
    kind = dtypes.kind(x.dtype)
    if kind in "bu":
        return full(x.shape, False, dtypes.bool_)
    if kind == "f":
        bits = ops.BitcastConvertType(np.dtype(f"i{x.dtype.itemsize}"))(x)
        return ops.lt(bits, zero(bits))
    return ops.lt(x, zero(x))


def ldexp(x1, x2, /):
    """x1 * 2 ** x2."""
    x1, x2 = to_arrays("ldexp", x1, x2)
    (x,) = promote_inexact("ldexp", x1)
    x, n = fit("ldexp", [x, convert(x2, x.dtype)])
    # In two steps, since 2 ** n may overflow where the product does not.
    half = ops.floor(times(n, 0.5))
    rest = ops.sub(n, half)
    out = ops.mul(ops.mul(x, ops.exp2(half)), ops.exp2(rest))
    return select(ops.eq(x, zero(x)), x, out)


def frexp(x, /):
    """Mantissa in [0.5, 1) and exponent with x = mantissa * 2 ** exponent."""
    (x,) = promote_inexact("frexp", x)
    size = ops.abs_(x)
    plain = ops.and_(ops.is_finite(x), ops.ne(x, zero(x)))
    safe = select(plain, size, one(x))
    n = ops.add(ops.floor(log2(safe)), one(x))
    m = ldexp(safe, ops.neg(n))
    high, low = ops.ge(m, one(m)), ops.lt(m, constant(0.5, m.dtype))
    m = select(high, times(m, 0.5), select(low, times(m, 2), m))
    n = select(high, ops.add(n, one(n)), select(low, ops.sub(n, one(n)), n))
    m = select(plain, ops.mul(m, ops.sign(x)), x)
    return m, convert(select(plain, n, zero(n)), dtypes.int32)


def modf(x, /, out=None):
    """Fraction and integer part, both with the sign of x."""
    no_out("modf", out)
    (x,) = promote_inexact("modf", x)
    whole = trunc(x)
    fraction = select(ops.is_finite(x), ops.sub(x, whole), select(ops.ne(x, x), x, zero(x)))
    return copysign(fraction, x), whole


# --- complex numbers ---------------------------------------------------------------------------


def angle(z, deg=False):
    """The argument of complex numbers, in (-pi, pi]."""
    (z,) = promote_inexact("angle", z)
    re = real(z)
    im = imag(z)
    out = ops.atan2(im, re)
    return rad2deg(out) if deg else out


__all__ = [
    "acos",
    "acosh",
    "angle",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "copysign",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "exp",
    "exp2",
    "expm1",
    "frexp",
    "heaviside",
    "hypot",
    "ldexp",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logaddexp2",
    "modf",
    "nextafter",
    "rad2deg",
    "radians",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
