"""Parallel compilation: a thread that compiles a program, and helpers that compile other parts of it.

The leader may be the thread that is interrupted, at any moment. So threads meet in locks and queues
that are written in C, within which nothing is interrupted: an Event or a Condition of `threading` stays
locked by whom an interrupt meets inside it, and the others would wait for ever.
"""

import os
import threading
from _queue import Empty, SimpleQueue  # without the other queues
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fnx.lowering.cpu.processor import thresholds

here = threading.local()  # `crew`: that of this thread, while it works


class Task:
    """A call that is made by whichever thread of a crew comes to it first."""

    def __init__(self, function: Callable, args: tuple):
        self._function, self._args = function, args
        self._claims: list[object] = []  # of threads: the first one makes the call
        self._pending = threading.Lock()  # held until the call was made
        self._pending.acquire()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call, unless a thread has begun to; what is no Exception ends the caller, too.

        An interrupt may come after each call that is made here, that of `append` and of `release` included.
        """
        me = object()
        try:
            self._claims.append(me)
            if self._claims[0] is me:
                self._value = self._function(*self._args)
        except BaseException as error:
            if self._claims and self._claims[0] is me:
                self._error = error
            if not isinstance(error, Exception):
                raise
        finally:
            if self._claims and self._claims[0] is me:
                self._pending.release()

    def result(self) -> Any:
        """What the call gave, or raised."""
        self.run()
        with self._pending:
            pass
        if self._error is not None:
            raise self._error
        return self._value


class Crew:
    """Tasks, and threads, `most` with their leader, that are started as tasks come."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.tasks: SimpleQueue[Task | None] = SimpleQueue()  # None: the end of each who finds it
        self.asked: set[tuple] = set()  # what is computed soon, or was
        self._helpers: list[Any] = []  # locks, each held until the helper ends
        self._open = True
        self._lock = threading.Lock()

    def start(self, function: Callable, *args: Any) -> Task:
        """A task that is begun as soon as a thread is free."""
        task = Task(function, args)
        with self._lock:
            if self._open:
                self.tasks.put(task)
                if len(self._helpers) < self.most - 1:
                    self._hire()
        return task

    def _hire(self) -> None:
        """One helper more, if the system allows another thread; the leader does what nobody does."""
        working = threading.Lock()
        working.acquire()
        try:
            # An interrupt in the middle of Thread.start would leave a thread that waits for ever.
            start_new_thread(self._help, (working,))
        except RuntimeError:
            self.most = len(self._helpers) + 1
        else:
            self._helpers.append(working)

    def _help(self, working: Any) -> None:
        try:
            here.crew = self
            while (task := self.tasks.get()) is not None:
                task.run()
            self.tasks.put(None)  # for the next helper
        finally:
            working.release()

    def _next(self) -> Task | None:
        try:
            return self.tasks.get_nowait()
        except Empty:
            return None

    def work(self) -> None:
        """Run the tasks that nobody has begun."""
        while (task := self._next()) is not None:
            task.run()

    def disperse(self) -> None:
        """Drop the tasks that nobody has begun, and wait for the others."""
        with self._lock:
            self._open = False
        while self._next() is not None:
            pass
        self.tasks.put(None)
        for working in self._helpers:
            with working:
                pass


def size() -> int:
    """How many threads compile at most: as many as there are processors for this process."""
    try:
        return min(len(os.sched_getaffinity(0)), thresholds.COMPILE_THREADS)
    except AttributeError:  # not on every platform
        return min(os.cpu_count() or 1, thresholds.COMPILE_THREADS)


def current() -> Crew | None:
    """The crew of which this thread is part."""
    return getattr(here, "crew", None)


@contextmanager
def gathered(helpers: bool = True) -> Iterator[Crew]:
    """A crew led by this thread, which may be alone."""
    crew = Crew(size() if helpers else 1)
    try:
        here.crew = crew
        yield crew
    finally:
        here.crew = None
        try:
            crew.disperse()
        finally:
            crew.tasks.put(None)


def soon(function: Callable, *args: Any) -> None:
    """Let the crew of this thread, if there is one, make a call, once, whose value is asked for later."""
    crew, call = current(), (function, *args)
    if crew is not None and crew.most > 1 and call not in crew.asked:
        crew.asked.add(call)
        crew.start(function, *args)
