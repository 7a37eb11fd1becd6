"""Quotients by a known number as a product and a fused sum, rounded as the division is.

x / c is fma(x, high, x * low), where high is 1 / c cut off and low what is cut off: the error before
the only rounding that matters is some 2**-p units in the last place of p-bit numbers. So the
result can only be wrong where x / c is as near as that to the middle of two numbers. There are a
few such significands of x for each c, and they are tried here (Brisebarre, Muller and Raina,
"Accelerating correctly rounded floating-point division when the divisor is known in advance", 2004).

Both parts have the sign of 1 / c, so zeros, infinities and NaN are right as well. Where x * low is
subnormal, quotients below 1e-291 (1e-30 in float32) say, the last bit may differ.
"""

from functools import lru_cache
from math import frexp, isfinite, ldexp

_BITS = {"float64": 53, "float32": 24}
_RANGE = {"float64": 400, "float32": 40}  # exponents of divisors of which all parts are normal
_NEAR = 8  # a quotient whose distance to a middle is k / (2 c), c a p-bit integer, is safe for more


@lru_cache(maxsize=1024)
def parts(divisor: float, dtype: str) -> tuple[float, float] | None:
    """1 / divisor as high + low that make rounded quotients; None if there are none such."""
    p = _BITS.get(dtype)
    if p is None or divisor == 0 or not isfinite(divisor):
        return None
    fraction, exponent = frexp(abs(divisor))
    if abs(exponent) > _RANGE[dtype]:
        return None
    c = int(ldexp(fraction, p))  # the significand, in [2**(p - 1), 2**p)
    high = (1 << 2 * p - 1) // c  # of 1 / c times 2**(2 p - 1): p bits, or p + 1 for powers of two
    rest = (1 << 2 * p - 1) - high * c  # of c
    low, shift = _rounded(rest << 2 * p, c, p) if rest else (1, p)
    shift -= 2 * p
    for change in (0, 1, -1, 2, -2):
        found, hard = low + change, _hard(c, p, _NEAR * (1 + abs(change)))
        if all(_is_right(x, c, high, found, shift, p) for x in hard) and not found >> p:
            break
    else:
        return None
    sign, scale = (1 if divisor > 0 else -1), 1 - p - exponent
    return sign * ldexp(high, scale), sign * ldexp(found, scale + shift)


def _rounded(n: int, d: int, p: int) -> tuple[int, int]:
    """n / d as a p-bit integer, ties to even, and the power of two that it is multiplied by."""
    shift = n.bit_length() - d.bit_length() - p
    n, d = (n, d << shift) if shift >= 0 else (n << -shift, d)
    if n >= d << p:
        shift, d = shift + 1, d << 1
    q, r = divmod(n, d)
    return q + (2 * r > d or (2 * r == d and q & 1)), shift


def _is_right(x: int, c: int, high: int, low: int, shift: int, p: int) -> bool:
    """Whether x / c is what the product and the fused sum make of it."""
    product, more = _rounded(x * low, 1, p)
    more += shift
    total = (x * high << -more) + product if more < 0 else x * high + (product << more)
    at = min(more, 0)
    made, made_at = _rounded(total, 1, p)
    true, true_at = _rounded(x << 2 * p - 1, c, p)
    return made * 2 ** (made_at + at + 4 * p) == true * 2 ** (true_at + 4 * p)


def _hard(c: int, p: int, near: int) -> list[int]:
    """The p-bit integers whose quotients by c are nearest to the middle of two numbers."""
    zeros = (c & -c).bit_length() - 1
    odd, found = c >> zeros, []
    for m in (p - 1, p):  # x >= c, x < c: x * 2**m / c has p bits before its point
        inverse = pow(1 << (m - zeros), -1, odd) if odd > 1 else 0
        for k in range(1 << zeros, near + 1, 2 << zeros):
            for distance in (k, -k):
                x = (distance + c >> zeros + 1) * inverse % odd
                x += -(-((1 << p - 1) - x) // odd) * odd
                while x < 1 << p:
                    found.append(x)
                    x += odd
    return found
