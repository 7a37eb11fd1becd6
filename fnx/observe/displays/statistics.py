"""What is in an array: least, mean, greatest, NaN and infinities, of all its elements or of a sample."""

from typing import Any, NamedTuple

import numpy as np

from fnx.core import dtypes, policy

_GOLDEN = 0x9E3779B9  # of 2**32


class Summary(NamedTuple):
    """What was found among `seen` elements of `size`; least, mean and greatest are of the finite ones."""

    seen: int
    size: int
    least: Any
    mean: Any
    greatest: Any
    nans: int
    infinities: int

    @property
    def sampled(self) -> bool:
        """Whether only some elements were looked at."""
        return self.seen < self.size


def is_sampled(value: np.ndarray) -> bool:
    """Whether an array is too large for each of its elements to be looked at."""
    return value.size > policy.SUMMARISED_ELEMENTS


def sample(value: np.ndarray) -> np.ndarray:
    """The elements; of a large array one from each of equal parts, at a place that is always the same."""
    flat = value.reshape(-1)
    if not is_sampled(value):
        return flat
    n = policy.SAMPLED_ELEMENTS
    part = value.size // n
    # Within each part elsewhere, evenly (multiples of the golden ratio), for fear of hitting one column
    # again and again.
    k = np.arange(n, dtype=np.uint64)
    places = k * part + ((k * _GOLDEN & 0xFFFFFFFF) * part >> 32)
    return flat[places]


def real_values(value: np.ndarray) -> np.ndarray:
    """Numbers that NumPy can order: small dtypes widened, magnitudes of complex ones."""
    wide = dtypes.widened(value)
    if wide.dtype == dtypes.bfloat16:
        return wide.astype(np.float32)
    with np.errstate(all="ignore"):
        return np.abs(wide) if wide.dtype.kind == "c" else wide


def summary(value: np.ndarray) -> Summary:
    """What is in an array of numbers that has elements."""
    seen = sample(value)
    wide = seen if seen.dtype.kind == "c" else real_values(seen)
    nans = infinities = 0
    numbers = real_values(wide)
    if wide.dtype.kind in "fc":
        nans, infinities = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
        if nans or infinities:
            numbers = numbers[np.isfinite(wide)]
    if not numbers.size:
        return Summary(seen.size, value.size, None, None, None, nans, infinities)
    with np.errstate(all="ignore"):
        mean = numbers.mean(dtype=np.float64)
        if not np.isfinite(mean):  # the sum overflows
            mean = (numbers / numbers.size).sum(dtype=np.float64)
    least, greatest = numbers.min().item(), numbers.max().item()
    return Summary(seen.size, value.size, least, float(mean), greatest, nans, infinities)


def rounding(value: np.ndarray) -> float:
    """The relative difference below which numbers of an array differ by how they were rounded alone."""
    kind = np.result_type(real_values(value.reshape(-1)[:1]), np.float32)
    return policy.ROUNDED_DIGITS * float(np.finfo(kind).eps)


def cells(value: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]]:
    """Of an array of one or two axes: the numbers of at most so many cells, and elements a cell.

    A cell is the mean of its elements; where the array is sampled, one of them.
    """
    rows = value.reshape(1, -1) if value.ndim == 1 else value
    most = (1, policy.STRIP_CELLS) if value.ndim == 1 else policy.GRID_CELLS
    starts = []
    for n, k in zip(rows.shape, most, strict=True):
        starts.append(np.arange(min(n, k)) * n // min(n, k))
    steps = tuple(-(-n // len(s)) for n, s in zip(rows.shape, starts, strict=True))
    if is_sampled(value):
        middle = [s + step // 2 for s, step in zip(starts, steps, strict=True)]
        inside = [np.minimum(m, n - 1) for m, n in zip(middle, rows.shape, strict=True)]
        return real_values(rows[np.ix_(*inside)]).astype(np.float64), (1, 1)
    with np.errstate(all="ignore"):
        total = real_values(rows).astype(np.float64)
        for axis, (n, s) in enumerate(zip(rows.shape, starts, strict=True)):
            counts = np.diff([*s, n]).reshape((-1, 1) if axis == 0 else (1, -1))
            total = np.add.reduceat(total, s, axis) / counts
    return total, steps


__all__ = ["Summary", "cells", "is_sampled", "real_values", "rounding", "sample", "summary"]
