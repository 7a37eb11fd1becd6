"""The remainder of a truncated division, x - trunc(x / y) y, exactly: C's fmod.

Let n be the whole part of |x / y|, below 2**p. Rounding is monotonic and whole numbers up to 2**p are
p-bit numbers, so the rounded quotient, if it is less than 2**p, truncates to n or to n + 1.
- |x| - n |y|, the remainder, is a number of the format: a multiple of the smaller of the units of x and
  y, and at most as large as either. So one fused product and sum gives it exactly.
- |x| - (n + 1) |y| is negative and nearer to zero than |y| is. Where n = 0 its terms are within a factor
  of two, so it is exact (Sterbenz 1974). Where n > 0 the unit of y is the smaller one, and it is a multiple
  of that, exact as well. Its sum with |y| is the remainder.
"""

from fnx.core import scalar

from .formulas import FORMAT, V, copy_sign, fma, trunc, two_ways, where

INFINITE = float("inf")


def is_usual(x: V, y: V) -> V:
    """Whether `usual` is right: for quotients below 2**p, NaN, and infinite x."""
    a, b = abs(x), abs(y)
    large = a / b >= 2.0 ** (FORMAT[x.dtype].fraction + 1)
    return ~((large & (a < INFINITE)) | b.eq(INFINITE))


def usual(x: V, y: V) -> V:
    a, b = abs(x), abs(y)
    r = fma(-trunc(a / b), b, a)
    return copy_sign(where(r < 0.0, r + b, r), x)


def always(x: V, y: V) -> V:
    return V(scalar.apply("fmod", x.e, y.e))


two_ways("rem", is_usual, usual, always)
