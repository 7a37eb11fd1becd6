"""Spectra of signals that change: Fourier transforms of windowed segments, and back."""

import warnings
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.core.fast_dataclasses import dataclass
from fnx.numpy import fft
from fnx.numpy.arrays.creation import asarray, zeros
from fnx.numpy.arrays.util import canonical_axis, promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.numerics.padding import pad
from fnx.numpy.numerics.statistics import median
from fnx.numpy.reductions.averages import mean
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.shapes import moveaxis
from fnx.scipy.trends import detrend as without_trend


@dataclass(frozen=True, eq=False)
class Segments:
    """How a signal is cut into segments that overlap."""

    length: int
    step: int
    points: int  # of a transform
    window: np.ndarray

    def places(self, count: int) -> np.ndarray:
        """Where the samples of segments are, (count, length)."""
        return np.arange(count)[:, None] * self.step + np.arange(self.length)


def _segments(
    name: str, window: Any, nperseg: Any, noverlap: Any, nfft: Any, samples: int | None
) -> Segments:
    named = isinstance(window, (str, tuple))
    if not named:
        window = np.asarray(window)
        nperseg = len(window) if nperseg is None and window.ndim == 1 else nperseg
        if window.shape != (nperseg,) or (samples is not None and nperseg > samples):
            raise InvalidValue(
                f"{name} with a window of shape {window.shape} and nperseg={nperseg}; expected "
                f"nperseg numbers{'' if samples is None else f', at most {samples}'}"
            )
    length = 256 if nperseg is None else int(nperseg)
    if samples is not None and length > samples:
        warnings.warn(f"{name}: segments of {length} of {samples} samples", stacklevel=4)
        length = samples
    overlap = length // 2 if noverlap is None else int(noverlap)
    points = length if nfft is None else int(nfft)
    if length < 1 or overlap >= length or points < length:
        raise InvalidValue(
            f"{name} with nperseg={length}, noverlap={overlap}, nfft={points}; expected "
            "nperseg >= 1, noverlap < nperseg, nfft >= nperseg"
        )
    if named:
        from scipy.signal import get_window

        window = get_window(window, length)
    return Segments(length, length - overlap, points, window)


_BORDERS: dict[Any, dict] = {
    None: {},
    "even": {"mode": "reflect"},
    "odd": {"mode": "reflect", "reflect_type": "odd"},
    "constant": {"mode": "edge"},
    "zeros": {"mode": "constant"},
}


def _longer(x: Array, before: int, after: int, **how: Any) -> Array:
    if before == after == 0:
        return x
    return pad(x, [(0, 0)] * (x.ndim - 1) + [(before, after)], **how)


def _trend(detrend: Any, x: Array, axis: int) -> Array:
    """Segments, samples last, without their trends; a user's function sees samples at `axis`."""
    if not detrend:
        return x
    if callable(detrend):
        return moveaxis(detrend(moveaxis(x, -1, axis)), axis, -1)
    return without_trend(x, axis=-1, type=detrend)


def _spectra(
    name: str,
    signals: list[Array],
    cut: tuple[Any, Any, Any, Any],
    detrend: Any,
    onesided: bool,
    axis: int,
    boundary: str | None = None,
    padded: bool = False,
) -> tuple[list[Array], Segments, bool]:
    """Transforms of the segments of signals, (..., segments, frequencies)."""
    if boundary not in _BORDERS:
        raise InvalidValue(f"{name} with boundary={boundary!r}; expected one of {[*_BORDERS]}")
    axis = canonical_axis(axis, signals[0].ndim) - signals[0].ndim
    signals = [moveaxis(s, axis, -1) for s in signals]
    longest = max(s.shape[-1] for s in signals)
    segments = _segments(name, *cut, longest)
    length, step = segments.length, segments.step
    signals = [_longer(s, 0, longest - s.shape[-1]) for s in signals]
    if boundary is not None:
        signals = [_longer(s, length // 2, length // 2, **_BORDERS[boundary]) for s in signals]
    if padded:
        signals = [_longer(s, 0, -(s.shape[-1] - length) % step % length) for s in signals]
    if onesided and any(s.dtype.kind == "c" for s in signals):
        warnings.warn(f"{name} of complex numbers: the spectrum has two sides", stacklevel=3)
        onesided = False
    samples = signals[0].shape[-1]
    rows = segments.places((samples - length) // step + 1)
    transform = fft.rfft if onesided else fft.fft
    found = []
    for s in signals:
        parts = _trend(detrend, s[..., rows], axis - 1 if axis != -1 else -1)
        window = segments.window.astype(parts.dtype)
        found.append(transform(parts * window, segments.points))
    return found, segments, onesided


def _frequencies(segments: Segments, fs: Any, onesided: bool, dtype: np.dtype) -> Array:
    found = (fft.rfftfreq if onesided else fft.fftfreq)(segments.points, 1 / fs)
    return found.astype(dtypes.real_of(dtype))


def _energy(window: np.ndarray, fs: Any, scaling: str, name: str) -> Any:
    if scaling not in ("density", "spectrum"):
        raise InvalidValue(f"{name} with scaling={scaling!r}; expected 'density' or 'spectrum'")
    return fs * np.sum(window * window) if scaling == "density" else np.sum(window) ** 2


def _power(
    name: str, x: Any, y: Any, fs: Any, cut: tuple, detrend: Any, onesided: bool, scaling: str,
    axis: int, average: str,
) -> tuple[Array, Array]:  # fmt: skip
    if average not in ("mean", "median"):
        raise InvalidValue(f"{name} with average={average!r}; expected 'mean' or 'median'")
    signals = promote_inexact(name, x) if y is None else promote_inexact(name, x, y)
    found, segments, onesided = _spectra(name, [*signals], cut, detrend, onesided, axis)
    power = u.conjugate(found[0]) * found[-1]
    if y is None:
        power = power.real
    if onesided:
        stop = power.shape[-1] - (segments.points % 2 == 0)
        power = concatenate([power[..., :1], 2 * power[..., 1:stop], power[..., stop:]], axis=-1)
    power = power / _energy(segments.window, fs, scaling, name).astype(power.dtype)
    count = power.shape[-2]
    if average == "mean":
        power = mean(power, -2)
    else:
        # The median of squares lies below their mean.
        even = 2 * np.arange(1, (count - 1) // 2 + 1)
        bias = float(1 + np.sum(1 / (even + 1) - 1 / even))
        parts = [median(p, -2) for p in ((power,) if y is None else (power.real, power.imag))]
        power = (parts[0] if y is None else parts[0] + 1j * parts[1]) / bias
    return _frequencies(segments, fs, onesided, power.dtype), moveaxis(power, -1, axis)


def csd(x, y, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
        return_onesided=True, scaling="density", axis=-1, average="mean"):  # fmt: skip
    """Frequencies, and the cross power of two signals by Welch's averages over segments.

    >>> x = jnp.sin(2 * jnp.pi * 5 * jnp.arange(256) / 64)
    >>> f, power = fnx.scipy.signal.csd(x, x, fs=64.0, nperseg=64)
    >>> float(f[jnp.argmax(abs(power))])
    5.0
    """
    cut = window, nperseg, noverlap, nfft
    return _power("csd", x, y, fs, cut, detrend, return_onesided, scaling, axis, average)


def welch(x, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, detrend="constant",
          return_onesided=True, scaling="density", axis=-1, average="mean"):  # fmt: skip
    """Frequencies, and the power of a signal by Welch's averages over segments.

    >>> x = jnp.sin(2 * jnp.pi * 5 * jnp.arange(256) / 64)
    >>> f, power = fnx.scipy.signal.welch(x, fs=64.0, nperseg=64)
    >>> float(f[jnp.argmax(power)])
    5.0
    """
    cut = window, nperseg, noverlap, nfft
    return _power("welch", x, None, fs, cut, detrend, return_onesided, scaling, axis, average)


def stft(x, fs=1.0, window="hann", nperseg=256, noverlap=None, nfft=None, detrend=False,
         return_onesided=True, boundary="zeros", padded=True, axis=-1):  # fmt: skip
    """Frequencies, times of segments, and their transforms: times are along a new last axis.

    >>> f, t, z = fnx.scipy.signal.stft(jnp.ones(64), nperseg=16)
    >>> f.shape, t.shape, z.shape
    ((9,), (9,), (9, 9))
    """
    cut = window, nperseg, noverlap, nfft
    (x,) = promote_inexact("stft", x)
    axis = canonical_axis(axis, x.ndim) - x.ndim
    (found,), segments, onesided = _spectra(
        "stft", [x], cut, detrend, return_onesided, axis, boundary, padded
    )
    found = found / np.sum(segments.window).astype(found.dtype)
    half = segments.length / 2
    first = 0.0 if boundary is not None else half
    times = (first + segments.step * np.arange(found.shape[-2])) / fs
    frequencies = _frequencies(segments, fs, onesided, found.dtype)
    return frequencies, asarray(times).astype(frequencies.dtype), moveaxis(found, -1, axis - 1)


def istft(Zxx, fs=1.0, window="hann", nperseg=None, noverlap=None, nfft=None, input_onesided=True,
          boundary=True, time_axis=-1, freq_axis=-2):  # fmt: skip
    """Times, and the signal whose `stft` is nearest to Zxx.

    ValueError for fewer than two axes, and for one axis as both.

    >>> x = jnp.arange(64.0)
    >>> _, back = fnx.scipy.signal.istft(fnx.scipy.signal.stft(x, nperseg=16)[2], nperseg=16)
    >>> bool(jnp.allclose(back, x))
    True
    """
    (z,) = promote_inexact("istft", Zxx)
    if z.ndim < 2:
        raise InvalidValue(f"istft of shape {z.shape}; expected axes of frequencies and of times")
    time, frequency = canonical_axis(time_axis, z.ndim), canonical_axis(freq_axis, z.ndim)
    if time == frequency:
        raise InvalidValue(f"istft with time_axis and freq_axis both {time_axis}")
    lines = z.shape[frequency]
    whole = 2 * (lines - 1) if input_onesided else lines
    if nperseg is None and isinstance(window, (str, tuple)):
        nperseg = whole
    if nfft is None:
        odd = input_onesided and nperseg == whole + 1
        nfft = nperseg if odd else whole
    segments = _segments("istft", window, nperseg, noverlap, nfft, None)
    z = moveaxis(z, (time, frequency), (-2, -1))
    back = fft.irfft(z, nfft) if input_onesided else fft.ifft(z, nfft)
    parts = back[..., : segments.length]
    weight = segments.window.astype(parts.real.dtype)
    rows = segments.places(parts.shape[-2])
    length = int(rows[-1, -1]) + 1
    total = (
        zeros((*parts.shape[:-2], length), parts.dtype)
        .at[..., rows]
        .add(parts * (weight * np.sum(weight)).astype(parts.dtype))
    )
    norm = np.zeros(length, weight.dtype)
    for row in rows:
        norm[row] += weight * weight
    if boundary:
        edge = segments.length // 2
        total, norm = total[..., edge : length - edge], norm[edge : length - edge]
    if np.sum(norm > 1e-10) != len(norm):
        warnings.warn("istft: windows that overlap leave gaps", stacklevel=2)
    x = total / np.where(norm > 1e-10, norm, 1.0).astype(total.dtype)
    x = moveaxis(x, -1, time - (frequency < time))
    times = asarray(np.arange(x.shape[0]) / fs)  # SciPy, too, counts along the first axis
    return times.astype(dtypes.real_of(x.dtype)), x


__all__ = ["csd", "istft", "stft", "welch"]
