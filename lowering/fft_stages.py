"""Which passes make a Fourier transform: radices, vectors, twiddle tables."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from . import fft_passes as passes
from . import vector_names
from .fft_vectors import BYTES

_BLOCK = 1 << 16  # bytes of columns that are transformed together, at most, if there are several


@dataclass(frozen=True)
class Stages:
    """The passes of a complex transform of `length`: rows (width 1), or columns side by side."""

    kind: str
    length: int  # of the complex transform
    dtype: str  # of real numbers
    lanes: int
    width: int
    radices: tuple[int, ...]
    columns: bool

    @property
    def scratch(self) -> int:
        """Bytes of each half of the work memory."""
        return self.length * self.width * 2 * BYTES[self.dtype]

    @property
    def inverse(self) -> bool:
        return self.kind in ("ifft", "irfft")

    def records(
        self, stride: int, keep: list[np.ndarray]
    ) -> tuple[np.ndarray | None, list[np.ndarray], np.ndarray | None]:
        """Records of what is before, of the passes, and of what is after; `stride` between rows."""
        n, s, found = self.length, 1, []
        count = len(self.radices)
        real = self.kind in ("rfft", "irfft")
        total = n * (2 if real else 1)
        factor = 1.0 / total if self.inverse else 1.0
        for k, r in enumerate(self.radices):
            m = n // (s * r)
            kind, table = "middle", np.zeros(0)
            if k == 0:
                kind = "column_first" if self.columns else "row_first"
            if k == count - 1:
                kind = "column_last" if self.columns else "row_last"
            else:
                w = passes.twiddles(m * r, np.arange(m), np.arange(1, r))
                pairs = np.stack([w.real, w.imag], -1)  # [group, radix - 1, 2]
                table = pairs.transpose(1, 2, 0) if kind == "row_first" else pairs
            table = np.ascontiguousarray(table, self.dtype)
            # The first and the last columns count sides without the width, the others with it.
            sides = s if k in (0, count - 1) else s * self.width
            found.append(self._record(kind, r, m, sides, stride, table, factor, keep))
            s *= r
        before = after = None
        if real:
            w = passes.twiddles(total, np.arange(n // 2 + 1), np.array([1]))[:, 0]
            table = np.ascontiguousarray([w.real, w.imag], self.dtype)
            kind = "tangle" if self.kind == "irfft" else "untangle"
            both = self._record(kind, 1, n, 0, 0, table, 1.0, keep)
            keep.append(both)
            before, after = (both, None) if self.kind == "irfft" else (None, both)
        return before, found, after

    def _record(
        self,
        kind: str,
        radix: int,
        m: int,
        sides: int,
        stride: int,
        table: np.ndarray,
        factor: float,
        keep: list[np.ndarray],
    ) -> np.ndarray:
        ends = kind not in ("middle", "tangle", "untangle")
        function = passes.address(kind, self.dtype, self.lanes, radix, self.inverse and ends)
        keep.append(table)
        words = [function, m, sides, self.width, stride, table.ctypes.data]
        words += [bits(factor, self.dtype), 0]
        return np.array(words, np.uint64)


def bits(x: float, dtype: str) -> int:
    """A number as a word of a record."""
    word = np.zeros(1, np.uint64)
    word.view(dtype)[0] = x
    return int(word[0])


def _factors(n: int) -> list[int] | None:
    """Radices whose product is n: primes up to 13, and eights and fours; None if there are others."""
    found, twos = [], 0
    while n % 2 == 0:
        n, twos = n // 2, twos + 1
    for p in (13, 11, 7, 5, 3):
        while n % p == 0:
            n //= p
            found.append(p)
    if n != 1:
        return None
    eights, rest = divmod(twos, 3)
    if rest == 1 and eights:
        return found + [8] * (eights - 1) + [4, 4]
    return found + [8] * eights + [[], [2], [4]][rest]


def _widths(dtype: str) -> list[int]:
    """Numbers of lanes, the largest first."""
    most = min(8, vector_names.vector_bits() // (8 * BYTES[dtype]))
    return [k for k in (8, 4, 2) if k <= most]


@lru_cache(maxsize=4096)
def rows(kind: str, length: int, dtype: str) -> Stages | None:
    """Passes along the last axis, or None where vectors do not fit."""
    n = length
    if kind in ("rfft", "irfft"):
        if length % 8:
            return None
        n = length // 2
    for lanes in _widths(dtype):
        for first in (8, 4):
            if first % lanes or n % first or n // first < lanes:
                continue
            others = _factors(n // first)
            if others:
                return Stages(kind, n, dtype, lanes, 1, (first, *others), False)
    return None


@lru_cache(maxsize=4096)
def columns(kind: str, length: int, dtype: str, inner: int) -> Stages | None:
    """Passes along an axis of which `inner` lie side by side, or None where vectors do not fit."""
    radices = {4: [2, 2], 8: [4, 2]}.get(length) or _factors(length)
    if not radices or len(radices) < 2:
        return None
    for lanes in _widths(dtype):
        width = lanes
        while 2 * width <= inner and 2 * width * length * 2 * BYTES[dtype] <= _BLOCK and width < 32:
            width *= 2
        if width <= inner:
            return Stages(kind, length, dtype, lanes, width, tuple(radices), True)
    return None
