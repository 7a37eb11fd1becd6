"""Complex arithmetic, roots, exponentials and logarithms in terms of real parts.

Special values follow C99, Annex G, where they can be had without branches. The algorithms are those
of W. Kahan, "Branch cuts for complex elementary functions" (1987), but for division and modulus,
which scale their operands by powers of two so that nothing overflows on the way.
"""

import math
from collections.abc import Callable

from fnx.core import scalar
from fnx.core.scalar import Expr

from .formulas import FORMAT, V, bits, copy_sign, fma, from_bits, sqrt, two_product, where

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


# --- what is printed in place: a few operations ------------------------------------------------


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


# --- scaling -----------------------------------------------------------------------------------


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


# --- division ----------------------------------------------------------------------------------


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


# --- square root, exponential, logarithm -------------------------------------------------------


def root(x: V, y: V) -> Pair:
    form = FORMAT[x.dtype]
    m = larger(abs(x), abs(y))
    exponent = bits(m) >> form.fraction
    # scale by an even power of two, 4**-k, and the result by 2**k
    k = (exponent - form.bias) & -2
    low = 2 - form.bias + (form.bias & 1)
    k = where(k < low, low, where(k > form.bias - 3, form.bias - 3, k))
    s = from_bits((form.bias - k) << form.fraction)
    half = from_bits(
        (V(scalar.apply("shift_right_arithmetic", k.e, same(1, k))) + form.bias) << form.fraction
    )
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


EXP_LIMIT = {"float32": 88.0, "float64": 709.0}


def exponential(x: V, y: V, op: str = "exp") -> Pair:
    """op(x) cos y and op(x) sin y, where op(x) may overflow though they do not."""
    big = x > EXP_LIMIT[x.dtype]
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
    huge = x < -EXP_LIMIT[x.dtype]
    return join(where(huge, 0.0, re), where(huge, 0.0, im))


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
}
