"""Gamma and beta functions, factorials, binomial coefficients."""

import math

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy.arrays.util import constant, fit, integer, promote_inexact, to_array
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.reductions import reduce
from fnx.ops.elementwise import special as prims


def _floats(name, *xs):
    return fit(name, promote_inexact(name, *xs))


def gammaln(x):
    """The logarithm of the absolute value of the gamma function.

    >>> fnx.scipy.special.gammaln(5.0)
    Array(3.17805383, dtype=float64, weak_type=True)
    """
    return prims.lgamma(*_floats("gammaln", x))


def loggamma(x):
    """The logarithm of the gamma function; nan where real numbers are negative.

    Of complex numbers, the branch that is real for positive ones and has its cut along negative ones.

    >>> fnx.scipy.special.loggamma(jnp.array([5.0, 0.5]))
    Array([3.17805383, 0.57236494], dtype=float64)
    """
    (x,) = _floats("loggamma", x)
    if dtypes.is_complex(x.dtype):
        return _complex_loggamma(x)
    return u.where3(x < 0, math.nan, prims.lgamma(x))


def gammasgn(x):
    """The sign of the gamma function: 1 for x > 0, alternating below, nan at poles.

    >>> fnx.scipy.special.gammasgn(jnp.array([1.5, -0.5, -1.5]))
    Array([ 1., -1.,  1.], dtype=float64)
    """
    (x,) = _floats("gammasgn", x)
    floor = u.floor(x)
    one = constant(1, x.dtype, False)
    odd = u.remainder(floor, 2.0) != 0
    sign = u.where3(u.logical_and(x < 0, odd), -one, one)
    pole = u.logical_and(x < 0, floor == x)
    sign = u.where3(u.logical_or(pole, u.isneginf(x)), math.nan, sign)
    sign = u.where3(u.logical_and(x == 0, u.signbit(x)), -one, sign)
    return u.where3(u.isnan(x), math.nan, sign)


def gamma(x):
    """The gamma function.

    >>> fnx.scipy.special.gamma(5.0)
    Array(24., dtype=float64)
    """
    (x,) = _floats("gamma", x)
    if dtypes.is_complex(x.dtype):
        pole = u.logical_and(u.imag(x) == 0, u.logical_and(u.real(x) <= 0, u.real(x) % 1 == 0))
        return u.where3(pole, complex(math.nan, math.nan), u.exp(_complex_loggamma(x)))
    return gammasgn(x) * u.exp(prims.lgamma(x))


# Lanczos' coefficients for g = 607 / 128 (Godfrey 2001).
_LANCZOS = (
    0.99999999999999709182, 57.156235665862923517, -59.597960355475491248, 14.136097974741747174,
    -0.49191381609762019978, 0.33994649984811888699e-4, 0.46523628927048575665e-4,
    -0.98374475304879564677e-4, 0.15808870322491248884e-3, -0.21026444172410488319e-3,
    0.21743961811521264320e-3, -0.16431810653676389022e-3, 0.84418223983852743293e-4,
    -0.26190838401581408670e-4, 0.36899182659531622704e-5,
)  # fmt: skip


def _complex_loggamma(z):
    """By Lanczos' series in the right half plane, by reflection in the left one."""
    below = u.signbit(u.imag(z))
    z = u.where3(below, u.conjugate(z), z)
    left = u.real(z) < 0.5
    w = u.where3(left, 1 - z, z) - 1
    total = _LANCZOS[0] + sum(c / (w + k) for k, c in enumerate(_LANCZOS) if k)
    base = w + (607 / 128 + 0.5)
    found = (w + 0.5) * u.log(base) - base + u.log(math.sqrt(2 * math.pi) * total)
    # log(sin(pi z)), continued through the upper half plane, where exp(2 pi i z) is small.
    turns = u.where3(left, z, 0.25 + 1j)
    small = u.expm1(2j * math.pi * (turns - u.round(u.real(turns)).astype(z.dtype)))
    log_sine = 1j * math.pi * (0.5 - turns) + u.log(-small) - math.log(2)
    found = u.where3(left, math.log(math.pi) - log_sine - found, found)
    return u.where3(below, u.conjugate(found), found)


def digamma(x):
    """The derivative of the logarithm of the gamma function.

    >>> fnx.scipy.special.digamma(jnp.array([1.0, 2.0]))
    Array([-0.57721566,  0.42278434], dtype=float64)
    """
    return prims.digamma(*_floats("digamma", x))


def polygamma(n, x):
    """The derivative of order n of `digamma`.

    TypeError for complex numbers.

    >>> fnx.scipy.special.polygamma(1, jnp.array([1.0]))
    Array([1.64493407], dtype=float64)
    """
    n_dtype = to_array(n, "polygamma").dtype
    if not dtypes.is_integer(n_dtype) and not dtypes.is_float(n_dtype):
        raise TypeMismatch(f"polygamma of order of dtype {n_dtype}; expected integers or floats")
    n, x = _floats("polygamma", n, x)
    u.without_complex("polygamma", x)
    return prims.polygamma(n, x)


def zeta(x, q=None):
    """The Hurwitz zeta function: the sum of (k + q)**-x.

    NotImplementedError without q.

    >>> fnx.scipy.special.zeta(jnp.array([2.0, 4.0]), 1.0)
    Array([1.64493407, 1.08232323], dtype=float64)
    """
    if q is None:
        raise NotImplementedError(
            "zeta of one argument, the Riemann zeta function; expected zeta(x, q)"
        )
    return prims.zeta(*_floats("zeta", x, q))


def gammainc(a, x):
    """The regularized lower incomplete gamma function.

    >>> fnx.scipy.special.gammainc(1.0, jnp.array([0.0, jnp.log(2.0)]))
    Array([0. , 0.5], dtype=float64)
    """
    return prims.igamma(*_floats("gammainc", a, x))


def gammaincc(a, x):
    """The regularized upper incomplete gamma function.

    >>> fnx.scipy.special.gammaincc(1.0, jnp.array([0.0, jnp.log(2.0)]))
    Array([1. , 0.5], dtype=float64)
    """
    return prims.igammac(*_floats("gammaincc", a, x))


def betaln(a, b):
    """The logarithm of the absolute value of the beta function.

    >>> fnx.scipy.special.betaln(jnp.array([2.0]), 3.0)
    Array([-2.48490665], dtype=float64)
    """
    a, b = promote_inexact("betaln", a, b)
    a, b = u.minimum(a, b), u.maximum(a, b)
    plain = prims.lgamma(b) - prims.lgamma(u.add(a, b))
    far = u.logical_and(b >= 10, a > 0)
    return prims.lgamma(a) + u.where3(
        far, _far_ratio(*(u.where3(far, x, 10.0) for x in (a, b))), plain
    )


def _far_ratio(a, b):
    """lgamma(b) - lgamma(a + b) for 0 < a <= b, b >= 10, by Stirling's series without cancellation."""
    rest = _stirling_rest(b) - _stirling_rest(a + b)
    return a - (b - 0.5) * u.log1p(a / b) - a * u.log(a + b) + rest


def _stirling_rest(x):
    y = 1 / u.square(x)
    series = 0.0
    for c in (1 / 156, -691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        series = series * y + c
    return series / x


def beta(a, b):
    """The beta function, gamma(a) gamma(b) / gamma(a + b).

    >>> fnx.scipy.special.beta(jnp.array([2.0]), 3.0)
    Array([0.08333333], dtype=float64)
    """
    a, b = promote_inexact("beta", a, b)
    sign = gammasgn(a) * gammasgn(b) * gammasgn(a + b)
    return sign * u.exp(betaln(a, b))


def betainc(a, b, x):
    """The regularized incomplete beta function.

    >>> fnx.scipy.special.betainc(2.0, 1.0, jnp.array([0.5]))
    Array([0.25], dtype=float64)
    """
    return prims.regularized_incomplete_beta(*_floats("betainc", a, b, x))


def multigammaln(a, d):
    """The logarithm of the multivariate gamma function of integer dimension d.

    >>> fnx.scipy.special.multigammaln(jnp.array([2.0]), 2)
    Array([0.45158271], dtype=float64)
    """
    (a,) = _floats("multigammaln", a)
    d = integer(d, "d")
    shifts = a[..., None] - np.arange(d).astype(np.float32).astype(a.dtype) / 2
    total = reduce.sum(gammaln(shifts), axis=-1)
    return total + 0.25 * d * (d - 1) * math.log(math.pi)


def factorial(n, exact=False):
    """n!, in floating point; 0 where n is negative.

    NotImplementedError for `exact`.

    >>> fnx.scipy.special.factorial(jnp.array([0, 4, -1]))
    Array([ 1., 24.,  0.], dtype=float64)
    """
    if exact:
        raise NotImplementedError("factorial with exact=True; results are arrays of floats")
    (n,) = _floats("factorial", n)
    return u.where3(n < 0, 0.0, u.exp(prims.lgamma(n + 1)))


def comb(N, k, *, repetition=False):
    """Binomial coefficients, in floating point: the ways to choose k of N; 0 outside 0 <= k <= N.

    >>> fnx.scipy.special.comb(4, jnp.array([0, 2, 5]))
    Array([1., 6., 0.], dtype=float64)
    """
    n, k = promote_inexact("comb", N, k)
    nothing = u.logical_and(n == 0, k == 0)
    if repetition:  # of nothing there is one empty choice
        n = u.where3(nothing, 0.0, n + k - 1)
    inside = u.logical_and(u.logical_and(n >= 0, k >= 0), n >= k)
    n, k = u.where3(inside, n, 0.0), u.where3(inside, k, 0.0)
    found = u.exp(-u.log1p(n) - betaln(n - k + 1, k + 1))
    return u.where3(inside, found, 0.0)


def poch(z, m):
    """The rising factorial: gamma(z + m) / gamma(z).

    >>> fnx.scipy.special.poch(jnp.array([3.0]), 2.0)
    Array([12.], dtype=float64)
    """
    z, m = promote_inexact("poch", z, m)
    sign = gammasgn(z) * gammasgn(z + m)
    ratio = sign * u.exp(prims.lgamma(z + m) - prims.lgamma(z))
    at_pole = u.logical_and(z <= 0, z == u.floor(z))
    return u.where3(u.logical_and(m == 0, at_pole), 1.0, ratio)


def bernoulli(n):
    """The Bernoulli numbers B0, ..., Bn, an array of n + 1 floats.

    ValueError for negative n.

    >>> fnx.scipy.special.bernoulli(4)
    Array([ 1.        , -0.5       ,  0.16666667,  0.        , -0.03333333], dtype=float64)
    """
    from fnx.numpy.arrays.creation import asarray

    n = integer(n, "n")
    if n < 0:
        raise InvalidValue(f"bernoulli of {n}; expected a non-negative integer")
    return asarray(_bernoulli(n))


def _bernoulli(n):
    """B_k = 2 k! zeta(k) / (2 pi)^k with alternating signs, for even k."""
    from scipy import special

    out = np.zeros(n + 1)
    out[:2] = (1.0, -0.5)[: n + 1]
    k = np.arange(2, n + 1, 2)
    sign = np.where(k % 4 == 2, 1.0, -1.0)
    out[2::2] = (
        sign * 2 * special.zeta(k, 1) * np.exp(special.gammaln(k + 1) - k * np.log(2 * np.pi))
    )
    return out


__all__ = [
    "bernoulli",
    "beta",
    "betainc",
    "betaln",
    "comb",
    "digamma",
    "factorial",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "gammasgn",
    "loggamma",
    "multigammaln",
    "poch",
    "polygamma",
    "zeta",
]
