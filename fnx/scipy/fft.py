"""Cosine transforms with scipy.fft's names."""

import math

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy import fft as f
from fnx.numpy import ufuncs as u
from fnx.numpy.creation import array
from fnx.numpy.shape import concatenate, flip, moveaxis, stack
from fnx.numpy.util import promote_inexact, reshape_to
from fnx.ops.broadcast import scalar
from fnx.ops.slice import Pad


def _checked(name: str, type: int, norm: str | None) -> None:
    if type != 2:
        raise InvalidValue(f"{name} of type {type}; expected 2")
    if norm not in (None, "backward", "ortho"):
        raise InvalidValue(f"{name} with norm={norm!r}; expected None, 'backward' or 'ortho'")


def _sized(x: Array, n: int | None, axis: int) -> Array:
    x = moveaxis(x, axis, -1)
    if n is None or n == x.shape[-1]:
        return x
    config = (*((0, 0, 0),) * (x.ndim - 1), (0, n - x.shape[-1], 0))
    return Pad(config)(x, scalar(0, x.dtype))


def _weights(n: int, norm: str | None) -> np.ndarray:
    if norm != "ortho":
        return np.ones(n)
    return np.where(np.arange(n) == 0, math.sqrt(1 / (4 * n)), math.sqrt(1 / (2 * n)))


def dct(x, type=2, n=None, axis=-1, norm=None):
    """The discrete cosine transform of type 2 (Makhoul 1980: by one FFT of the same length)."""
    _checked("dct", type, norm)
    (x,) = promote_inexact("dct", x)
    x = _sized(x, n, axis)
    n = x.shape[-1]
    v = concatenate([x[..., ::2], flip(x[..., 1::2], -1)], -1)
    turn = np.exp(-0.5j * np.pi * np.arange(n) / n)
    out = 2 * u.real(u.multiply(f.fft(v), array(turn)))
    out = u.multiply(out, array(_weights(n, norm)).astype(x.dtype)).astype(x.dtype)
    return moveaxis(out, -1, axis)


def idct(x, type=2, n=None, axis=-1, norm=None):
    """The inverse of `dct`."""
    _checked("idct", type, norm)
    (x,) = promote_inexact("idct", x)
    x = _sized(x, n, axis)
    n = x.shape[-1]
    y = u.divide(x, array(_weights(n, norm)).astype(x.dtype))
    turn = np.exp(0.5j * np.pi * np.arange(n) / n)
    mirrored = concatenate([u.multiply(y[..., :1], 0), flip(y[..., 1:], -1)], -1)
    spectrum = u.multiply(u.subtract(y, u.multiply(mirrored, 1j)), array(turn)) * 0.5
    v = u.real(f.ifft(spectrum))
    even = (n + 1) // 2
    first, second = v[..., :even], flip(v[..., even:], -1)
    if n % 2:
        second = concatenate([second, u.multiply(first[..., :1], 0)], -1)
    out = reshape_to(stack([first, second], -1), (*x.shape[:-1], 2 * even))[..., :n]
    return moveaxis(out.astype(x.dtype), -1, axis)


def _each(fn, x, type, s, axes, norm):
    (x,) = promote_inexact("dctn", x)
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    for k, axis in enumerate(axes):
        x = fn(x, type, None if s is None else s[k], axis, norm)
    return x


def dctn(x, type=2, s=None, axes=None, norm=None):
    """`dct` along axes, by default all."""
    return _each(dct, x, type, s, axes, norm)


def idctn(x, type=2, s=None, axes=None, norm=None):
    """The inverse of `dctn`."""
    return _each(idct, x, type, s, axes, norm)


__all__ = ["dct", "dctn", "idct", "idctn"]
