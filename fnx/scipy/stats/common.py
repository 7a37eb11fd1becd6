"""What distributions share: arguments as floats, logarithms of zero outside the support."""

import math
from typing import Any

from fnx.core.array import Array
from fnx.numpy.arrays.util import PYTHON, promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.ops.elementwise.convert import ConvertElementType


def floats(name: str, *xs: Any) -> list[Array]:
    """Arguments in their common inexact dtype, which is weak where all of them are Python numbers."""
    arrays = promote_inexact(name, *xs)
    if all(type(x) in PYTHON for x in xs):
        return arrays
    return [x if not x.weak_type else ConvertElementType(x.dtype, False)(x) for x in arrays]


def inside(mask: Array, log_density: Array, x: Array) -> Array:
    """The logarithm of a density at x within its support, -inf outside, nan at nan."""
    return u.where3(mask, log_density, u.where3(u.isnan(x), math.nan, -math.inf))


def log1mexp(x: Array) -> Array:
    """log(1 - exp(x)) for x < 0, without cancellation."""
    near = x > -math.log(2)
    return u.where3(
        near, u.log(-u.expm1(u.where3(near, x, -1.0))), u.log1p(-u.exp(u.where3(near, -1.0, x)))
    )
