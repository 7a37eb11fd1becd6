"""Plans of Fourier transforms: which axis is transformed when, where to, and by which routine.

A plan is known by a name, "fft/3x128x64/2/complex128": the kind, the shape of the complex or real
array in full length, the number of transformed axes, and the dtype of the input.
"""

from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np

from . import fft_driver as driver
from . import pocketfft

_SIZE = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
_REAL = {"complex64": "float32", "complex128": "float64"}


class Transform(NamedTuple):
    """All transforms of one kind along one axis of a stack [outer, length, inner]."""

    kind: str
    dtype: str  # of the input
    outer: int
    length: int  # of the real array, for real transforms
    inner: int
    source: int
    target: int


def name(kind: str, shape: tuple[int, ...], axes: int, dtype: str) -> str:
    """The name of a plan; `shape` has the full length along the last axis."""
    return f"{kind}/{'x'.join(map(str, shape))}/{axes}/{dtype}"


def needs_work(kind: str, axes: int) -> bool:
    """Whether the transform needs work memory of the size of its input."""
    return kind == "irfft" and axes > 1


def transforms(kind: str, shape: tuple[int, ...], axes: int, dtype: str) -> list[Transform]:
    """One transform for each axis; real ones come first, or last on the way back."""
    first = len(shape) - axes
    source, target = driver.INPUT, driver.OUTPUT
    half = (*shape[:-1], shape[-1] // 2 + 1) if kind in ("rfft", "irfft") else shape
    complex_ = {"float32": "complex64", "float64": "complex128"}.get(dtype, dtype)

    def along(kind: str, axis: int, source: int, target: int, dtype: str) -> Transform:
        return Transform(
            kind, dtype, prod(shape[:axis]), shape[axis], prod(half[axis + 1 :]), source, target
        )

    others = range(len(shape) - 2, first - 1, -1)
    if kind != "irfft":
        made = [along(kind, len(shape) - 1, source, target, dtype)]
        complex_kind = "fft" if kind == "rfft" else kind
        return made + [along(complex_kind, k, target, target, complex_) for k in others]
    made = []
    for axis in reversed(others):
        made.append(along("ifft", axis, source, driver.WORK, dtype))
        source = driver.WORK
    return [*made, along("irfft", len(shape) - 1, source, target, dtype)]


def _loop_step(t: Transform) -> list[int]:
    """A step by NumPy's loops; it calls them for the longer of the two ranges around the axis."""
    loop_kind = t.kind
    if t.kind == "rfft":
        loop_kind += "_n_odd" if t.length % 2 else "_n_even"
    loops = pocketfft.loops()
    assert loops is not None
    loop = loops[loop_kind, t.dtype]
    half = t.length // 2 + 1
    n = half if t.kind == "irfft" else t.length
    m = half if t.kind == "rfft" else t.length
    size = _SIZE[t.dtype]
    out_size = 2 * size if t.kind == "rfft" else size // 2 if t.kind == "irfft" else size
    factor = 1.0 / t.length if t.kind in ("ifft", "irfft") else 1.0
    bits = np.zeros(1, np.int64)
    bits.view(_REAL.get(t.dtype, t.dtype))[0] = factor
    if t.inner == 1:
        times, jumps = 1, (0, 0)
        dims, between = t.outer, (n * size, m * out_size)
    else:
        times, jumps = t.outer, (n * t.inner * size, m * t.inner * out_size)
        dims, between = t.inner, (size, out_size)
    step = [driver.addresses()["by_loop"], t.source, t.target, *loop, int(bits[0])]
    step += [times, *jumps, dims, n, m, *between, t.inner * size, t.inner * out_size]
    return step


@cache
def _plan(name: str) -> np.ndarray:
    kind, shape, axes, dtype = name.split("/")
    found = transforms(kind, tuple(map(int, shape.split("x"))), int(axes), dtype)
    steps = [_loop_step(t) for t in found]
    words = [len(steps), *(w for s in steps for w in s + [0] * (driver.WORDS - len(s)))]
    return np.array(words, np.uint64)


def address(name: str) -> int:
    """The address of a plan, which lives for good: programs hold its bare address."""
    return _plan(name).ctypes.data
