"""Inverse trigonometric functions: asin, acos, atan, atan2."""

import math

from .coefficients import C
from .exp_log import parts
from .formulas import V, bits, constant, copy_sign, estrin, fma, function, sqrt, where

QUARTER_PI = 0.7853981633974483, 3.061616997868383e-17
HALF_PI = 1.5707963267948966, 6.123233995736766e-17
TAN_EIGHTH_PI = math.sqrt(2.0) - 1.0


def arctangent(a: V, b: V, eighths: V, negate: V) -> V:
    """`eighths` pi / 4 + atan(a / b) for 0 <= a <= b, the latter subtracted where `negate`."""
    middle = (a >= TAN_EIGHTH_PI * b) & (a > 0.0)
    t = where(middle, a - b, a) / where(middle, a + b, b)
    t = where(a.eq(b), 0.0, t)
    k = where(middle, where(negate, eighths - 1.0, eighths + 1.0), eighths)
    t = where(negate, -t, t)
    z = t * t
    hi, lo = parts(*QUARTER_PI, a.dtype)
    small = fma(k, lo, z * t * estrin(z, C["ATAN", a.dtype]))
    return fma(k, hi, t + small)


@function("atan")
def atan(x: V) -> V:
    a, one = abs(x), constant(1.0, x)
    steep = a > 1.0
    k = where(steep, constant(2.0, x), 0.0)
    return copy_sign(arctangent(where(steep, one, a), where(steep, a, one), k, steep), x)


@function("atan2")
def atan2(y: V, x: V) -> V:
    huge = where(abs(x) > abs(y), abs(x), abs(y)) > HUGE[x.dtype]
    factor = where(huge, constant(0.25, x), 1.0)
    ax, ay = abs(x) * factor, abs(y) * factor
    steep = ay > ax
    back = bits(x) < 0
    k = where(steep, constant(2.0, x), where(back, constant(4.0, x), 0.0))
    angle = arctangent(where(steep, ax, ay), where(steep, ay, ax), k, steep ^ back)
    return copy_sign(angle, y)


HUGE = {"float32": 2.0**125, "float64": 2.0**1021}  # above, a + b may overflow


def half_angle(x: V) -> tuple[V, V, V]:
    """|x| > 1/2, and s with asin(s) = s + rest: s is |x|, or sqrt((1 - |x|) / 2) for large |x|."""
    a = abs(x)
    large = a > 0.5
    z = where(large, fma(a, -0.5, 0.5), a * a)
    s = where(large, sqrt(z), a)
    return large, s, s * z * estrin(z, C["ASIN", x.dtype])


@function("asin")
def asin(x: V) -> V:
    large, s, rest = half_angle(x)
    hi, lo = parts(*HALF_PI, x.dtype)
    y = where(large, hi - (2.0 * s + (2.0 * rest - lo)), s + rest)
    return copy_sign(y, x)


@function("acos")
def acos(x: V) -> V:
    large, s, rest = half_angle(x)
    hi, lo = parts(*HALF_PI, x.dtype)
    s, rest = copy_sign(s, x), copy_sign(rest, x)
    near = hi - (s + (rest - lo))
    far = 2.0 * s + where(x < 0.0, fma(constant(2.0, x), rest, 2.0 * lo), 2.0 * rest)
    return where(large, where(x < 0.0, 2.0 * hi + far, far), near)
