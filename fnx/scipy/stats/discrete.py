"""Discrete distributions."""

import math
from typing import Any

from fnx.core.array import Array
from fnx.numpy import reduce
from fnx.numpy import ufuncs as u
from fnx.numpy.util import promote_inexact
from fnx.scipy import special as s
from fnx.scipy.stats.distribution import Distribution


def _args(name: str, *xs: Any) -> list[Array]:
    return promote_inexact(f"stats.{name}", *xs)


def _where(ok: Array, value: Any) -> Array:
    return u.where3(ok, value, -math.inf)


def _whole(k: Array) -> Array:
    return u.floor(k) == k


def _bernoulli_logpmf(k, p, loc=0):
    k, p, loc = _args("bernoulli", k, p, loc)
    x = k - loc
    return _where((x == 0) | (x == 1), s.xlogy(x, p) + s.xlog1py(1 - x, -p))


def _bernoulli_cdf(k, p):
    k, p = _args("bernoulli", k, p)
    return u.where3(k < 0, 0.0, u.where3(k < 1, 1 - p, 1.0))


def _bernoulli_ppf(q, p):
    q, p = _args("bernoulli", q, p)
    return u.where3((q >= 0) & (q <= 1), u.where3(q <= 1 - p, 0.0, 1.0), math.nan)


bernoulli = Distribution("bernoulli", logpmf=_bernoulli_logpmf, cdf=_bernoulli_cdf, ppf=_bernoulli_ppf)


def _log_choose(n: Array, k: Array) -> Array:
    return s.gammaln(n + 1) - s.gammaln(k + 1) - s.gammaln(n - k + 1)


def _binom_logpmf(k, n, p, loc=0):
    k, n, p, loc = _args("binom", k, n, p, loc)
    x = k - loc
    ok = (x >= 0) & (x <= n) & _whole(x)
    x = u.where3(ok, x, 0.0)
    return _where(ok, _log_choose(n, x) + s.xlogy(x, p) + s.xlog1py(n - x, -p))


binom = Distribution("binom", logpmf=_binom_logpmf)


def _poisson_logpmf(k, mu, loc=0):
    k, mu, loc = _args("poisson", k, mu, loc)
    x = k - loc
    ok = (x >= 0) & _whole(x)
    x = u.where3(ok, x, 0.0)
    return _where(ok, s.xlogy(x, mu) - s.gammaln(x + 1) - mu)


def _poisson_cdf(k, mu, loc=0):
    k, mu, loc = _args("poisson", k, mu, loc)
    x = u.floor(k - loc)
    return u.where3(x < 0, 0.0, s.gammaincc(u.maximum(x + 1, 1.0), mu))


poisson = Distribution("poisson", logpmf=_poisson_logpmf, cdf=_poisson_cdf)


def _geom_logpmf(k, p, loc=0):
    k, p, loc = _args("geom", k, p, loc)
    x = k - loc
    ok = (x >= 1) & _whole(x)
    return _where(ok, s.xlog1py(u.where3(ok, x, 1.0) - 1, -p) + u.log(p))


geom = Distribution("geom", logpmf=_geom_logpmf)


def _nbinom_logpmf(k, n, p, loc=0):
    k, n, p, loc = _args("nbinom", k, n, p, loc)
    x = k - loc
    ok = x >= 0
    x = u.where3(ok, x, 0.0)
    choose = s.gammaln(x + n) - s.gammaln(n) - s.gammaln(x + 1)
    return _where(ok, choose + s.xlogy(n, p) + s.xlog1py(x, -p))


nbinom = Distribution("nbinom", logpmf=_nbinom_logpmf)


def _betabinom_logpmf(k, n, a, b, loc=0):
    k, n, a, b, loc = _args("betabinom", k, n, a, b, loc)
    x = k - loc
    ok = (x >= 0) & (x <= n)
    x = u.where3(ok, x, 0.0)
    out = _log_choose(n, x) + s.betaln(x + a, n - x + b) - s.betaln(a, b)
    valid = (n >= 0) & (a > 0) & (b > 0)
    return u.where3(valid, _where(ok, out), math.nan)


betabinom = Distribution("betabinom", logpmf=_betabinom_logpmf)


def _multinomial_logpmf(x, n, p):
    x, p = _args("multinomial", x, p)
    (n,) = promote_inexact("stats.multinomial", n)
    out = s.gammaln(n + 1) + reduce.sum(s.xlogy(x, p) - s.gammaln(x + 1), axis=-1)
    return _where(reduce.sum(x, axis=-1) == n, out)


multinomial = Distribution("multinomial", logpmf=_multinomial_logpmf)

__all__ = ["bernoulli", "betabinom", "binom", "geom", "multinomial", "nbinom", "poisson"]
