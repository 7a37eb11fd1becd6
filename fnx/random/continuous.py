"""Continuous distributions that are functions of uniform or normal numbers."""

import math
from typing import Any

import ml_dtypes
import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.numpy.elementwise import ufuncs
from fnx.ops.elementwise.arithmetic import (
    abs_,
    add,
    complex_,
    div,
    exp,
    log,
    log1p,
    mul,
    neg,
    nextafter,
    sign,
    sqrt,
    sub,
    tan,
)
from fnx.ops.elementwise.select import eq, ge, le, lt, select
from fnx.ops.elementwise.special import erf, erf_inv
from fnx.ops.structure.basic import broadcast_to, convert, scalar
from fnx.random.keys import canonical_shape, words_of
from fnx.random.uniform import (
    Shape,
    float_dtype,
    int_dtype,
    parameter,
    parameters,
    product_sum,
    rademacher,
    split_words,
    sum_of_products,
    uniform_between,
    unit_interval,
)


def _times(value: float, x: Array) -> Array:
    return mul(scalar(value, x.dtype), x)


def normal_of(words: Array, shape: Shape, dtype: np.dtype) -> Array:
    """Normal numbers: sqrt(2) erf_inv(u) for u uniform in (-1, 1)."""
    if dtypes.is_complex(dtype):
        part = dtypes.real_of(dtype)
        re, im = (normal_of(k, shape, part) for k in split_words(words))
        root = scalar(math.sqrt(2), part)
        return complex_(div(re, root), div(im, root))
    low = float(np.nextafter(np.asarray(-1.0, dtype), np.asarray(0.0, dtype)))
    return _times(math.sqrt(2), erf_inv(uniform_between(words, shape, dtype, low, 1.0)))


def normal(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Normal numbers of mean 0 and variance 1; complex dtypes share the variance between parts.

    >>> x = fnx.random.normal(fnx.random.key(0), (10000,))
    >>> bool(abs(x.mean()) < 0.05)
    True
    """
    words = words_of(key, "normal")
    return normal_of(words, canonical_shape(shape), float_dtype(dtype, "normal", inexact=True))


def truncated_normal(
    key: Any,
    lower: Any,
    upper: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Normal numbers, given that they lie in the open interval (lower, upper).

    >>> x = fnx.random.truncated_normal(fnx.random.key(0), -1.0, 2.0, (1000,))
    >>> bool((x > -1).all() & (x < 2).all())
    True
    """
    words = words_of(key, "truncated_normal")
    dtype = float_dtype(dtype, "truncated_normal")
    shape, (lower, upper) = parameters("truncated_normal", shape, dtype, lower, upper)
    root = scalar(math.sqrt(2), dtype)
    u = uniform_between(words, shape, dtype, erf(div(lower, root)), erf(div(upper, root)))
    inf = scalar(math.inf, dtype)
    return ufuncs.clip(mul(root, erf_inv(u)), nextafter(lower, inf), nextafter(upper, neg(inf)))


def exponential(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Exponential numbers of rate 1.

    >>> float(fnx.random.exponential(fnx.random.key(0), (2000,)).mean().round(1))
    1.0
    """
    words = words_of(key, "exponential")
    return exponential_of(words, canonical_shape(shape), float_dtype(dtype, "exponential"))


def exponential_of(words: Array, shape: Shape, dtype: np.dtype) -> Array:
    return neg(log1p(neg(unit_interval(words, shape, dtype))))


def laplace(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Laplace numbers of mean 0 and scale 1.

    >>> float(abs(fnx.random.laplace(fnx.random.key(0), (2000,))).mean().round(1))
    1.0
    """
    words, dtype = words_of(key, "laplace"), float_dtype(dtype, "laplace")
    low = float(-1.0 + ml_dtypes.finfo(dtype).epsneg)
    u = uniform_between(words, canonical_shape(shape), dtype, low, 1.0)
    return mul(sign(u), log1p(neg(abs_(u))))


def logistic(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Logistic numbers of mean 0 and scale 1.

    >>> fnx.random.logistic(fnx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    words, dtype = words_of(key, "logistic"), float_dtype(dtype, "logistic")
    u = uniform_between(words, canonical_shape(shape), dtype, _tiny(dtype), 1.0)
    return sub(log(u), log1p(neg(u)))


def _tiny(dtype: np.dtype) -> float:
    return float(ml_dtypes.finfo(dtype).tiny)


def gumbel(
    key: Any,
    shape: Any = (),
    dtype: Any = None,
    mode: str | None = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Gumbel numbers; `mode="high"` uses twice as many bits, for the far tails.

    >>> fnx.random.gumbel(fnx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    words, dtype = words_of(key, "gumbel"), float_dtype(dtype, "gumbel")
    return gumbel_of(words, canonical_shape(shape), dtype, mode)


def gumbel_of(words: Array, shape: Shape, dtype: np.dtype, mode: str | None = None) -> Array:
    if mode in ("high", "highest"):
        both = unit_interval(words, (2, *shape), dtype)
        high, low = both[0], both[1]
        fine = _times(2.0 ** -ml_dtypes.finfo(dtype).nmant, low)
        more = add(add(high, fine), scalar(_tiny(dtype), dtype))
        u = select(ge(high, scalar(0.5, dtype)), high, more)
        return neg(log(neg(log1p(neg(u)))))
    return neg(log(neg(log(uniform_between(words, shape, dtype, _tiny(dtype), 1.0)))))


def cauchy(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Cauchy numbers of location 0 and scale 1.

    >>> x = fnx.random.cauchy(fnx.random.key(0), (2000,))  # there is no mean, but a median
    >>> float(jnp.median(abs(x)).round(1))
    1.0
    """
    words, dtype = words_of(key, "cauchy"), float_dtype(dtype, "cauchy")
    low = float(ml_dtypes.finfo(dtype).eps)
    u = uniform_between(words, canonical_shape(shape), dtype, low, 1.0)
    return tan(_times(math.pi, sub(u, scalar(0.5, dtype))))


def pareto(
    key: Any, b: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Pareto numbers of shape parameter b, at least 1.

    >>> bool((fnx.random.pareto(fnx.random.key(0), 3.0, (1000,)) >= 1).all())
    True
    """
    words, dtype = words_of(key, "pareto"), float_dtype(dtype, "pareto")
    shape, (b,) = parameters("pareto", shape, dtype, b)
    return exp(div(exponential_of(words, shape, dtype), b))


def rayleigh(
    key: Any, scale: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Rayleigh numbers, of density x / scale**2 exp(-x**2 / (2 scale**2)); by default one for each scale.

    >>> x = fnx.random.rayleigh(fnx.random.key(0), 2.0, (2000,))
    >>> float((x**2).mean().round(0))  # 2 * scale**2
    8.0
    """
    words, dtype = words_of(key, "rayleigh"), float_dtype(dtype, "rayleigh")
    shape, (scale,) = parameters("rayleigh", shape, dtype, scale)
    return mul(scale, sqrt(_times(-2.0, log(unit_interval(words, shape, dtype)))))


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
) -> Array:
    """Weibull numbers of a scale and a concentration.

    >>> float(fnx.random.weibull_min(fnx.random.key(0), 3.0, 1.0, (2000,)).mean().round(0))
    3.0
    """
    words, dtype = words_of(key, "weibull_min"), float_dtype(dtype, "weibull_min")
    u = unit_interval(words, canonical_shape(shape), dtype)
    power = 1.0 / parameter(concentration, dtype)
    return ufuncs.power(neg(log1p(neg(u))), power) * parameter(scale, dtype)


def maxwell(key: Any, shape: Any = (), dtype: Any = None, *, out_sharding: Any = None) -> Array:
    """Maxwell numbers: lengths of vectors of three normal numbers.

    >>> float((fnx.random.maxwell(fnx.random.key(0), (2000,)) ** 2).mean().round(0))
    3.0
    """
    words, dtype = words_of(key, "maxwell"), float_dtype(dtype, "maxwell")
    return maxwell_of(words, canonical_shape(shape), dtype)


def maxwell_of(words: Array, shape: Shape, dtype: np.dtype) -> Array:
    x = normal_of(words, (*shape, 3), dtype)
    return sqrt(sum_of_products(x, x))


def double_sided_maxwell(
    key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None
) -> Array:
    """Maxwell numbers with random signs, scaled and moved.

    >>> fnx.random.double_sided_maxwell(fnx.random.key(0), 0.0, 1.0, (2, 3)).shape
    (2, 3)
    """
    words, dtype = words_of(key, "double_sided_maxwell"), float_dtype(dtype, "double_sided_maxwell")
    loc, scale = parameter(loc, dtype), parameter(scale, dtype)
    own = np.broadcast_shapes(loc.shape, scale.shape)
    shape = (*(canonical_shape(shape) or own), *own)
    first, second = split_words(words)
    x = mul(rademacher(second, shape, dtype), maxwell_of(first, shape, dtype))
    return product_sum(x, broadcast_to(scale, shape), broadcast_to(loc, shape))


def wald(
    key: Any, mean: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Wald (inverse Gaussian) numbers of a mean, of scale 1.

    >>> float(fnx.random.wald(fnx.random.key(0), 2.0, (2000,)).mean().round(0))
    2.0
    """
    words, dtype = words_of(key, "wald"), float_dtype(dtype, "wald")
    shape, (mean,) = parameters("wald", shape, dtype, mean)
    first, second = split_words(words)
    v, z = normal_of(first, shape, dtype), unit_interval(second, shape, dtype)
    y = mul(v, v)
    square = mul(mean, mean)
    root = sqrt(product_sum(_times(4.0, mean), y, mul(square, mul(y, y))))
    x = product_sum(_times(-0.5, mean), root, add(mean, _times(0.5, mul(square, y))))
    return select(le(z, div(mean, add(mean, x))), x, div(square, x))


def triangular(
    key: Any,
    left: Any,
    mode: Any,
    right: Any,
    shape: Any = None,
    dtype: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Numbers of the triangular density between left and right that is highest at mode.

    >>> x = fnx.random.triangular(fnx.random.key(0), 0.0, 1.0, 2.0, (2000,))
    >>> float(x.mean().round(1))
    1.0
    """
    words, dtype = words_of(key, "triangular"), float_dtype(dtype, "triangular")
    shape, (left, mode, right) = parameters("triangular", shape, dtype, left, mode, right)
    u = unit_interval(words, shape, dtype)
    width, rise, fall = sub(right, left), sub(mode, left), sub(right, mode)
    up = add(left, sqrt(mul(mul(u, width), rise)))
    down = sub(right, sqrt(mul(mul(sub(scalar(1.0, dtype), u), width), fall)))
    return select(lt(u, div(rise, width)), up, down)


def lognormal(
    key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """exp(sigma x) for normal numbers x.

    >>> x = fnx.random.lognormal(fnx.random.key(0), 0.5, (2000,))
    >>> float(jnp.log(x).std().round(1))
    0.5
    """
    words, dtype = words_of(key, "lognormal"), float_dtype(dtype, "lognormal", inexact=True)
    shape, (sigma,) = parameters("lognormal", shape, dtype, sigma)
    return exp(mul(normal_of(words, shape, dtype), sigma))


def geometric(
    key: Any, p: Any, shape: Any = None, dtype: Any = None, *, out_sharding: Any = None
) -> Array:
    """Numbers of coins of probability p thrown until the first True, in an integer dtype.

    >>> float(fnx.random.geometric(fnx.random.key(0), 0.25, (2000,)).mean().round(0))
    4.0
    """
    words, dtype = words_of(key, "geometric"), int_dtype(dtype, "geometric")
    inexact = dtypes.to_inexact(getattr(p, "dtype", dtypes.default_for("f")))
    shape, (p,) = parameters("geometric", shape, inexact, p)
    u, one = unit_interval(words, shape, inexact), scalar(1.0, inexact)
    u = select(eq(u, scalar(0.0, inexact)), broadcast_to(one, shape), u)
    return convert(add(ufuncs.floor(div(log(u), log1p(neg(p)))), one), dtype)
