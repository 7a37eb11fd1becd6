"""Hyperbolic functions and their inverses, by expm1 and log1p."""

import math

from .coefficients import C
from .exp_log import (
    EXP_RANGE,
    LN2,
    exp_reduce,
    exp_unscaled,
    expm1_scaled,
    log1p,
    power_of_two,
    scale,
)
from .lang import (
    Pair,
    V,
    at_most,
    constant,
    copy_sign,
    divide,
    fast_two_sum,
    fma,
    function,
    poly,
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
    """E / (E + 2) with E = expm1(2 |x|), and what roundings took of the quotient added to it."""
    a = at_most(abs(x), TANH_IS_ONE[x.dtype])
    k, r, lo = exp_reduce(a + a)
    s = power_of_two(k)
    e = fma(s, r + fma(r * r, poly(r, C["EXP", x.dtype]), lo), s - 1.0)
    d = two_sum(e, constant(2.0, x))
    inverse = 1.0 / d.hi
    q = e * inverse
    rest = fma(-q, d.lo, fma(-q, d.hi, e))
    return copy_sign(fma(rest, inverse, q), x)


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
