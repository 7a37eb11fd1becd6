"""The gamma distribution and those that are made of it."""

from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import ShapeError
from fnx.ops.base.broadcast import Sum
from fnx.ops.elementwise.arithmetic import abs_, add, div, exp, max_, mul, pow_, sqrt, sub
from fnx.ops.linalg.matrix import repeat_columns
from fnx.ops.random.sampling import RandomGamma
from fnx.ops.reduction.reduction import Max
from fnx.ops.structure.basic import broadcast_to, scalar
from fnx.random.continuous import exponential_of, normal_of
from fnx.random.generators import threefry_words
from fnx.random.keys import canonical_shape, words_of
from fnx.random.uniform import (
    Shape,
    float_dtype,
    parameter,
    parameters,
    rademacher,
    result_shape,
    split_words,
    sum_of_products,
)


def gamma_of(words: Array, alpha: Array, log_space: bool = False) -> Array:
    """A gamma number (or its logarithm) for each shape parameter."""
    return RandomGamma(log_space)(threefry_words(words), alpha)


def gamma(
    key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Gamma numbers of shape parameter a and scale 1; differentiable in a.

    >>> float(fnx.random.gamma(fnx.random.key(0), 3.0, (2000,)).mean().round(0))
    3.0
    """
    words, dtype = words_of(key, "gamma"), float_dtype(dtype, "gamma")
    _, (a,) = parameters("gamma", shape, dtype, a)
    return gamma_of(words, a)


def loggamma(
    key: Any, a: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Logarithms of gamma numbers, exact where the numbers themselves are too small for floats.

    >>> bool(jnp.isfinite(fnx.random.loggamma(fnx.random.key(0), 1e-5, (1000,))).all())
    True
    """
    words, dtype = words_of(key, "loggamma"), float_dtype(dtype, "loggamma")
    _, (a,) = parameters("loggamma", shape, dtype, a)
    return gamma_of(words, a, log_space=True)


def beta(
    key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Beta numbers of shape parameters a and b.

    >>> float(fnx.random.beta(fnx.random.key(0), 4.0, 1.0, (2000,)).mean().round(1))
    0.8
    """
    words, dtype = words_of(key, "beta"), float_dtype(dtype, "beta")
    _, (a, b) = parameters("beta", shape, dtype, a, b)
    first, second = split_words(words)
    x, y = gamma_of(first, a, log_space=True), gamma_of(second, b, log_space=True)
    top = max_(x, y)
    x, y = exp(sub(x, top)), exp(sub(y, top))
    return div(x, add(x, y))


def dirichlet(
    key: Any, alpha: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Dirichlet vectors: alpha has their parameters in its last axis; `shape` is without it.

    ShapeError for an alpha of rank 0.

    >>> fnx.random.dirichlet(fnx.random.key(0), jnp.ones(3), (5,)).sum(axis=-1).round(6)
    Array([1., 1., 1., 1., 1.], dtype=float64)
    """
    words, dtype = words_of(key, "dirichlet"), float_dtype(dtype, "dirichlet")
    alpha = parameter(alpha, dtype)
    if not alpha.shape:
        raise ShapeError("dirichlet needs an alpha of rank 1 at least, not of rank 0")
    *lead, n = alpha.shape
    shape = tuple(lead) if shape is None else canonical_shape(shape)
    alpha = broadcast_to(alpha, result_shape("dirichlet", (*shape, n), alpha))
    x = gamma_of(words, alpha, log_space=True)
    last = len(shape)
    x = exp(sub(x, repeat_columns(Max((last,))(x), n)))
    return div(x, repeat_columns(Sum((last,))(x), n))


def _chisquare_of(words: Array, df: Array) -> Array:
    log_g = gamma_of(words, mul(scalar(0.5, df.dtype), df), log_space=True)
    return mul(exp(log_g), scalar(2.0, df.dtype))


def chisquare(
    key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Chi-square numbers of df degrees of freedom.

    >>> float(fnx.random.chisquare(fnx.random.key(0), 4.0, shape=(2000,)).mean().round(0))
    4.0
    """
    words, dtype = words_of(key, "chisquare"), float_dtype(dtype, "chisquare")
    _, (df,) = parameters("chisquare", shape, dtype, df)
    return _chisquare_of(words, df)


def f(
    key: Any,
    dfnum: Any,
    dfden: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """F numbers of dfnum and dfden degrees of freedom.

    >>> float(jnp.median(fnx.random.f(fnx.random.key(0), 5.0, 5.0, shape=(2000,))).round(1))
    1.0
    """
    words, dtype = words_of(key, "f"), float_dtype(dtype, "f")
    _, (dfnum, dfden) = parameters("f", shape, dtype, dfnum, dfden)
    below, above = split_words(words)
    return div(div(_chisquare_of(above, dfnum), dfnum), div(_chisquare_of(below, dfden), dfden))


def t(
    key: Any, df: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Student's t numbers of df degrees of freedom.

    >>> fnx.random.t(fnx.random.key(0), 5.0, (2, 3)).shape
    (2, 3)
    """
    words, dtype = words_of(key, "t"), float_dtype(dtype, "t")
    shape, (df,) = parameters("t", shape, dtype, df)
    first, second = split_words(words)
    half = mul(scalar(0.5, dtype), df)
    return mul(normal_of(first, shape, dtype), sqrt(div(half, gamma_of(second, half))))


def generalized_normal(
    key: Any, p: float, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Numbers of density proportional to exp(-|x| ** p).

    >>> fnx.random.generalized_normal(fnx.random.key(0), 1.5, (2, 3)).shape
    (2, 3)
    """
    words, dtype = words_of(key, "generalized_normal"), float_dtype(dtype, "generalized_normal")
    return generalized_normal_of(words, p, canonical_shape(shape), dtype)


def generalized_normal_of(words: Array, p: float, shape: Shape, dtype: np.dtype) -> Array:
    first, second = split_words(words)
    power = div(scalar(1, dtype), parameter(p, dtype))
    g = gamma_of(first, broadcast_to(power, shape))
    return mul(rademacher(second, shape, dtype), pow_(g, power))


def ball(
    key: Any, d: int, p: float = 2, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Points uniform in the ball of radius 1 of the p-norm in d dimensions: shape (*shape, d).

    Barthe et al., "A probabilistic approach to the geometry of the l_p^n-ball" (2005).

    >>> x = fnx.random.ball(fnx.random.key(0), 3, shape=(1000,))
    >>> bool((jnp.linalg.norm(x, axis=-1) <= 1).all())
    True
    """
    words, dtype, shape = words_of(key, "ball"), float_dtype(dtype, "ball"), canonical_shape(shape)
    first, second = split_words(words)
    g = generalized_normal_of(first, p, (*shape, d), dtype)
    e = exponential_of(second, shape, dtype)
    euclidean, p = isinstance(p, (int, float)) and p == 2, parameter(p, dtype)
    size = sum_of_products(g, g) if euclidean else Sum((len(shape),))(pow_(abs_(g), p))
    total = add(size, e)
    return div(g, repeat_columns(pow_(total, div(scalar(1, dtype), p)), d))
