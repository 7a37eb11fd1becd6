"""Error functions and the logarithm of the gamma function with its derivative."""

import math

from .coefficients import C
from .exp_log import (
    exp_reduce,
    log,
    log1p_pair,
    log_pair,
    log_reduce,
    power_of_two,
    scale,
    split_exponent,
)
from .formulas import (
    Pair,
    V,
    at_most,
    constant,
    copy_sign,
    double,
    estrin,
    fast_two_sum,
    fma,
    function,
    horner,
    poly,
    rint,
    single,
    sqrt,
    two_product,
    two_sum,
    where,
)

ERF_SPLIT = {"float32": 1.0, "float64": 0.9}
ERF_IS_ONE = {"float32": 3.95, "float64": 6.0}
ERFC_IS_ZERO = {"float32": 10.5, "float64": 28.0}
ERFC_CENTRE = 2.0


def exp_sum(x: V, small: V) -> tuple[V, V]:
    """e**(x + small) as (1 + t) 2**k."""
    k, r, lo = exp_reduce(x)
    r = r + (lo + small)
    return fma(r * r, estrin(r, C["EXP", x.dtype]), r), k


@function("erf", "float64")
def erf(x: V) -> V:
    """a + a P(a**2), or 1 - exp(-a Q(a)), which is accurate where erf is near 1."""
    a = abs(x)
    b = at_most(a, ERF_IS_ONE[x.dtype])
    t, k = exp_sum(-b * poly(b, C["ERF_TAIL", x.dtype]), constant(0.0, x))
    large = fma(-(1.0 + t), power_of_two(k), 1.0)
    small = fma(a, poly(a * a, C["ERF", x.dtype]), a)
    return copy_sign(where(a < ERF_SPLIT[x.dtype], small, large), x)


@function("erf", "float32")
def erf_single(x: V) -> V:
    """a + a P(a**2), or 1 - Q(a)**4: the fourth root of erfc is near a polynomial of low degree."""
    a = abs(x)
    q = horner(at_most(a, ERF_IS_ONE[x.dtype]), C["ERFC_ROOT", x.dtype])
    q = q * q
    large = fma(-q, q, 1.0)
    small = fma(a, horner(a * a, C["ERF_NARROW", x.dtype]), a)
    return copy_sign(where(a < ERF_SPLIT[x.dtype], small, large), x)


@function("erfc")
def erfc(x: V) -> V:
    """exp(-a**2) P(q) / (a + c) with q = (a - c) / (a + c), c = ERFC_CENTRE (Shepherd, Laframboise).

    The correction of q is N. Juffa's.
    """
    c = ERFC_CENTRE
    a = at_most(abs(x), ERFC_IS_ZERO[x.dtype])
    below = a + c
    inverse = 1.0 / below
    q = (a - c) * inverse
    rest = fma(q, -a, fma(q + 1.0, -c, a))
    q = fma(inverse, rest, q)
    name = "ERFC" if x.dtype == "float32" else "ERFC_WIDE"
    square = two_product(a, a)
    t, k = exp_sum(-square.hi, -square.lo)
    above = poly(q, C[name, x.dtype])
    y = above * inverse
    rest = fma(-y, a - (below - c), fma(-y, below, above))  # the first term: a + c was rounded
    y = fma(rest, inverse, y)
    y = scale(fma(t, y, y), k)
    return where(x < 0.0, 2.0 - y, y)


def ratio(name: str, x: V, dtype: str = "float64") -> tuple[V, V]:
    """Numerator and denominator of a rational function."""
    return horner(x, C[name + "_P", dtype]), horner(x, C[name + "_Q", dtype])


@function("erf_inv")
def erf_inv(x: V) -> V:
    """a R(a**2), or s + R(s) with s = sqrt(-log(1 - a)) for a > 3/4."""
    narrow = x.dtype == "float32"
    a = abs(x)
    tail = a > 0.75
    s = sqrt(-log(1.0 - a))
    top, bottom = ratio("ERF_INV_TAIL" + "_NARROW" * narrow, s - 1.0)
    above, below = ratio("ERF_INV" + "_NARROW" * narrow, fma(a, a, -0.5625))
    r = where(tail, top, a * above) / where(tail, bottom, below)
    y = where(tail, s + r, fma(a, 0.875, r))
    return copy_sign(where(a.eq(1.0), math.inf, y), x)


# --- gamma -------------------------------------------------------------------------------------

STIRLING_FROM = 3.0
STIRLING_CONSTANT = 0.4189385332046727  # log(2 pi) / 2 - 1/2
DIGAMMA_ROOT = 1.4616321449683622, 9.549995429965697e-17


def log_of_large(z: V) -> Pair:
    """log z in two words, z >= 1/2."""
    k, m, _ = split_exponent(z)
    return log_pair(k, log1p_pair(m - 1.0))


def log_terms(x: V) -> tuple[V, Pair]:
    """k and log(1 + f) for x = 2**k (1 + f), positive."""
    k, f = log_reduce(x)
    return k, log1p_pair(f)


def reflected(x: V) -> tuple[V, V, V, V]:
    """x < 1/2, then 1 - x for x; f, the distance of x from an integer; sin(pi f) / pi."""
    reflect = x < 0.5
    f = x - rint(x)
    z = f * f
    return reflect, where(reflect, 1.0 - x, x), f, fma(z * f, estrin(z, C["SIN_PI", x.dtype]), f)


@function("lgamma", "float64")
def lgamma(x: V) -> V:
    """log |gamma(x)|: a rational function below 3, Stirling's series above, reflection for x < 1/2."""
    reflect, z, f, sine = reflected(x)
    large = z >= STIRLING_FROM
    top, bottom = ratio("LGAMMA", z - 0.5)
    r = where(large, 1.0, top) / where(large, z, bottom)
    v = (z - 1.0) * (z - 2.0)
    small = fma(v, 0.4375, v * r)
    y = log_of_large(z)
    y = fast_two_sum(y.hi, y.lo - 1.0)
    series = fma(r, poly(r * r, C["STIRLING", x.dtype]), STIRLING_CONSTANT)
    factor = z - 0.5
    rest = fma(factor, y.lo, series)
    positive = where(large, fma(factor, y.hi, rest), small) + 0.0  # not -0
    # both terms in two words: they cancel near the zeros on the negative axis
    p = two_product(factor, y.hi)
    sines = log_pair(*log_terms(abs(sine)))
    s = two_sum(sines.hi, where(large, p.hi, small))
    result = where(
        reflect, -(s.hi + (s.lo + (sines.lo + where(large, p.lo + rest, 0.0)))), positive
    )
    return where((reflect & f.eq(0.0)) | abs(x).eq(math.inf), math.inf, result)


@function("digamma", "float64")
def digamma(x: V) -> V:
    """Derivative of lgamma, by the same cases; -inf at 0, NaN at the negative integers."""
    reflect, z, f, sine = reflected(x)
    large = z >= STIRLING_FROM
    top, bottom = ratio("DIGAMMA", z - 0.5)
    r = where(large, 1.0, top) / where(large, z, bottom)
    v = (z - DIGAMMA_ROOT[0]) - DIGAMMA_ROOT[1]
    small = fma(v, 0.75, v * r)
    y = log_of_large(z)
    u = r * r
    series = fma(u, poly(u, C["DIGAMMA_SERIES", x.dtype]), 0.5 * r)
    positive = where(large, y.hi + (y.lo - series), small)
    a = abs(f)
    cosine = fma(a, -2.0, 1.0) * fma(a, 2.0, 1.0) * poly(f * f, C["COS_PI", x.dtype])
    result = where(reflect, positive - cosine / sine, positive)
    pole = where(x.eq(0.0), copy_sign(constant(math.inf, x), -x), math.nan)
    result = where(reflect & f.eq(0.0), pole, result)
    return where(x.eq(math.inf), x, result)


@function("lgamma", "float32")
def lgamma_single(x: V) -> V:
    return single(lgamma(double(x)))


@function("digamma", "float32")
def digamma_single(x: V) -> V:
    return single(digamma(double(x)))
