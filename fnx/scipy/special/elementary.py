"""Logistic functions, entropies, products with logarithms, softmax and kin."""

import math

from fnx.nn import normalization
from fnx.nn.normalization import logsumexp
from fnx.numpy.arrays.util import beside_constants, fit, promote_inexact, strong
from fnx.numpy.elementwise import ufuncs as u
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.elementwise.integrals import xlog1py as _xlog1py
from fnx.ops.elementwise.integrals import xlogy as _xlogy


def expit(x):
    """1 / (1 + exp(-x)).

    >>> fnx.scipy.special.expit(0.0)
    Array(0.5, dtype=float64, weak_type=True)
    """
    return ops.logistic(*promote_inexact("expit", x))


def logit(x):
    """log(x / (1 - x)), the inverse of `expit`.

    >>> fnx.scipy.special.logit(jnp.array([0.5, 0.75]))
    Array([0.        , 1.09861229], dtype=float64)
    """
    (x,) = promote_inexact("logit", x)
    return u.log(beside_constants(x / (1.0 - x)))


def xlogy(x, y):
    """x log(y), which is 0 where x is 0.

    >>> fnx.scipy.special.xlogy(0.0, 0.0)
    Array(0., dtype=float64, weak_type=True)
    """
    return _xlogy(*fit("xlogy", promote_inexact("xlogy", x, y)))


def xlog1py(x, y):
    """x log(1 + y), which is 0 where x is 0.

    >>> fnx.scipy.special.xlog1py(jnp.array([0.0, 2.0]), jnp.array([-1.0, 1.0]))
    Array([0.        , 1.38629436], dtype=float64)
    """
    return _xlog1py(*fit("xlog1py", promote_inexact("xlog1py", x, y)))


def entr(x):
    """-x log(x); 0 at 0, -inf below.

    >>> fnx.scipy.special.entr(jnp.array([0.5, -1.0]))
    Array([0.34657359,       -inf], dtype=float64)
    """
    (x,) = promote_inexact("entr", x)
    u.without_complex("entr", x)
    below = x < 0
    x = u.where3(below, u.one(x), x)  # slopes of any order are 0 there
    return u.where3(below, -math.inf, -xlogy(x, x))


def rel_entr(p, q):
    """p log(p / q); 0 where p is 0 and q is not negative, inf where either is negative.

    >>> fnx.scipy.special.rel_entr(jnp.array([0.0, 2.0]), jnp.array([1.0, 1.0]))
    Array([0.        , 1.38629436], dtype=float64)
    """
    p, q = promote_inexact("rel_entr", p, q)
    u.without_complex("rel_entr", p)
    both = u.logical_and(p > 0, q > 0)
    zero = u.logical_and(p == 0, q >= 0)
    safe_p, safe_q = u.where3(both, p, 1.0), u.where3(both, q, 1.0)
    found = xlogy(safe_p, safe_p) - xlogy(safe_p, safe_q)
    out = u.where3(both, found, u.where3(zero, 0.0, math.inf))
    return strong(out) if out.shape else out


def kl_div(p, q):
    """p log(p / q) - p + q; inf where either is negative.

    >>> fnx.scipy.special.kl_div(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0]))
    Array([0.        , 0.38629436], dtype=float64)
    """
    p, q = promote_inexact("kl_div", p, q)
    u.without_complex("kl_div", p)
    out = rel_entr(p, q) - p + q
    return strong(out) if out.shape else out


def boxcox(x, lmbda):
    """(x**lmbda - 1) / lmbda, and log(x) where lmbda is 0.

    >>> fnx.scipy.special.boxcox(jnp.array([4.0, 4.0]), jnp.array([0.5, 0.0]))
    Array([2.        , 1.38629436], dtype=float64)
    """
    x, power = promote_inexact("boxcox", x, lmbda)
    return _boxcox(u.log(x), power)


def boxcox1p(x, lmbda):
    """((1 + x)**lmbda - 1) / lmbda, and log(1 + x) where lmbda is 0.

    >>> fnx.scipy.special.boxcox1p(jnp.array([3.0, 1e-20]), jnp.array([0.5, 0.0]))
    Array([2.e+00, 1.e-20], dtype=float64)
    """
    x, power = promote_inexact("boxcox1p", x, lmbda)
    return _boxcox(u.log1p(x), power)


def _boxcox(log_x, power):
    zero = power == 0
    safe = u.where3(zero, 1.0, power)
    return u.where3(zero, log_x, u.expm1(safe * log_x) / safe)


def softmax(x, /, *, axis=None):
    """exp(x) / sum(exp(x)) over axes, by default over all.

    >>> fnx.scipy.special.softmax(jnp.array([0.0, jnp.log(3.0)]))
    Array([0.25, 0.75], dtype=float64)
    """
    return normalization.softmax(x, axis)


def log_softmax(x, /, *, axis=None):
    """The logarithm of `softmax`, without cancellation.

    >>> fnx.scipy.special.log_softmax(jnp.array([0.0, 1000.0]))
    Array([-1000.,     0.], dtype=float64)
    """
    return normalization.log_softmax(x, axis)


__all__ = [
    "boxcox",
    "boxcox1p",
    "entr",
    "expit",
    "kl_div",
    "log_softmax",
    "logit",
    "logsumexp",
    "rel_entr",
    "softmax",
    "xlog1py",
    "xlogy",
]
