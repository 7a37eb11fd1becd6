"""Which passes make a Fourier transform: radices, vectors, twiddle tables."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from fnx.core.fast_dataclasses import dataclass
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.processor.features import vector_bits

from . import fft_butterflies as passes
from .fft_vectors import BYTES

_CHIRP, _CHIRP_SMOOTH = 17, 32  # lengths from which on Bluestein's way is taken; of small primes


@dataclass(frozen=True)
class Stages:
    """The passes of a complex transform of `length`: of a row (width 1), or of columns side by side.

    A batch is of as many rows as there are lanes, which are transposed on the way in and out; real rows of
    even length are complex ones of half of it.
    """

    kind: str
    length: int  # of the complex transform
    dtype: str  # of real numbers
    lanes: int
    width: int
    radices: tuple[int, ...]
    columns: bool
    batch: bool = False
    odd: bool = False  # real rows

    @property
    def part(self) -> int:
        """Bytes of each part of the work memory."""
        return self.length * self.width * 2 * BYTES[self.dtype]

    @property
    def scratch(self) -> int:
        """Bytes of work memory."""
        return 2 * self.part

    @property
    def inverse(self) -> bool:
        return self.kind in ("ifft", "irfft")

    def records(self, stride: int, keep: list[np.ndarray]) -> list[np.ndarray]:
        """Records of the passes; `stride` bytes between rows. What they point to goes to `keep`."""
        n = self.length
        total = 2 * n if self.kind in ("rfft", "irfft") else n
        factor = 1.0 / total if self.inverse else 1.0
        if self.kind == "irfft":
            before = self._tangled("tangle", passes.SOURCE, passes.TWO, keep)
            return [before, *self.chain(passes.TWO, passes.TARGET, stride, factor, keep)]
        if self.batch:
            return self._batched(stride, factor, keep)
        found = self.chain(passes.SOURCE, passes.TARGET, stride, factor, keep)
        if self.kind == "rfft":
            found.append(self._tangled("untangle", passes.ONE, passes.TARGET, keep))
        return found

    def chain(
        self, source: int, target: int, stride: int, factor: float, keep: list[np.ndarray]
    ) -> list[np.ndarray]:
        """The passes from one place to another, by the first two parts of the work memory."""
        n, s, found = self.length, 1, []
        ends = (0, len(self.radices) - 1)
        for k, r in enumerate(self.radices):
            m = n // (s * r)
            kind, table = "middle", np.zeros(0)
            if k == 0:
                kind = "column_first" if self.columns else "row_first"
            if k == ends[1]:
                kind = "column_last" if self.columns else "row_last"
            else:
                w = passes.twiddles(m * r, np.arange(m), np.arange(1, r))
                pairs = np.stack([w.real, w.imag], -1)  # [group, radix - 1, 2]
                table = pairs.transpose(1, 2, 0) if kind == "row_first" else pairs
            address = passes.address(kind, self.dtype, self.lanes, r, self.inverse and k in ends)
            # The first and the last columns count sides without the width, the others with it.
            sides = s if k in ends else s * self.width
            to = target if k == ends[1] else passes.ONE if k % 2 == 0 else passes.TWO
            numbers = (m, sides, self.width, stride)
            found.append(record(address, numbers, table, self.dtype, factor, source, to, keep))
            s, source = s * r, to
        return found

    def _batched(self, stride: int, factor: float, keep: list[np.ndarray]) -> list[np.ndarray]:
        n, s, here = self.length, 1, passes.ONE
        out, after, before, behind, table = n, stride, "gather", "scatter", np.zeros(0)
        if self.kind == "rfft":
            out = n // 2 + 1 if self.odd else n + 1
            after = out * 2 * BYTES[self.dtype]
            if self.odd:
                before = "gather_real"
            else:
                behind = "scatter_untangled"
                w = passes.twiddles(2 * n, np.arange(out), np.array([1]))[:, 0]
                table = np.stack([w.real, w.imag], -1)

        def one(kind: str, radix: int, numbers: tuple, w: np.ndarray, source: int, to: int) -> None:
            swap = self.inverse and kind != "middle"
            address = passes.address(kind, self.dtype, self.lanes, radix, swap)
            found.append(record(address, numbers, w, self.dtype, factor, source, to, keep))

        found: list[np.ndarray] = []
        one(before, 1, (n, 0, self.width, stride), np.zeros(0), passes.SOURCE, here)
        for r in self.radices:
            m = n // (s * r)
            w = passes.twiddles(m * r, np.arange(m), np.arange(1, r))
            to = passes.TWO if here == passes.ONE else passes.ONE
            one("middle", r, (m, s * self.width), np.stack([w.real, w.imag], -1), here, to)
            s, here = s * r, to
        one(behind, 1, (n, out, self.width, after), table, here, passes.TARGET)
        return found

    def _tangled(self, kind: str, source: int, target: int, keep: list[np.ndarray]) -> np.ndarray:
        n = self.length
        w = passes.twiddles(2 * n, np.arange(n // 2 + 1), np.array([1]))[:, 0]
        address = passes.address(kind, self.dtype, self.lanes, 1, False)
        table = np.stack([w.real, w.imag])
        return record(address, (n, 0, 0, 0), table, self.dtype, 1.0, source, target, keep)


@dataclass(frozen=True)
class Chirp:
    """Bluestein's way for any length: a convolution by transforms of a length that has passes."""

    kind: str
    length: int
    inner: Stages
    width: int = 1

    @property
    def part(self) -> int:
        return self.inner.part

    @property
    def scratch(self) -> int:
        return 3 * self.part

    def records(self, stride: int, keep: list[np.ndarray]) -> list[np.ndarray]:
        """As those of `Stages`."""
        n, m, dtype = self.length, self.inner.length, self.inner.dtype
        inverse = self.kind == "ifft"
        chirp = passes.twiddles(2 * n, np.arange(n) ** 2 % (2 * n), np.array([1]))[:, 0]
        other = np.zeros(m, complex)
        other[:n] = chirp.conj()
        other[m - n + 1 :] = chirp[:0:-1].conj()
        weights = np.fft.fft(other) / (m * n if inverse else m)
        real = {"rfft": "_real"}.get(self.kind, "")
        out = n // 2 + 1 if self.kind == "rfft" else n

        def one(
            kind: str,
            numbers: tuple,
            table: np.ndarray,
            source: int,
            target: int,
            swap: bool = False,
        ) -> np.ndarray:
            address = passes.address(kind, dtype, self.inner.lanes, 1, swap)
            return record(address, numbers, table, dtype, 1.0, source, target, keep)

        planes, pairs = (
            np.stack([chirp.real, chirp.imag]),
            np.stack([weights.real, weights.imag], -1),
        )
        source, target, three = passes.SOURCE, passes.TARGET, passes.THREE
        back = replace(self.inner, kind="ifft")
        return [
            one("chirp_in" + real, (n, m), planes, source, three, inverse),
            *self.inner.chain(three, three, 0, 1.0, keep),
            one("multiply", (m, 0), pairs, passes.ONE, three),
            *back.chain(three, three, 0, 1.0, keep),
            one("chirp_out", (n, out), planes, three, target, inverse),
        ]


Plan = Stages | Chirp


def record(
    address: int,
    numbers: tuple[int, ...],
    table: np.ndarray,
    dtype: str,
    factor: float,
    source: int,
    target: int,
    keep: list[np.ndarray],
) -> np.ndarray:
    """The words of a pass; numbers: m, s, width, stride."""
    kept = np.ascontiguousarray(table, dtype)
    keep.append(kept)
    words = [address, *numbers, *(0,) * (4 - len(numbers)), kept.ctypes.data]
    return np.array([*words, bits(factor, dtype), source, target], np.uint64)


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
    most = min(8, vector_bits() // (8 * BYTES[dtype]))
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
def batch(kind: str, length: int, dtype: str, count: int) -> Stages | None:
    """Passes for several rows together, or None where there are too few or other factors."""
    real, odd = kind == "rfft", length % 2 == 1
    n = length // 2 if real and not odd else length
    radices = _factors(n)
    if kind == "irfft" or not radices:
        return None
    for lanes in _widths(dtype):
        if lanes <= min(count, length // 2 + 1 if real and odd else n):
            return Stages(kind, n, dtype, lanes, lanes, tuple(radices), True, True, odd and real)
    return None


@lru_cache(maxsize=4096)
def chirp(kind: str, length: int, dtype: str) -> Chirp | None:
    """Bluestein's way, or None where PocketFFT is as fast."""
    smooth = _factors(length) is not None
    if kind == "irfft" or length < (_CHIRP_SMOOTH if smooth else _CHIRP):
        return None
    if kind == "rfft" and smooth:  # PocketFFT does half the work
        return None
    least = 2 * length - 1
    lengths = [odd << max(least // odd, 1).bit_length() for odd in (1, 3, 5, 9, 15)]
    lengths += [n // 2 for n in lengths if n // 2 >= least]
    found = [rows("fft", n, dtype) for n in sorted(lengths)]
    return next((Chirp(kind, length, s) for s in found if s is not None), None)


@lru_cache(maxsize=4096)
def columns(kind: str, length: int, dtype: str, inner: int) -> Stages | None:
    """Passes along an axis of which `inner` lie side by side, or None where vectors do not fit."""
    radices = {4: [2, 2], 8: [4, 2]}.get(length) or _factors(length)
    if not radices or len(radices) < 2:
        return None
    for lanes in _widths(dtype):
        width = lanes
        while (
            2 * width <= inner
            and 2 * width * length * 2 * BYTES[dtype] <= thresholds.FFT_BLOCK
            and width < 32
        ):
            width *= 2
        if width <= inner:
            return Stages(kind, length, dtype, lanes, width, tuple(radices), True)
    return None
