"""How far loops are: records that native code writes while it runs, and calls that somebody watches.

A record is three numbers of 64 bits: iterations done, their number (-1: nobody knows), and 0 before the
loop, 1 in it, 2 after it. Loops write them where they ask whether to stop (schedule/polling.py).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.jaxpr import Jaxpr, subjaxprs
from fnx.core.source import LoopSite

RUNNING, DONE = 1, 2


class Record:
    """How far one loop of a program is."""

    def __init__(self, site: LoopSite):
        self.site = site
        self.numbers = np.zeros(8, np.int64)  # a line of the cache
        self.address = self.numbers.ctypes.data

    @property
    def done(self) -> int:
        return int(self.numbers[0])

    @property
    def total(self) -> int | None:
        """The number of iterations, if it is known."""
        return None if self.numbers[1] < 0 else int(self.numbers[1])

    @property
    def state(self) -> int:
        return int(self.numbers[2])

    def tell(self, done: int, total: int, state: int) -> None:
        """What native code writes by itself."""
        self.numbers[:3] = done, total, state

    def reset(self) -> None:
        """Before the program runs."""
        self.numbers[:] = 0

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        return f"{self.site.unit} {self.done}{of} of {self.site}"


class Slowest:
    """How far a loop is that devices run side by side: as far as the one that is furthest behind."""

    def __init__(self, records: Sequence[Record]):
        self.site, self.records = records[0].site, records

    @property
    def _device(self) -> int:
        """Who is behind, of those that are in the loop, or else of those that were."""
        order = lambda k: (
            self.records[k].state != RUNNING,
            -self.records[k].state,
            self.records[k].done,
        )
        return min(range(len(self.records)), key=order)

    @property
    def _record(self) -> Record:
        return self.records[self._device]

    done = property(lambda self: self._record.done)
    total = property(lambda self: self._record.total)
    state = property(lambda self: self._record.state)

    def reset(self) -> None:
        """Before the program runs."""
        for record in self.records:
            record.reset()

    def __str__(self) -> str:
        k = self._device
        return f"{self.records[k]}, on device {k}"


AnyRecord = Record | Slowest
Watch = Callable[[Sequence[AnyRecord]], AbstractContextManager]
watch: list[Watch] = []  # who shows what runs: the last one


def watched(fast: Callable, records: Sequence[Record]) -> Callable:
    """Calls `fast`, whose loops tell how far they are, while somebody may look at the records."""

    def call(leaves: Sequence[Any]) -> Any:
        with watching(records):
            return fast(leaves)

    return call


@contextmanager
def watching(records: Sequence[AnyRecord]) -> Iterator[None]:
    """While loops run that tell how far they are, which somebody may look at."""
    for record in records:
        record.reset()
    with watch[-1](records) if watch else nullcontext():
        try:
            yield
        except KeyboardInterrupt as error:
            tell(error, [str(r) for r in records if r.state == RUNNING])
            raise


@contextmanager
def interpreted(jaxpr: Jaxpr) -> Iterator[None]:
    """While a program is interpreted, whose loops tell how far they are."""
    loops = [p for p in outermost(jaxpr) if config.progress.value or p.progress]
    records = {p.site: Record(p.site) for p in loops}
    if not records:
        yield
        return
    token = config.told.set(records)
    try:
        with watch[-1](list(records.values())) if watch else nullcontext():
            yield
    except KeyboardInterrupt as error:
        tell(error, [str(r) for r in records.values() if r.state == RUNNING])
        raise
    finally:
        config.told.reset(token)


def tell(error: KeyboardInterrupt, where: Sequence[str]) -> None:
    """Say where an interrupted program was, unless that is known."""
    if not error.args and where:
        error.args = (f"stopped in {', in '.join(where)}",)


def interrupted(error: KeyboardInterrupt, jaxpr: Jaxpr | None) -> None:
    """Say which loops an interrupted program has, of which nothing is known but that one may have run."""
    if jaxpr is not None:
        tell(error, [described(jaxpr)])


def described(jaxpr: Jaxpr) -> str:
    """A program, and its loops."""
    found = dict.fromkeys([str(prim.site) for prim in outermost(jaxpr)])
    loops = ": " + "; ".join(found) if found else ""
    return f"compiled code of {jaxpr.name or 'a function'}{loops}"


def outermost(jaxpr: Jaxpr) -> list[Any]:
    """The loops of a program that are in no other loop, and know where they are."""
    found = []
    for e in jaxpr.eqns:
        if isinstance(getattr(e.prim, "site", None), LoopSite):  # checks have sites of their own
            found.append(e.prim)
        else:
            found += [x for inner in subjaxprs(e.prim) for x in outermost(inner)]
    return found


__all__ = [
    "DONE",
    "RUNNING",
    "AnyRecord",
    "Record",
    "Slowest",
    "described",
    "interpreted",
    "interrupted",
    "tell",
    "watch",
    "watched",
    "watching",
]
