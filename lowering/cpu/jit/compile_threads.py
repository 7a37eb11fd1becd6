"""Parallel compilation: a thread that compiles a program, and helpers that compile other parts of it.

The leader may be the thread that is interrupted, at any moment. So threads meet in locks and queues
that are written in C, within which nothing is interrupted: an Event or a Condition of `threading` stays
locked by whom an interrupt meets inside it, and the others would wait for ever.
"""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

from fnx.lowering.cpu.processor import thresholds

_here = threading.local()  # `crew`: that of this thread, while it works


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
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()  # None: the end
        self._helpers: list[threading.Thread] = []
        self._open = True
        self._lock = threading.Lock()

    def start(self, function: Callable, *args: Any) -> Task:
        """A task that is begun as soon as a thread is free."""
        task = Task(function, args)
        with self._lock:
            if self._open:
                self._tasks.put(task)
                if len(self._helpers) < self.most - 1:
                    self._hire()
        return task

    def _hire(self) -> None:
        """One helper more, if the system allows another thread; the leader does what nobody does."""
        helper = threading.Thread(target=self._help, daemon=True)
        try:
            helper.start()
        except RuntimeError:
            self.most = len(self._helpers) + 1
        else:
            self._helpers.append(helper)

    def _help(self) -> None:
        _here.crew = self
        while (task := self._tasks.get()) is not None:
            task.run()
        self._tasks.put(None)  # for the next helper

    def _next(self) -> Task | None:
        try:
            return self._tasks.get_nowait()
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
        self._tasks.put(None)
        for helper in self._helpers:
            helper.join()


def size() -> int:
    """How many threads compile at most: as many as there are processors for this process."""
    try:
        return min(len(os.sched_getaffinity(0)), thresholds.COMPILE_THREADS)
    except AttributeError:  # not on every platform
        return min(os.cpu_count() or 1, thresholds.COMPILE_THREADS)


def current() -> Crew | None:
    """The crew of which this thread is part."""
    return getattr(_here, "crew", None)


def lead(crew: Crew | None) -> None:
    """Make this thread the leader of a crew, or of none."""
    _here.crew = crew


@contextmanager
def gathered(helpers: bool = True) -> Iterator[Crew]:
    """A crew led by this thread, which may be alone."""
    crew = Crew(size() if helpers else 1)
    try:
        lead(crew)
        yield crew
    finally:
        lead(None)
        crew.disperse()


def soon(function: Callable, *args: Any) -> None:
    """Let the crew of this thread, if there is one, make a call whose value is asked for later."""
    crew = current()
    if crew is not None and crew.most > 1:
        crew.start(function, *args)
