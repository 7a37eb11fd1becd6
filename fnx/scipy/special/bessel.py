"""Bessel functions."""

from fnx.numpy.arrays.util import constant, promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.numerics.calculus import i0
from fnx.numpy.structure.joining import stack
from fnx.ops.elementwise import integrals
from fnx.ops.elementwise import special as prims


def i0e(x):
    """exp(-|x|) `i0(x)`.

    >>> fnx.scipy.special.i0e(jnp.array([0.0, 1000.0]))
    Array([1.        , 0.01261724], dtype=float64)
    """
    return prims.bessel_i0e(*promote_inexact("i0e", x))


def i1e(x):
    """exp(-|x|) `i1(x)`.

    >>> fnx.scipy.special.i1e(jnp.array([1.0, 1000.0]))
    Array([0.20791042, 0.01261093], dtype=float64)
    """
    return prims.bessel_i1e(*promote_inexact("i1e", x))


def i1(x):
    """The modified Bessel function of the first kind of order 1.

    >>> fnx.scipy.special.i1(jnp.array([0.0, 1.0]))
    Array([0.       , 0.5651591], dtype=float64)
    """
    (x,) = promote_inexact("i1", x)
    return u.exp(u.abs(x)) * prims.bessel_i1e(x)


def bessel_jn(z, *, v, n_iter=50):
    """Bessel functions of the first kind of orders 0 to v, stacked along a new first axis.

    >>> fnx.scipy.special.bessel_jn(jnp.array(1.0), v=2).round(6)
    Array([0.765198, 0.440051, 0.114903], dtype=float64)
    """
    del n_iter
    (z,) = promote_inexact("bessel_jn", z)
    return stack([integrals.bessel_j(constant(k, z.dtype), z) for k in range(int(v) + 1)])


__all__ = ["bessel_jn", "i0", "i0e", "i1", "i1e"]
