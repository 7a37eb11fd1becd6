"""Complex arithmetic and functions in terms of their real parts.

Special values follow C99, Annex G, where they can be had without branches. The algorithms are those
of W. Kahan, "Branch cuts for complex elementary functions" (1987), but for division and modulus,
which scale their operands by powers of two so that nothing overflows on the way.
"""

import math
from collections.abc import Callable

from fnx.core import scalar
from fnx.core.scalar import Expr

from .vmath.lang import DOUBLE, FORMAT, V, bits, copy_sign, fma, from_bits, sqrt, two_product, where

Pair = tuple[V, V]


def parts(z: Expr) -> tuple[Expr, Expr]:
    """Real and imaginary part."""
    if z.op == "complex":
        return z.args[0], z.args[1]
    return scalar.apply("real", z), scalar.apply("imag", z)


def split(z: Expr) -> Pair:
    re, im = parts(z)
    return V(re), V(im)


def join(re: V, im: V) -> Expr:
    return scalar.apply("complex", re.e, im.e)


def f(op: str, *args: V) -> V:
    return V(scalar.apply(op, *(a.e for a in args)))


def both(p: V, q: V) -> V:
    return f("and", p, q)


def either(p: V, q: V) -> V:
    return f("or", p, q)


def is_nan(x: V) -> V:
    return x.ne(x)


def is_inf(x: V) -> V:
    return abs(x).eq(math.inf)


def is_finite(x: V) -> V:
    return f("is_finite", x)


def larger(x: V, y: V) -> V:
    return where(x > y, x, y)


def smaller(x: V, y: V) -> V:
    return where(x > y, y, x)


# --- what is printed in place: a few operations ----------------------------------------------------


def _mul(z: Expr, w: Expr) -> Expr:
    (a, b), (c, d) = split(z), split(w)
    return join(a * c - b * d, a * d + b * c)


def _square(z: Expr) -> Expr:
    a, b = split(z)
    return join((a - b) * (a + b), 2 * a * b)


def _each(op: str) -> Callable[..., Expr]:
    """The operation on both parts."""

    def apply(*args: Expr) -> Expr:
        re, im = zip(*map(split, args), strict=True)
        return join(f(op, *re), f(op, *im))

    return apply


def _conj(z: Expr) -> Expr:
    re, im = split(z)
    return join(re, -im)


def _compare(op: str, combine: Callable[[V, V], V]) -> Callable[[Expr, Expr], Expr]:
    def apply(z: Expr, w: Expr) -> Expr:
        (a, b), (c, d) = split(z), split(w)
        return combine(f(op, a, c), f(op, b, d)).e

    return apply


def _order(op: str, strict: str) -> Callable[[Expr, Expr], Expr]:
    """Comparison by real parts, then by imaginary ones, as NumPy sorts."""

    def apply(z: Expr, w: Expr) -> Expr:
        (a, b), (c, d) = split(z), split(w)
        return either(f(strict, a, c), both(a.eq(c), f(op, b, d))).e

    return apply


def _extreme(order: str) -> Callable[[Expr, Expr], Expr]:
    def apply(z: Expr, w: Expr) -> Expr:
        (a, b), (c, d) = split(z), split(w)
        first, second = either(is_nan(a), is_nan(b)), either(is_nan(c), is_nan(d))
        take = either(first, both(f("not", second), V(scalar.apply(order, z, w))))
        return scalar.select(take.e, z, w)

    return apply


DERIVED: dict[str, Callable[..., Expr]] = {
    "add": _each("add"),
    "sub": _each("sub"),
    "neg": _each("neg"),
    "mul": _mul,
    "square": _square,
    "conj": _conj,
    "eq": _compare("eq", both),
    "ne": _compare("ne", either),
    "lt": _order("lt", "lt"),
    "le": _order("le", "lt"),
    "gt": _order("gt", "gt"),
    "ge": _order("ge", "gt"),
    "max": _extreme("ge"),
    "min": _extreme("le"),
    "is_finite": lambda z: both(*map(is_finite, split(z))).e,
}


# --- scaling ----------------------------------------------------------------------------------------


def inverse_scale(m: V) -> V:
    """A power of two s with m s in [1, 2), as far as s is a normal number."""
    form = FORMAT[m.dtype]
    most = 2 * form.bias - 2
    exponent = bits(m) >> form.fraction  # m is not negative
    exponent = where(exponent < 2, 2, exponent)
    exponent = where(exponent > most, most, exponent)
    return from_bits((2 * form.bias - exponent) << form.fraction)


def hypot(x: V, y: V) -> V:
    """sqrt(x**2 + y**2) without overflow; infinite if a part is, even beside NaN."""
    x, y = abs(x), abs(y)
    m, n = larger(x, y), smaller(x, y)
    s = inverse_scale(m)
    p, q = m * s, n * s
    result = sqrt(fma(p, p, q * q)) * (1.0 / s)
    result = where(is_nan(x + y), x + y, result)
    return where(either(x.eq(math.inf), y.eq(math.inf)), math.inf, result)


def _abs(z: Expr) -> Expr:
    return hypot(*split(z)).e


# --- division -----------------------------------------------------------------------------------------


def divide(z: Pair, w: Pair) -> Pair:
    (a, b), (c, d) = z, w
    s = inverse_scale(larger(abs(c), abs(d)))
    t = inverse_scale(larger(abs(a), abs(b)))
    p, q, u, v = a * t, b * t, c * s, d * s
    norm = fma(u, u, v * v)
    # the larger factor first, so that a quotient in range is not lost to underflow on the way
    small = s < 1.0
    first, second = where(small, 1.0 / t, s), where(small, s, 1.0 / t)
    re = (fma(p, u, q * v) / norm) * first * second
    im = (fma(q, u, -(p * v)) / norm) * first * second
    lost = both(is_nan(re), is_nan(im))
    # Annex G.5.1: a number by zero, an infinity by a number, a number by an infinity
    zero = both(lost, both(norm.eq(0.0), f("not", both(is_nan(a), is_nan(b)))))
    infinity = copy_sign(V(scalar.const(math.inf, a.dtype)), c)
    above = both(lost, both(either(is_inf(a), is_inf(b)), both(is_finite(c), is_finite(d))))
    below = both(lost, both(either(is_inf(c), is_inf(d)), both(is_finite(a), is_finite(b))))
    zeros, ones = V(same(0.0, a)), V(same(1.0, a))
    ka, kb, kc, kd = (copy_sign(where(is_inf(x), ones, zeros), x) for x in (a, b, c, d))
    re = where(above, math.inf * (ka * c + kb * d), where(below, 0.0 * (a * kc + b * kd), re))
    im = where(above, math.inf * (kb * c - ka * d), where(below, 0.0 * (b * kc - a * kd), im))
    return where(zero, infinity * a, re), where(zero, infinity * b, im)


def _div(z: Expr, w: Expr) -> Expr:
    return join(*divide(split(z), split(w)))


def _sign(z: Expr) -> Expr:
    x, y = split(z)
    s = inverse_scale(larger(abs(x), abs(y)))
    p, q = x * s, y * s
    norm = hypot(p, q)
    zero = norm.eq(0.0)
    return join(where(zero, x, p / norm), where(zero, y, q / norm))


# --- square root, exponential, logarithm ----------------------------------------------------------------


def root(x: V, y: V) -> Pair:
    form = FORMAT[x.dtype]
    m = larger(abs(x), abs(y))
    exponent = bits(m) >> form.fraction
    # scale by an even power of two, 4**-k, and the result by 2**k
    k = (exponent - form.bias) & -2
    low = 2 - form.bias + (form.bias & 1)
    k = where(k < low, low, where(k > form.bias - 3, form.bias - 3, k))
    s = from_bits((form.bias - k) << form.fraction)
    half = from_bits((V(scalar.apply("shift_right_arithmetic", k.e, same(1, k))) + form.bias) << form.fraction)
    p, q = abs(x) * s, abs(y) * s
    t = sqrt(0.5 * (p + sqrt(fma(p, p, q * q))))
    u = 0.5 * q / t
    t, u = t * half, u * half
    zero = m.eq(0.0)
    right = f("ge", x, V(same(0, x)))
    re, im = where(right, t, u), where(right, u, t)
    re, im = where(zero, 0.0, re), copy_sign(where(zero, 0.0, im), y)
    far = is_inf(x)
    re = where(far, where(x > 0, math.inf, where(is_nan(y), y, 0.0)), re)
    back = where(is_nan(y), y, copy_sign(V(same(math.inf, y)), y))
    ahead = where(is_nan(y), y, copy_sign(V(same(0.0, y)), y))
    im = where(far, where(x > 0, ahead, where(is_nan(y), math.inf, back)), im)
    re, im = where(is_nan(x), x, re), where(both(is_nan(x), f("not", is_inf(y))), x, im)
    tall = is_inf(y)
    return where(tall, math.inf, re), where(tall, y, im)


def same(value: float, like: V) -> Expr:
    return scalar.const(value, like.dtype)


def _sqrt(z: Expr) -> Expr:
    return join(*root(*split(z)))


def _rsqrt(z: Expr) -> Expr:
    one = V(same(1.0, split(z)[0]))
    return join(*divide((one, V(same(0.0, one))), root(*split(z))))


_EXP_LIMIT = {"float32": 88.0, "float64": 709.0}


def exponential(x: V, y: V, op: str = "exp") -> Pair:
    """op(x) cos y and op(x) sin y, where op(x) may overflow though they do not."""
    big = x > _EXP_LIMIT[x.dtype]
    e = f(op, where(big, 0.5 * x, x))
    rest = where(big, e, 1.0)
    re, im = e * f("cos", y) * rest, e * f("sin", y) * rest
    real = y.eq(0.0)
    none = both(x.eq(-math.inf), f("not", is_finite(y)))
    wild = both(x.eq(math.inf), f("not", is_finite(y)))
    re = where(real, e * rest, where(none, 0.0, where(wild, math.inf, re)))
    return re, where(real, y, where(none, 0.0, im))


def _exp(z: Expr) -> Expr:
    return join(*exponential(*split(z)))


def _exp2(z: Expr) -> Expr:
    x, y = split(z)
    return join(*exponential(x, y * math.log(2), "exp2"))


def _expm1(z: Expr) -> Expr:
    x, y = split(z)
    re, im = exponential(x, y)
    s = f("sin", 0.5 * y)
    near = f("expm1", x) * f("cos", y) - 2.0 * s * s
    re = where(abs(x) < 1.0, near, re - 1.0)
    return join(where(y.eq(0.0), f("expm1", x), re), im)


def log_abs(x: V, y: V) -> V:
    """log |x + iy|; near 1 from |z|**2 - 1, computed with twice the digits."""
    x, y = abs(x), abs(y)
    m, n = larger(x, y), smaller(x, y)
    square, other = two_product(m, m), two_product(n, n)
    excess = ((square.hi - 1.0) + other.hi) + (square.lo + other.lo)
    near = 0.5 * f("log1p", excess)
    s = inverse_scale(m)
    p, q = m * s, n * s
    form = FORMAT[m.dtype]
    k = V(scalar.cast((bits(s) >> form.fraction).e, "int32")) - form.bias
    k = V(scalar.cast(k.e, m.dtype))
    # p is in [1, 2): with a tiny logarithm of |z| the first case holds
    far = 0.5 * f("log", fma(p, p, q * q)) - k * math.log(2)
    result = where(both(m > 0.5, m < 2.0), near, far)
    result = where(m.eq(0.0), -math.inf, result)
    result = where(is_nan(x + y), x + y, result)
    return where(either(x.eq(math.inf), y.eq(math.inf)), math.inf, result)


def logarithm(x: V, y: V) -> Pair:
    return log_abs(x, y), f("atan2", y, x)


def _log(z: Expr) -> Expr:
    return join(*logarithm(*split(z)))


def _log_base(base: float) -> Callable[[Expr], Expr]:
    def log(z: Expr) -> Expr:
        re, im = logarithm(*split(z))
        return join(re * (1 / math.log(base)), im * (1 / math.log(base)))

    return log


def _log1p(z: Expr) -> Expr:
    x, y = split(z)
    far, im = logarithm(1.0 + x, y)
    near = 0.5 * f("log1p", fma(x, 2.0 + x, y * y))
    return join(where(both(abs(x) < 0.5, abs(y) < 0.5), near, far), im)


def _pow(z: Expr, w: Expr) -> Expr:
    (a, b), (c, d) = split(z), split(w)
    lr, li = logarithm(a, b)
    re, im = exponential(c * lr - d * li, c * li + d * lr)
    base_zero = both(a.eq(0.0), b.eq(0.0))
    power_zero = both(c.eq(0.0), d.eq(0.0))
    vanishes = both(base_zero, both(c > 0.0, d.eq(d)))
    re = where(power_zero, 1.0, where(vanishes, 0.0, re))
    return join(re, where(either(power_zero, vanishes), 0.0, im))


def _logistic(z: Expr) -> Expr:
    x, y = split(z)
    re, im = exponential(-x, -y)
    one = V(same(1.0, x))
    re, im = divide((one, V(same(0.0, x))), (re + 1.0, im))
    huge = x < -_EXP_LIMIT[x.dtype]
    return join(where(huge, 0.0, re), where(huge, 0.0, im))


# --- hyperbolic and circular functions -------------------------------------------------------------------


def hyperbolic(x: V, y: V) -> tuple[V, V, V, V]:
    """sinh x cos y, cosh x sin y, cosh x cos y, sinh x sin y."""
    limit = _EXP_LIMIT[x.dtype]
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
    "abs": _abs,
    "div": _div,
    "sign": _sign,
    "sqrt": _sqrt,
    "rsqrt": _rsqrt,
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log2": _log_base(2),
    "log10": _log_base(10),
    "log1p": _log1p,
    "pow": _pow,
    "logistic": _logistic,
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
