"""Interleaved timing: every contender once a round, medians with quartiles, ratios round by round."""

from __future__ import annotations

import gc
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Settings:
    """How long to measure: rounds at most, seconds per sample at least, seconds per program at most."""

    rounds: int = 15
    sample: float = 0.02
    budget: float = 8.0
    quick: bool = False

    fewest = 3


@dataclass(frozen=True)
class Timed:
    """A call to be timed; `finish` waits for its result: after each call, or only after the last."""

    function: Callable
    args: tuple
    finish: Callable[[Any], Any]
    each: bool = True

    def seconds(self, number: int) -> float:
        """Seconds per call over `number` calls."""
        function, args, finish = self.function, self.args, self.finish
        result = None
        start = time.perf_counter()
        if self.each:
            for _ in itertools.repeat(None, number):
                result = function(*args)
                finish(result)
        else:
            for _ in itertools.repeat(None, number):
                result = function(*args)
            finish(result)
        return (time.perf_counter() - start) / number


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """The spread of `samples`."""
        low, median, high = np.percentile(np.asarray(samples, dtype=float), [25, 50, 75])
        return cls(float(median), float(low), float(high))


def calls_per_sample(timed: Timed, sample: float) -> int:
    """How many calls fill `sample` seconds; doubling, so that a first slow call does not mislead."""
    number = 1
    while True:
        taken = timed.seconds(number) * number
        if taken >= sample / 2 or number >= 1 << 22:
            return max(1, round(number * sample / max(taken, 1e-9))) if taken < sample else number
        number *= max(2, min(16, int(sample / max(taken, 1e-9) / 2)))


def interleave(contenders: Mapping[str, Timed], settings: Settings) -> dict[str, list[float]]:
    """Seconds per call of each contender, one sample a round, in turn; lists of equal length."""
    number = {name: calls_per_sample(t, settings.sample) for name, t in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    began = time.perf_counter()
    gc.collect()
    gc.disable()
    try:
        for done in range(settings.rounds):
            if done >= settings.fewest and time.perf_counter() - began > settings.budget:
                break
            for name, timed in contenders.items():
                settle(timed, number[name])
                samples[name].append(timed.seconds(number[name]))
    finally:
        gc.enable()
    return samples


def settle(timed: Timed, number: int) -> None:
    """Let the threads of the one before stop spinning, and warm the caches for a short call."""
    time.sleep(0.003)
    if number > 1:
        timed.seconds(1)


def fastest(candidates: Sequence[Callable]) -> Callable:
    """A function that chooses, at its first call, the quickest of `candidates` on these arguments."""
    chosen: list[Callable] = []

    def apply(*args: Any) -> Any:
        if not chosen:
            timed = [Timed(c, args, lambda _: None) for c in candidates]
            best = [float(np.median([t.seconds(1) for _ in range(9)])) for t in timed]
            chosen.append(candidates[best.index(min(best))])
        return chosen[0](*args)

    return apply


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Our time over theirs: samples of one round are paired where both have as many."""
    if len(ours) == len(theirs):
        return Spread.of([a / b for a, b in zip(ours, theirs, strict=True)])
    base = float(np.median(theirs))
    return Spread.of([a / base for a in ours])


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean log."""
    return math.exp(sum(math.log(v) for v in values) / len(values))
