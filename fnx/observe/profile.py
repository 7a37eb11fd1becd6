"""Profiles: what programs took, against what this machine can do; as a table, a picture, a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fnx.observe import chrome_trace, flame
from fnx.observe.costs import Cost, Kernel, cost, kernels, types_of
from fnx.observe.machine import Machine, machine
from fnx.observe.recorder import Event, Recorder, Work, muted
from fnx.observe.units import count, percent, seconds_of, shortened, table

_KINDS = {
    "run": "runs", "compile": "compiling", "trace": "tracing", "transform": "transformations",
}  # fmt: skip


@dataclass
class ProgramCosts:
    """A program of a profile: how often it was traced, compiled and run, and for how many seconds.

    `bytes` and `flops` are those of all runs by the cost model: of arguments and results, and of
    arithmetic; `exact` is False where a loop's length depends on values, so that they are more.
    """

    name: str
    types: str
    calls: int = 0
    seconds: float = 0.0
    traces: int = 0
    trace_seconds: float = 0.0
    compiles: int = 0
    compile_seconds: float = 0.0
    bytes: float = 0.0
    flops: float = 0.0
    exact: bool = True
    itemsize: int = 8
    native: Any = field(default=None, repr=False, compare=False)

    @property
    def bytes_per_second(self) -> float:
        return self.bytes / self.seconds if self.seconds else 0.0

    @property
    def flops_per_second(self) -> float:
        return self.flops / self.seconds if self.seconds else 0.0

    @property
    def kernels(self) -> list[Kernel]:
        """Its loop nests, and the bytes of the arrays that each touches; their times are not known."""
        with muted():
            return kernels(self.native, anew=True)

    def share_of_memory(self, of: Machine | None = None) -> float:
        """What part of the bytes a second that this machine's memory can move."""
        return self.bytes_per_second / (of or machine()).bytes

    def share_of_arithmetic(self, of: Machine | None = None) -> float:
        """What part of the operations a second that this machine can do with such numbers."""
        return self.flops_per_second / (of or machine()).flops(self.itemsize)

    def add(self, work: Work, each: Cost) -> None:
        self.calls += work.count["run"]
        self.seconds += work.seconds["run"]
        self.traces += work.count["trace"]
        self.trace_seconds += work.seconds["trace"]
        self.compiles += work.count["compile"]
        self.compile_seconds += work.seconds["compile"]
        self.bytes += work.count["run"] * each.bytes
        self.flops += work.count["run"] * each.flops
        self.native = self.native or work.native


class Profile:
    """What happened while it was made. Printed, a table; in notebooks, a picture beside it.

    >>> with fnx.profile() as p:
    ...     x = fnx.jit(lambda x: 2.0 * x)(jnp.ones(3))
    >>> [(program.calls, program.bytes) for program in p.programs]
    [(1, 48.0)]
    """

    def __init__(self, recorder: Recorder):
        self._recorder = recorder

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self._recorder.seconds

    @property
    def events(self) -> list[Event]:
        """Everything that took time, in the order in which it ended."""
        return self._recorder.events

    @property
    def notes(self) -> list[str]:
        """Of functions that were traced for the third time: what changed."""
        return self._recorder.notes

    @property
    def transforms(self) -> dict[str, tuple[int, float]]:
        """How often each transformation was made, and its own seconds."""
        return dict(self._recorder.transforms)

    @property
    def shares(self) -> dict[str, float]:
        """Seconds of each kind, without what lies inside; the rest is Python's, and eager operations'."""
        own = self._recorder.own
        found = {word: own.get(kind, 0.0) for kind, word in _KINDS.items()}
        return {**found, "the rest": max(self.seconds - sum(found.values()), 0.0)}

    @property
    def programs(self) -> list[ProgramCosts]:
        """What each program took, those that took longest first."""
        found: dict[tuple, ProgramCosts] = {}
        with muted():
            for work in list(self._recorder.works.values()):
                each, jaxpr = cost(work.jaxpr), work.jaxpr
                name, types = jaxpr.name or "program", types_of(jaxpr)
                key = name, types, each, len(jaxpr.eqns)
                if key not in found:
                    found[key] = ProgramCosts(name, types, exact=each.exact, itemsize=each.itemsize)
                found[key].add(work, each)
        return sorted(
            found.values(), key=lambda p: -(p.seconds + p.trace_seconds + p.compile_seconds)
        )

    def __str__(self) -> str:
        total = self.seconds or 1.0
        parts = [f"{word} {percent(s / total)}" for word, s in self.shares.items() if s]
        lines = [f"profile of {seconds_of(self.seconds)}: {', '.join(parts)}"]
        rows = self.programs
        if rows:
            lines += ["", *_table(rows)]
        if self.transforms:
            lines += ["", "transformations: " + ", ".join(
                f"{name} {n} x, {seconds_of(s)}" for name, (n, s) in self.transforms.items()
            )]  # fmt: skip
        lines += [f"note: {note}" for note in self.notes]
        if self._recorder.left_out:
            lines.append(f"({self._recorder.left_out} events are counted, and have no times)")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return flame.strip(self.events, self.seconds) + flame.text(str(self))

    def save(self, path: str | os.PathLike) -> None:
        """Write all events in the Chrome trace event format, which Perfetto opens; .gz compresses.

        >>> import os, tempfile
        >>> with fnx.profile() as p, tempfile.TemporaryDirectory() as folder:
        ...     p.save(f"{folder}/trace.json")
        ...     os.listdir(folder)
        ['trace.json']
        """
        chrome_trace.save(path, self.events, self._recorder.threads)


def _table(rows: list[ProgramCosts]) -> list[str]:
    of = machine()
    head = (
        "program", "calls", "run", "each", "bytes", "flops", "GB/s", "of memory", "GFLOP/s",
        "of arithmetic", "traces", "tracing", "compiles", "compiling",
    )  # fmt: skip
    found: list[tuple[str, ...]] = [head]
    for row in rows:
        least = "" if row.exact else ">"
        rates = ("",) * 6
        if row.calls:
            rates = (
                count(row.bytes / row.calls, "B"),
                least + count(row.flops / row.calls, ""),
                f"{row.bytes_per_second / 1e9:.3g}",
                percent(row.share_of_memory(of)),
                f"{least}{row.flops_per_second / 1e9:.3g}",
                percent(row.share_of_arithmetic(of)),
            )
        each = seconds_of(row.seconds / row.calls) if row.calls else ""
        found.append(
            (
                shortened(f"{row.name}({row.types})"), str(row.calls), seconds_of(row.seconds), each,
                *rates, str(row.traces), seconds_of(row.trace_seconds), str(row.compiles),
                seconds_of(row.compile_seconds),
            )
        )  # fmt: skip
        for kernel in kernels(row.native):
            name = shortened(f"  {kernel.name}: {kernel.note}")
            found.append((name, "", "", "", count(kernel.bytes, "B"), *[""] * 9))
    text = table(found)
    return [
        *text,
        f"(this machine: {of.bytes / 1e9:.3g} GB/s; {of.flops64 / 1e9:.3g} GFLOP/s with numbers of 64 "
        f"bits, {of.flops32 / 1e9:.3g} of 32)",
    ]


@contextmanager
def profile() -> Iterator[Profile]:
    """Within it, what programs are traced, transformed, compiled and run is recorded.

    Printed, the profile is a table: of each program calls and seconds, bytes and floating point
    operations by the cost model, and what part that is of what this machine can do, which is measured
    the first time and kept in the cache. In notebooks there is a picture. Calls are recorded by
    replacing functions while this lasts: without it calls are as fast as ever.

    >>> with fnx.profile() as p:
    ...     x = fnx.jit(jnp.sin)(jnp.ones(3))
    >>> "runs" in str(p)
    True
    """
    recorder = Recorder()
    recorder.start()
    try:
        yield Profile(recorder)
    finally:
        recorder.stop()


__all__ = ["Profile", "ProgramCosts", "profile"]
