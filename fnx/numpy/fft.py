"""Discrete Fourier transforms, with numpy.fft's names and conventions."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.util import canonical_axes, convert, integer, named, promote_inexact, to_array
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.structure.shapes import moveaxis
from fnx.numpy.structure.tiling import roll
from fnx.ops.base.broadcast import scalar
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.linalg.fft import FFT, WrongNumbers
from fnx.ops.structure.slice import Pad


def _resized(x: Array, sizes: tuple[int, ...]) -> Array:
    """The last axes cut off or filled with zeros."""
    lead = x.ndim - len(sizes)
    config = [(0, 0, 0)] * lead + [(0, n - m, 0) for n, m in zip(sizes, x.shape[lead:])]
    return Pad(tuple(config))(x, scalar(0, x.dtype)) if any(c[1] for c in config) else x


def _scale(kind: str, lengths: tuple[int, ...], norm: str | None) -> float:
    if norm not in (None, "backward", "ortho", "forward"):
        raise InvalidValue(f"norm={norm!r}; expected 'backward', 'ortho' or 'forward'")
    total = math.prod(lengths)
    if norm == "ortho":
        return math.sqrt(total) if kind.startswith("i") else 1 / math.sqrt(total)
    if norm == "forward":
        return total if kind.startswith("i") else 1 / total
    return 1.0


def _prepared(kind: str, x: Array) -> Array:
    (x,) = promote_inexact(kind, x)
    if dtypes.is_float(x.dtype) and x.dtype.itemsize < 4:
        x = convert(x, dtypes.float32)
    if kind == "rfft":
        if dtypes.is_complex(x.dtype):
            raise WrongNumbers(f"{kind} of dtype {x.dtype}; expected real numbers: use fft")
        return x
    return convert(x, dtypes.complex_of(x.dtype))


def transform(kind: str, a: Any, s: Any, axes: Any, norm: str | None) -> Array:
    """An FFT over axes, in the order in which they are given (the last one is halved by rfft)."""
    x = _prepared(kind, to_array(a, kind))
    if axes is None:
        axes = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    axes = [-1 if k is None else k for k in axes]
    if not all(isinstance(k, (int, np.integer)) for k in axes):
        raise InvalidValue(f"{kind} along axis {axes[0]}; expected one axis: fftn takes several")
    if s is not None and len(s) != len(axes):
        raise ShapeError(
            f"{kind} with lengths {tuple(s)} along axes {tuple(axes)}; expected as many"
        )
    axes = tuple([k + x.ndim if k < 0 else k for k in axes])
    canonical_axes(tuple(set(axes)), x.ndim)
    if len(set(axes)) != len(axes):
        return _one_after_the_other(kind, x, s, axes, norm)
    x = moveaxis(x, axes, range(x.ndim - len(axes), x.ndim)) if axes else x
    if not axes:
        return x
    lengths = list(x.shape[-len(axes) :])
    if kind == "irfft":
        lengths[-1] = 2 * (lengths[-1] - 1)
    if s is not None:
        lengths = [
            m if n is None else integer(n, "the length n of a transform")
            for n, m in zip(s, lengths)
        ]
    last = range(x.ndim - len(axes), x.ndim)
    if s is None and kind in ("fft", "ifft") and not x.size:
        return moveaxis(x, last, axes)
    if any(n < 1 for n in lengths):
        raise InvalidValue(f"{kind} of lengths {tuple(lengths)}; expected at least 1")
    need = (*lengths[:-1], lengths[-1] // 2 + 1) if kind == "irfft" else tuple(lengths)
    x = _resized(x, need)
    out = FFT(kind, tuple(lengths))(x)
    factor = _scale(kind, tuple(lengths), norm)
    if factor != 1.0:
        out = ops.mul(out, scalar(factor, out.dtype))
    return moveaxis(out, last, axes)


def _one_after_the_other(kind: str, x: Array, s: Any, axes: Sequence[int], norm: Any) -> Array:
    """Along axes of which some are the same, from the last to the first.

    As in NumPy, numbers are real before (rfft) or behind (irfft) the transform along the last of the axes,
    and lengths that are not given are those of the array before all.
    """
    lengths = [x.shape[k] for k in axes]
    if s is None and kind == "irfft":
        lengths[-1] = 2 * (lengths[-1] - 1)
    steps = [(m if n is None else n, k) for n, m, k in zip(s or lengths, lengths, axes)]
    kinds = [{"rfft": "fft", "irfft": "ifft"}.get(kind, kind)] * (len(axes) - 1) + [kind]
    order = range(len(axes)) if kind == "irfft" else range(len(axes))[::-1]
    for i in order:
        n, k = steps[i]
        x = transform(kinds[i], x, (n,), (k,), norm)
    return x


def _one(name: str, kind: str, doc: str) -> Callable:
    @named(name, doc)
    def fn(a, n=None, axis=-1, norm=None):
        return transform(kind, a, None if n is None else (n,), (axis,), norm)

    return fn


def _two(name: str, kind: str, doc: str) -> Callable:
    @named(name, doc)
    def fn(a, s=None, axes=(-2, -1), norm=None):
        return transform(kind, a, s, axes, norm)

    return fn


def _many(name: str, kind: str, doc: str) -> Callable:
    @named(name, doc)
    def fn(a, s=None, axes=None, norm=None):
        return transform(kind, a, s, axes, norm)

    return fn


fft = _one(
    "fft",
    "fft",
    """The discrete Fourier transform along an axis.

    >>> wave = jnp.cos(2 * jnp.pi * jnp.arange(8) / 8)
    >>> jnp.abs(jnp.fft.fft(wave)).round(6)
    Array([0., 4., 0., 0., 0., 0., 0., 4.], dtype=float64)
    """,
)
ifft = _one(
    "ifft",
    "ifft",
    """The inverse of `fft`, with its arguments; divided by the lengths, unless `norm` says otherwise.

    >>> jnp.fft.ifft(jnp.fft.fft(jnp.array([1.0, 2.0, 3.0]))).real.round(6)
    Array([1., 2., 3.], dtype=float64)
    """,
)
rfft = _one(
    "rfft",
    "rfft",
    """The transform of real numbers: n // 2 + 1 frequencies.

    >>> wave = jnp.cos(2 * jnp.pi * jnp.arange(8) / 8)
    >>> jnp.abs(jnp.fft.rfft(wave)).round(6)
    Array([0., 4., 0., 0., 0.], dtype=float64)
    """,
)
irfft = _one(
    "irfft",
    "irfft",
    """The inverse of `rfft`, which is real; an odd length along the last axis must be given.

    >>> jnp.fft.irfft(jnp.fft.rfft(jnp.array([1.0, 2.0, 3.0])), n=3).round(6)
    Array([1., 2., 3.], dtype=float64)
    """,
)
fft2 = _two(
    "fft2",
    "fft",
    """The transform along two axes.

    >>> jnp.fft.fft2(jnp.array([[1.0, 2.0], [3.0, 4.0]])).real
    Array([[10., -2.],
           [-4.,  0.]], dtype=float64)
    """,
)
ifft2 = _two(
    "ifft2",
    "ifft",
    """The inverse of `fft2`, with its arguments; divided by the lengths, unless `norm` says otherwise.

    >>> jnp.fft.ifft2(jnp.array([[10.0, -2.0], [-4.0, 2.0]])).real
    Array([[1.5, 1.5],
           [2.5, 4.5]], dtype=float64)
    """,
)
rfft2 = _two(
    "rfft2",
    "rfft",
    """The transform of real numbers along two axes.

    >>> jnp.fft.rfft2(jnp.ones((4, 4))).shape
    (4, 3)
    """,
)
irfft2 = _two(
    "irfft2",
    "irfft",
    """The inverse of `rfft2`, which is real; an odd length along the last axis must be given.

    >>> jnp.fft.irfft2(jnp.fft.rfft2(jnp.ones((2, 2))))
    Array([[1., 1.],
           [1., 1.]], dtype=float64)
    """,
)
fftn = _many(
    "fftn",
    "fft",
    """The transform along axes, by default all.

    >>> jnp.fft.fftn(jnp.ones((2, 2, 2))).real[0, 0, 0]
    Array(8., dtype=float64)
    """,
)
ifftn = _many(
    "ifftn",
    "ifft",
    """The inverse of `fftn`, with its arguments; divided by the lengths, unless `norm` says otherwise.

    >>> jnp.fft.ifftn(jnp.fft.fftn(jnp.ones((2, 2)))).real
    Array([[1., 1.],
           [1., 1.]], dtype=float64)
    """,
)
rfftn = _many(
    "rfftn",
    "rfft",
    """The transform of real numbers along axes, by default all.

    >>> jnp.fft.rfftn(jnp.ones((4, 4, 6))).shape
    (4, 4, 4)
    """,
)
irfftn = _many(
    "irfftn",
    "irfft",
    """The inverse of `rfftn`, which is real; an odd length along the last axis must be given.

    >>> jnp.fft.irfftn(jnp.fft.rfftn(jnp.ones((2, 2)))).round(6)
    Array([[1., 1.],
           [1., 1.]], dtype=float64)
    """,
)

_OTHER = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfft(a, n=None, axis=-1, norm=None):
    """The transform, which is real, of a signal with Hermitian symmetry.

    >>> jnp.fft.hfft(jnp.array([1.0, 2.0, 3.0])).round(6)
    Array([ 8., -2.,  0., -2.], dtype=float64)
    """
    return irfft(ufuncs.conj(a), n, axis, _OTHER.get(norm, norm))


def ihfft(a, n=None, axis=-1, norm=None):
    """The inverse of `hfft`: half of the transform of a real signal, conjugated and divided by its length.

    >>> jnp.fft.ihfft(jnp.array([9.0, -2.0, 1.0, -2.0])).real.round(6)
    Array([1.5, 2. , 3.5], dtype=float64)
    """
    return ufuncs.conj(rfft(a, n, axis, _OTHER.get(norm, norm)))


def fftfreq(n, d=1.0, *, dtype=None, device=None):
    """The frequencies of `fft`, for samples d apart.

    >>> jnp.fft.fftfreq(5, d=0.1)
    Array([ 0.,  2.,  4., -4., -2.], dtype=float64)
    """
    out = np.fft.fftfreq(n) / np.asarray(d) if not isinstance(d, Array) else None
    if out is None:
        return ufuncs.divide(array(np.fft.fftfreq(n)), d)
    return array(out, dtype=dtypes.canonical(float if dtype is None else dtype))


def rfftfreq(n, d=1.0, *, dtype=None, device=None):
    """The frequencies of `rfft`, for samples d apart.

    >>> jnp.fft.rfftfreq(5, d=0.1)
    Array([0., 2., 4.], dtype=float64)
    """
    out = np.fft.rfftfreq(n) / np.asarray(d) if not isinstance(d, Array) else None
    if out is None:
        return ufuncs.divide(array(np.fft.rfftfreq(n)), d)
    return array(out, dtype=dtypes.canonical(float if dtype is None else dtype))


def _shift(x: Any, axes: Any, inverse: bool) -> Array:
    x = to_array(x, "fftshift")
    axes = canonical_axes(axes, x.ndim)
    by = [-(x.shape[k] // 2) if inverse else x.shape[k] // 2 for k in axes]
    return roll(x, by, axes) if axes else x


def fftshift(x, axes=None):
    """Frequency 0 moved to the middle.

    >>> jnp.fft.fftshift(jnp.array([0, 1, 2, -2, -1]))
    Array([-2, -1,  0,  1,  2], dtype=int64)
    """
    return _shift(x, axes, False)


def ifftshift(x, axes=None):
    """The inverse of `fftshift`.

    >>> jnp.fft.ifftshift(jnp.array([-2, -1, 0, 1, 2]))
    Array([ 0,  1,  2, -2, -1], dtype=int64)
    """
    return _shift(x, axes, True)


__all__ = [
    "fft",
    "fft2",
    "fftfreq",
    "fftn",
    "fftshift",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ifftshift",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftfreq",
    "rfftn",
]

_retell(globals())
