"""Statistics, with scipy.stats's names: distributions are modules of functions."""

from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.scipy.stats import bernoulli as bernoulli
from fnx.scipy.stats import beta as beta
from fnx.scipy.stats import betabinom as betabinom
from fnx.scipy.stats import binom as binom
from fnx.scipy.stats import cauchy as cauchy
from fnx.scipy.stats import chi2 as chi2
from fnx.scipy.stats import dirichlet as dirichlet
from fnx.scipy.stats import expon as expon
from fnx.scipy.stats import gamma as gamma
from fnx.scipy.stats import gennorm as gennorm
from fnx.scipy.stats import geom as geom
from fnx.scipy.stats import gumbel_l as gumbel_l
from fnx.scipy.stats import gumbel_r as gumbel_r
from fnx.scipy.stats import laplace as laplace
from fnx.scipy.stats import logistic as logistic
from fnx.scipy.stats import multinomial as multinomial
from fnx.scipy.stats import multivariate_normal as multivariate_normal
from fnx.scipy.stats import nbinom as nbinom
from fnx.scipy.stats import norm as norm
from fnx.scipy.stats import pareto as pareto
from fnx.scipy.stats import poisson as poisson
from fnx.scipy.stats import t as t
from fnx.scipy.stats import truncnorm as truncnorm
from fnx.scipy.stats import uniform as uniform
from fnx.scipy.stats import vonmises as vonmises
from fnx.scipy.stats import wrapcauchy as wrapcauchy
from fnx.scipy.stats.kde import gaussian_kde as gaussian_kde
from fnx.scipy.stats.summary import mode as mode
from fnx.scipy.stats.summary import rankdata as rankdata
from fnx.scipy.stats.summary import sem as sem

_DISTRIBUTIONS = (
    bernoulli,
    beta,
    betabinom,
    binom,
    cauchy,
    chi2,
    dirichlet,
    expon,
    gamma,
    gennorm,
    geom,
    gumbel_l,
    gumbel_r,
    laplace,
    logistic,
    multinomial,
    multivariate_normal,
    nbinom,
    norm,
    pareto,
    poisson,
    t,
    truncnorm,
    uniform,
    vonmises,
    wrapcauchy,
)
for _distribution in _DISTRIBUTIONS:
    _retell(vars(_distribution))
_retell(globals())
