"""Memory stays flat however much is called, defined and resized; limits of the system are borne."""

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import fnx
import fnx.numpy as jnp

CALLS, DEFINITIONS, SHAPES = 100_000, 500, 300
GROWTH = 96 << 20  # bytes that a phase may add, once it is warm: caches that are bounded


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    fnx.clear_caches()
    fnx.release_memory()
    with open("/proc/self/statm", encoding="ascii") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def calls(k: int) -> bool:
    f = _known
    return all(float(f(float(j))) == j + 1.0 for j in range(k, k + CALLS // 100))


_known = fnx.jit(lambda x: x + 1.0)


def definitions(k: int) -> bool:
    x = np.arange(5.0)
    f = fnx.jit(lambda x: jnp.sin(x * (k + 0.5)) + k)
    return np.allclose(f(x), np.sin(x * (k + 0.5)) + k)


ROUTINES: dict[str, tuple[Callable, Callable, bool]] = {
    "fft": (jnp.fft.fft, np.fft.fft, False),
    "sort": (jnp.sort, np.sort, False),
    "solve": (
        lambda a: jnp.linalg.solve(a, a[0]),
        lambda a: np.linalg.solve(a, a[0]),
        True,
    ),
    "cholesky": (jnp.linalg.cholesky, np.linalg.cholesky, True),
    "eigh": (jnp.linalg.eigvalsh, np.linalg.eigvalsh, True),
    "svd": (
        lambda a: jnp.linalg.svd(a, compute_uv=False),
        lambda a: np.linalg.svd(a, compute_uv=False),
        True,
    ),
    "product": (lambda a: a @ a, lambda a: a @ a, True),
}


def shapes(name: str, k: int) -> bool:
    """A routine at the k-th shape; long ones where that costs little."""
    f, g, is_matrix = ROUTINES[name]
    rng = np.random.default_rng(k)
    if is_matrix:
        a = rng.normal(size=(k % 40 + 2,) * 2)
        x = a @ a.T + (k + 10) * np.eye(len(a))
    else:
        x = rng.normal(size=100_001 + k if k % 3 == 0 else k + 2)
    return np.allclose(fnx.jit(f)(x), g(x), rtol=1e-7, atol=1e-7)


LIMITS = {
    "threads": "import _thread; _thread.start_new_thread = threading.Thread.start = _refused",
    "memory": "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))",
    "stack": "resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, 1 << 20))",
}
PROGRAM = """
import resource, sys, threading
def _refused(*_):
    raise RuntimeError("can't start new thread")
{limit}
import numpy as np
import fnx, fnx.numpy as jnp
x = np.random.default_rng(0).normal(size=(30, 30))
def f(x):
    for _ in range(60):
        x = jnp.sin(x) + jnp.sort(x @ x / 30)
    return x.sum(0)
y = x
for _ in range(60):
    y = np.sin(y) + np.sort(y @ y / 30)
assert np.allclose(fnx.jit(f)(x), y.sum(0), rtol=1e-6)
try:
    fnx.jit(lambda x: (x[:, None] + x).sum() + jnp.zeros(10**11).at[0].set(x[0])[::2])(x[0])
except MemoryError:
    pass
assert np.allclose(fnx.jit(jnp.cos)(x), np.cos(x))
"""


def limited(name: str) -> str:
    """What went wrong under a limit of the system; "" if nothing did."""
    program = PROGRAM.format(limit=LIMITS[name])
    try:
        ended = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return f"limit on {name}: hangs"
    return f"limit on {name}: {ended.stderr[-300:]}" if ended.returncode else ""


def run(seconds: float, seed: int) -> list[str]:
    """What went wrong in so many seconds."""
    phases = {"calls": (calls, 100), "definitions": (definitions, DEFINITIONS)}
    phases |= {name: (partial(shapes, name), SHAPES) for name in ROUTINES}
    failures, end = [], time.monotonic() + seconds
    for name, (step, times) in phases.items():
        start, before = seed % 100, 0
        share = time.monotonic() + max(end - time.monotonic(), 0) / 3
        for k in range(times):
            if time.monotonic() > share:
                break
            if not step(start + k):
                failures.append(f"{name}: another result at {start + k}")
            if k == times // 10:
                before = resident()
        grown = resident() - before
        if before and grown > GROWTH:
            failures.append(f"{name}: {grown >> 20} MB more after {k + 1} times")
    return failures + [problem for name in LIMITS if (problem := limited(name))]
