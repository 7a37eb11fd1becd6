"""Convolution, correlation and trends of signals."""

from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.lax.convolutions import conv_general_dilated
from fnx.numpy import fft
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.util import canonical_axes, promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.structure.tiling import flip
from fnx.scipy.spectra import csd, istft, stft, welch
from fnx.scipy.trends import detrend

_MODES = ("full", "same", "valid")


def _pair(name: str, in1: Any, in2: Any, mode: str) -> tuple[Array, Array]:
    x, y = promote_inexact(name, in1, in2)
    if mode not in _MODES:
        raise InvalidValue(f"{name} with mode={mode!r}; expected 'full', 'same' or 'valid'")
    if x.ndim != y.ndim:
        raise ShapeError(f"{name} of shapes {x.shape} and {y.shape}; expected equal ranks")
    return x, y


def _convolved(name: str, in1: Any, in2: Any, mode: str) -> Array:
    x, y = _pair(name, in1, in2, mode)
    if not x.size or not y.size:
        raise ShapeError(f"{name} of empty arrays, of shapes {x.shape} and {y.shape}")
    first = all(m >= n for m, n in zip(x.shape, y.shape))
    second = all(m <= n for m, n in zip(x.shape, y.shape))
    if mode == "valid" and not (first or second):
        raise ShapeError(
            f"{name} of shapes {x.shape} and {y.shape} with mode='valid'; expected one to be the "
            "smaller along every axis"
        )
    if not x.ndim:
        return x * y
    target = x.shape
    if second and not first:
        x, y = y, x
    padding: Any = [(n - 1, n - 1) for n in y.shape] if mode != "valid" else [(0, 0)] * x.ndim
    out = conv_general_dilated(x[None, None], flip(y)[None, None], (1,) * x.ndim, padding)[0, 0]
    return _centered(out, target) if mode == "same" else out


def _centered(x: Array, shape: tuple[int, ...]) -> Array:
    starts = [(m - n) // 2 for m, n in zip(x.shape, shape)]
    return x[tuple(slice(s, s + n) for s, n in zip(starts, shape))]


def fftconvolve(in1, in2, mode="full", axes=None):
    """The convolution of two arrays of equal rank, by the FFT.

    ShapeError for shapes that differ where they must not, and for mode 'valid' if neither is
    the smaller.

    >>> fnx.scipy.signal.fftconvolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0])).round(6)
    Array([1., 3., 5., 3.], dtype=float64)
    """
    x, y = _pair("fftconvolve", in1, in2, mode)
    if not x.ndim:
        return x * y
    axes = canonical_axes(axes, x.ndim)
    rest = [k for k in range(x.ndim) if k not in axes]
    if any(x.shape[k] != y.shape[k] and 1 not in (x.shape[k], y.shape[k]) for k in rest):
        raise ShapeError(f"fftconvolve of shapes {x.shape} and {y.shape} along axes {axes}")
    sizes = [x.shape[k] + y.shape[k] - 1 for k in axes]
    if mode == "valid":
        first = all(x.shape[k] >= y.shape[k] for k in axes)
        if not first and not all(x.shape[k] <= y.shape[k] for k in axes):
            raise ShapeError(
                f"fftconvolve of shapes {x.shape} and {y.shape} with mode='valid'; expected one to be "
                "the smaller along every axis"
            )
        if not first:
            x, y = y, x
    if x.dtype.kind == "c":
        full = fft.ifftn(fft.fftn(x, sizes, axes) * fft.fftn(y, sizes, axes), sizes, axes)
    else:
        full = fft.irfftn(fft.rfftn(x, sizes, axes) * fft.rfftn(y, sizes, axes), sizes, axes)
    if mode == "full":
        return full
    shape = list(full.shape)
    for k in axes:
        shape[k] = x.shape[k] if mode == "same" else x.shape[k] - y.shape[k] + 1
    return _centered(full, tuple(shape))


def convolve(in1, in2, mode="full", method="auto", precision=None):
    """The convolution of two arrays of equal rank; `method` 'direct' (also 'auto') or 'fft'.

    ValueError for another method.

    >>> fnx.scipy.signal.convolve(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    Array([1., 3., 2.], dtype=float64)
    """
    del precision
    if method not in ("auto", "direct", "fft"):
        raise InvalidValue(f"convolve with method={method!r}; expected 'auto', 'direct' or 'fft'")
    return (
        fftconvolve(in1, in2, mode) if method == "fft" else _convolved("convolve", in1, in2, mode)
    )


def correlate(in1, in2, mode="full", method="auto", precision=None):
    """The correlation of two arrays of equal rank: the convolution with in2 reversed and conjugated.

    >>> fnx.scipy.signal.correlate(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 10.0]))
    Array([10., 21., 32.,  3.], dtype=float64)
    """
    x, y = _pair("correlate", in1, in2, mode)
    return convolve(x, flip(u.conjugate(y)), mode, method, precision)


def _plain_border(name: str, in1: Any, in2: Any, boundary: str, fillvalue: Any) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(f"{name} has boundary='fill' with fillvalue=0 only")
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ShapeError(f"{name} of ranks {np.ndim(in1)} and {np.ndim(in2)}; expected matrices")


def convolve2d(in1, in2, mode="full", boundary="fill", fillvalue=0, precision=None):
    """The convolution of two matrices, with zeros around them; `mode` is 'full', 'same' or 'valid'.

    ValueError for another mode; ShapeError for what is no matrix; NotImplementedError for another
    boundary than zeros.

    >>> fnx.scipy.signal.convolve2d(jnp.eye(2), jnp.ones((2, 2)), mode="same")
    Array([[1., 1.],
           [1., 2.]], dtype=float64)
    """
    del precision
    _plain_border("convolve2d", in1, in2, boundary, fillvalue)
    return _convolved("convolve2d", in1, in2, mode)


def correlate2d(in1, in2, mode="full", boundary="fill", fillvalue=0, precision=None):
    """The correlation of two matrices, with zeros around them; `mode` is 'full', 'same' or 'valid'.

    ValueError for another mode; ShapeError for what is no matrix; NotImplementedError for another
    boundary than zeros.

    >>> fnx.scipy.signal.correlate2d(jnp.eye(3), jnp.eye(2), mode="valid")
    Array([[2., 0.],
           [0., 2.]], dtype=float64)
    """
    del precision
    _plain_border("correlate2d", in1, in2, boundary, fillvalue)
    x, y = _pair("correlate2d", in1, in2, mode)
    if mode == "valid" and all(m <= n for m, n in zip(x.shape, y.shape)) and x.shape != y.shape:
        # SciPy exchanges them, and conjugates the one that comes second then.
        return flip(correlate2d(y, x, mode))
    # Reversed twice: of two middles SciPy takes the other one here.
    return flip(_convolved("correlate2d", flip(x), u.conjugate(y), mode))


__all__ = [
    "convolve",
    "convolve2d",
    "correlate",
    "correlate2d",
    "csd",
    "detrend",
    "fftconvolve",
    "istft",
    "stft",
    "welch",
]

_retell(globals())
