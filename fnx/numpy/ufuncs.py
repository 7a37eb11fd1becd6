"""Elementwise functions with NumPy's names: they promote, broadcast and bind one primitive or a few."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import TypeMismatch
from fnx.numpy.util import (
    PYTHON,
    constant,
    convert,
    fit,
    named,
    no_out,
    promote,
    promote_inexact,
    to_array,
    to_arrays,
    select,
)
from fnx.ops import elementwise as ops
from fnx.ops.broadcast import full

# --- what they are made of ----------------------------------------------------------------------------


def _float_unary(name: str, prim: Any, doc: str) -> Callable:
    @named(name, doc)
    def fn(x, /):
        if type(x) is not ConcreteArray or x.dtype.kind not in "fc":
            (x,) = promote_inexact(name, x)
        return prim(x)

    return fn


def _binary(name: str, prim: Any, doc: str, bool_prim: Any = None, many: bool = False) -> Callable:
    def apply(x1: Any, x2: Any) -> Array:
        x, y = fit(name, promote(name, x1, x2))
        if bool_prim is not None and x.dtype == dtypes.bool_:
            return bool_prim(x, y)
        return prim(x, y)

    if not many:
        return named(name, doc)(lambda x1, x2, /: apply(x1, x2))

    @named(name, doc)
    def fn(*args, out=None, where=None):
        no_out(name, out)
        if len(args) != 2:
            raise TypeMismatch(f"{name} takes 2 arrays, got {len(args)}")
        if where is not None:
            raise TypeMismatch(f"{name} has no where= without out=; use fnx.numpy.where")
        return apply(*args)

    return fn


def _float_binary(name: str, prim: Any, doc: str) -> Callable:
    @named(name, doc)
    def fn(x1, x2, /):
        return prim(*fit(name, promote_inexact(name, x1, x2)))

    return fn


def zero(x: Array) -> ConcreteArray:
    """0 in the dtype of x."""
    return constant(0, x.dtype)


def one(x: Array) -> ConcreteArray:
    """1 in the dtype of x."""
    return constant(1, x.dtype)


def times(x: Array, value: Any) -> Array:
    """x times a number."""
    return ops.mul(x, constant(value, x.dtype))


def truth(x: Any, name: str = "function") -> Array:
    """Whether elements are not zero."""
    x = to_array(x, name)
    return x if x.dtype == dtypes.bool_ else ops.ne(x, zero(x))


def where3(mask: Array, on_true: Any, on_false: Any) -> Array:
    """Elements of one array or of another, promoted and broadcast."""
    x, y = promote("where", on_true, on_false)
    mask, x, y = fit("where", [mask, x, y])
    return select(mask, x, y)


# --- arithmetic ---------------------------------------------------------------------------------------

add = _binary("add", ops.add, "x1 + x2, element by element.", ops.or_, many=True)
multiply = _binary("multiply", ops.mul, "x1 * x2, element by element.", ops.and_, many=True)
subtract = _binary("subtract", ops.sub, "x1 - x2, element by element.", many=True)
maximum = _binary("maximum", ops.max_, "The larger of x1 and x2; nan where either is nan.", many=True)
minimum = _binary("minimum", ops.min_, "The smaller of x1 and x2; nan where either is nan.", many=True)
true_divide = _float_binary("divide", ops.div, "x1 / x2, in floating point.")
divide = true_divide
arctan2 = _float_binary("arctan2", ops.atan2, "The angle of the point (x2, x1), in (-pi, pi].")
atan2 = arctan2


def nextafter(x, y, /):
    """The next float after x towards y."""
    return ops.nextafter(*fit("nextafter", promote_inexact("nextafter", x, y)))




def negative(*args, out=None, where=None):
    """-x."""
    no_out("negative", out)
    (x,) = to_arrays("negative", *args)
    if x.dtype == dtypes.bool_:
        raise TypeMismatch("negative of a bool array; use ~x, or convert it with .astype(int)")
    return ops.neg(x)


def positive(x, /):
    """+x."""
    return to_array(x, "positive")


def sign(x, /):
    """-1, 0 or 1 by the sign of x; x / |x| for complex numbers."""
    x = to_array(x, "sign")
    if x.dtype == dtypes.bool_:
        raise TypeMismatch("sign of a bool array; convert it with .astype(int)")
    return ops.sign(x)


def absolute(x, /):
    """The absolute value, or magnitude of complex numbers."""
    x = to_array(x, "absolute")
    return x if x.dtype.kind in "bu" else ops.abs_(x)


abs = absolute


def fabs(x, /):
    """The absolute value as a float."""
    (x,) = promote_inexact("fabs", x)
    return ops.abs_(x)


def square(x, /):
    """x * x."""
    x = to_array(x, "square")
    return ops.square(convert(x, dtypes.int32) if x.dtype == dtypes.bool_ else x)


def reciprocal(x, /):
    """1 / x, in floating point."""
    (x,) = promote_inexact("reciprocal", x)
    return ops.div(one(x), x)


def float_power(x, y, /):
    """x ** y in float64 or complex128."""
    x, y = promote("float_power", x, y)
    wide = dtypes.complex128 if dtypes.is_complex(x.dtype) else dtypes.float64
    return power(convert(x, wide), convert(y, wide))


def power(x1, x2, /):
    """x1 ** x2; a Python integer as exponent is multiplied out.

    >>> power(2.0, 3)
    Array(8., dtype=float64, weak_type=True)
    """
    kind = type(x2)
    if kind is int or (isinstance(x2, np.integer) and not isinstance(x2, np.bool_)):
        return _integer_power(to_array(x1, "power"), int(x2), x2)
    if kind is float:
        special = _float_exponent(x1, x2)
        if special is not None:
            return special
    x1, x2 = to_arrays("power", x1, x2)
    if not dtypes.is_inexact(x1.dtype) and not dtypes.is_inexact(x2.dtype):
        return _int_int_power(*fit("power", promote("power", x1, x2)))
    if dtypes.is_inexact(x1.dtype) and dtypes.is_integer(x2.dtype):
        kept = promote("power", x1, x2)[0]
        return ops.pow_(*fit("power", [kept, x2]))
    return ops.pow_(*fit("power", promote_inexact("power", x1, x2)))


pow = power


def _integer_power(x: Array, n: int, given: Any) -> Array:
    if type(given) is not int:
        x = promote("power", x, given)[0]
    if x.dtype == dtypes.bool_:
        x = convert(x, dtypes.int32)
    if n < 0 and not dtypes.is_inexact(x.dtype):
        raise TypeMismatch(
            f"an array of dtype {x.dtype} to the power {n}: integers have no negative powers; use a "
            f"float exponent, {float(n)}, or convert the array"
        )
    return ops.square(x) if n == 2 else x if n == 1 else ops.IntegerPow(n)(x)


def _float_exponent(x: Any, n: float) -> Array | None:
    # Exponents whose powers have quicker primitives than pow.
    if n not in (0.5, -0.5, 1.0, 2.0, 3.0, -1.0):
        return None
    x, _ = promote_inexact("power", x, n)
    if n == 0.5:
        return ops.sqrt(x)
    return ops.rsqrt(x) if n == -0.5 else _integer_power(x, int(n), int(n))


def _int_int_power(x: Array, y: Array) -> Array:
    # By squaring: larger exponents than 63 overflow for all bases but -1, 0 and 1.
    if x.dtype == dtypes.bool_:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    total = full(x.shape or y.shape, 1, x.dtype)
    for _ in range(6):
        odd = ops.ne(ops.and_(y, one(y)), zero(y))
        total = select(*fit("power", [odd, ops.mul(total, x), total]))
        x = ops.mul(x, x)
        y = ops.shift_right_logical(y, one(y))
    return total


def floor_divide(x1, x2, /):
    """The largest integer not above x1 / x2."""
    x, y = fit("floor_divide", _numbers("floor_divide", x1, x2))
    kind = dtypes.kind(x.dtype)
    if kind == "u":
        return ops.div(x, y)
    if kind == "i":
        q = ops.div(x, y)
        inexact = ops.ne(ops.rem(x, y), zero(x))
        below = ops.and_(ops.ne(ops.sign(x), ops.sign(y)), inexact)
        return select(below, ops.sub(q, one(q)), q)
    if kind == "c":
        raise TypeMismatch("floor_divide is not defined for complex numbers")
    return _float_divmod(x, y)[0]


def _numbers(name: str, *xs: Any) -> list[Array]:
    xs = promote(name, *xs)
    return [convert(x, dtypes.int32) for x in xs] if xs[0].dtype == dtypes.bool_ else xs


def _float_divmod(x: Array, y: Array) -> tuple[Array, Array]:
    r = ops.rem(x, y)
    q = ops.div(select(ops.eq(y, zero(y)), x, ops.sub(x, r)), y)
    wrong = ops.and_(ops.ne(r, zero(r)), ops.ne(ops.sign(y), ops.sign(r)))
    r = select(wrong, ops.add(r, y), r)
    q = select(wrong, ops.sub(q, one(q)), q)
    return ops.Round(0)(q), r


def remainder(x1, x2, /):
    """x1 - x2 * floor(x1 / x2): has the sign of x2."""
    x, y = fit("remainder", _numbers("remainder", x1, x2))
    kind = dtypes.kind(x.dtype)
    if kind in "iu":
        y = select(ops.eq(y, zero(y)), one(y), y)
    r = ops.rem(x, y)
    if kind == "u":
        return r
    other = ops.ne(ops.lt(r, zero(r)), ops.lt(y, zero(y)))
    return select(ops.and_(other, ops.ne(r, zero(r))), ops.add(r, y), r)


mod = remainder


def fmod(x1, x2, /):
    """The remainder of x1 / x2 with the sign of x1."""
    x, y = fit("fmod", _numbers("fmod", x1, x2))
    if dtypes.is_integer(x.dtype):
        y = select(ops.eq(y, zero(y)), one(y), y)
    return ops.rem(x, y)


def divmod(x1, x2, /):
    """(floor_divide(x1, x2), remainder(x1, x2))."""
    x, y = fit("divmod", _numbers("divmod", x1, x2))
    if dtypes.is_float(x.dtype):
        return _float_divmod(x, y)
    return floor_divide(x, y), remainder(x, y)


def fmax(x1, x2):
    """The larger of x1 and x2; the other one where one is nan."""
    x, y = fit("fmax", promote("fmax", x1, x2))
    larger = ops.max_(x, y)
    return _skip_nan(larger, x, y)


def fmin(x1, x2):
    """The smaller of x1 and x2; the other one where one is nan."""
    x, y = fit("fmin", promote("fmin", x1, x2))
    return _skip_nan(ops.min_(x, y), x, y)


def _skip_nan(out: Array, x: Array, y: Array) -> Array:
    if not dtypes.is_inexact(x.dtype):
        return out
    return where3(ops.ne(x, x), y, where3(ops.ne(y, y), x, out))


# --- rounding -----------------------------------------------------------------------------------------


def _rounding(name: str, prim: Any, doc: str, ints_stay: bool = True) -> Callable:
    @named(name, doc)
    def fn(x, /):
        x = to_array(x, name)
        if ints_stay and not dtypes.is_inexact(x.dtype):
            return x
        (x,) = promote_inexact(name, x)
        if dtypes.is_complex(x.dtype):
            return ops.complex_(prim(ops.real(x)), prim(ops.imag(x)))
        return prim(x)

    return fn


floor = _rounding("floor", ops.floor, "The largest integer not above x.")
ceil = _rounding("ceil", ops.ceil, "The smallest integer not below x.")
rint = _rounding("rint", ops.Round(1), "The nearest integer, halves to the even one.", False)


def trunc(x):
    """x without its fraction."""
    x = to_array(x, "trunc")
    if not dtypes.is_inexact(x.dtype):
        return x
    return select(ops.lt(x, zero(x)), ops.ceil(x), ops.floor(x))


fix = trunc


def round(a, decimals=0, out=None):
    """To `decimals` decimals, halves to the even digit."""
    no_out("round", out)
    x = to_array(a, "round")
    if dtypes.is_integer(x.dtype):
        if decimals < 0:
            raise NotImplementedError("round of integers to tens, hundreds, ... is not implemented")
        return x
    if x.dtype == dtypes.bool_:
        raise TypeMismatch("round of a bool array; convert it first")
    if decimals == 0:
        return rint(x)
    if dtypes.is_complex(x.dtype):
        return ops.complex_(round(ops.real(x), decimals), round(ops.imag(x), decimals))
    wide = convert(x, dtypes.float32) if x.dtype.itemsize < 4 else x
    factor = constant(10.0**decimals, wide.dtype)
    return convert(ops.div(ops.Round(1)(ops.mul(wide, factor)), factor), x.dtype)


around = round


def clip(arr=None, /, min=None, max=None, *, a=None, a_min=None, a_max=None):
    """Values below `min` become `min`, above `max` become `max`.

    >>> clip(5.0, 0.0, 2.0)
    Array(2., dtype=float64, weak_type=True)
    """
    arr = a if arr is None else arr
    min = a_min if min is None else min
    max = a_max if max is None else max
    x = to_array(arr, "clip")
    if min is not None:
        x = maximum(min, x)
    if max is not None:
        x = minimum(max, x)
    return x


# --- exponentials, trigonometry -----------------------------------------------------------------------

sqrt = _float_unary("sqrt", ops.sqrt, "The square root.")
cbrt = _float_unary("cbrt", ops.cbrt, "The cube root.")
exp = _float_unary("exp", ops.exp, "e ** x.")
exp2 = _float_unary("exp2", ops.exp2, "2 ** x.")
expm1 = _float_unary("expm1", ops.expm1, "exp(x) - 1, exact for small x.")
log = _float_unary("log", ops.log, "The natural logarithm.")
log1p = _float_unary("log1p", ops.log1p, "log(1 + x), exact for small x.")
sin = _float_unary("sin", ops.sin, "The sine of x in radians.")
cos = _float_unary("cos", ops.cos, "The cosine of x in radians.")
tan = _float_unary("tan", ops.tan, "The tangent of x in radians.")
arcsin = _float_unary("arcsin", ops.asin, "The angle whose sine is x.")
arccos = _float_unary("arccos", ops.acos, "The angle whose cosine is x.")
arctan = _float_unary("arctan", ops.atan, "The angle whose tangent is x.")
sinh = _float_unary("sinh", ops.sinh, "The hyperbolic sine.")
cosh = _float_unary("cosh", ops.cosh, "The hyperbolic cosine.")
tanh = _float_unary("tanh", ops.tanh, "The hyperbolic tangent.")
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
    at_zero = ops.eq(x, zero(x))
    pi_x = times(x, math.pi)
    safe = select(at_zero, one(x), pi_x)
    # Near 0 the series, so that derivatives of all orders are right there.
    series = ops.sub(one(x), ops.div(ops.square(pi_x), constant(6, x.dtype)))
    return select(at_zero, series, ops.div(ops.sin(safe), safe))


def hypot(x1, x2, /):
    """sqrt(x1**2 + x2**2) without overflow on the way."""
    x, y = fit("hypot", promote_inexact("hypot", x1, x2))
    if dtypes.is_complex(x.dtype):
        raise TypeMismatch("hypot is not defined for complex numbers")
    x, y = ops.abs_(x), ops.abs_(y)
    big, small = _ordered(x, y)
    ratio = ops.div(small, select(ops.eq(big, zero(big)), one(big), big))
    out = ops.mul(big, ops.sqrt(ops.add(ops.square(ratio), one(big))))
    infinite = constant(math.inf, big.dtype)
    return select(ops.eq(big, infinite), infinite, out)


def logaddexp(*args, out=None, where=None):
    """log(exp(x1) + exp(x2)) without overflow."""
    no_out("logaddexp", out)
    x, y = fit("logaddexp", promote_inexact("logaddexp", *args))
    return _logaddexp(x, y, ops.exp, ops.log1p)


def logaddexp2(*args, out=None, where=None):
    """log2(2**x1 + 2**x2) without overflow."""
    no_out("logaddexp2", out)
    x, y = fit("logaddexp2", promote_inexact("logaddexp2", *args))
    log2_1p = lambda z: ops.div(ops.log1p(z), constant(math.log(2), z.dtype))
    return _logaddexp(x, y, ops.exp2, log2_1p)


def _logaddexp(x: Array, y: Array, exp_: Callable, log1p_: Callable) -> Array:
    if dtypes.is_complex(x.dtype):
        first = ops.gt(ops.real(x), ops.real(y))
        big = select(first, x, y)
        delta = ops.sub(select(first, y, x), big)
        return ops.add(big, log1p_(exp_(delta)))
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


# --- complex numbers ----------------------------------------------------------------------------------


def real(val, /):
    """The real part."""
    x = to_array(val, "real")
    return ops.real(x) if dtypes.is_complex(x.dtype) else x


def imag(val, /):
    """The imaginary part; 0 for real numbers."""
    x = to_array(val, "imag")
    return ops.imag(x) if dtypes.is_complex(x.dtype) else full(x.shape, 0, x.dtype)


def conjugate(x, /):
    """The complex conjugate."""
    x = to_array(x, "conj")
    return ops.conj(x) if dtypes.is_complex(x.dtype) else x


conj = conjugate


def angle(z, deg=False):
    """The argument of complex numbers, in (-pi, pi]."""
    (z,) = promote_inexact("angle", z)
    re = real(z)
    im = imag(z)
    out = ops.atan2(im, re)
    return rad2deg(out) if deg else out


# --- tests, comparisons, logic ------------------------------------------------------------------------


def isfinite(x, /):
    """Whether x is neither infinite nor nan."""
    x = to_array(x, "isfinite")
    kind = dtypes.kind(x.dtype)
    if kind == "f":
        return ops.is_finite(x)
    if kind == "c":
        return ops.and_(ops.is_finite(ops.real(x)), ops.is_finite(ops.imag(x)))
    return full(x.shape, True, dtypes.bool_)


def isnan(x, /):
    """Whether x is nan."""
    x = to_array(x, "isnan")
    return ops.ne(x, x) if dtypes.is_inexact(x.dtype) else full(x.shape, False, dtypes.bool_)


def isinf(x, /):
    """Whether x is an infinity."""
    x = to_array(x, "isinf")
    kind = dtypes.kind(x.dtype)
    if kind == "f":
        return ops.eq(ops.abs_(x), constant(math.inf, x.dtype))
    if kind == "c":
        return ops.or_(isinf(ops.real(x)), isinf(ops.imag(x)))
    return full(x.shape, False, dtypes.bool_)


def isposinf(x, /, out=None):
    """Whether x is plus infinity."""
    no_out("isposinf", out)
    x = to_array(x, "isposinf")
    if not dtypes.is_inexact(x.dtype):
        return full(x.shape, False, dtypes.bool_)
    return ops.eq(x, constant(math.inf, x.dtype))


def isneginf(x, /, out=None):
    """Whether x is minus infinity."""
    no_out("isneginf", out)
    x = to_array(x, "isneginf")
    if not dtypes.is_inexact(x.dtype):
        return full(x.shape, False, dtypes.bool_)
    return ops.eq(x, constant(-math.inf, x.dtype))


def isreal(x):
    """Whether the imaginary part is 0."""
    y = imag(x)
    return ops.eq(y, zero(y))


def iscomplex(x):
    """Whether the imaginary part is not 0."""
    y = imag(x)
    return ops.ne(y, zero(y))


def _comparison(name: str, prim: Any, strict: Any, doc: str) -> Callable:
    @named(name, doc)
    def fn(x, y, /):
        x, y = fit(name, promote(name, x, y))
        if strict is not None and dtypes.is_complex(x.dtype):
            same = ops.eq(ops.real(x), ops.real(y))
            later = prim(ops.imag(x), ops.imag(y))
            return select(same, later, strict(ops.real(x), ops.real(y)))
        return prim(x, y)

    return fn


equal = _comparison("equal", ops.eq, None, "x == y, element by element.")
not_equal = _comparison("not_equal", ops.ne, None, "x != y, element by element.")
less = _comparison("less", ops.lt, ops.lt, "x < y; complex numbers by real, then imaginary part.")
less_equal = _comparison("less_equal", ops.le, ops.lt, "x <= y, as `less`.")
greater = _comparison("greater", ops.gt, ops.gt, "x > y, as `less`.")
greater_equal = _comparison("greater_equal", ops.ge, ops.gt, "x >= y, as `less`.")


def _logical(name: str, prim: Any, doc: str) -> Callable:
    @named(name, doc)
    def fn(*args, out=None, where=None):
        no_out(name, out)
        x, y = args
        return prim(*fit(name, [truth(x, name), truth(y, name)]))

    return fn


logical_and = _logical("logical_and", ops.and_, "Whether both are true (not 0).")
logical_or = _logical("logical_or", ops.or_, "Whether one is true (not 0).")
logical_xor = _logical("logical_xor", ops.xor, "Whether exactly one is true (not 0).")


def logical_not(x, /):
    """Whether x is 0."""
    return ops.not_(truth(x, "logical_not"))


def _bitwise(name: str, prim: Any, doc: str, many: bool = False) -> Callable:
    return _binary(name, prim, doc, many=many)


bitwise_and = _bitwise("bitwise_and", ops.and_, "The bits set in both.", True)
bitwise_or = _bitwise("bitwise_or", ops.or_, "The bits set in one.", True)
bitwise_xor = _bitwise("bitwise_xor", ops.xor, "The bits set in exactly one.", True)


def left_shift(x, y, /):
    """Bits moved up by y."""
    return ops.shift_left(*fit("left_shift", _numbers("left_shift", x, y)))


bitwise_left_shift = left_shift


def invert(x, /):
    """All bits flipped."""
    return ops.not_(to_array(x, "invert"))


bitwise_not = bitwise_invert = invert


def right_shift(x1, x2, /):
    """Bits moved down by x2; signed integers keep their sign."""
    x, y = fit("right_shift", _numbers("right_shift", x1, x2))
    signed = dtypes.kind(x.dtype) == "i"
    return (ops.shift_right_arithmetic if signed else ops.shift_right_logical)(x, y)


bitwise_right_shift = right_shift


def bitwise_count(x, /):
    """The number of bits set in |x|."""
    x = to_array(x, "bitwise_count")
    if x.dtype == dtypes.bool_:
        return convert(x, np.dtype("u1"))
    return convert(ops.population_count(absolute(x)), np.dtype("u1"))


# --- integers -----------------------------------------------------------------------------------------


def gcd(x1, x2):
    """The greatest common divisor."""
    x, y = fit("gcd", promote("gcd", x1, x2))
    _need_integers("gcd", x)
    x, y = ops.abs_(x) if x.dtype.kind == "i" else x, ops.abs_(y) if y.dtype.kind == "i" else y
    # Euclid's algorithm; the worst case is that of Fibonacci numbers.
    steps = math.ceil(x.dtype.itemsize * 8 * math.log(2) / math.log((1 + 5**0.5) / 2)) + 1
    for _ in range(steps):
        done = ops.eq(y, zero(y))
        safe = select(done, one(y), y)
        x, y = select(done, x, y), select(done, y, ops.rem(x, safe))
        if type(y) is ConcreteArray and not y._value.any():
            break
    return x


def lcm(x1, x2):
    """The least common multiple."""
    x, y = fit("lcm", promote("lcm", x1, x2))
    divisor = gcd(x, y)
    safe = select(ops.eq(divisor, zero(divisor)), one(divisor), divisor)
    return absolute(ops.mul(x, ops.div(y, safe)))


def _need_integers(name: str, x: Array) -> None:
    if not dtypes.is_integer(x.dtype):
        raise TypeMismatch(f"{name} needs integers, not dtype {x.dtype}")


# --- nan and closeness --------------------------------------------------------------------------------


def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """nan becomes `nan`, infinities the largest finite numbers or what is given."""
    del copy
    x = to_array(x, "nan_to_num")
    if not dtypes.is_inexact(x.dtype):
        return x
    if dtypes.is_complex(x.dtype):
        parts = [nan_to_num(p, True, nan, posinf, neginf) for p in (ops.real(x), ops.imag(x))]
        return ops.complex_(*parts)
    info = dtypes_finfo(x.dtype)
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    out = where3(ops.ne(x, x), convert(nan, x.dtype), x)
    out = where3(isposinf(x), convert(high, x.dtype), out)
    return where3(isneginf(x), convert(low, x.dtype), out)


def dtypes_finfo(dtype: np.dtype) -> Any:
    """The limits of a float dtype, bfloat16 too."""
    if dtype == dtypes.bfloat16:
        import ml_dtypes

        return ml_dtypes.finfo(dtype)
    return np.finfo(dtype)


def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |a - b| <= atol + rtol * |b|."""
    x, y = fit("isclose", promote("isclose", a, b))
    if not dtypes.is_inexact(x.dtype):
        x, y = promote_inexact("isclose", x, y)
    real_dtype = dtypes.real_of(x.dtype)
    bound = add(convert(atol, real_dtype), multiply(convert(rtol, real_dtype), absolute(y)))
    near = less_equal(absolute(ops.sub(x, y)), bound)
    both = logical_and(isfinite(x), isfinite(y))
    out = logical_or(logical_and(both, near), ops.eq(x, y))
    if equal_nan:
        out = logical_or(out, logical_and(isnan(x), isnan(y)))
    return out


__all__ = [name for name, value in list(globals().items()) if callable(value) and name[0] != "_"]
_HIDDEN = {
    "Array", "Callable", "ConcreteArray", "Any", "TypeMismatch", "constant", "convert", "fit", "named",
    "no_out", "promote", "promote_inexact", "to_array", "to_arrays", "full", "select", "zero",
    "one", "times", "truth", "where3", "dtypes_finfo",
}  # fmt: skip
__all__ = [name for name in __all__ if name not in _HIDDEN]
del PYTHON
