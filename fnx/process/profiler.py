"""`fnx.profiler` under JAX's names: traces are those of Python's profiler, marks are accepted."""

import cProfile
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fnx.core.errors import InvalidValue, MissingRule
from fnx.process.devices import live_arrays

__all__ = [
    "ProfileOptions",
    "StepTraceAnnotation",
    "TraceAnnotation",
    "annotate_function",
    "device_memory_profile",
    "save_device_memory_profile",
    "start_server",
    "start_trace",
    "stop_server",
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


class ProfileOptions:
    """JAX's options of traces; they are kept, and Python's profiler has none of them.

    >>> options = fnx.profiler.ProfileOptions()
    >>> options.host_tracer_level = 1
    """

    def __init__(self) -> None:
        self.advanced_configuration: dict = {}
        self.duration_ms = self.start_timestamp_ns = 0
        self.host_tracer_level, self.python_tracer_level = 2, 1
        self.enable_hlo_proto = self.include_dataset_ops = True
        self.raise_error_on_start_failure = False
        self.repository_path = self.session_id = ""


def device_memory_profile(backend: str | None = None) -> bytes:
    """What lives in arrays now, as text: bytes, how many arrays, and their type; the largest first.

    >>> x = jnp.ones((3, 5, 7))
    >>> b"f64[3,5,7]" in fnx.profiler.device_memory_profile()
    True
    """
    del backend
    kinds: dict[str, list[int]] = {}
    for x in live_arrays():
        kinds.setdefault(x.aval.str_short(), []).append(x.nbytes)
    rows = sorted(((sum(v), len(v), k) for k, v in kinds.items()), reverse=True)
    lines = [
        f"{total} bytes in {sum(r[1] for r in rows)} arrays" for total in [sum(r[0] for r in rows)]
    ]
    return "\n".join(
        lines + [f"{size:>14} {count:>7} {kind}" for size, count, kind in rows]
    ).encode()


def save_device_memory_profile(filename: str | os.PathLike, backend: str | None = None) -> None:
    """Write what lives in arrays to a file, as text, where JAX writes what pprof reads.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fnx.profiler.save_device_memory_profile(f"{folder}/memory")
    """
    with open(filename, "wb") as file:
        file.write(device_memory_profile(backend))


def start_server(port: int, requires_backend: bool = True) -> Any:
    """NotImplementedError: profiles are files, and there is no server that TensorBoard could ask.

    >>> fnx.profiler.start_server(9999)
    Traceback (most recent call last):
    fnx.core.errors.MissingRule: there is no profiler server; use fnx.profiler.trace(folder), ...
    """
    del port, requires_backend
    raise MissingRule(
        "there is no profiler server; use fnx.profiler.trace(folder), whose file the module pstats reads, "
        "or fnx.jit(f).lower(*args).compile().report()"
    )


def stop_server() -> None:
    """Nothing: no server can have been started.

    >>> fnx.profiler.stop_server()
    """


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
