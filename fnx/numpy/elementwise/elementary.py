"""Powers, exponentials, trigonometry and complex parts, element by element."""

import math
from collections.abc import Callable
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import FnxError, InvalidValue, TypeMismatch, hide_frames
from fnx.numpy.arrays.public_calls import as_one
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    beside_constants,
    constant,
    convert,
    fit,
    named,
    no_out,
    promote_inexact,
    select,
    shown,
    strong,
    times_strong,
    to_array,
    to_arrays,
    ufunc_operands,
)
from fnx.numpy.elementwise.arithmetic import (
    float_binary,
    imag,
    one,
    real,
    times,
    without_complex,
    zero,
)
from fnx.numpy.elementwise.rounding import trunc
from fnx.ops.base.broadcast import full
from fnx.ops.elementwise import arithmetic as ops

# --- what they are made of ----------------------------------------------------------------------


def _float_unary(name: str, prim: Any, what: str, given: str, gives: str) -> Callable:
    """A function of floats by its primitive, what it says of itself, and an example."""

    @named(name, shown(what, f"jnp.{name}(jnp.array({given}))", gives))
    def fn(x, /):
        try:
            if type(x) is not ConcreteArray or x.dtype.kind not in "fc":
                (x,) = promote_inexact(name, x)
            return prim(x)
        except FnxError as error:
            hide_frames(error)
            raise

    return fn


arctan2 = float_binary(
    "arctan2",
    ops.atan2,
    """The angle of the point (x2, x1), in (-pi, pi].

    >>> jnp.arctan2(jnp.array([0.0, 1.0]), jnp.array([1.0, 0.0])) / jnp.pi
    Array([0. , 0.5], dtype=float64)
    """,
)
atan2 = arctan2


def nextafter(x, y, /):
    """The next float after x towards y.

    >>> jnp.nextafter(jnp.float64(1.0), 2.0) - 1 == jnp.finfo(float).eps
    Array(True, dtype=bool)
    """
    return ops.nextafter(*fit("nextafter", promote_inexact("nextafter", x, y)))


# --- exponentials, trigonometry ----------------------------------------------------------------

sqrt = _float_unary("sqrt", ops.sqrt, "The square root.", "[1.0, 4.0]", "[1., 2.]")
cbrt = _float_unary("cbrt", ops.cbrt, "The cube root.", "[8.0, -27.0]", "[ 2., -3.]")
exp = _float_unary("exp", ops.exp, "e ** x.", "[0.0, -jnp.inf]", "[1., 0.]")
exp2 = _float_unary("exp2", ops.exp2, "2 ** x.", "[3.0, -1.0]", "[8. , 0.5]")
expm1 = _float_unary("expm1", ops.expm1, "exp(x) - 1, exact for small x.", "[1e-20]", "[1.e-20]")
log = _float_unary("log", ops.log, "The natural logarithm.", "[1.0, jnp.inf]", "[ 0., inf]")
log1p = _float_unary("log1p", ops.log1p, "log(1 + x), exact for small x.", "[1e-20]", "[1.e-20]")
sin = _float_unary("sin", ops.sin, "The sine of x in radians.", "[0.0, jnp.pi / 2]", "[0., 1.]")
cos = _float_unary("cos", ops.cos, "The cosine of x in radians.", "[0.0, jnp.pi]", "[ 1., -1.]")
tan = _float_unary("tan", ops.tan, "The tangent of x in radians.", "[0.0, jnp.pi / 4]", "[0., 1.]")
arcsin = _float_unary("arcsin", ops.asin, "The angle whose sine is x.", "[1.0]", "[1.57079633]")
arccos = _float_unary("arccos", ops.acos, "The angle whose cosine is x.", "[0.0]", "[1.57079633]")
arctan = _float_unary(
    "arctan", ops.atan, "The angle whose tangent is x.", "[jnp.inf]", "[1.57079633]"
)
sinh = _float_unary("sinh", ops.sinh, "The hyperbolic sine.", "[0.0, jnp.log(2)]", "[0.  , 0.75]")
cosh = _float_unary("cosh", ops.cosh, "The hyperbolic cosine.", "[0.0, jnp.log(2)]", "[1.  , 1.25]")
tanh = _float_unary("tanh", ops.tanh, "The hyperbolic tangent.", "[0.0, 100.0]", "[0., 1.]")
arcsinh = _float_unary("arcsinh", ops.asinh, "The inverse of sinh.", "[0.75]", "[0.69314718]")
arccosh = _float_unary("arccosh", ops.acosh, "The inverse of cosh.", "[1.25]", "[0.69314718]")
arctanh = _float_unary("arctanh", ops.atanh, "The inverse of tanh.", "[0.6]", "[0.69314718]")
asin, acos, atan = arcsin, arccos, arctan
asinh, acosh, atanh = arcsinh, arccosh, arctanh


def log2(x, /):
    """The logarithm to base 2.

    >>> jnp.log2(jnp.array([1.0, 8.0]))
    Array([0., 3.], dtype=float64)
    """
    (x,) = promote_inexact("log2", x)
    return _log_of_base(x, ops.log2, 2)


def log10(x, /):
    """The logarithm to base 10.

    >>> jnp.log10(jnp.array([1.0, 100.0]))
    Array([0., 2.], dtype=float64)
    """
    (x,) = promote_inexact("log10", x)
    return _log_of_base(x, ops.log10, 10)


def _log_of_base(x: Array, of_real: Callable, base: int) -> Array:
    """Of a complex value both parts: complex division would make NaN of what is infinite."""
    if not dtypes.is_complex(x.dtype):
        return times_strong(of_real(x))  # as JAX's, which divides by a constant
    x, octave = times_strong(ops.log(x)), constant(math.log(base), dtypes.real_of(x.dtype))
    return ops.complex_(ops.div(ops.real(x), octave), ops.div(ops.imag(x), octave))


def deg2rad(x, /):
    """Degrees as radians.

    >>> jnp.deg2rad(jnp.array([90.0, 180.0]))
    Array([1.57079633, 3.14159265], dtype=float64)
    """
    (x,) = promote_inexact("deg2rad", x)
    return times(x, math.pi / 180)


def rad2deg(x, /):
    """Radians as degrees.

    >>> jnp.rad2deg(jnp.array([jnp.pi / 2, jnp.pi]))
    Array([ 90., 180.], dtype=float64)
    """
    (x,) = promote_inexact("rad2deg", x)
    return times(x, 180 / math.pi)


radians, degrees = deg2rad, rad2deg


@replayed()
def sinc(x, /):
    """sin(pi x) / (pi x), 1 at 0.

    >>> jnp.sinc(jnp.array([0.0, 0.5, 1.0])).round(6)
    Array([1.     , 0.63662, 0.     ], dtype=float64)
    """
    (x,) = promote_inexact("sinc", x)
    pi_x = times(x, math.pi)
    # Near 0 the series, so that derivatives are right there too; far from it neither overflows.
    near = ops.lt(ops.abs_(pi_x), constant(0.5, dtypes.real_of(x.dtype)))
    safe = select(near, one(x), pi_x)
    square, series = ops.square(select(near, pi_x, zero(x))), one(x)
    for k in range(7, 0, -1):
        share = ops.mul(square, constant(-1 / (2 * k * (2 * k + 1)), x.dtype))
        series = ops.add(one(x), ops.mul(share, series))
    return select(near, series, ops.div(ops.sin(safe), safe))


@replayed("x1", "x2")
def hypot(x1, x2, /):
    """sqrt(x1**2 + x2**2) without overflow on the way.

    Raises InvalidValue, a ValueError, for complex numbers.

    >>> jnp.hypot(jnp.array([3.0, 3e200]), jnp.array([4.0, 4e200]))
    Array([5.e+000, 5.e+200], dtype=float64)
    """
    x, y = fit("hypot", promote_inexact("hypot", x1, x2))
    if dtypes.is_complex(x.dtype):
        raise InvalidValue("hypot is not defined for complex numbers")
    x, y = ops.abs_(x), ops.abs_(y)
    big, small = _ordered(x, y)
    none = ops.eq(big, zero(big))
    ratio = ops.div(small, select(none, one(big), big))
    out = ops.mul(big, ops.sqrt(ops.add(ops.square(ratio), one(big))))
    # The norm has a kink at the origin: its slope there is half that of each operand's absolute value.
    out = select(none, ops.mul(constant(0.5, big.dtype), ops.add(x, y)), out)
    infinite = constant(math.inf, big.dtype)
    either = ops.or_(ops.eq(x, infinite), ops.eq(y, infinite))  # even if the other is nan
    return beside_constants(select(either, infinite, out))


def logaddexp(*args, out=None, where=None):
    """log(exp(x1) + exp(x2)) without overflow.

    >>> jnp.logaddexp(jnp.array([0.0, 1000.0]), jnp.array([-jnp.inf, 1000.0]))
    Array([   0.        , 1000.69314718], dtype=float64)
    """
    operands = ufunc_operands("logaddexp", args, 2, out, where)
    x, y = fit("logaddexp", promote_inexact("logaddexp", *operands))
    return _logaddexp(x, y, ops.exp, ops.log1p, 1.0)


def logaddexp2(*args, out=None, where=None):
    """log2(2**x1 + 2**x2) without overflow.

    >>> jnp.logaddexp2(jnp.array([3.0, 2000.0]), jnp.array([3.0, 2000.0]))
    Array([   4., 2001.], dtype=float64)
    """
    operands = ufunc_operands("logaddexp2", args, 2, out, where)
    x, y = fit("logaddexp2", promote_inexact("logaddexp2", *operands))
    log2_1p = lambda z: ops.div(ops.log1p(z), constant(math.log(2), z.dtype))
    return beside_constants(_logaddexp(x, y, ops.exp2, log2_1p, 1 / math.log(2)))


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
    # delta is nan where both are the same infinity, too; of nan the tangents are nan as well.
    infinite = ops.and_(ops.ne(delta, delta), ops.eq(x, y))
    delta = select(infinite, zero(delta), delta)
    middle = times(ops.add(x, y), 0.5)  # equal numbers have half of the slope each
    return select(infinite, middle, ops.add(big, log1p_(exp_(delta))))


def _ordered(x: Array, y: Array) -> tuple[Array, Array]:
    """The larger and the smaller, chosen together: functions of both stay smooth where they are equal."""
    first = ops.ge(x, y)
    return select(first, x, y), select(first, y, x)


def heaviside(x1, x2, /):
    """0 for x1 < 0, x2 at 0, 1 for x1 > 0.

    >>> jnp.heaviside(jnp.array([-2.0, 0.0, 2.0]), 0.5)
    Array([0. , 0.5, 1. ], dtype=float64)
    """
    x, y = fit("heaviside", promote_inexact("heaviside", x1, x2))
    without_complex("heaviside", x)
    step = select(ops.lt(x, zero(x)), zero(x), select(ops.gt(x, zero(x)), one(x), y))
    out = select(ops.ne(x, x), x, step)
    return strong(out) if out.shape else out


def copysign(x1, x2, /):
    """x1 with the sign of x2.

    >>> jnp.copysign(jnp.array([1.0, -2.0]), jnp.array([-0.0, 3.0]))
    Array([-1.,  2.], dtype=float64)
    """
    x, y = fit("copysign", promote_inexact("copysign", x1, x2))
    without_complex("copysign", x)
    size = ops.abs_(x)
    out = select(signbit(y), ops.neg(size), size)
    return out if y.weak_type else strong(out)


def signbit(x, /):
    """Whether the sign bit is set.

    >>> jnp.signbit(jnp.array([-1.0, -0.0, 0.0]))
    Array([ True,  True, False], dtype=bool)
    """
    x = to_array(x, "signbit")
    without_complex("signbit", x)
    kind = dtypes.kind(x.dtype)
    if kind in "bu":
        return full(x.shape, False, dtypes.bool_)
    if kind == "f":
        bits = ops.BitcastConvertType(dtypes.of_name(f"int{dtypes.bits(x.dtype)}"))(x)
        return ops.lt(bits, zero(bits))
    return ops.lt(x, zero(x))


@replayed("x2")
def ldexp(x1, x2, /):
    """x1 * 2 ** x2.

    >>> jnp.ldexp(jnp.array([0.5, 3.0]), jnp.array([4, -1]))
    Array([8. , 1.5], dtype=float64)
    """
    x1, x2 = to_arrays("ldexp", x1, x2)
    if dtypes.is_complex(x1.dtype) or dtypes.kind(x2.dtype) not in "biu":
        raise TypeMismatch(
            f"ldexp of dtypes {x1.dtype} and {x2.dtype}; expected real numbers and integer exponents"
        )
    (x,) = promote_inexact("ldexp", x1)
    if x.dtype in dtypes.SMALL:  # which hold neither the factors nor all exponents
        return convert(ldexp(convert(x, dtypes.SMALL[x.dtype]), x2), x.dtype)
    return _scaled(*fit("ldexp", [x, convert(x2, x.dtype)]))


def _scaled(x: Array, n: Array) -> Array:
    """x * 2 ** n, for whole numbers n of the dtype of x."""
    # In steps whose factors are finite: 2 ** n may overflow, or vanish, where the product does not. The
    # largest step is the last one, so that what becomes subnormal is rounded once.
    limit, steps = constant(_EXPONENTS[x.dtype.name], x.dtype), []
    for _ in range(3):
        steps.append(ops.clamp(ops.neg(limit), n, limit))
        n = ops.sub(n, steps[-1])
    for step in steps[::-1]:
        x = ops.mul(x, ops.exp2(step))
    return x


# Powers of two with exponents up to these, of either sign, are normal numbers.
_EXPONENTS = {"float16": 14, "bfloat16": 126, "float32": 126, "float64": 1022}


@replayed()
def frexp(x, /):
    """Mantissa in [0.5, 1) and exponent with x = mantissa * 2 ** exponent.

    >>> jnp.frexp(jnp.array([8.0, 3.0]))
    (Array([0.5 , 0.75], dtype=float64), Array([4, 2], dtype=int32))
    """
    (x,) = promote_inexact("frexp", x)
    if x.dtype in dtypes.SMALL:
        mantissa, exponent = frexp(convert(x, dtypes.SMALL[x.dtype]))
        return convert(mantissa, x.dtype), exponent
    size = ops.abs_(x)
    plain = ops.and_(ops.is_finite(x), ops.ne(x, zero(x)))
    safe = select(plain, size, one(x))
    n = ops.add(ops.floor(log2(safe)), one(x))
    m = _scaled(safe, ops.neg(n))
    high, low = ops.ge(m, one(m)), ops.lt(m, constant(0.5, m.dtype))
    m = select(high, times(m, 0.5), select(low, times(m, 2), m))
    n = select(high, ops.add(n, one(n)), select(low, ops.sub(n, one(n)), n))
    m = select(plain, ops.mul(m, ops.sign(x)), x)
    return strong(m), convert(select(plain, n, zero(n)), dtypes.int32)


@replayed()
@as_one
def modf(x, /, out=None):
    """Fraction and integer part, both with the sign of x.

    >>> jnp.modf(jnp.array([2.5, -1.25]))
    (Array([ 0.5 , -0.25], dtype=float64), Array([ 2., -1.], dtype=float64))
    """
    no_out("modf", out)
    (x,) = promote_inexact("modf", x)
    whole = trunc(x)
    # of a negative number that is whole the fraction is -0, and its slope 1 as everywhere
    part = select(signbit(x), ops.neg(ops.sub(whole, x)), ops.sub(x, whole))
    nothing = copysign(zero(x), x)
    return select(ops.is_finite(x), part, select(ops.ne(x, x), x, nothing)), whole


# --- complex numbers ---------------------------------------------------------------------------


def angle(z, deg=False):
    """The argument of complex numbers, in (-pi, pi].

    >>> jnp.angle(jnp.array([1.0, 1j, -1.0]), deg=True)
    Array([  0.,  90., 180.], dtype=float64)
    """
    z = to_array(z, "angle")
    re, im = real(z), imag(z)
    if not dtypes.is_inexact(z.dtype) or dtypes.is_float(z.dtype) and not z.shape:
        re, im = (strong(convert(x, dtypes.default_for("f"))) for x in (re, im))
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
