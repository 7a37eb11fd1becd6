"""Plans of Fourier transforms: which axis is transformed when, where to, and by which routine.

A plan is known by a name, "fft/3x128x64/2/complex128": the kind, the shape in full length, the number
of transformed axes, and the dtype of the input. Lengths that are products of small primes go by
fnx's own passes where vectors can be filled: from one row, or from several rows or columns; others along
the last axis by Bluestein's convolution with such passes. PocketFFT does the rest: ways back to real rows,
and single real rows of small primes, for which it has half the work of a complex transform.
"""

import threading
from collections import OrderedDict
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from fnx.core.fast_dataclasses import dataclass
from fnx.core.threads.fork_safety import fork_safe
from fnx.lowering.cpu.processor import thresholds

from . import fft_executor as driver
from . import fft_radices as stages
from . import pocketfft

_SIZE = {"float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
REAL = {"complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class Transform:
    """All transforms of one kind along one axis of a stack [outer, length, inner].

    `first` and `count` choose some of the inner ones; where there is one, `first` is that of the outer.
    """

    kind: str
    dtype: str  # of the input
    outer: int
    length: int  # of the real array, for real transforms
    inner: int
    source: int
    target: int
    first: int = 0
    count: int = -1

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of an element of the source and of the target."""
        size = _SIZE[self.dtype]
        return (
            size,
            2 * size if self.kind == "rfft" else size // 2 if self.kind == "irfft" else size,
        )

    @property
    def lengths(self) -> tuple[int, int]:
        """Along the axis, of source and target."""
        n, half = self.length, self.length // 2 + 1
        return (half if self.kind == "irfft" else n), (half if self.kind == "rfft" else n)

    @property
    def factor(self) -> float:
        return 1.0 / self.length if self.kind in ("ifft", "irfft") else 1.0

    @property
    def offsets(self) -> tuple[int, int]:
        """Bytes before the first of the source and of the target."""
        pairs = zip(self.sizes, self.lengths, strict=True)
        return tuple([self.first * size * (n if self.inner == 1 else 1) for size, n in pairs])

    def part(self, first: int, count: int) -> "Transform":
        if self.inner == 1:
            return replace(self, first=first, outer=count)
        return replace(self, first=first, count=count)


def name(kind: str, shape: tuple[int, ...], axes: int, dtype: str) -> str:
    """The name of a plan; `shape` has the full length along the last axis."""
    return f"{kind}/{'x'.join(map(str, shape))}/{axes}/{dtype}"


def _transforms(kind: str, shape: tuple[int, ...], axes: int, dtype: str) -> list[Transform]:
    """One transform for each axis; real ones come first, or last on the way back."""
    first = len(shape) - axes
    source, target = driver.INPUT, driver.OUTPUT
    half = (*shape[:-1], shape[-1] // 2 + 1) if kind in ("rfft", "irfft") else shape
    complex_ = {"float32": "complex64", "float64": "complex128"}.get(dtype, dtype)

    def along(kind: str, axis: int, source: int, target: int, dtype: str) -> Transform:
        outer, inner = prod(shape[:axis]), prod(half[axis + 1 :])
        return Transform(kind, dtype, outer, shape[axis], inner, source, target)

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


# --- steps -------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _steps(name: str) -> tuple[list[tuple[Transform, stages.Plan | None]], int, int]:
    """Parts of transforms, with passes or without; where scratch memory begins; all work memory."""
    kind, text, axes, dtype = name.split("/")
    shape = tuple(map(int, text.split("x")))
    found: list[tuple[Transform, stages.Plan | None]] = []
    for t in _transforms(kind, shape, int(axes), dtype):
        found += _split(t)
    stored = any(driver.WORK in (t.source, t.target) for t, _ in found)
    begin = 0
    if stored:
        begin = prod(shape[:-1]) * (shape[-1] // 2 + 1) * _SIZE[dtype]
        begin = -(-begin // 64) * 64
    scratch = max([s.scratch for _, s in found if s is not None], default=0)
    return found, begin, begin + scratch


def _split(t: Transform) -> list[tuple[Transform, stages.Plan | None]]:
    """A transform by passes, as far as vectors reach; the rest of it by NumPy's loop."""
    real = REAL.get(t.dtype, t.dtype)
    if t.inner == 1:
        return _split_rows(t, real)
    found: list[tuple[Transform, stages.Plan | None]] = []
    done = 0
    while done < t.inner:
        s = stages.columns(t.kind, t.length, real, t.inner - done)
        if s is None:
            break
        count = (t.inner - done) // s.width * s.width
        found.append((t.part(done, count), s))
        done += count
    return found + ([(t.part(done, t.inner - done), None)] if done < t.inner else [])


def _split_rows(t: Transform, real: str) -> list[tuple[Transform, stages.Plan | None]]:
    """Short rows and odd ones several at a time, others one by one."""
    wide: stages.Plan | None = stages.rows(t.kind, t.length, real)
    batch = stages.batch(t.kind, t.length, real, t.outer)
    if wide is not None and (batch is None or t.length >= thresholds.FFT_SHORT):
        return [(t, wide)]
    found: list[tuple[Transform, stages.Plan | None]] = []
    done = 0
    while batch is not None:
        count = (t.outer - done) // batch.width * batch.width
        found.append((t.part(done, count), batch))
        done += count
        batch = None if wide is not None else stages.batch(t.kind, t.length, real, t.outer - done)
    if done < t.outer:
        single = wide or stages.chirp(t.kind, t.length, real)
        found.append((t.part(done, t.outer - done), single))
    return found


def work_bytes(name: str) -> int:
    """Bytes of work memory that a plan needs."""
    return _steps(name)[2]


def _head(t: Transform, function: str) -> list[int]:
    """The words of a step up to its jumps."""
    (size, out_size), (n, m) = t.sizes, t.lengths
    head = [driver.addresses()[function], t.source, t.target, *t.offsets]
    return [*head, t.outer, n * t.inner * size, m * t.inner * out_size]


def _loop_step(t: Transform) -> list[int]:
    """A step by NumPy's loop, which is called for the longer of the two ranges around the axis."""
    loops = pocketfft.loops()
    assert loops is not None
    parity = ("_n_odd" if t.length % 2 else "_n_even") if t.kind == "rfft" else ""
    (size, out_size), (n, m) = t.sizes, t.lengths
    head = _head(t, "by_loop")
    between, dims = (size, out_size), t.count if t.count >= 0 else t.inner
    if t.inner == 1:
        head[driver.TIMES] = 1
        between, dims = (n * size, m * out_size), t.outer
    bits = stages.bits(t.factor, REAL.get(t.dtype, t.dtype))
    within = (t.inner * size, t.inner * out_size)
    return [*head, *loops[t.kind + parity, t.dtype], bits, dims, n, m, *between, *within]


def _pass_step(t: Transform, s: stages.Plan, scratch: int, keep: list[np.ndarray]) -> list[int]:
    """A step by passes."""
    size, _ = t.sizes
    head = _head(t, "by_passes")
    stride = t.inner * size
    blocks, jump = (t.count if t.count >= 0 else 1) // s.width, s.width * stride
    if isinstance(s, stages.Stages) and s.batch:
        stride, blocks, jump = t.length * size, 1, 0
        head[driver.TIMES] = t.outer // s.width
        for k in (driver.SOURCE_JUMP, driver.TARGET_JUMP):
            head[k] *= s.width
    elif t.inner > 1:
        jump = s.width * size
    passes = s.records(stride, keep)
    table = np.concatenate(passes)
    keep.append(table)
    grain = -(-thresholds.FFT_GRAIN // (s.part // size))
    if head[driver.TIMES] * blocks > grain and s.scratch <= thresholds.FFT_OWN:
        head[driver.FUNCTION] = driver.shared()
    step = [*head, blocks, jump, len(passes), table.ctypes.data]
    return [*step, scratch, s.part, s.scratch, grain]


class Plan:
    """The table of a plan, and the tables that it points to; programs hold it beside its address."""

    def __init__(self, name: str):
        found, scratch, _ = _steps(name)
        keep: list[np.ndarray] = []
        words = [len(found)]
        for t, s in found:
            step = _loop_step(t) if s is None else _pass_step(t, s, scratch, keep)
            words += step + [0] * (driver.WORDS - len(step))
        self.table, self.keep = np.array(words, np.uint64), keep
        self.address = self.table.ctypes.data
        self.bytes = sum(x.nbytes for x in (self.table, *keep))


_lock = fork_safe(threading.RLock())
_plans: OrderedDict[str, Plan] = OrderedDict()  # the one that was asked for last at the end


def plan(name: str) -> Plan:
    """The plan of a name; those that were asked for last are remembered, `FFT_PLANS` bytes of them."""
    with _lock:
        found = _plans.get(name) or Plan(name)
        _plans[name] = found
        _plans.move_to_end(name)
        total = sum(p.bytes for p in _plans.values())
        while total > thresholds.FFT_PLANS:
            total -= _plans.popitem(last=False)[1].bytes
    return found


def forget() -> None:
    """Let go of all plans; those of programs live on with them."""
    with _lock:
        _plans.clear()
