"""The end of a process whose daemon threads are in the middle of fnx.

Python lets such a thread go on until it wants the GIL, and then ends it where it stands, as if its C
frames had a way to end. Those of C++ (optree, NumPy) have none, and end the process by `abort`. So
before Python gets that far, threads that are inside fnx are told to end, and waited for.
"""

import atexit
import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

_PATIENCE = 1.0  # seconds that all of this takes at most
_BETWEEN = 0.01  # seconds from one look at the threads to the next
_NEVER = 1000.0  # seconds until another thread may ask for the GIL
_state = {"exiting": False}
watchers: list[Callable[[], None]] = []  # who else wants to know


def is_exiting() -> bool:
    """Whether the process is about to end."""
    return _state["exiting"]


def _process_ends() -> bool:
    """Whether exit functions run because the process ends, and not because a program called them."""
    return not threading.main_thread().is_alive()


@contextlib.contextmanager
def at_the_end_only() -> Iterator[None]:
    """What is registered as an exit function here runs only where the process ends.

    Programs may call all exit functions (tests of their own do), and go on.
    """
    register = atexit.register

    def guarded(function: Callable, *args: Any, **kwargs: Any) -> Callable:
        register(lambda: function(*args, **kwargs) if _process_ends() else None)
        return function

    atexit.register = guarded  # type: ignore[assignment]
    try:
        yield
    finally:
        atexit.register = register


def end_threads() -> None:
    """Raise SystemExit, which threads do not report, in those that are inside fnx, until none is."""
    if not hasattr(sys, "_current_frames") or len(sys._current_frames()) == 1:
        return
    if not _process_ends():
        return
    _state["exiting"] = True
    for told in watchers:
        told()
    sys.unraisablehook = _quiet(sys.unraisablehook)
    limit = time.monotonic() + _PATIENCE
    raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
    while (busy := _inside()) and time.monotonic() < limit:
        for thread in busy:
            raise_in(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))
        time.sleep(_BETWEEN)
    sys.setswitchinterval(_NEVER)


def _inside() -> list[int]:
    """The other threads that are inside fnx."""
    here = threading.get_ident()
    return [k for k, frame in sys._current_frames().items() if k != here and _is_inside(frame)]


def _is_inside(frame: FrameType | None) -> bool:
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("fnx."):
            return True
        frame = frame.f_back
    return False


def _quiet(report: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Reports of errors that nobody can catch, but for what is raised here as a callback begins."""
    return lambda found: None if found.exc_type is SystemExit else report(found)


atexit.register(end_threads)
