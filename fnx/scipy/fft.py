"""Discrete cosine transforms of type 2, and their inverses."""

import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy import fft
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.util import canonical_axes, canonical_axis, convert, promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.numerics.padding import pad
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.shapes import moveaxis
from fnx.ops.elementwise import arithmetic as ops


def _checked(name: str, type: int, norm: str | None) -> None:
    if type != 2:
        raise NotImplementedError(f"{name} has type 2 only, got {type}")
    if norm not in (None, "ortho", "backward"):
        raise InvalidValue(f"{name} with norm={norm!r}; expected None, 'backward' or 'ortho'")


def _sized(x: Array, n: int | None) -> Array:
    """The last axis cut off or filled with zeros."""
    if n is None or n == x.shape[-1]:
        return x
    if n < x.shape[-1]:
        return x[..., :n]
    return pad(x, [(0, 0)] * (x.ndim - 1) + [(0, n - x.shape[-1])])


def _turns(n: int, dtype: np.dtype, sign: float) -> np.ndarray:
    """exp(i sign pi k / (2 n))."""
    wide = np.exp(1j * sign * np.pi * np.arange(n) / (2 * n))
    return wide.astype(np.complex64 if dtype.itemsize < 8 else np.complex128)


def _dct(x: Array, norm: str | None) -> Array:
    # Makhoul (1980): a real FFT of the even elements, followed by the odd ones backwards.
    n = x.shape[-1]
    folded = concatenate([x[..., ::2], x[..., 1::2][..., ::-1]], axis=-1)
    out = 2 * u.real(fft.fft(folded) * _turns(n, x.dtype, -1.0))
    return out * _ortho(n).astype(out.dtype) if norm == "ortho" else out


def _ortho(n: int) -> np.ndarray:
    return np.where(np.arange(n) == 0, math.sqrt(0.25 / n), math.sqrt(0.5 / n))


def _idct(x: Array, norm: str | None) -> Array:
    n = x.shape[-1]
    if x.dtype.itemsize < 4:  # no complex numbers consist of these
        x = convert(x, dtypes.float32)
    if norm == "ortho":
        x = x / _ortho(n).astype(x.dtype)
    mirrored = pad(x[..., 1:][..., ::-1], [(0, 0)] * (x.ndim - 1) + [(1, 0)])
    folded = u.real(fft.ifft(ops.complex_(x, -mirrored) * _turns(n, x.dtype, 1.0))) / 2
    places = np.where(np.arange(n) % 2 == 0, np.arange(n) // 2, n - 1 - np.arange(n) // 2)
    return folded[..., places]


def _along(fn: Any, x: Array, n: int | None, axis: int, norm: str | None) -> Array:
    if dtypes.is_complex(x.dtype):
        parts = (_along(fn, part(x), n, axis, norm) for part in (u.real, u.imag))
        return ops.complex_(*parts)
    out = fn(_sized(moveaxis(x, axis, -1), n), norm)
    return moveaxis(out, -1, axis)


def dct(x, type=2, n=None, axis=-1, norm=None):
    """The discrete cosine transform along an axis, cut off or filled with zeros to length n.

    >>> fnx.scipy.fft.dct(jnp.array([1.0, 1.0, 1.0])).round(6)[0]
    Array(6., dtype=float64)
    """
    _checked("dct", type, norm)
    (x,) = promote_inexact("dct", x)
    return _along(_dct, x, n, canonical_axis(axis, x.ndim), norm)


def idct(x, type=2, n=None, axis=-1, norm=None):
    """The inverse of `dct`, along an axis; NotImplementedError for another type than 2.

    >>> fnx.scipy.fft.idct(fnx.scipy.fft.dct(jnp.array([1.0, 2.0, 3.0]))).round(6)
    Array([1., 2., 3.], dtype=float64)
    """
    _checked("idct", type, norm)
    (x,) = promote_inexact("idct", x)
    return _along(_idct, x, n, canonical_axis(axis, x.ndim), norm)


def _many(name: str, fn: Any, x: Any, type: int, s: Any, axes: Any, norm: str | None) -> Array:
    _checked(name, type, norm)
    (x,) = promote_inexact(name, x)
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    axes = canonical_axes(tuple(axes), x.ndim)
    if s is not None and len(s) != len(axes):
        raise InvalidValue(f"{name} with s={s} and axes={axes}; expected as many of both")
    for axis, n in zip(axes, s if s is not None else (None,) * len(axes)):
        x = _along(fn, x, n, axis, norm)
    return x


def dctn(x, type=2, s=None, axes=None, norm=None):
    """`dct` along several axes, by default all.

    >>> fnx.scipy.fft.dctn(jnp.ones((2, 2)))[0, 0].round(6)
    Array(16., dtype=float64)
    """
    return _many("dctn", _dct, x, type, s, axes, norm)


def idctn(x, type=2, s=None, axes=None, norm=None):
    """The inverse of `dctn`, along several axes; NotImplementedError for another type than 2.

    >>> fnx.scipy.fft.idctn(fnx.scipy.fft.dctn(jnp.array([[1.0, 2.0], [3.0, 4.0]]))).round(6)
    Array([[1., 2.],
           [3., 4.]], dtype=float64)
    """
    return _many("idctn", _idct, x, type, s, axes, norm)


__all__ = ["dct", "dctn", "idct", "idctn"]

_retell(globals())
