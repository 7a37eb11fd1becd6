"""Fourier transforms along the last axes."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Library, Operand, Recipe
from fnx.ops.base.linear import Linear
from fnx.ops.base.permute import Transpose
from fnx.ops.base.sharding_rule import Factors, all_but
from fnx.ops.elementwise.arithmetic import conj, mul, real
from fnx.ops.structure.basic import full, move_axis, scalar
from fnx.ops.structure.movement import Concatenate, Pad

TYPES = ("fft", "ifft", "rfft", "irfft")


class WrongNumbers(TypeMismatch, ValueError):
    """A transform was given numbers of another kind: a TypeError as NumPy's, and a ValueError as JAX's."""


@dataclass(frozen=True)
class FFT(Primitive):
    """The discrete Fourier transform over the last len(fft_lengths) axes.

    `fft_type`: "fft" and "ifft" of complex arrays, "rfft" of real ones, whose last axis keeps
    n // 2 + 1 frequencies, and "irfft", back. Inverses divide by the number of elements.
    """

    fft_type: str
    fft_lengths: tuple[int, ...]
    name = "fft"

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        kind, lengths = self.fft_type, self.fft_lengths
        if kind not in TYPES:
            raise InvalidValue(f"fft_type {kind!r} is unknown; expected one of {', '.join(TYPES)}")
        self._check_dtype(x)
        n = len(lengths)
        last = lengths[-1] // 2 + 1 if kind == "irfft" else lengths[-1]
        if not 1 <= n <= x.ndim or x.shape[x.ndim - n :] != (*lengths[:-1], last):
            raise ShapeError(
                f"{kind} of lengths {lengths} needs an operand whose last axes are "
                f"{(*lengths[:-1], last)}, not shape {x.shape}"
            )
        if kind == "rfft":
            shape = (*x.shape[:-1], lengths[-1] // 2 + 1)
            return (ShapedArray(shape, dtypes.complex_of(x.dtype)),)
        if kind == "irfft":
            return (ShapedArray((*x.shape[:-1], lengths[-1]), dtypes.real_of(x.dtype)),)
        return (ShapedArray(x.shape, x.dtype),)

    def _check_dtype(self, x: ShapedArray) -> None:
        real_input = self.fft_type == "rfft"
        good = (
            x.dtype in (dtypes.float32, dtypes.float64)
            if real_input
            else dtypes.is_complex(x.dtype)
        )
        if not good:
            expected = "float32 or float64" if real_input else "complex64 or complex128"
            raise WrongNumbers(f"{self.fft_type} needs an operand of {expected}, not {x.dtype}")

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        import scipy.fft

        lengths = self.fft_lengths
        axes = tuple(range(x.ndim - len(lengths), x.ndim))
        if not x.size:
            return np.zeros(*self._empty(x))
        if len(lengths) == 1:  # a third of the time of the general function on small arrays
            return getattr(scipy.fft, self.fft_type)(x, lengths[0])
        fn = getattr(scipy.fft, self.fft_type + "n")
        if self.fft_type == "irfft":
            return fn(x, s=lengths, axes=axes)
        return fn(x, axes=axes)

    def _empty(self, x: np.ndarray) -> tuple:
        (aval,) = self.abstract(ShapedArray(x.shape, x.dtype))
        return aval.shape, aval.dtype

    jvp = Linear.jvp

    def transpose(self, cts: tuple, x: Undefined) -> tuple:  # type: ignore[override]
        ct, kind, lengths = cts[0], self.fft_type, self.fft_lengths
        if kind == "rfft":
            return (_rfft_transpose(ct, lengths),)
        if kind == "irfft":
            return (_irfft_transpose(ct, lengths),)
        return (self(ct),)  # the matrix of a Fourier transform is symmetric

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (self(move_axis(args[0], axes[0], 0)),), (0,)

    def sharding(self, x: ShapedArray) -> Factors:
        return all_but(x.ndim, range(x.ndim - len(self.fft_lengths), x.ndim))

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        """Axis by axis, so that only one has to be whole at a time."""
        n, kind, rank = len(self.fft_lengths), self.fft_type, parts[0].ndim
        if n == 1:
            return None
        others = "ifft" if kind in ("ifft", "irfft") else "fft"
        steps = [(others, k) for k in range(rank - n, rank - 1)]
        steps.insert(len(steps) if kind == "irfft" else 0, (kind, rank - 1))
        for kind, axis in steps:
            order = (*[k for k in range(rank) if k != axis], axis)
            turn, length = Transpose(order), self.fft_lengths[axis - rank]
            parts = grid.apply(turn, parts)
            parts = grid.apply(FFT(kind, (length,)), parts)
            parts = grid.apply(Transpose(turn.inverse()), parts)
        return list(parts)

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        return Library("fft", (x,), (self.fft_type, self.fft_lengths))


def _rfft_transpose(ct: Any, lengths: tuple[int, ...]) -> Any:
    """rfft reads reals and keeps half of the frequencies: pad with zeros, transform, take the real part."""
    n = lengths[-1]
    shape = ct.shape
    pad = ((0, 0, 0),) * (len(shape) - 1) + ((0, n - shape[-1], 0),)
    wide = Pad(pad)(ct, scalar(0, ct.dtype))
    return real(FFT("fft", lengths)(wide))


def _irfft_transpose(ct: Any, lengths: tuple[int, ...]) -> Any:
    """irfft counts each frequency twice that stands for its mirror image too."""
    n, half = lengths[-1], lengths[-1] // 2 + 1
    spectrum = FFT("rfft", lengths)(ct)
    dtype, lead = spectrum.dtype, spectrum.shape[:-1]
    mirrored = half - 1 - (n % 2 == 0)
    parts = [full((*lead, 1), 1 / prod(lengths), dtype)]
    if mirrored:
        parts.append(full((*lead, mirrored), 2 / prod(lengths), dtype))
    if n % 2 == 0:
        parts.append(full((*lead, 1), 1 / prod(lengths), dtype))
    weights = Concatenate(len(spectrum.shape) - 1)(*parts)
    return conj(mul(spectrum, weights))
