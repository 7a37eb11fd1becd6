"""`fnx.profiler` under JAX's names: traces are those of Python's profiler, marks are accepted."""

import cProfile
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fnx.core.errors import InvalidValue

__all__ = [
    "StepTraceAnnotation",
    "TraceAnnotation",
    "annotate_function",
    "start_trace",
    "stop_trace",
    "trace",
]


class TraceAnnotation:
    """Marks a part of the program, as a context manager; profiles are by function, so it does nothing.

    >>> with fnx.profiler.TraceAnnotation("set up"):
    ...     x = jnp.ones(3)
    """

    def __init__(self, name: str, **kwargs: Any):
        self.name, self.metadata = name, kwargs

    def __enter__(self) -> "TraceAnnotation":
        return self

    def __exit__(self, *error: Any) -> None:
        pass


class StepTraceAnnotation(TraceAnnotation):
    """Marks a step of training, as `TraceAnnotation` does.

    >>> with fnx.profiler.StepTraceAnnotation("train", step_num=3):
    ...     x = jnp.ones(3)
    """


def annotate_function(func: Callable, name: str | None = None, **decorator_kwargs: Any) -> Callable:
    """The function itself: profiles have its name.

    >>> fnx.profiler.annotate_function(abs)
    <built-in function abs>
    """
    del name, decorator_kwargs
    return func


_running: list[tuple[str, cProfile.Profile]] = []


def start_trace(log_dir: str | os.PathLike, *_: Any, **__: Any) -> None:
    """Begin a profile, which `stop_trace` writes to `log_dir`/python.pstats.

    RuntimeError if one runs.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fnx.profiler.start_trace(folder)
    ...     fnx.profiler.stop_trace()
    ...     os.listdir(folder)
    ['python.pstats']
    """
    if _running:
        raise RuntimeError("a profile is running already; expected one at a time: call stop_trace")
    profile = cProfile.Profile()
    _running.append((os.fspath(log_dir), profile))
    profile.enable()


def stop_trace() -> None:
    """End the profile and write it, for the module pstats.

    RuntimeError if none runs; InvalidValue, a ValueError, if it was begun with an empty path.

    >>> fnx.profiler.stop_trace()
    Traceback (most recent call last):
    RuntimeError: no profile is running; expected start_trace before stop_trace
    """
    if not _running:
        raise RuntimeError("no profile is running; expected start_trace before stop_trace")
    log_dir, profile = _running.pop()
    profile.disable()
    if not log_dir:
        raise InvalidValue("the profile has no directory to be written to")
    os.makedirs(log_dir, exist_ok=True)
    profile.dump_stats(os.path.join(log_dir, "python.pstats"))


@contextmanager
def trace(log_dir: str | os.PathLike, *_: Any, **__: Any) -> Iterator[None]:
    """Within it a profile is made, as by `start_trace` and `stop_trace`.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fnx.profiler.trace(folder):
    ...         x = jnp.ones(3) + 1
    ...     os.listdir(folder)
    ['python.pstats']
    """
    start_trace(log_dir)
    try:
        yield
    finally:
        stop_trace()
