"""Progress bars of compiled loops: a thread looks at the records that native code writes while it runs."""

import os
import sys
import threading
import time
from _thread import start_new_thread
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from typing import Any

from fnx.core import config
from fnx.core.threads.fork_safety import PATIENCE, fork_safe
from fnx.lowering import reference
from fnx.lowering.cpu.loader import progress as records
from fnx.lowering.cpu.loader.progress import DONE, RUNNING, AnyRecord

EVERY = (
    0.25  # seconds between two looks (each costs a millisecond), and what a loop with a bar takes
)

_UNITS = {"iteration": "it"}


class _Bar:
    """The bar of one loop; there is none before it is first seen running."""

    def __init__(self, record: AnyRecord):
        self.record = record
        self.bar: Any = None
        self.broken = False  # whether it could not be written
        self.again = False  # whether there was one, of a loop in another one

    def show(self) -> None:
        try:
            self._show()
        except Exception:  # of what it is written to, which is no matter of the program's
            self.bar, self.broken = None, True

    def _show(self) -> None:
        record, n = self.record, self.record.done
        if self.bar is None:
            if record.state != RUNNING or self.broken:
                return
            unit = _UNITS.get(record.site.unit, record.site.unit)
            self.bar = _kind(_has_widgets())(
                total=record.total, desc=record.site.short, unit=f" {unit}",
                mininterval=0, dynamic_ncols=True, file=sys.stderr, leave=not self.again, delay=1e-9,
            )  # fmt: skip
            self.bar.start_t -= EVERY  # when it was not seen yet
        self.bar.n = n
        # `refresh`, which a bar without delay begins with, keeps its lock where nothing can be written.
        with self.bar.get_lock():
            self.bar.refresh(nolock=True)
        if record.state == DONE:
            self.close()

    def close(self) -> None:
        if self.bar is not None:
            with suppress(Exception):
                self.bar.n = self.record.done
                self.bar.close()
            self.bar, self.again = None, True


@cache
def _kind(widgets: bool) -> Any:
    """The kind of bar for a terminal, or for a notebook that has widgets.

    tqdm's own lock is shared with forked processes, so one that ends while it draws would leave it taken in
    all of them for ever. Bars here are drawn under the part of it that threads share, by the thread below.
    """
    if widgets:
        from tqdm.notebook import tqdm as kind
    else:
        from tqdm.std import tqdm as kind
    from tqdm.std import TqdmDefaultWriteLock

    lock = kind.get_lock()
    own = lock.th_lock if isinstance(lock, TqdmDefaultWriteLock) else lock
    return type(kind.__name__, (kind,), {"_lock": own, "monitor_interval": 0})


def _has_widgets() -> bool:
    return "ipykernel.zmqshell" in sys.modules and find_spec("ipywidgets") is not None


class _Monitor:
    """The thread that looks while something runs; there are no bars where none can be had."""

    def __init__(self) -> None:
        self.lock = fork_safe(threading.RLock(), PATIENCE)  # within which tqdm has its own
        self.calls: list[list[_Bar]] = []
        self.looks = False  # whether there is the thread
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self.calls, self.looks = [], False

    @contextmanager
    def watch(self, loops: Sequence[AnyRecord]) -> Iterator[None]:
        bars = [_Bar(r) for r in loops]
        try:
            with self.lock:
                self.calls.append(bars)
                if not self.looks:
                    self._start()
            yield
        finally:
            with self.lock:
                self.calls = [found for found in self.calls if found is not bars]
                for bar in bars:
                    bar.close()

    def _start(self) -> None:
        # Not a Thread, whose start an interrupt leaves half done, nor an Event, which it leaves locked.
        self.looks = True
        try:
            start_new_thread(self._look, ())
        except RuntimeError:
            self.looks = False

    def _look(self) -> None:
        while True:
            time.sleep(EVERY)
            with self.lock:
                if not self.calls:
                    self.looks = False
                    return
                for bar in [b for bars in self.calls for b in bars]:
                    bar.show()


_monitor = _Monitor()
records.watch.append(_monitor.watch)
reference.watch.append(records.interpreted)


def progress(shown: bool = True) -> AbstractContextManager[None]:
    """Within it compiled loops show bars of how far they are, the outermost loops of each program.

    They are those of the package tqdm, for terminals and notebooks, one for each loop and for its reverse
    sweep. Loops that take less than a quarter of a second have none. Functions are compiled once more for
    it; loops look up as seldom as for Ctrl-C, which then says the iteration that it stopped.

    >>> with fnx.progress():
    ...     total = lax.fori_loop(0, 1000, lambda i, total: total + i, 0)
    """
    return config.progress(shown)


__all__ = ["progress"]
