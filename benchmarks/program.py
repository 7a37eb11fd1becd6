"""A benchmark program as data: how to build it on a namespace, its inputs, its rivals, its targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Targets = Mapping[str, Mapping[str, float | None]]


@dataclass(frozen=True)
class Program:
    """One function, written once over a namespace, and what is asked of it.

    `make(jax, jnp, lax, size)` returns the function to be measured; it is jitted unless `eager`.
    `inputs(size)` gives its arguments as NumPy arrays, or lists, tuples and dicts of them.
    `targets[metric][rival]` is the largest ratio wanted, None where only the figure is asked for:
    "run" (steady calls), "compile" (trace to callable, a fresh process, an empty cache),
    "warm" (the same in a second process whose cache is filled), "process" (as "warm", over the
    cold time of the same library, library start-up and first call counted), "objective" (time over
    that of `objective`), "memory" (bytes of temporaries).
    `wait_each`: wait for each result, not for the last of many; `feed_numpy`: pass NumPy arrays.
    `rivals` are hand-written: `rivals[name](size)` returns a function of the NumPy inputs.
    """

    name: str
    group: str
    make: Callable[..., Callable]
    inputs: Callable[[Any], tuple]
    size: Any = None
    quick: Any = None
    targets: Targets = field(default_factory=dict)
    rivals: Mapping[str, Callable[[Any], Callable]] = field(default_factory=dict)
    objective: Callable[..., Callable] | None = None
    adjoint_bytes: Callable[[Any], int] | None = None
    eager: bool = False
    wait_each: bool = True
    feed_numpy: bool = False
    tolerance: float | None = None

    def size_for(self, quick: bool) -> Any:
        """The size to measure, or the small one that only shows that the program runs."""
        return self.quick if quick and self.quick is not None else self.size


@dataclass(frozen=True)
class Probe:
    """A figure that is no timing of a function: `probe(settings)` yields rows as dicts."""

    name: str
    group: str
    probe: Callable[..., list[dict]]


@dataclass(frozen=True)
class Case:
    """A program that uses a library written for JAX; `make()` gives a function and its arguments."""

    name: str
    make: Callable[[], tuple[Callable, tuple]]
    tolerance: float = 1e-6
    ensemble: bool = False


@dataclass(frozen=True)
class Summary:
    """What is asked of a whole group: a geometric mean of ratios, and of the worst of them."""

    metric: str
    rival: str
    mean: float | None = None
    worst: float | None = None


@dataclass(frozen=True)
class Group:
    """Programs of one kind; `threads`: also measured on one thread; `over`: groups summed up here."""

    title: str
    threads: bool = False
    summaries: tuple[Summary, ...] = ()
    over: tuple[str, ...] = ()
