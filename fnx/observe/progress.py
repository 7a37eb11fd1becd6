"""Progress bars of compiled loops: a thread looks at the records that native code writes while it runs."""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from typing import Any

from fnx.core import config
from fnx.core.threads.fork_safety import fork_safe
from fnx.lowering import reference
from fnx.lowering.cpu.loader import progress as records
from fnx.lowering.cpu.loader.progress import DONE, RUNNING, Record

EVERY = (
    0.25  # seconds between two looks (each costs a millisecond), and what a loop with a bar takes
)

_UNITS = {"iteration": "it"}


class _Bar:
    """The bar of one loop; there is none before it is first seen running."""

    def __init__(self, record: Record):
        self.record = record
        self.bar: Any = None
        self.again = False  # whether there was one, of a loop in another one

    def show(self) -> None:
        record, n = self.record, self.record.done
        if self.bar is None:
            if record.state != RUNNING:
                return
            unit = _UNITS.get(record.site.unit, record.site.unit)
            self.bar = _kind()(
                total=record.total, desc=record.site.short, unit=f" {unit}",
                mininterval=0, dynamic_ncols=True, file=sys.stderr, leave=not self.again,
            )  # fmt: skip
            self.bar.start_t -= EVERY  # when it was not seen yet
        self.bar.n = n
        self.bar.refresh()
        if record.state == DONE:
            self.close()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.n = self.record.done
            self.bar.close()
            self.bar, self.again = None, True


def _kind() -> Any:
    """The kind of bar for a terminal, or for a notebook that has widgets."""
    shell = sys.modules.get("ipykernel.zmqshell")
    if shell is not None and find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as notebook

        return notebook
    from tqdm.std import tqdm

    return tqdm


class _Monitor:
    """The thread that looks, which sleeps while nothing runs."""

    def __init__(self) -> None:
        self.lock = fork_safe(threading.RLock())
        self.calls: list[list[_Bar]] = []
        self.woken = threading.Event()
        self.thread: threading.Thread | None = None

    @contextmanager
    def watch(self, loops: Sequence[Record]) -> Iterator[None]:
        bars = [_Bar(r) for r in loops]
        with self.lock:
            self.calls.append(bars)
            if self.thread is None or not self.thread.is_alive():  # none, or lost by a fork
                self.thread = threading.Thread(target=self._look, name="fnx progress", daemon=True)
                self.thread.start()
        self.woken.set()
        try:
            yield
        finally:
            with self.lock:
                self.calls.remove(bars)
                if not self.calls:
                    self.woken.clear()
                for bar in bars:
                    bar.close()

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            self.woken.wait()
            pause.wait(EVERY)
            with self.lock:
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
