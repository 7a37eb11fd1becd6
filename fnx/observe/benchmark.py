"""Benchmarks of functions: what the first call takes, and what those after it do, with their spread."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.core.source import name_of
from fnx.observe.costs import cost
from fnx.observe.recorder import Recorder, muted
from fnx.observe.units import count, seconds_of
from fnx.process.devices import block_until_ready
from fnx.pytree import operations
from fnx.pytree.flatten_fun import check_callable

FEWEST, MOST = 3, 1000  # samples
SAMPLE = 1e-4  # seconds that a sample takes at least, so that the clock's steps are small

# The phases of a first call, in their order, by what the passes of backends are called.
_PASSES = {
    "build": "build",
    "check": "check",
    "emit": "emit",
    "load": "compile",
    "recall": "recall",
}


@dataclass(frozen=True)
class Benchmark:
    """What a call takes in seconds, and what the first one took: `phases`, and all in all `first`.

    `samples` are seconds of one call, each the mean of `calls` calls. `bytes` and `flops` are those of
    compiled programs in a call, by the cost model.
    """

    name: str
    first: float
    phases: dict[str, float]
    samples: tuple[float, ...] = field(repr=False)
    calls: int
    bytes: float = 0.0
    flops: float = 0.0

    @property
    def median(self) -> float:
        return float(np.median(self.samples))

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between which half of the samples lie."""
        low, high = np.quantile(self.samples, (0.25, 0.75))
        return float(low), float(high)

    @property
    def best(self) -> float:
        return min(self.samples)

    def __str__(self) -> str:
        low, high = map(seconds_of, self.quartiles)
        each = "" if self.calls == 1 else f" of {self.calls} calls"
        lines = [
            f"{self.name}: {seconds_of(self.median)}, half of {len(self.samples)} samples{each} "
            f"between {low} and {high}, the best {seconds_of(self.best)}"
        ]
        phases = ", ".join(f"{k} {seconds_of(v)}" for k, v in self.phases.items() if v > 0)
        lines.append(f"  first call {seconds_of(self.first)}" + (phases and f": {phases}"))
        if self.bytes or self.flops:
            lines.append(
                f"  {count(self.bytes, 'B')} and {count(self.flops, 'FLOP')} a call: "
                f"{self.bytes / self.median / 1e9:.3g} GB/s, "
                f"{self.flops / self.median / 1e9:.3g} GFLOP/s"
            )
        return "\n".join(lines)

    __repr__ = __str__


def benchmark(f: Callable, /, *args: Any, max_seconds: float = 1.0, **kwargs: Any) -> Benchmark:
    """How long `f(*args, **kwargs)` takes: the first call by its phases, and calls after it.

    It is called for `max_seconds`, at least a few times, in samples that are long enough for the clock;
    results are waited for. Arguments that are donated are copied for each call, which is not counted.
    A function that was called before has a first call without phases. InvalidValue, a ValueError,
    where `max_seconds` is not positive.

    >>> found = fnx.benchmark(fnx.jit(lambda x: 2.0 * x), jnp.ones(3), max_seconds=0.01)
    >>> 0 < found.best <= found.median <= found.first
    True
    """
    check_callable(f, "benchmark")
    if not max_seconds > 0:
        raise InvalidValue(
            f"benchmark was given max_seconds={max_seconds!r}; expected a positive number"
        )
    given = _Arguments(f, args, kwargs)
    recorder = Recorder()
    a, k = given.fresh()
    recorder.start()
    start = time.perf_counter()
    try:
        block_until_ready(f(*a, **k))
    finally:
        first = time.perf_counter() - start
        recorder.stop()
    given.check()
    with muted():
        samples, calls = _samples(f, given, max_seconds)
        moved, flops = _costs(recorder)
    return Benchmark(
        given.name, first, _phases(recorder, first), tuple(samples), calls, moved, flops
    )


class _Arguments:
    """The arguments of all calls, copied for each where the function may overwrite them."""

    def __init__(self, f: Callable, args: tuple, kwargs: dict):
        self.args, self.kwargs, self.name = args, kwargs, name_of(f)
        donated = getattr(f, "donated", None)
        self.donated = bool(getattr(donated, "any", False))

    def fresh(self) -> tuple[tuple, dict]:
        if not self.donated:
            return self.args, self.kwargs
        return operations.tree_map(_copied, (self.args, self.kwargs))

    def check(self) -> None:
        """InvalidValue if the first call deleted arguments."""
        leaves: list[Any] = operations.tree_leaves((self.args, self.kwargs))
        if any(getattr(x, "is_deleted", bool)() for x in leaves):
            raise InvalidValue(
                f"{self.name} deletes its arguments, so that it can be called once. Expected a function "
                "that leaves them, or the jitted function itself, whose donated arguments are copied"
            )


_ARRAYS: Any = (Array, np.ndarray)


def _copied(x: Any) -> Any:
    return x.copy() if isinstance(x, _ARRAYS) else x


@contextmanager
def _without_collections() -> Iterator[None]:
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _samples(f: Callable, given: _Arguments, most: float) -> tuple[list[float], int]:
    """Seconds of a call, again and again, and of how many calls each is the mean."""
    calls = 1
    found: list[float] = []
    with _without_collections():
        end = time.perf_counter() + most
        _sample(f, given, 1)  # which is the first of this way through fnx
        while not given.donated:
            seconds = _sample(f, given, calls)
            if seconds * calls >= SAMPLE or time.perf_counter() >= end:
                break
            calls *= 2
        while len(found) < FEWEST or len(found) < MOST and time.perf_counter() < end:
            found.append(_sample(f, given, calls))
    return found, calls


def _sample(f: Callable, given: _Arguments, calls: int) -> float:
    args, kwargs = given.fresh()
    out = None
    start = time.perf_counter()
    for _ in range(calls):
        out = f(*args, **kwargs)
    block_until_ready(out)
    return (time.perf_counter() - start) / calls


def _phases(recorder: Recorder, first: float) -> dict[str, float]:
    """Seconds of a first call, by what was done; `other` is Python, and eager operations."""
    passes = dict.fromkeys(dict.fromkeys(_PASSES.values()), 0.0)
    for e in recorder.events:
        if e.kind == "pass":
            name = _PASSES.get(e.name, e.name)
            passes[name] = passes.get(name, 0.0) + e.seconds
    own, made = recorder.own, recorder.transforms
    simplify = made.get("simplify", (0, 0.0))[1]
    # Building asks for the jaxpr that it lowers, so that it contains its simplification.
    passes["build"] = max(passes["build"] - simplify, 0.0) if passes["build"] else 0.0
    found = {
        "trace": own.get("trace", 0.0),
        "transform": own.get("transform", 0.0) - simplify,
        "simplify": simplify,
        **passes,
        "run": own.get("run", 0.0),
    }
    found = {name: s for name, s in found.items() if s > 0}
    rest = first - sum(found.values())
    return {**found, "other": rest} if found and rest > 0 else found


def _costs(recorder: Recorder) -> tuple[float, float]:
    runs = [(w.count["run"], cost(w.jaxpr)) for w in recorder.works.values() if w.count["run"]]
    return sum(n * c.bytes for n, c in runs), sum(n * c.flops for n, c in runs)


__all__ = ["Benchmark", "benchmark"]
