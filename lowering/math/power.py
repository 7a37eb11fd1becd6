"""Powers and roots: pow, cbrt, rsqrt.

pow = exp2(y log2 |x|), the logarithm in two words for float64 (66 bits), in float64 for float32.
"""

import math

from fnx.core.scalar import cast

from .coefficients import C
from .exp_log import LOG2_E, log_reduce, nearest, power_of_two, scale, split_exponent
from .formulas import (
    FORMAT,
    Pair,
    V,
    at_least,
    at_most,
    bits,
    constant,
    copy_sign,
    divide,
    double,
    estrin,
    fast_two_sum,
    flip_sign,
    floor,
    fma,
    from_bits,
    function,
    poly,
    sign_bit,
    single,
    sqrt,
    two_product,
    where,
)

TWO_THIRDS = 0.6666666666666666, 3.700743415417188e-17


def multiply(a: Pair, b: Pair) -> Pair:
    p = two_product(a.hi, b.hi)
    return Pair(p.hi, fma(a.hi, b.lo, fma(a.lo, b.hi, p.lo)))


def log2_wide(x: V) -> Pair:
    """log2 of a positive finite float64, relative error about 2**-66."""
    k, f = log_reduce(x)
    zero = constant(0.0, x)
    z = divide(Pair(f, zero), fast_two_sum(constant(2.0, x), f))
    w = multiply(z, z)
    c = fast_two_sum(constant(TWO_THIRDS[0], x), w.hi * estrin(w.hi, C["LOG_WIDE", x.dtype]))
    v = multiply(z, multiply(w, Pair(c.hi, c.lo + TWO_THIRDS[1])))
    s = fast_two_sum(2.0 * z.hi, v.hi)
    natural = Pair(s.hi, s.lo + fma(constant(2.0, x), z.lo, v.lo))
    p = multiply(natural, Pair(constant(LOG2_E[0], x), constant(LOG2_E[1], x)))
    total = fast_two_sum(k, p.hi)
    return Pair(total.hi, total.lo + p.lo)


def log2_narrow(x: V) -> V:
    """log2 of a positive finite float64, relative error about 2**-36."""
    k, m, _ = split_exponent(x)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    return k + s * fma(z, estrin(z, C["LOG_NARROW", x.dtype]), 2.0 * LOG2_E[0])


def with_limits(a: V, log2: V) -> V:
    """log2 of a, also where a is zero, infinite or NaN."""
    return where(a.eq(0.0), -math.inf, where(a < math.inf, log2, a))


def magnitude(a: V, y: V) -> V:
    """a**y for a >= 0, but for 1**inf and 0**0 and their like."""
    if a.dtype == "float32":
        wide = double(a)
        e = at_least(at_most(double(y) * with_limits(wide, log2_narrow(wide)), 200.0), -200.0)
        n, k = nearest(e, 1.0)
        r = e - n
        return single(fma(r, estrin(r, C["EXP2_NARROW", r.dtype]), 1.0) * power_of_two(k))
    log2 = log2_wide(a)
    top = with_limits(a, log2.hi)
    p = y * top
    low = fma(y, log2.hi, -p) + y * log2.lo
    low = where(abs(p) < 1100.0, low, 0.0)
    p = at_least(at_most(p, 1100.0), -1100.0)
    n, k = nearest(p, 1.0)
    r = (p - n) + low
    return scale(fma(r, poly(r, C["EXP2", r.dtype]), 1.0), k)


@function("pow")
def pow(x: V, y: V) -> V:
    """C99's pow, all special cases."""
    a = abs(x)
    whole = floor(y).eq(y)
    half = 0.5 * y
    odd = whole & floor(half).ne(half)
    result = magnitude(a, y)
    result = where((x < 0.0) & (x > -math.inf) & ~whole, math.nan, result)
    one = y.eq(0.0) | x.eq(1.0) | (x.eq(-1.0) & abs(y).eq(math.inf))
    sign = sign_bit(x)
    return where(one, 1.0, flip_sign(result, where(odd, sign, 0)))


# Subtracted from a third of the bits of a, these give a**(-1/3) to a few per cent.
CBRT_GUESS = {"float32": 0x54A2FA8C, "float64": 0x553EF0FF}
CBRT_SHIFT = {"float32": 24, "float64": 54}


def inverse_cbrt_guess(a: V) -> V:
    guess = CBRT_GUESS[a.dtype]
    if a.dtype == "float64":
        return from_bits((constant(guess, bits(a)) - ((bits(a) >> 32) * 0x55555556 >> 32)) << 32)
    # in float32, for want of a wide product: 2**31 has its units at bit 8
    t = fma(V(cast(bits(a).e, "float32")), -1.0 / 3.0, float(guess + (1 << 31)))
    return from_bits(bits(t) << 8)


@function("cbrt")
def cbrt(x: V) -> V:
    """a y**2 with y near a**(-1/3), by the series of (1 - e)**(-1/3), and a Newton step at the end."""
    shift = CBRT_SHIFT[x.dtype]
    small = abs(x) < FORMAT[x.dtype].tiny * 2.0**10
    a = abs(x) * where(small, constant(2.0**shift, x), 0.125)  # so that t**3 cannot overflow
    y = inverse_cbrt_guess(a)
    e = fma(-(a * y * y), y, 1.0)
    y = fma(y * e, fma(e, fma(e, 14 / 81, 2 / 9), 1 / 3), y)
    if x.dtype == "float64":
        e = fma(-(a * y * y), y, 1.0)
        y = fma(y * e, fma(e, 2 / 9, 1 / 3), y)
    t = a * y * y
    square = two_product(t, t)
    cube = two_product(square.hi, t)
    rest = ((a - cube.hi) - cube.lo) - square.lo * t
    t = fma(rest, y * y * (1 / 3), t)
    t = t * where(small, constant(2.0 ** (-shift // 3), x), 2.0)
    return where((abs(x) > 0.0) & (abs(x) < math.inf), copy_sign(t, x), x)


@function("rsqrt")
def rsqrt(x: V) -> V:
    return 1.0 / sqrt(x)
