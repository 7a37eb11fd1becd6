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

    def __str__(self) -> str:
        of = "" if self.total is None else f" of {self.total}"
        return f"{self.site.unit} {self.done}{of} of {self.site}"


Watch = Callable[[Sequence[Record]], AbstractContextManager]
watch: list[Watch] = []  # who shows what runs: the last one


def watched(fast: Callable, records: Sequence[Record]) -> Callable:
    """Calls `fast`, whose loops tell how far they are, while somebody may look at the records."""

    def call(leaves: Sequence[Any]) -> Any:
        for record in records:
            record.numbers[:] = 0
        with watch[-1](records) if watch else nullcontext():
            try:
                return fast(leaves)
            except KeyboardInterrupt as error:
                tell(error, [str(r) for r in records if r.state == RUNNING])
                raise

    return call


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
    if jaxpr is None:
        return
    found = dict.fromkeys(_loops(jaxpr))
    loops = ": " + "; ".join(found) if found else ""
    tell(error, [f"compiled code of {jaxpr.name or 'a function'}{loops}"])


def _loops(jaxpr: Jaxpr) -> list[str]:
    return [str(prim.site) for prim in outermost(jaxpr)]


def outermost(jaxpr: Jaxpr) -> list[Any]:
    """The loops of a program that are in no other loop, and know where they are."""
    found = []
    for e in jaxpr.eqns:
        if isinstance(getattr(e.prim, "site", None), LoopSite):  # checks have sites of their own
            found.append(e.prim)
        else:
            found += [x for inner in subjaxprs(e.prim) for x in outermost(inner)]
    return found


__all__ = ["DONE", "RUNNING", "Record", "interpreted", "interrupted", "tell", "watch", "watched"]
