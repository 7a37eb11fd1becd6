"""Parallel compilation: a thread that compiles a program, and helpers that compile other parts of it."""

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fnx.lowering.cpu.processor import thresholds

_here = threading.local()  # `crew`: that of this thread, while it works


class Task:
    """A call that is made by whichever thread of a crew comes to it first."""

    def __init__(self, function: Callable, args: tuple):
        self._function, self._args = function, args
        self._begun = threading.Lock()
        self._done = threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Make the call, unless a thread has begun to."""
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._value = self._function(*self._args)
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def result(self) -> Any:
        """What the call gave, or raised."""
        self.run()
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._value


class Crew:
    """Tasks, and threads, `most` with their leader, that are started as tasks come."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._tasks: deque[Task] = deque()
        self._waiting = threading.Semaphore(0)
        self._helpers: list[threading.Thread] = []
        self._open = True
        self._lock = threading.Lock()

    def start(self, function: Callable, *args: Any) -> Task:
        """A task that is begun as soon as a thread is free."""
        task = Task(function, args)
        with self._lock:
            if self._open:
                self._tasks.append(task)
                if len(self._helpers) < self.most - 1:
                    self._hire()
                self._waiting.release()
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
        while True:
            self._waiting.acquire()
            task = self._next()
            if task is not None:
                task.run()
            elif not self._open:
                return

    def _next(self) -> Task | None:
        try:
            return self._tasks.popleft()
        except IndexError:
            return None

    def work(self) -> None:
        """Run the tasks that nobody has begun."""
        while (task := self._next()) is not None:
            task.run()

    def disperse(self) -> None:
        """Drop the tasks that nobody has begun, and wait for the others."""
        with self._lock:
            self._open = False
            self._tasks.clear()
        for _ in self._helpers:
            self._waiting.release()
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


@contextmanager
def gathered(helpers: bool = True) -> Iterator[Crew]:
    """A crew led by this thread, which may be alone."""
    made = _here.crew = Crew(size() if helpers else 1)
    try:
        yield made
    finally:
        _here.crew = None
        made.disperse()


def soon(function: Callable, *args: Any) -> None:
    """Let the crew of this thread, if there is one, make a call whose value is asked for later."""
    crew = current()
    if crew is not None and crew.most > 1:
        crew.start(function, *args)
