"""Convolutions and detrending with scipy.signal's names."""

import math
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy import fft as f
from fnx.numpy import linalg, reduce
from fnx.numpy import ufuncs as u
from fnx.numpy.contract import matmul
from fnx.numpy.creation import arange, array, ones
from fnx.numpy.shape import concatenate, flip, moveaxis, pad, stack
from fnx.numpy.util import canonical_axes, convert, promote_inexact, reshape_to
from fnx.ops.convolution import ConvGeneralDilated, canonical_numbers


def _direct(x: Array, y: Array, mode: str) -> Array:
    """The convolution of arrays of one rank by sums of products."""
    if mode not in ("full", "same", "valid"):
        raise InvalidValue(f"convolution with mode={mode!r}; expected 'full', 'same' or 'valid'")
    if x.ndim != y.ndim:
        raise InvalidValue(f"convolution of shapes {x.shape} and {y.shape}; expected equal ranks")
    if mode != "full" and all(n <= k for n, k in zip(x.shape, y.shape)) and mode == "valid":
        x, y = y, x
    pads = {
        "valid": [(0, 0)] * x.ndim,
        "same": [(k // 2, k - k // 2 - 1 + (k + 1) % 2) for k in y.shape],
        "full": [(k - 1, k - 1) for k in y.shape],
    }[mode]
    n = x.ndim
    conv = ConvGeneralDilated((1,) * n, tuple(pads), (1,) * n, (1,) * n, canonical_numbers(n))
    out = conv(reshape_to(x, (1, 1, *x.shape)), reshape_to(flip(y), (1, 1, *y.shape)))
    out = reshape_to(out, out.shape[2:])
    return out[tuple([slice(0, m) for m in x.shape])] if mode == "same" else out


def convolve(in1, in2, mode="full", method="auto", precision=None):
    """The convolution of two arrays of one rank."""
    x, y = promote_inexact("convolve", in1, in2)
    if method == "fft":
        return fftconvolve(x, y, mode)
    if method not in ("auto", "direct"):
        raise InvalidValue(f"convolve with method={method!r}; expected 'auto', 'direct' or 'fft'")
    return _direct(x, y, mode)


def correlate(in1, in2, mode="full", method="auto", precision=None):
    """The cross-correlation of two arrays of one rank."""
    x, y = promote_inexact("correlate", in1, in2)
    return convolve(x, flip(u.conj(y)), mode, method)


def convolve2d(in1, in2, mode="full", boundary="fill", fillvalue=0, precision=None):
    """The convolution of two matrices, of which the first is surrounded by zeros."""
    if boundary != "fill" or fillvalue != 0:
        raise InvalidValue("convolve2d with another boundary than zeros is not supported; pad first")
    x, y = promote_inexact("convolve2d", in1, in2)
    if x.ndim != 2 or y.ndim != 2:
        raise InvalidValue(f"convolve2d of shapes {x.shape} and {y.shape}; expected matrices")
    return _direct(x, y, mode)


def correlate2d(in1, in2, mode="full", boundary="fill", fillvalue=0, precision=None):
    """The cross-correlation of two matrices."""
    x, y = promote_inexact("correlate2d", in1, in2)
    return convolve2d(x, flip(u.conj(y)), mode, boundary, fillvalue)


def fftconvolve(in1, in2, mode="full", axes=None):
    """The convolution of two arrays by Fourier transforms."""
    x, y = promote_inexact("fftconvolve", in1, in2)
    axes = canonical_axes(axes, x.ndim)
    if mode == "valid" and all(x.shape[k] <= y.shape[k] for k in axes):
        x, y = y, x
    sizes = tuple([x.shape[k] + y.shape[k] - 1 for k in axes])
    if dtypes.is_complex(x.dtype):
        out = f.ifftn(u.multiply(f.fftn(x, sizes, axes), f.fftn(y, sizes, axes)), sizes, axes)
    else:
        out = f.irfftn(u.multiply(f.rfftn(x, sizes, axes), f.rfftn(y, sizes, axes)), sizes, axes)
    if mode == "full":
        return out
    index = [slice(None)] * out.ndim
    for k in axes:
        n, m = x.shape[k], y.shape[k]
        length = n if mode == "same" else abs(n - m) + 1
        start = (out.shape[k] - length) // 2
        index[k] = slice(start, start + length)
    return out[tuple(index)]


def detrend(data, axis=-1, type="linear", bp=0, overwrite_data=None):
    """Without the mean ("constant") or the best line ("linear"), piecewise between break points."""
    (x,) = promote_inexact("detrend", data)
    if type == "constant":
        return x - reduce.mean(x, axis=axis, keepdims=True)
    if type != "linear":
        raise InvalidValue(f"detrend with type={type!r}; expected 'linear' or 'constant'")
    x = moveaxis(x, axis, 0)
    n = x.shape[0]
    points = bp if isinstance(bp, (list, tuple)) else [int(bp)]
    breaks = sorted({0, n, *[int(b) for b in points]})
    flat = reshape_to(x, (n, math.prod(x.shape[1:])))
    parts = []
    for a, b in zip(breaks, breaks[1:]):
        t = convert(arange(1, b - a + 1) / (b - a), x.dtype)
        line = stack([t, ones(b - a, x.dtype)], 1)
        coefficients = linalg.lstsq(line, flat[a:b])[0]
        parts.append(flat[a:b] - matmul(line, coefficients))
    return moveaxis(reshape_to(concatenate(parts), x.shape), 0, axis)


def _window(window: Any, n: int) -> Array:
    """The values of a window, given by name or as an array."""
    if isinstance(window, (str, tuple)):
        from scipy.signal import get_window

        return array(get_window(window, n))
    return array(window)


def _frames(x: Array, n: int, step: int) -> Array:
    count = (x.shape[-1] - n) // step + 1
    return x[..., arange(count)[:, None] * step + arange(n)]


def stft(
    x, fs=1.0, window="hann", nperseg=256, noverlap=None, nfft=None, detrend=False, return_onesided=True,
    boundary="zeros", padded=True, axis=-1,
):  # fmt: skip
    """Frequencies, times, and the Fourier transforms of overlapping windows of a signal."""
    (x,) = promote_inexact("stft", x)
    x = moveaxis(x, axis, -1)
    n = min(int(nperseg), x.shape[-1])
    overlap = n // 2 if noverlap is None else int(noverlap)
    step = n - overlap
    lead = [(0, 0)] * (x.ndim - 1)
    if boundary is not None:
        modes = {"zeros": "constant", "even": "reflect", "odd": "reflect", "constant": "edge"}
        options = {"reflect_type": "odd"} if boundary == "odd" else {}
        x = pad(x, [*lead, (n // 2, n // 2)], mode=modes[boundary], **options)
    if padded:
        x = pad(x, [*lead, (0, -(x.shape[-1] - n) % step)])
    win = convert(_window(window, n), x.dtype)
    frames = _detrended(_frames(x, n, step), detrend)
    size = n if nfft is None else int(nfft)
    one_sided = return_onesided and not dtypes.is_complex(x.dtype)
    spectra = (f.rfft if one_sided else f.fft)(frames * win, size) / reduce.sum(win)
    freqs = (f.rfftfreq if one_sided else f.fftfreq)(size, 1 / fs)
    times = (arange(spectra.shape[-2]) * step + n / 2) / fs
    times = times - (n / 2) / fs if boundary is not None else times
    out = moveaxis(spectra, -1, -2)
    return freqs, times, moveaxis(out, -2, axis - 1 if axis < 0 else axis)


def _detrended(frames: Array, how: Any) -> Array:
    if how is False or how is None:
        return frames
    return how(frames) if callable(how) else detrend(frames, type=how)


def csd(
    x, y, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
    return_onesided=True, scaling="density", axis=-1, average="mean",
):  # fmt: skip
    """Frequencies and the cross power spectral density, by Welch's method."""
    x, y = (promote_inexact("csd", x, x if y is None else y))
    x, y = moveaxis(x, axis, -1), moveaxis(y, axis, -1)
    n = min(256 if nperseg is None else int(nperseg), x.shape[-1])
    overlap = n // 2 if noverlap is None else int(noverlap)
    win = convert(_window(window, n), x.dtype)
    size = n if nfft is None else int(nfft)
    one_sided = return_onesided and not dtypes.is_complex(x.dtype)
    transform = f.rfft if one_sided else f.fft
    spectra = [transform(_detrended(_frames(z, n, n - overlap), detrend) * win, size) for z in (x, y)]
    power = u.multiply(u.conj(spectra[0]), spectra[1])
    if scaling not in ("density", "spectrum"):
        raise InvalidValue(f"csd with scaling={scaling!r}; expected 'density' or 'spectrum'")
    norm = fs * reduce.sum(win * win) if scaling == "density" else reduce.sum(win) ** 2
    power = power / norm
    if one_sided:
        last = power.shape[-1] if size % 2 else power.shape[-1] - 1
        power = power.at[..., 1:last].multiply(2.0)
    power = reduce.mean(power, axis=-2) if average == "mean" else _median(power)
    freqs = (f.rfftfreq if one_sided else f.fftfreq)(size, 1 / fs)
    return freqs, moveaxis(power, -1, axis)


def _median(power: Array) -> Array:
    """The median over windows, of real and imaginary parts, without the median's bias."""
    from fnx.numpy.statistics import median

    # Of k exponential variables the median is 1 + sum over even j < k of 1 / (j + 1) - 1 / j.
    pairs = [1 / (j + 1) - 1 / j for j in range(2, power.shape[-2], 2)]
    bias = 1 + math.fsum(pairs)
    return (median(u.real(power), axis=-2) + 1j * median(u.imag(power), axis=-2)) / bias


def welch(
    x, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant", return_onesided=True,
    scaling="density", axis=-1, average="mean",
):  # fmt: skip
    """Frequencies and the power spectral density, by Welch's method."""
    freqs, power = csd(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average
    )
    return freqs, u.real(power)


__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "stft", "welch",
]  # fmt: skip
