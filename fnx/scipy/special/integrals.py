"""Exponential, trigonometric and Fresnel integrals; the dilogarithm; hypergeometric functions."""

from fnx.numpy.arrays.real_operands import reals
from fnx.numpy.arrays.util import fit, promote_inexact, strong
from fnx.ops.elementwise import integrals as prims


def expi(x):
    """The exponential integral Ei: the principal value of the integral of exp(t)/t from -inf to x.

    >>> fnx.scipy.special.expi(jnp.array([1.0]))
    Array([1.89511782], dtype=float64)
    """
    return prims.expi(*map(strong, reals("expi", promote_inexact("expi", x))))


def expn(n, x):
    """The exponential integral E_n of integer order: the integral of exp(-x t)/t**n from 1 to inf.

    >>> fnx.scipy.special.expn(2, jnp.array([0.0, 1.0]))
    Array([1.        , 0.14849551], dtype=float64)
    """
    return prims.expn(*map(strong, fit("expn", reals("expn", promote_inexact("expn", n, x)))))


def exp1(x):
    """`expn` of order 1.

    >>> fnx.scipy.special.exp1(jnp.array([1.0]))
    Array([0.21938393], dtype=float64)
    """
    return expn(1, x)


def sici(x):
    """The sine and the cosine integral, a pair.

    >>> fnx.scipy.special.sici(jnp.array([1.0]))
    (Array([0.94608307], dtype=float64), Array([0.33740392], dtype=float64))
    """
    (x,) = map(strong, reals("sici", promote_inexact("sici", x)))
    return prims.sine_integral(x), prims.cosine_integral(x)


def fresnel(x):
    """The Fresnel integrals S and C, a pair.

    >>> fnx.scipy.special.fresnel(jnp.array([1.0]))
    (Array([0.43825915], dtype=float64), Array([0.7798934], dtype=float64))
    """
    (x,) = map(strong, reals("fresnel", promote_inexact("fresnel", x)))
    return prims.fresnel_sine(x), prims.fresnel_cosine(x)


def spence(x):
    """Spence's function, the dilogarithm of 1 - x: minus the integral of log(t)/(t - 1) from 1 to x.

    >>> fnx.scipy.special.spence(jnp.array([2.0, 0.0])) / jnp.pi**2
    Array([-0.08333333,  0.16666667], dtype=float64)
    """
    return prims.spence(*map(strong, reals("spence", promote_inexact("spence", x))))


def hyp1f1(a, b, x):
    """Kummer's confluent hypergeometric function; derivatives are in x.

    >>> fnx.scipy.special.hyp1f1(1.0, 1.0, jnp.array([0.0, 1.0]))
    Array([1.        , 2.71828183], dtype=float64)
    """
    return prims.hyp1f1(
        *map(strong, fit("hyp1f1", reals("hyp1f1", promote_inexact("hyp1f1", a, b, x))))
    )


def hyp2f1(a, b, c, x):
    """Gauss's hypergeometric function; derivatives are in x.

    >>> fnx.scipy.special.hyp2f1(1.0, 1.0, 1.0, jnp.array([0.5]))
    Array([2.], dtype=float64)
    """
    return prims.hyp2f1(*fit("hyp2f1", reals("hyp2f1", promote_inexact("hyp2f1", a, b, c, x))))


__all__ = ["exp1", "expi", "expn", "fresnel", "hyp1f1", "hyp2f1", "sici", "spence"]
