"""Tables of associated Legendre functions."""

import math
from typing import Any

import numpy as np

from fnx.control_flow import scan
from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy.arrays.creation import array, ones_like
from fnx.numpy.arrays.util import to_array
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.structure.selection import where
from fnx.numpy.structure.shapes import broadcast_to, moveaxis
from fnx.transforms.grad import jvp


def lpmn_values(m: int, n: int, z: Any, is_normalized: bool) -> Array:
    """Associated Legendre functions of all orders and degrees up to m = n, at the points z.

    The result has shape (m + 1, n + 1, len(z)): orders, degrees, points. With `is_normalized` they
    are normalised on the sphere, as those of spherical harmonics.

    TypeError for z that is not of real floats, ValueError where it has not one axis, and where m or n
    is negative; NotImplementedError for an m that is not n. The recurrence is DLMF 14.10.3.

    >>> fnx.scipy.special.lpmn_values(1, 1, jnp.array([0.0, 0.6]), False)[:, 1]
    Array([[ 0. ,  0.6],
           [-1. , -0.8]], dtype=float64)
    """
    z = _points("lpmn_values", m, n, z)
    start, steps = _coefficients(n, bool(is_normalized), z.dtype)
    return _table(start * u.power(_sine(z), _column(np.arange(n + 1), z)), steps, z)


def lpmn(m: int, n: int, z: Any) -> tuple[Array, Array]:
    """As `lpmn_values`, not normalised, and the derivatives with respect to z.

    >>> values, slopes = fnx.scipy.special.lpmn(2, 2, jnp.array([0.5]))
    >>> slopes[0, :, 0]
    Array([0. , 1. , 1.5], dtype=float64)
    """
    values = lpmn_values(m, n, z, False)
    z = _points("lpmn", m, n, z)
    start, steps = _coefficients(n, False, z.dtype)
    start = broadcast_to(array(start), (n + 1, *z.shape))
    # Values are s**m Q(z), s the sine and Q polynomials: so the poles divide by s for m = 1 alone.
    q, slope = jvp(lambda z: _table(start, steps, z), (z,), (ones_like(z),))
    order = np.arange(n + 1)
    around = _column(order, z) * z * u.power(_sine(z), _column(np.where(order, order - 2, 0), z))
    slopes = u.power(_sine(z), _column(order, z))[:, None] * slope - around[:, None] * q
    return values, where((order >= order[:, None])[:, :, None], slopes, 0)  # 0 of inf times 0, too


def _points(name: str, m: int, n: int, z: Any) -> Array:
    z = to_array(z, name)
    if dtypes.kind(z.dtype) != "f":
        raise TypeMismatch(f"{name} at points of dtype {z.dtype}; expected real floats")
    if z.ndim != 1:
        raise InvalidValue(f"{name} at points of shape {z.shape}; expected one axis")
    if m != n:
        raise NotImplementedError(f"{name} with m={m} and n={n}; expected m = n")
    if n < 0:
        raise InvalidValue(f"{name} with n={n}; expected at least 0")
    return z


def _sine(z: Array) -> Array:
    return u.sqrt((1 - z) * (1 + z))


def _column(numbers: np.ndarray, z: Array) -> np.ndarray:
    return numbers[:, None].astype(z.dtype)


def _coefficients(n: int, normalized: bool, dtype: Any) -> tuple[np.ndarray, tuple]:
    """What P of degree m = l is over the m-th power of the sine, and the recurrence's two factors.

    Starts have an axis of orders, and factors one of degrees before it.
    """
    m, k = np.arange(n + 1.0), np.arange(1.0, n + 1)
    degree = m[:, None]
    over, above = degree > m, degree > m + 1
    gap = np.where(over, degree - m, 1)
    if normalized:
        start = math.sqrt(0.25 / math.pi) * np.cumprod([1, *-np.sqrt((2 * k + 1) / (2 * k))])
        a = np.sqrt((4 * degree**2 - 1) * over / (gap * (degree + m) + ~over))
        older = ((degree - 1) ** 2 - m**2) * (2 * degree + 1) * above
        b = np.sqrt(older / np.where(above, gap * (degree + m) * (2 * degree - 3), 1))
    else:
        start = np.cumprod([1, *-(2 * k - 1)])
        a, b = (2 * degree - 1) / gap * over, (degree + m - 1) / gap * above
    with np.errstate(over="ignore"):  # of orders that the dtype has no numbers for
        return start[:, None].astype(dtype), tuple(x[:, :, None].astype(dtype) for x in (a, b))


def _table(start: Array, steps: tuple, z: Array) -> Array:
    """The recurrence from degree to degree, of all orders side by side."""
    diagonal = np.eye(len(start), dtype=z.dtype)[:, :, None]

    def next_degree(state: tuple, row: tuple) -> tuple:
        p, before = state
        a, b, here = row
        new = u.where3(here != 0, start, a * z * p - b * before)
        return (new, p), new

    zero = start * 0
    _, table = scan(next_degree, (zero, zero), tuple(map(array, (*steps, diagonal))))
    return moveaxis(table, 0, 1)


__all__ = ["lpmn", "lpmn_values"]
