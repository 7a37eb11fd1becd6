"""Continuous distributions of one variable."""

import math
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.numpy import ufuncs as u
from fnx.numpy.shape import broadcast_arrays
from fnx.numpy.util import promote_inexact
from fnx.scipy import special as s
from fnx.scipy.stats.distribution import Distribution

_LOG_2PI = math.log(2 * math.pi)


def _args(name: str, *xs: Any) -> list[Array]:
    return promote_inexact(f"stats.{name}", *xs)


def _inside(condition: Array, value: Any, outside: float = -math.inf) -> Array:
    return u.where3(condition, value, outside)


# --- normal -------------------------------------------------------------------------------------------


def _norm_logpdf(x, loc=0, scale=1):
    x, loc, scale = _args("norm", x, loc, scale)
    z = (x - loc) / scale
    return -0.5 * (z * z + _LOG_2PI) - u.log(scale)


def _norm_cdf(x, loc=0, scale=1):
    x, loc, scale = _args("norm", x, loc, scale)
    return s.ndtr((x - loc) / scale)


def _norm_logcdf(x, loc=0, scale=1):
    x, loc, scale = _args("norm", x, loc, scale)
    return s.log_ndtr((x - loc) / scale)


def _norm_ppf(q, loc=0, scale=1):
    q, loc, scale = _args("norm", q, loc, scale)
    return s.ndtri(q) * scale + loc


norm = Distribution(
    "norm",
    logpdf=_norm_logpdf,
    cdf=_norm_cdf,
    logcdf=_norm_logcdf,
    ppf=_norm_ppf,
    sf=lambda x, loc=0, scale=1: _norm_cdf(u.negative(x), u.negative(loc), scale),
    logsf=lambda x, loc=0, scale=1: _norm_logcdf(u.negative(x), u.negative(loc), scale),
    isf=lambda q, loc=0, scale=1: _norm_ppf(u.subtract(1.0, q), loc, scale),
)


# --- on a half-line or an interval -----------------------------------------------------------------------


def _expon_logpdf(x, loc=0, scale=1):
    x, loc, scale = _args("expon", x, loc, scale)
    return _inside(x >= loc, -(x - loc) / scale - u.log(scale))


def _expon_logsf(x, loc=0, scale=1):
    x, loc, scale = _args("expon", x, loc, scale)
    return _inside(x >= loc, -(x - loc) / scale, 0.0)


def _expon_cdf(x, loc=0, scale=1):
    return -u.expm1(_expon_logsf(x, loc, scale))


def _expon_ppf(q, loc=0, scale=1):
    q, loc, scale = _args("expon", q, loc, scale)
    return _inside((q >= 0) & (q <= 1), loc - scale * u.log1p(-q), math.nan)


expon = Distribution("expon", logpdf=_expon_logpdf, logsf=_expon_logsf, cdf=_expon_cdf, ppf=_expon_ppf)


def _gamma_logpdf(x, a, loc=0, scale=1):
    x, a, loc, scale = _args("gamma", x, a, loc, scale)
    ok = x >= loc
    z = u.where3(ok, (x - loc) / scale, 1.0)
    return _inside(ok, s.xlogy(a - 1, z) - z - s.gammaln(a) - u.log(scale))


def _gamma_cdf(x, a, loc=0, scale=1):
    x, a, loc, scale = _args("gamma", x, a, loc, scale)
    return s.gammainc(a, u.clip((x - loc) / scale, 0.0, math.inf))


def _gamma_sf(x, a, loc=0, scale=1):
    x, a, loc, scale = _args("gamma", x, a, loc, scale)
    return s.gammaincc(a, u.clip((x - loc) / scale, 0.0, math.inf))


gamma = Distribution("gamma", logpdf=_gamma_logpdf, cdf=_gamma_cdf, sf=_gamma_sf)
chi2 = Distribution(
    "chi2",
    logpdf=lambda x, df, loc=0, scale=1: _gamma_logpdf(x, u.divide(df, 2), loc, u.multiply(2.0, scale)),
    cdf=lambda x, df, loc=0, scale=1: _gamma_cdf(x, u.divide(df, 2), loc, u.multiply(2.0, scale)),
    sf=lambda x, df, loc=0, scale=1: _gamma_sf(x, u.divide(df, 2), loc, u.multiply(2.0, scale)),
)


def _beta_logpdf(x, a, b, loc=0, scale=1):
    x, a, b, loc, scale = _args("beta", x, a, b, loc, scale)
    z = (x - loc) / scale
    ok = (z >= 0) & (z <= 1)
    z = u.where3(ok, z, 0.5)
    body = s.xlogy(a - 1, z) + s.xlog1py(b - 1, -z) - s.betaln(a, b) - u.log(scale)
    return _inside(ok, body)


def _beta_cdf(x, a, b, loc=0, scale=1):
    x, a, b, loc, scale = _args("beta", x, a, b, loc, scale)
    return s.betainc(a, b, u.clip((x - loc) / scale, 0, 1))


def _beta_sf(x, a, b, loc=0, scale=1):
    x, a, b, loc, scale = _args("beta", x, a, b, loc, scale)
    return s.betainc(b, a, 1 - u.clip((x - loc) / scale, 0, 1))


beta = Distribution("beta", logpdf=_beta_logpdf, cdf=_beta_cdf, sf=_beta_sf)


def _uniform_logpdf(x, loc=0, scale=1):
    x, loc, scale = _args("uniform", x, loc, scale)
    return _inside((x >= loc) & (x <= loc + scale), -u.log(scale))


def _uniform_cdf(x, loc=0, scale=1):
    x, loc, scale = _args("uniform", x, loc, scale)
    return u.clip((x - loc) / scale, 0.0, 1.0)


def _uniform_ppf(q, loc=0, scale=1):
    q, loc, scale = _args("uniform", q, loc, scale)
    return _inside((q >= 0) & (q <= 1), loc + q * scale, math.nan)


uniform = Distribution("uniform", logpdf=_uniform_logpdf, cdf=_uniform_cdf, ppf=_uniform_ppf)


def _pareto_logpdf(x, b, loc=0, scale=1):
    x, b, loc, scale = _args("pareto", x, b, loc, scale)
    z = (x - loc) / scale
    ok = z >= 1
    return _inside(ok, u.log(b / scale) - (b + 1) * u.log(u.where3(ok, z, 1.0)))


def _pareto_logsf(x, b, loc=0, scale=1):
    x, b, loc, scale = _args("pareto", x, b, loc, scale)
    z = (x - loc) / scale
    return _inside(z >= 1, -b * u.log(u.where3(z >= 1, z, 1.0)), 0.0)


def _pareto_ppf(q, b, loc=0, scale=1):
    q, b, loc, scale = _args("pareto", q, b, loc, scale)
    return _inside((q >= 0) & (q <= 1), loc + scale * u.power(1 - q, -1 / b), math.nan)


pareto = Distribution(
    "pareto",
    logpdf=_pareto_logpdf,
    logsf=_pareto_logsf,
    cdf=lambda x, b, loc=0, scale=1: -u.expm1(_pareto_logsf(x, b, loc, scale)),
    ppf=_pareto_ppf,
)


# --- on the line ----------------------------------------------------------------------------------------


def _laplace_logpdf(x, loc=0, scale=1):
    x, loc, scale = _args("laplace", x, loc, scale)
    return -u.abs(x - loc) / scale - u.log(2 * scale)


def _laplace_cdf(x, loc=0, scale=1):
    x, loc, scale = _args("laplace", x, loc, scale)
    z = (x - loc) / scale
    tail = 0.5 * u.exp(-u.abs(z))
    return u.where3(z <= 0, tail, 1 - tail)


laplace = Distribution("laplace", logpdf=_laplace_logpdf, cdf=_laplace_cdf)


def _cauchy_logpdf(x, loc=0, scale=1):
    x, loc, scale = _args("cauchy", x, loc, scale)
    z = (x - loc) / scale
    return -math.log(math.pi) - u.log(scale) - u.log1p(z * z)


def _cauchy_cdf(x, loc=0, scale=1):
    x, loc, scale = _args("cauchy", x, loc, scale)
    return 0.5 + u.arctan((x - loc) / scale) / math.pi


def _cauchy_ppf(q, loc=0, scale=1):
    q, loc, scale = _args("cauchy", q, loc, scale)
    return loc + scale * u.tan(math.pi * (q - 0.5))


cauchy = Distribution(
    "cauchy",
    logpdf=_cauchy_logpdf,
    cdf=_cauchy_cdf,
    ppf=_cauchy_ppf,
    sf=lambda x, loc=0, scale=1: _cauchy_cdf(u.negative(x), u.negative(loc), scale),
    isf=lambda q, loc=0, scale=1: _cauchy_ppf(u.subtract(1.0, q), loc, scale),
)


def _logistic_logpdf(x, loc=0, scale=1):
    x, loc, scale = _args("logistic", x, loc, scale)
    z = (x - loc) / scale
    return -z - 2 * u.logaddexp(0.0, -z) - u.log(scale)


def _logistic_cdf(x, loc=0, scale=1):
    x, loc, scale = _args("logistic", x, loc, scale)
    return s.expit((x - loc) / scale)


def _logistic_ppf(q, loc=0, scale=1):
    q, loc, scale = _args("logistic", q, loc, scale)
    return s.logit(q) * scale + loc


logistic = Distribution(
    "logistic",
    logpdf=_logistic_logpdf,
    cdf=_logistic_cdf,
    ppf=_logistic_ppf,
    sf=lambda x, loc=0, scale=1: _logistic_cdf(u.negative(x), u.negative(loc), scale),
    isf=lambda q, loc=0, scale=1: _logistic_ppf(u.subtract(1.0, q), loc, scale),
)


def _t_logpdf(x, df, loc=0, scale=1):
    x, df, loc, scale = _args("t", x, df, loc, scale)
    z = (x - loc) / scale
    size = s.gammaln((df + 1) / 2) - s.gammaln(df / 2) - 0.5 * u.log(df * math.pi) - u.log(scale)
    return size - (df + 1) / 2 * u.log1p(z * z / df)


def _t_cdf(x, df, loc=0, scale=1):
    x, df, loc, scale = broadcast_arrays(*_args("t", x, df, loc, scale))
    z = (x - loc) / scale
    tail = 0.5 * s.betainc(df / 2, u.multiply(df, 0) + 0.5, df / (df + z * z))
    return u.where3(z > 0, 1 - tail, tail)


t = Distribution("t", logpdf=_t_logpdf, cdf=_t_cdf)


def _gennorm_logpdf(x, beta):
    x, beta = _args("gennorm", x, beta)
    return u.log(beta) - math.log(2) - s.gammaln(1 / beta) - u.power(u.abs(x), beta)


def _gennorm_cdf(x, beta):
    x, beta = _args("gennorm", x, beta)
    return 0.5 * (1 + u.sign(x) * s.gammainc(1 / beta, u.power(u.abs(x), beta)))


gennorm = Distribution("gennorm", logpdf=_gennorm_logpdf, cdf=_gennorm_cdf)


def _gumbel_logpdf(z: Array, scale: Array) -> Array:
    return -z - u.exp(-z) - u.log(scale)


def _gumbel_r(fn: Any) -> Any:
    def of(x, loc=0, scale=1):
        x, loc, scale = _args("gumbel_r", x, loc, scale)
        return fn((x - loc) / scale, scale)

    return of


def _gumbel_l(fn: Any) -> Any:
    def of(x, loc=0, scale=1):
        x, loc, scale = _args("gumbel_l", x, loc, scale)
        return fn(-(x - loc) / scale, scale)

    return of


def _gumbel_r_ppf(q, loc=0, scale=1):
    q, loc, scale = _args("gumbel_r", q, loc, scale)
    return loc - scale * u.log(-u.log(q))


def _gumbel_l_ppf(q, loc=0, scale=1):
    q, loc, scale = _args("gumbel_l", q, loc, scale)
    return loc + scale * u.log(-u.log1p(-q))


gumbel_r = Distribution(
    "gumbel_r",
    logpdf=_gumbel_r(_gumbel_logpdf),
    logcdf=_gumbel_r(lambda z, scale: -u.exp(-z)),
    sf=_gumbel_r(lambda z, scale: -u.expm1(-u.exp(-z))),
    ppf=_gumbel_r_ppf,
)
gumbel_l = Distribution(
    "gumbel_l",
    logpdf=_gumbel_l(_gumbel_logpdf),
    logsf=_gumbel_l(lambda z, scale: -u.exp(-z)),
    cdf=_gumbel_l(lambda z, scale: -u.expm1(-u.exp(-z))),
    ppf=_gumbel_l_ppf,
)


# --- truncated normal -------------------------------------------------------------------------------------


def _log_mass(a: Array, b: Array) -> Array:
    """The logarithm of the normal probability of [a, b], in the tail with the smaller loss."""
    left = _log_diff(s.log_ndtr(b), s.log_ndtr(a))
    right = _log_diff(s.log_ndtr(-a), s.log_ndtr(-b))
    return u.where3(b <= 0, left, right)


def _log_diff(x: Array, y: Array) -> Array:
    """log(exp(x) - exp(y))."""
    return x + u.log1p(-u.exp(y - x))


def _truncnorm_logpdf(x, a, b, loc=0, scale=1):
    x, a, b, loc, scale = broadcast_arrays(*_args("truncnorm", x, a, b, loc, scale))
    z = (x - loc) / scale
    out = _norm_logpdf(z) - u.log(scale) - _log_mass(a, b)
    return u.where3(b <= a, math.nan, _inside((z >= a) & (z <= b), out))


def _truncnorm_logcdf(x, a, b, loc=0, scale=1):
    x, a, b, loc, scale = broadcast_arrays(*_args("truncnorm", x, a, b, loc, scale))
    z = (x - loc) / scale
    low, high = z <= a, z >= b
    inner = u.where3(low | high, (u.maximum(a, -1e3) + u.minimum(b, 1e3)) / 2, z)
    out = _log_mass(a, inner) - _log_mass(a, b)
    out = u.where3(low, -math.inf, u.where3(high, 0.0, out))
    return u.where3(b <= a, math.nan, out)


def _truncnorm_logsf(x, a, b, loc=0, scale=1):
    return _truncnorm_logcdf(u.negative(x), u.negative(b), u.negative(a), u.negative(loc), scale)


truncnorm = Distribution(
    "truncnorm", logpdf=_truncnorm_logpdf, logcdf=_truncnorm_logcdf, logsf=_truncnorm_logsf
)


# --- on the circle ------------------------------------------------------------------------------------------


def _vonmises_logpdf(x, kappa):
    x, kappa = _args("vonmises", x, kappa)
    out = kappa * (u.cos(x) - 1) - _LOG_2PI - u.log(s.i0e(kappa))
    return _inside(kappa > 0, out, math.nan)


vonmises = Distribution("vonmises", logpdf=_vonmises_logpdf)


def _wrapcauchy_logpdf(x, c):
    x, c = _args("wrapcauchy", x, c)
    out = u.log(1 - c * c) - _LOG_2PI - u.log(1 + c * c - 2 * c * u.cos(x))
    ok = (c > 0) & (c < 1)
    return _inside(ok, _inside((x >= 0) & (x <= 2 * np.pi), out), math.nan)


wrapcauchy = Distribution("wrapcauchy", logpdf=_wrapcauchy_logpdf)

__all__ = [
    "beta", "cauchy", "chi2", "expon", "gamma", "gennorm", "gumbel_l", "gumbel_r", "laplace", "logistic", "norm",
    "pareto", "t", "truncnorm", "uniform", "vonmises", "wrapcauchy",
]  # fmt: skip
