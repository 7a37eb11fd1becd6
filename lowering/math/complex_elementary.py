"""Hyperbolic and circular functions of complex numbers, and their inverses, by W. Kahan's formulas."""

import math
from collections.abc import Callable

from fnx.core.scalar import Expr

from .complex_arithmetic import (
    EXP_LIMIT,
    Pair,
    both,
    divide,
    either,
    f,
    is_finite,
    is_inf,
    is_nan,
    join,
    larger,
    root,
    same,
    split,
)
from .formulas import DOUBLE, V, copy_sign, fma, sqrt, where


def hyperbolic(x: V, y: V) -> tuple[V, V, V, V]:
    """sinh x cos y, cosh x sin y, cosh x cos y, sinh x sin y."""
    limit = EXP_LIMIT[x.dtype]
    big = abs(x) > limit
    e = f("exp", 0.5 * abs(x))
    sinh = where(big, copy_sign(0.5 * e, x), f("sinh", x))
    cosh = where(big, 0.5 * e, f("cosh", x))
    rest = where(big, e, 1.0)
    cos, sin = f("cos", y), f("sin", y)

    def times(h: V, c: V) -> V:
        """h c, where a zero factor wins over an infinity, and an infinity over NaN."""
        product = h * c * rest
        product = where(either(h.eq(0.0), c.eq(0.0)), h * where(is_finite(c), c, 0.0), product)
        exact_zero = both(c.eq(0.0), is_inf(h))
        return where(exact_zero, c * copy_sign(V(same(1.0, h)), h), product)

    sc, cs, cc, ss = times(sinh, cos), times(cosh, sin), times(cosh, cos), times(sinh, sin)
    wild = both(is_inf(x), f("not", is_finite(y)))
    # the imaginary part of a real argument is zero even beside NaN
    real = y.eq(0.0)
    cs = where(both(real, is_nan(x)), y, cs)
    ss = where(both(real, is_nan(x)), y, ss)
    return where(wild, x, sc), cs, where(wild, math.inf, cc), ss


def _sinh(z: Expr) -> Expr:
    re, im, _, _ = hyperbolic(*split(z))
    return join(re, im)


def _cosh(z: Expr) -> Expr:
    _, _, re, im = hyperbolic(*split(z))
    return join(re, im)


def _sin(z: Expr) -> Expr:
    """-i sinh(i z)"""
    x, y = split(z)
    re, im, _, _ = hyperbolic(-y, x)
    return join(im, -re)


def _cos(z: Expr) -> Expr:
    """cosh(i z)"""
    x, y = split(z)
    _, _, re, im = hyperbolic(-y, x)
    return join(re, im)


_TANH_LIMIT = {"float32": 11.0, "float64": 22.0}


def tangent(x: V, y: V) -> Pair:
    """tanh(x + iy), by Kahan's formula."""
    t = f("tan", y)
    s = f("sinh", where(abs(x) > _TANH_LIMIT[x.dtype], 1.0, x))
    beta = fma(t, t, 1.0)
    rho = sqrt(fma(s, s, 1.0))
    norm = fma(beta * s, s, 1.0)
    re, im = beta * rho * s / norm, t / norm
    e = f("exp", -abs(x))
    finite = is_finite(y)
    angle = where(finite, y, 0.0)
    far = 4.0 * f("sin", angle) * f("cos", angle) * e * e
    large = abs(x) > _TANH_LIMIT[x.dtype]
    unknown = both(f("not", finite), f("not", is_inf(x)))
    one = copy_sign(V(same(1.0, x)), x)
    re, im = where(large, one, re), where(large, far, im)
    re = where(both(unknown, x.ne(0.0)), math.nan, where(x.eq(0.0), x, re))
    im = where(unknown, math.nan, im)
    return re, where(y.eq(0.0), y, im)


def _tanh(z: Expr) -> Expr:
    return join(*tangent(*split(z)))


def _tan(z: Expr) -> Expr:
    """-i tanh(i z)"""
    x, y = split(z)
    re, im = tangent(-y, x)
    return join(im, -re)


def infinite(x: V, y: V) -> V:
    return either(is_inf(x), is_inf(y))


def arc_sine(x: V, y: V) -> Pair:
    a, b = root(1.0 + x, y)
    c, d = root(1.0 - x, -y)
    far = infinite(x, y)
    re = f("atan2", x, where(far, abs(y), a * c - b * d))
    im = f("asinh", c * b - d * a)
    im = where(far, copy_sign(V(same(math.inf, y)), y), im)
    return where(x.eq(0.0), x, re), im


def _asin(z: Expr) -> Expr:
    return join(*arc_sine(*split(z)))


def _acos(z: Expr) -> Expr:
    x, y = split(z)
    a, b = root(1.0 + x, y)
    c, d = root(1.0 - x, -y)
    far = infinite(x, y)
    re = where(far, f("atan2", abs(y), x), 2.0 * f("atan2", c, a))
    im = where(far, copy_sign(V(same(math.inf, y)), -y), f("asinh", a * d - b * c))
    return join(where(both(x.eq(0.0), is_nan(y)), math.pi / 2, re), im)


def _asinh(z: Expr) -> Expr:
    """i asin(-i z)"""
    x, y = split(z)
    re, im = arc_sine(y, -x)
    return join(-im, re)


def _acosh(z: Expr) -> Expr:
    x, y = split(z)
    a, b = root(x - 1.0, y)
    c, d = root(x + 1.0, y)
    far = infinite(x, y)
    re = where(far, math.inf, f("asinh", a * c + b * d))
    return join(re, where(far, f("atan2", y, x), 2.0 * f("atan2", b, c)))


def arc_tanh(x: V, y: V) -> Pair:
    """Scaled where squares would overflow: there it is 1/z, and a right angle."""
    huge = larger(abs(x), abs(y)) > (1e150 if x.dtype == DOUBLE.dtype else 1e18)
    p, q = where(huge, 1.0, x), where(huge, 1.0, y)
    one_less = 1.0 - abs(p)
    re = 0.25 * f("log1p", 4.0 * abs(p) / fma(one_less, one_less, q * q))
    im = 0.5 * f("atan2", 2.0 * q, one_less * (1.0 + abs(p)) - q * q)
    inverse, _ = divide((V(same(1.0, x)), V(same(0.0, x))), (x, y))
    right = copy_sign(V(same(math.pi / 2, y)), y)
    none = both(is_nan(x), f("not", is_inf(y)))
    re = where(huge, abs(inverse), re)
    re = where(either(is_inf(x), is_inf(y)), 0.0, where(none, x, re))
    im = where(huge, right, im)
    im = where(both(is_nan(y), is_finite(x)), y, where(none, x, im))
    im = where(both(is_nan(y), is_inf(x)), y, im)
    re = where(x.eq(0.0), x, copy_sign(re, x))
    return re, where(is_nan(im), im, copy_sign(im, y))


def _atanh(z: Expr) -> Expr:
    return join(*arc_tanh(*split(z)))


def _atan(z: Expr) -> Expr:
    """-i atanh(i z)"""
    x, y = split(z)
    re, im = arc_tanh(-y, x)
    return join(im, -re)


FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "sinh": _sinh,
    "cosh": _cosh,
    "sin": _sin,
    "cos": _cos,
    "tanh": _tanh,
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "atan": _atan,
}
