"""Sessions of LLVM: whoever compiles leads a crew, and what is compiled once is made by one thread.

A process that finds its code on disk needs this, and no compiler.
"""

import os
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from functools import cache, partial, wraps
from typing import Any

from fnx.core.threads.fork_safety import fork_safe

from . import compile_threads

_session = fork_safe(threading.RLock())


class _Session:
    """A context manager of a generator, which is closed where an interrupt comes on entering."""

    def __init__(self, steps: Any):
        self.steps = steps

    def __enter__(self) -> compile_threads.Crew:
        try:
            return next(self.steps)
        except BaseException:
            self.steps.close()
            raise

    def __exit__(self, *_: Any) -> None:
        self.steps.close()


def session(helpers: bool = False) -> _Session:
    """LLVM for this thread and a crew that it leads, with helpers where much is to be compiled.

    LLVM's options are process-wide: Numba does not compile meanwhile, nor do other threads.
    """
    return _Session(_session_steps(helpers))


def _session_steps(helpers: bool) -> Iterator[compile_threads.Crew]:
    found = compile_threads.current()
    if found is not None:
        yield found
        return
    crew = compile_threads.Crew(compile_threads.size() if helpers else 1)
    owned, numbas = _is_owned(_llvms_lock()), _numbas_lock()
    ours = numbas is not None and not numbas._is_owned()
    end = partial(_end, crew, not owned, numbas if ours else None)
    with _session:
        try:  # in one frame: an interrupt between two context managers would forget one of them
            if ours:
                numbas.acquire()
            compile_threads.here.crew = crew
            yield crew
        finally:
            try:
                end()
            finally:  # all of it once more, for an interrupt within that
                end()


def _end(crew: compile_threads.Crew, llvms: bool, numbas: Any) -> None:
    """Let go of all that a session took, as far as that is not done; `llvms`: LLVM's lock, too."""
    compile_threads.here.crew = None
    _give_back(_llvms_lock(), llvms)  # helpers want it
    crew.disperse()
    crew.tasks.put(None)
    options = sys.modules.get(f"{__package__}.llvm_options")  # a process that compiles has it
    if options is not None:
        options.restore()
    _give_back(_llvms_lock(), llvms)
    _give_back(numbas, True)


# Of Numba and llvmlite the locks inside of theirs: those are taken and given back by methods written in
# Python, where an interrupt may leave them taken.


def _numbas_lock() -> Any:
    """What Numba locks while it compiles, if it is there: it may be held when a process forks."""
    numba = sys.modules.get("numba.core.compiler_lock")
    lock = getattr(numba, "global_compiler_lock", None)
    return None if lock is None else getattr(known_to_forks(lock), "_lock", None)


def _llvms_lock() -> Any:
    """What llvmlite locks in each function."""
    lib = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    return getattr(getattr(lib, "_lock", None), "_lock", None)


def _is_owned(lock: Any) -> bool:
    return lock is not None and lock._is_owned()


def _give_back(lock: Any, ours: bool) -> None:
    """Release a lock as often as this thread took it, if that was here."""
    while ours and _is_owned(lock):
        lock.release()


@cache
def known_to_forks(lock: Any) -> Any:
    """A lock of llvmlite's or Numba's, which both hold one of Python's."""
    inner = getattr(lock, "_lock", None)
    if hasattr(inner, "_at_fork_reinit"):
        fork_safe(inner)
    return lock


def once(function: Callable) -> Callable:
    """The function, computed once for each argument, by one thread of those that ask.

    Its `soon` lets the crew of this thread compute what will be asked for.
    """
    values: dict[Hashable, Any] = {}
    locks: dict[Hashable, Any] = {}
    os.register_at_fork(after_in_child=locks.clear)

    @wraps(function)
    def of(*key: Hashable) -> Any:
        if key not in values:
            # A session first: whoever leads one may wait for helpers that wait for this lock.
            with session(), locks.setdefault(key, threading.RLock()):
                if key not in values:
                    values[key] = function(*key)
        return values[key]

    def soon(*key: Hashable) -> None:
        if key not in values:
            compile_threads.soon(of, *key)

    of.values, of.soon = values, soon  # type: ignore[attr-defined]
    return of
