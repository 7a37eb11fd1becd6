"""Hyperbolic functions and their inverses, by expm1 and log1p."""

import math

from .coefficients import C
from .exp_log import EXP_RANGE, LN2, LOG2_E, exp_unscaled, expm1_scaled, log1p, parts, scale
from .formulas import (
    FORMAT,
    Pair,
    V,
    at_most,
    bits,
    constant,
    copy_sign,
    divide,
    estrin,
    fast_two_sum,
    fma,
    from_bits,
    function,
    pattern,
    sqrt,
    two_sum,
    where,
)

TINY = {"float32": 2.0**-13, "float64": 2.0**-28}  # below, f(x) = x + O(x**3) rounds to x
TANH_IS_ONE = {"float32": 10.0, "float64": 22.0}
SINH_IS_EXP = {"float32": 12.0, "float64": 24.0}
SINH_INFINITE = {"float32": 89.6, "float64": 710.6}  # and 2**-2 expm1 still finite
LARGE = {"float32": 2.0**40, "float64": 2.0**200}  # log1p(x) is log(x); x**2 is finite


@function("tanh")
def tanh(x: V) -> V:
    """tanh(A + y) = b + ((s - 1) - b (s + 1) + ((s + 1) - b (s - 1)) t) / ((s + 1) + (s - 1) t).

    A = n ln(2) / 2 is the multiple nearest to |x|, s = exp(2 A) = 2**n and t = tanh(y). Any b is
    right; b = 1 - c with c = 13/8 / s is near tanh(A), so that the quotient is small and its roundings
    matter little, and what multiplies t or is added to it is exact. If n is 0, the result is t.
    """
    f = FORMAT[x.dtype]
    a = at_most(abs(x), TANH_IS_ONE[x.dtype])
    shift = f.magic + f.bias  # its sum with n ends with the exponent of 2**n
    shifted = fma(a, 2.0 * LOG2_E[0], shift)
    n = shifted - shift
    s = from_bits(bits(shifted) << f.fraction)
    c = from_bits(pattern(1.0, x.dtype) + pattern(1.625, x.dtype) - bits(s))
    y = fma(-n, 0.5 * parts(*LN2, x.dtype)[0], a)
    z = y * y
    t = fma(y * z, estrin(z, C["TANH", x.dtype]), y)
    below = 1.0 - s  # its sign bit tells whether n is 0, and chooses without a comparison
    q = fma(3.625 - c, t, c - 0.375) / fma(-below, t, s + 1.0)
    return copy_sign(where(bits(below) < 0, (1.0 - c) + q, t), x)


@function("sinh")
def sinh(x: V) -> V:
    """(E + E / (E + 1)) / 2 with E = expm1(|x|)."""
    a = abs(x)
    g = expm1_scaled(at_most(a, SINH_INFINITE[x.dtype]), 2)
    below = two_sum(constant(1.0, a), 4.0 * g.hi)
    q = divide(g, Pair(below.hi, below.lo + 4.0 * g.lo))
    alone = a > SINH_IS_EXP[x.dtype]
    s = fast_two_sum(g.hi, where(alone, 0.25, q.hi))
    y = 2.0 * (s.hi + (s.lo + (g.lo + where(alone, 0.0, q.lo))))
    return where(a < TINY[x.dtype], x, copy_sign(y, x))


@function("cosh")
def cosh(x: V) -> V:
    y, k = exp_unscaled(at_most(abs(x), EXP_RANGE[x.dtype][1] + 1.0))
    quarter = scale(y, k - 2)
    return 2.0 * (quarter + 0.0625 / quarter)


@function("asinh")
def asinh(x: V) -> V:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))), and log(2 a) for large a."""
    a = abs(x)
    large = a > LARGE[x.dtype]
    square = a * a
    t = a + square / (1.0 + sqrt(1.0 + square))
    u = log1p(where(large, a, t))
    y = where(large, u + LN2[0], u)
    return where(a < TINY[x.dtype], x, copy_sign(y, x))


@function("acosh")
def acosh(x: V) -> V:
    """log1p(t + sqrt(2 t + t**2)) with t = x - 1, and log(2 x) for large x."""
    large = x > LARGE[x.dtype]
    t = x - 1.0
    u = log1p(where(large, x, t + sqrt(fma(t, t, t + t))))
    return where(x < 1.0, math.nan, where(large, u + LN2[0], u))


@function("atanh")
def atanh(x: V) -> V:
    """log1p(2 a / (1 - a)) / 2."""
    a = abs(x)
    y = 0.5 * log1p((a + a) / (1.0 - a))
    return where(a < TINY[x.dtype], x, copy_sign(y, x))
