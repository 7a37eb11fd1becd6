"""Bessel functions."""

from fnx.numpy import ufuncs as u
from fnx.numpy.numerics import i0
from fnx.numpy.shapes import stack
from fnx.numpy.util import constant, promote_inexact
from fnx.ops import integrals
from fnx.ops import special as prims


def i0e(x):
    """exp(-|x|) `i0(x)`."""
    return prims.bessel_i0e(*promote_inexact("i0e", x))


def i1e(x):
    """exp(-|x|) `i1(x)`."""
    return prims.bessel_i1e(*promote_inexact("i1e", x))


def i1(x):
    """The modified Bessel function of the first kind of order 1."""
    (x,) = promote_inexact("i1", x)
    return u.exp(u.abs(x)) * prims.bessel_i1e(x)


def bessel_jn(z, *, v, n_iter=50):
    """Bessel functions of the first kind of orders 0 to v, stacked along a new first axis."""
    del n_iter
    (z,) = promote_inexact("bessel_jn", z)
    return stack([integrals.bessel_j(constant(k, z.dtype), z) for k in range(int(v) + 1)])


__all__ = ["bessel_jn", "i0", "i0e", "i1", "i1e"]
