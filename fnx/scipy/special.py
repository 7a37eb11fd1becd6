"""Special functions with scipy.special's names, element by element."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.nn.normalization import log_softmax, logsumexp, softmax
from fnx.numpy import ufuncs as u
from fnx.numpy.creation import arange
from fnx.numpy.reduce import sum as _sum
from fnx.numpy.shape import expand_dims
from fnx.numpy.util import constant, convert, fit, named, promote_inexact
from fnx.ops import elementwise as ops
from fnx.ops import special as s
from fnx.ops import special_functions as more
from fnx.ops.broadcast import broadcast_to


def _unary(name: str, prim: Any, doc: str) -> Callable:
    @named(name, doc)
    def fn(x):
        return prim(*promote_inexact(name, x))

    return fn


def _args(name: str, *xs: Any) -> Any:
    return fit(name, promote_inexact(name, *xs))


def _full(name: str, *xs: Any) -> list[Array]:
    """Operands of one shape, for primitives that are no elementwise ones of rank 0."""
    xs = promote_inexact(name, *xs)
    shape = np.broadcast_shapes(*[x.shape for x in xs])
    return [broadcast_to(x, shape) for x in xs]


erf = _unary("erf", s.erf, "The error function.")
erfc = _unary("erfc", s.erfc, "1 - erf(x), without cancellation.")
erfinv = _unary("erfinv", s.erf_inv, "The inverse of the error function.")
gammaln = _unary("gammaln", s.lgamma, "The logarithm of the size of the gamma function.")
digamma = _unary("digamma", s.digamma, "The derivative of `gammaln`.")
expit = _unary("expit", ops.logistic, "1 / (1 + exp(-x)).")
i0e = _unary("i0e", s.bessel_i0e, "exp(-|x|) i0(x).")
i1e = _unary("i1e", s.bessel_i1e, "exp(-|x|) i1(x).")
log_ndtr_ = _unary("log_ndtr", more.log_ndtr, "The logarithm of `ndtr`, exact in the tail.")
ndtri_ = _unary("ndtri", more.ndtri, "The inverse of `ndtr`.")
expi = _unary("expi", more.expi, "The exponential integral Ei.")
exp1 = _unary("exp1", more.exp1, "The exponential integral E1.")
spence = _unary("spence", more.spence, "The dilogarithm of 1 - x.")
dawsn = _unary("dawsn", more.dawsn, "Dawson's integral.")
erfcx = _unary("erfcx", more.erfcx, "exp(x**2) erfc(x).")


def ndtri(p):
    """The inverse of `ndtr`."""
    return ndtri_(p)


def log_ndtr(x, series_order=3):
    """The logarithm of the normal distribution function, exact in the tail."""
    del series_order
    return log_ndtr_(x)


def ndtr(x):
    """The normal distribution function."""
    (x,) = promote_inexact("ndtr", x)
    w = ops.mul(x, constant(math.sqrt(0.5), x.dtype))
    return ops.mul(constant(0.5, x.dtype), s.erfc(ops.neg(w)))


def gammasgn(x):
    """The sign of the gamma function."""
    (x,) = promote_inexact("gammasgn", x)
    whole = u.floor(x)
    sign = u.where3(u.remainder(whole, 2) == 0, 1.0, -1.0)
    out = u.where3(x > 0, 1.0, u.where3(x == whole, math.nan, sign))
    out = u.where3(x == 0, u.copysign(1.0, x), out)
    return convert(u.where3(u.isneginf(x), math.nan, out), x.dtype)


def gamma(x):
    """The gamma function."""
    (x,) = promote_inexact("gamma", x)
    return u.multiply(gammasgn(x), u.exp(gammaln(x)))


def loggamma(z):
    """The logarithm of the gamma function, of real numbers > 0."""
    return gammaln(z)


def beta(a, b):
    """The beta function."""
    a, b = _args("beta", a, b)
    sign = u.multiply(u.multiply(gammasgn(a), gammasgn(b)), gammasgn(u.add(a, b)))
    return u.multiply(sign, u.exp(betaln(a, b)))


def betaln(a, b):
    """The logarithm of the size of the beta function."""
    a, b = _args("betaln", a, b)
    return ops.sub(ops.add(s.lgamma(a), s.lgamma(b)), s.lgamma(ops.add(a, b)))


def betainc(a, b, x):
    """The regularized incomplete beta function."""
    return s.regularized_incomplete_beta(*_full("betainc", a, b, x))


def gammainc(a, x):
    """The regularized lower incomplete gamma function."""
    return s.igamma(*_full("gammainc", a, x))


def gammaincc(a, x):
    """The regularized upper incomplete gamma function."""
    return s.igammac(*_full("gammaincc", a, x))


def multigammaln(a, d):
    """The logarithm of the multivariate gamma function of dimension d."""
    d = int(d)
    (a,) = promote_inexact("multigammaln", a)
    start = 0.25 * d * (d - 1) * math.log(math.pi)
    terms = gammaln(expand_dims(a, -1) - arange(d) / 2.0)
    return start + _sum(terms, axis=-1)


def factorial(n, exact=False):
    """The factorial, in floating point."""
    if exact:
        raise InvalidValue("factorial with exact=True is not supported: results are floats")
    (n,) = promote_inexact("factorial", n)
    return u.where3(n < 0, 0.0, gamma(n + 1))


def comb(N, k, *, repetition=False):
    """The number of choices of k out of N."""
    n, k = _args("comb", N, k)
    if repetition:
        return comb(n + k - 1, k)
    out = u.exp(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
    return u.where3(u.logical_and(u.logical_and(k <= n, n >= 0), k >= 0), u.round(out), 0.0)


def poch(z, m):
    """The rising factorial gamma(z + m) / gamma(z)."""
    z, m = _args("poch", z, m)
    sign = u.multiply(gammasgn(z + m), gammasgn(z))
    return u.where3(m == 0.0, 1.0, sign * u.exp(gammaln(z + m) - gammaln(z)))


def polygamma(n, x):
    """The n-th derivative of `digamma`."""
    n, x = _full("polygamma", n, x)
    return s.polygamma(n, x)


def zeta(x, q=None):
    """The Hurwitz zeta function, by default Riemann's."""
    return s.zeta(*_full("zeta", x, 1.0 if q is None else q))


def logit(x):
    """log(x / (1 - x))."""
    (x,) = promote_inexact("logit", x)
    return ops.sub(ops.log(x), ops.log1p(ops.neg(x)))


def xlogy(x, y):
    """x log(y), 0 where x is 0."""
    x, y = _args("xlogy", x, y)
    ok = x != 0.0
    return u.where3(ok, x * u.log(u.where3(ok, y, 1.0)), 0.0)


def xlog1py(x, y):
    """x log(1 + y), 0 where x is 0."""
    x, y = _args("xlog1py", x, y)
    ok = x != 0.0
    return u.where3(ok, x * u.log1p(u.where3(ok, y, 0.0)), 0.0)


def entr(x):
    """-x log(x), 0 at 0, -inf below."""
    (x,) = promote_inexact("entr", x)
    return u.where3(x < 0, -math.inf, u.negative(xlogy(x, x)))


def rel_entr(p, q):
    """p log(p / q), 0 where p is 0, inf where it has no sense."""
    p, q = _args("rel_entr", p, q)
    both = u.logical_and(p > 0.0, q > 0.0)
    safe_p, safe_q = u.where3(both, p, 1.0), u.where3(both, q, 1.0)
    out = safe_p * (u.log(safe_p) - u.log(safe_q))
    zero = u.logical_and(p == 0.0, q >= 0.0)
    return u.where3(both, out, u.where3(zero, 0.0, math.inf))


def kl_div(p, q):
    """p log(p / q) - p + q."""
    p, q = _args("kl_div", p, q)
    return rel_entr(p, q) - p + q


def boxcox(x, lmbda):
    """(x**lmbda - 1) / lmbda, log(x) for 0."""
    x, lmbda = _args("boxcox", x, lmbda)
    flat = lmbda == 0.0
    safe = u.where3(flat, 1.0, lmbda)
    return u.where3(flat, u.log(x), u.expm1(safe * u.log(x)) / safe)


def boxcox1p(x, lmbda):
    """`boxcox` of 1 + x."""
    x, lmbda = _args("boxcox1p", x, lmbda)
    flat = lmbda == 0.0
    safe = u.where3(flat, 1.0, lmbda)
    return u.where3(flat, u.log1p(x), u.expm1(safe * u.log1p(x)) / safe)


def i0(x):
    """The modified Bessel function of the first kind, order 0."""
    (x,) = promote_inexact("i0", x)
    return ops.mul(ops.exp(ops.abs_(x)), s.bessel_i0e(x))


def i1(x):
    """The modified Bessel function of the first kind, order 1."""
    (x,) = promote_inexact("i1", x)
    return ops.mul(ops.exp(ops.abs_(x)), s.bessel_i1e(x))


def expn(n, x):
    """The generalized exponential integral of order n."""
    return more.expn(*_full("expn", n, x))


def hyp1f1(a, b, x):
    """Kummer's confluent hypergeometric function; differentiable in x."""
    return more.hyp1f1(*_full("hyp1f1", a, b, x))


def hyp2f1(a, b, c, x):
    """Gauss's hypergeometric function; differentiable in x."""
    return more.hyp2f1(*_full("hyp2f1", a, b, c, x))


def sici(x):
    """The sine and cosine integrals."""
    (x,) = promote_inexact("sici", x)
    return more.sine_integral(x), more.cosine_integral(x)


def fresnel(x):
    """The Fresnel integrals S and C."""
    (x,) = promote_inexact("fresnel", x)
    return more.fresnel_s(x), more.fresnel_c(x)


def bernoulli(n):
    """The Bernoulli numbers B0 to Bn."""
    n = int(n)
    if n < 0:
        raise InvalidValue(f"bernoulli({n}); expected at least 0")
    numbers = np.zeros(n + 1)
    numbers[0] = 1.0
    if n:
        numbers[1] = -0.5
    even = np.arange(2, n + 1, 2)
    # B_2k = (-1)^(k+1) 2 (2k)! zeta(2k) / (2 pi)^2k
    zetas = np.array([_zeta(int(m)) for m in even])
    logs = np.array([math.lgamma(m + 1) - m * math.log(2 * math.pi) for m in even])
    numbers[2::2] = np.where(even % 4 == 2, 1, -1) * 2 * np.exp(logs) * zetas
    from fnx.numpy.creation import array

    return array(numbers)


def _zeta(m: int) -> float:
    return math.fsum([k**-m for k in range(1, 60)]) + 59.5 ** (1 - m) / (m - 1)


__all__ = [
    "bernoulli", "beta", "betainc", "betaln", "boxcox", "boxcox1p", "comb", "dawsn", "digamma", "entr", "erf",
    "erfc", "erfcx", "erfinv", "exp1", "expi", "expit", "expn", "factorial", "fresnel", "gamma", "gammainc",
    "gammaincc", "gammaln", "gammasgn", "hyp1f1", "hyp2f1", "i0", "i0e", "i1", "i1e", "kl_div", "log_ndtr",
    "log_softmax", "loggamma", "logit", "logsumexp", "multigammaln", "ndtr", "ndtri", "poch", "polygamma",
    "rel_entr", "sici", "softmax", "spence", "xlog1py", "xlogy", "zeta",
]  # fmt: skip
