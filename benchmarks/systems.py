"""The libraries that are measured: how to import them, feed them, wait for them, and compare results."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

PLATFORM = os.environ.get("FNX_BENCH_PLATFORM", "cpu")  # where JAX runs: cpu, or cuda

# What each dtype may differ by, relative to the largest entry of an output.
TOLERANCES = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 2e-4}


@dataclass(frozen=True)
class System:
    """A library with JAX's names."""

    name: str
    jax: Any
    jnp: Any
    lax: Any

    def feed(self, tree: Any) -> Any:
        """NumPy arrays of a tree as arrays of this library."""
        return tree_map(self.jnp.asarray, tree)

    def waiter(self, result: Any) -> Callable[[Any], Any]:
        """The cheapest call that waits for results like this one."""
        if hasattr(result, "block_until_ready"):
            return _wait_one
        return getattr(self.jax, "block_until_ready", _ready)

    def stages(self, function: Callable, args: tuple) -> tuple[dict[str, float], Callable, Any]:
        """Seconds to trace, compile and call for the first time; the callable; its result."""
        clock = [time.perf_counter()]
        jitted = self.jax.jit(function)
        traced = jitted.trace(*args) if hasattr(jitted, "trace") else jitted
        clock.append(time.perf_counter())
        lowered = traced.lower() if traced is not jitted else jitted.lower(*args)
        compiled = lowered.compile()
        clock.append(time.perf_counter())
        result = compiled(*args)
        self.waiter(result)(result)
        clock.append(time.perf_counter())
        names = ("trace", "compile", "first call")
        return dict(zip(names, np.diff(clock).tolist(), strict=True)), compiled, result


def _wait_one(result: Any) -> None:
    result.block_until_ready()


def _ready(result: Any) -> Any:
    return result


def load(name: str) -> System:
    """Import a library; ImportError where it is absent."""
    module = importlib.import_module(name)
    if name == "jax":
        module.config.update("jax_enable_x64", True)
        module.config.update("jax_platforms", PLATFORM)
    sub = {k: importlib.import_module(f"{name}.{k}") for k in ("numpy", "lax")}
    for extra in ("random", "nn", "scipy.special", "scipy.linalg"):
        try:
            importlib.import_module(f"{name}.{extra}")
        except ImportError:
            continue
    return System(name, module, sub["numpy"], sub["lax"])


def kernels_compiled(module: Any) -> int:
    """Kernels that a library has compiled (not loaded from a cache) in this process.

    Needs `compile_stats()`, which returns a mapping with the key "kernels_compiled".
    """
    return int(module.compile_stats()["kernels_compiled"])


def environment(threads: int | None, cache: str, jax_cache: str | None = None) -> dict[str, str]:
    """The environment of a worker: thread counts of every library, and where caches lie."""
    env = dict(os.environ, FNX_CACHE_DIR=cache, JAX_PLATFORMS=PLATFORM)
    # OpenBLAS's threads go on looking for work for 2^26 cycles and more, and hold the CPU that the
    # threads of the next contender need. 2^20 cycles, some 0.3 ms, are ample between two calls.
    env["OPENBLAS_THREAD_TIMEOUT"] = "20"
    if threads is not None:
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA", "FNX")
        env.update({f"{n}_NUM_THREADS": str(threads) for n in names})
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    if jax_cache:
        env.update(
            JAX_COMPILATION_CACHE_DIR=jax_cache,
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
            JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
        )
    return env


def tree_map(function: Callable, tree: Any) -> Any:
    """`function` over the arrays of nested dicts, lists and tuples; Python numbers stay as they are."""
    if isinstance(tree, dict):
        return {k: tree_map(function, v) for k, v in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(tree_map(function, v) for v in tree)
    return function(tree) if isinstance(tree, np.ndarray | np.generic) else tree


def leaves(tree: Any) -> Iterator[np.ndarray]:
    """The leaves of a result as NumPy arrays, dicts by sorted keys."""
    if isinstance(tree, dict):
        tree = [tree[k] for k in sorted(tree)]
    if isinstance(tree, list | tuple):
        for item in tree:
            yield from leaves(item)
    elif tree is not None:
        yield np.asarray(tree)


def disagreement(result: Any, reference: Any, tolerance: float | None) -> str | None:
    """None where two results agree, else one line that says where and by how much."""
    ours, theirs = list(leaves(result)), list(leaves(reference))
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs, the reference has {len(theirs)}"
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.shape != b.shape:
            return f"output {k} has shape {a.shape}, the reference {b.shape}"
        if not np.isfinite(b).all():
            return f"output {k} of the reference is not finite: the program is ill-posed"
        if not b.size:
            continue
        within = TOLERANCES.get(b.dtype, 0.0) if tolerance is None else tolerance
        scale = max(float(np.abs(b).max()), 1e-300)
        error = float(np.abs(np.subtract(a, b, dtype=np.result_type(b, float))).max()) / scale
        if not error <= within:
            return f"output {k} differs by {error:.2g} of its largest entry, allowed {within:.2g}"
    return None
