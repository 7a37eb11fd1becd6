"""Random numbers from explicit keys, bit by bit those of JAX.

Bits are equal to JAX's; floats that are functions of them are equal up to rounding of exp, log and
the like. One key gives the same numbers at each call: split keys for new ones.

>>> from fnx import random
>>> key, subkey = random.split(random.key(0))
>>> random.randint(subkey, (3,), 0, 10).shape
(3,)
"""

from fnx import numpy as _numpy  # the whole, before parts of it
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.random.continuous import (
    cauchy,
    double_sided_maxwell,
    exponential,
    geometric,
    gumbel,
    laplace,
    logistic,
    lognormal,
    maxwell,
    normal,
    pareto,
    rayleigh,
    triangular,
    truncated_normal,
    wald,
    weibull_min,
)
from fnx.random.discrete import (
    binomial,
    categorical,
    choice,
    multinomial,
    permutation,
    poisson,
    shuffle,
)
from fnx.random.gamma import (
    ball,
    beta,
    chisquare,
    dirichlet,
    f,
    gamma,
    generalized_normal,
    loggamma,
    t,
)
from fnx.random.key_array import KeyArray
from fnx.random.keys import (
    PRNGKey,
    clone,
    fold_in,
    key,
    key_data,
    key_dtype,
    key_impl,
    split,
    wrap_key_data,
)
from fnx.random.matrix import multivariate_normal, orthogonal
from fnx.random.uniform import bernoulli, bits, rademacher, randint, uniform

__all__ = [
    "KeyArray",
    "PRNGKey",
    "ball",
    "bernoulli",
    "beta",
    "binomial",
    "bits",
    "categorical",
    "cauchy",
    "chisquare",
    "choice",
    "clone",
    "dirichlet",
    "double_sided_maxwell",
    "exponential",
    "f",
    "fold_in",
    "gamma",
    "generalized_normal",
    "geometric",
    "gumbel",
    "key",
    "key_data",
    "key_dtype",
    "key_impl",
    "laplace",
    "loggamma",
    "logistic",
    "lognormal",
    "maxwell",
    "multinomial",
    "multivariate_normal",
    "normal",
    "orthogonal",
    "pareto",
    "permutation",
    "poisson",
    "rademacher",
    "randint",
    "rayleigh",
    "shuffle",
    "split",
    "t",
    "triangular",
    "truncated_normal",
    "uniform",
    "wald",
    "weibull_min",
    "wrap_key_data",
]

_retell(globals())
