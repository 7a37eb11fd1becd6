"""What this machine's memory and arithmetic can do: measured once, and kept in the cache."""

import json
import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fnx.lowering.cpu.jit import disk_cache
from fnx.lowering.cpu.runtime import thread_pool
from fnx.numpy import matmul
from fnx.observe.recorder import muted
from fnx.transforms.jit import jit

LARGE = 1 << 22  # numbers of an array that no cache holds
SIDE = 768  # of matrices that do
TIMES = 9  # the best of so many counts


class Machine(NamedTuple):
    """Bytes a second of the memory, and floating point operations a second by the size of numbers."""

    bytes: float
    flops64: float
    flops32: float

    def flops(self, itemsize: int) -> float:
        """What can be done with numbers of so many bytes."""
        return self.flops32 if itemsize <= 4 else self.flops64


_known: dict[int, Machine] = {}  # by the number of threads


def machine() -> Machine:
    """What was measured, here or by an earlier process, with as many threads."""
    threads = thread_pool.get_num_threads()
    if threads not in _known:
        key = disk_cache.key("machine", str(threads), sources=False)
        found = _read(disk_cache.get(key, "machine"))
        if found is None:
            with muted():
                found = _measured()
            disk_cache.put(key, json.dumps(found).encode(), "machine")
        _known[threads] = found
    return _known[threads]


def _read(data: bytes | None) -> Machine | None:
    try:
        found = Machine(*map(float, json.loads(data or b"[]")))
    except (TypeError, ValueError):
        return None
    return found if all(math.isfinite(x) and x > 0 for x in found) else None


def _measured() -> Machine:
    large = np.zeros(LARGE)
    # Reads two arrays and writes one.
    memory = _best(jit(lambda a, b: a + 0.5 * b), large, large + 1.0)
    rates = [2.0 * SIDE**3 / _best(jit(matmul), x, x) for x in _squares()]
    return Machine(3.0 * large.nbytes / memory, *rates)


def _squares() -> list[np.ndarray]:
    return [np.ones((SIDE, SIDE), dtype) for dtype in (np.float64, np.float32)]


def _best(f: Callable, *args: np.ndarray) -> float:
    f(*args)
    found = []
    for _ in range(TIMES):
        start = time.perf_counter()
        f(*args)
        found.append(time.perf_counter() - start)
    return min(found)


__all__ = ["Machine", "machine"]
