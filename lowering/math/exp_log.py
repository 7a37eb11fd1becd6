"""Exponentials and logarithms.

exp: x = n ln 2 + r, Cody and Waite's reduction (1980) in two fma; e**r by a minimax polynomial.
log: x = 2**k (1 + f), 1 + f between sqrt(1/2) and sqrt(2); log(1 + f) by a minimax polynomial in f
(float32) or in s = f / (2 + f) (float64; the arrangement is that of FreeBSD's msun, e_log.c).
"""

import math

import numpy as np

from .coefficients import C
from .formulas import (
    FORMAT,
    Pair,
    V,
    at_least,
    at_most,
    bits,
    constant,
    estrin,
    fast_two_sum,
    fma,
    from_bits,
    function,
    pattern,
    poly,
    two_product,
    two_sum,
    where,
)


def parts(hi: float, lo: float, dtype: str) -> tuple[float, float]:
    """A constant, given to 106 bits, as the sum of two numbers of the format."""
    if dtype == "float64":
        return hi, lo
    top = float(np.float32(hi))
    return top, float(np.float32(hi - top))


LN2 = 0.6931471805599453, 2.3190468138462996e-17
LOG2_E = 1.4426950408889634, 2.0355273740931033e-17
LOG10_E = 0.4342944819032518, 1.098319650216765e-17
LOG10_2 = 0.3010299956639812, -2.8037281277851704e-18

# exp overflows above and underflows to zero below
EXP_RANGE = {"float64": (-746.0, 710.0), "float32": (-104.0, 89.0)}
EXP2_RANGE = {"float64": (-1076.0, 1025.0), "float32": (-151.0, 129.0)}
EXPM1_LEAST = {"float64": -40.0, "float32": -20.0}


# --- exponentials ------------------------------------------------------------------------------


def power_of_two(n: V) -> V:
    """2**n, for an integer n of normal results."""
    f = FORMAT[n.dtype]
    return from_bits((n + f.bias) << f.fraction)


def scale(y: V, n: V) -> V:
    """y 2**n, for |n| up to twice the exponent range: two steps, so that denormals round once."""
    f = FORMAT[n.dtype]
    both = n + 2 * f.bias
    half = both >> 1
    return (y * from_bits(half << f.fraction)) * from_bits((both - half) << f.fraction)


def nearest(x: V, factor: float) -> tuple[V, V]:
    """n = the integer nearest to x * factor, as a float and as an integer."""
    f = FORMAT[x.dtype]
    t = fma(x, factor, f.magic)
    return t - f.magic, bits(t) - pattern(f.magic, x.dtype)


def exp_reduce(x: V) -> tuple[V, V, V]:
    """x = n ln 2 + r + lo: integer n, r exact, and lo not yet added."""
    n, k = nearest(x, LOG2_E[0])
    hi, lo = parts(*LN2, x.dtype)
    return k, fma(-n, hi, x), n * -lo


def exp_unscaled(x: V) -> tuple[V, V]:
    """e**x as y 2**k, y near 1; x within EXP_RANGE."""
    n, k = nearest(x, LOG2_E[0])
    hi, lo = parts(*LN2, x.dtype)
    r = fma(-n, lo, fma(-n, hi, x))
    return 1.0 + fma(r * r, estrin(r, C["EXP", x.dtype]), r), k


@function("exp")
def exp(x: V) -> V:
    least, most = EXP_RANGE[x.dtype]
    return scale(*exp_unscaled(at_least(at_most(x, most), least)))


@function("exp2")
def exp2(x: V) -> V:
    least, most = EXP2_RANGE[x.dtype]
    n, k = nearest(at_least(at_most(x, most), least), 1.0)
    r = at_least(at_most(x, most), least) - n
    return scale(fma(r, poly(r, C["EXP2", x.dtype]), 1.0), k)


def expm1_scaled(x: V, shift: int = 1) -> Pair:
    """expm1(x) / 2**shift: a little less, so that 2**k does not overflow before the result."""
    k, r, lo = exp_reduce(x)
    r_pair = fast_two_sum(r, lo)
    r = r_pair.hi
    rest = fma(r * r, estrin(r, C["EXP", x.dtype]), r_pair.lo)
    s = power_of_two(k - shift)
    y = fast_two_sum(s - 0.5**shift, s * r)
    return fast_two_sum(y.hi, fma(s, rest, y.lo))


@function("expm1")
def expm1(x: V) -> V:
    y = expm1_scaled(at_least(at_most(x, EXP_RANGE[x.dtype][1]), EXPM1_LEAST[x.dtype]))
    return where(abs(x) < FORMAT[x.dtype].epsilon / 4, x, 2.0 * (y.hi + y.lo))


@function("logistic")
def logistic(x: V) -> V:
    least, _ = EXP_RANGE[x.dtype]
    z = scale(*exp_unscaled(at_least(-abs(x), least)))
    return where(x < 0.0, z, 1.0) / (1.0 + z)


# --- logarithms --------------------------------------------------------------------------------


def shift(dtype: str) -> int:
    """By how many powers of two a denormal number is made a normal one."""
    return FORMAT[dtype].fraction + 2


def split_exponent(x: V, small: V | None = None) -> tuple[V, V, V]:
    """x = 2**k m, m in [sqrt(1/2), sqrt(2)): k as float, m, k shifted to the exponent's place.

    Of those that are `small` x is 2**shift times as large, which is taken from the k that is a float.
    """
    f = FORMAT[x.dtype]
    root = pattern(math.sqrt(0.5), x.dtype)
    i = bits(x) + (pattern(1.0, x.dtype) - root)
    m = from_bits((i & ((1 << f.fraction) - 1)) + root)
    # biased exponents are small positive integers: put under the exponent of 2**fraction,
    # they are converted by a subtraction (AVX2 cannot convert 64-bit integers)
    base = 2.0**f.fraction
    zero = constant(base + f.bias, x)
    if small is not None:
        zero = where(small, base + f.bias + shift(x.dtype), zero)
    k = from_bits((i >> f.fraction) | pattern(base, x.dtype)) - zero
    return k, m, i & (-1 << f.fraction)


def log_reduce(x: V) -> tuple[V, V]:
    """x = 2**k (1 + f) for positive finite x, denormals included."""
    small = x < FORMAT[x.dtype].tiny
    k, m, _ = split_exponent(where(small, x * 2.0 ** shift(x.dtype), x), small)
    return k, m - 1.0


def log1p_tail(f: V, half: V) -> V:
    """log(1 + f) - f + f**2 / 2, for 1 + f in [sqrt(1/2), sqrt(2)]; `half` is f**2 / 2."""
    if f.dtype == "float32":
        return (f * f) * f * estrin(f, C["LOG1P", f.dtype])
    s = f / (2.0 + f)
    z = s * s
    return s * fma(z, estrin(z, C["LOG", f.dtype]), half)


def log1p_pair(f: V) -> Pair:
    """log(1 + f) for 1 + f in [sqrt(1/2), sqrt(2)], the low part not normalised."""
    half = two_product(f * 0.5, f)
    y = fast_two_sum(f, -half.hi)
    return Pair(y.hi, y.lo - half.lo + log1p_tail(f, half.hi))


def log_special(x: V, y: V) -> V:
    """y = log(x), corrected for all that is not positive and finite."""
    y = where(bits(x) < 0, math.nan, where(x < math.inf, y, x))
    return where(x.eq(0.0), -math.inf, y)


@function("log")
def log(x: V) -> V:
    k, f = log_reduce(x)
    hi, lo = parts(*LN2, x.dtype)
    m = 0.5 * f
    rest = fma(-m, f, fma(k, lo, log1p_tail(f, m * f)))
    return log_special(x, fma(k, hi, f + rest))


def log_pair(k: V, y: Pair) -> Pair:
    """k ln 2 + y."""
    hi, lo = parts(*LN2, k.dtype)
    a = two_product(k, hi)
    s = fast_two_sum(a.hi, y.hi)
    return Pair(s.hi, s.lo + (a.lo + fma(k, lo, y.lo)))


def _log_base(x: V, per_octave: tuple[float, float], factor: tuple[float, float]) -> V:
    """(k + log2(1 + f)) in another base: log 2 and log e in it."""
    k, f = log_reduce(x)
    y = log1p_pair(f)
    hi, lo = parts(*factor, x.dtype)
    p = two_product(y.hi, hi)
    low = fma(y.hi, lo, fma(y.lo, hi, p.lo))
    hi, lo = parts(*per_octave, x.dtype)
    octaves = k * hi
    s = fast_two_sum(octaves, p.hi)
    low = low + fma(k, hi, -octaves) + k * lo
    return log_special(x, s.hi + (s.lo + low))


@function("log2")
def log2(x: V) -> V:
    return _log_base(x, (1.0, 0.0), LOG2_E)


@function("log10")
def log10(x: V) -> V:
    return _log_base(x, LOG10_2, LOG10_E)


@function("log1p")
def log1p(x: V) -> V:
    fmt = FORMAT[x.dtype]
    u = two_sum(constant(1.0, x), x)
    k, m, exponent = split_exponent(u.hi)
    # 2**(1-k), and zero for the largest: there the error of 1 + x does not matter
    weight = from_bits(pattern(2.0, x.dtype) - (exponent - pattern(1.0, x.dtype)))
    f = fast_two_sum(m - 1.0, u.lo * 0.5 * weight)
    y = log1p_pair(f.hi)
    hi, lo = parts(*LN2, x.dtype)
    y_low = y.lo + fma(-f.hi, f.lo, f.lo)
    result = k * hi + (y.hi + fma(k, lo, y_low))
    outside = where(x.eq(-1.0), constant(-math.inf, x), math.nan)
    result = where(x > -1.0, where(x < math.inf, result, x), outside)
    return where(abs(x) < fmt.epsilon / 4, x, result)
