"""`fnx.profiler` under JAX's names: files of what `fnx.profile` records, marks in them, and memory."""

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from fnx.core.errors import InvalidValue, MissingRule
from fnx.core.source import name_of
from fnx.observe import chrome_trace, recorder
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
    """Marks a part of the program, as a context manager: traces and profiles show it by this name.

    >>> with fnx.profile() as p:
    ...     with fnx.profiler.TraceAnnotation("set up"):
    ...         x = jnp.ones(3)
    >>> [event.name for event in p.events]
    ['set up']
    """

    def __init__(self, name: str, **kwargs: Any):
        self.name, self.metadata = name, kwargs
        self._starts: list[float | None] = []

    def __enter__(self) -> "TraceAnnotation":
        self._starts.append(recorder.open_mark() if recorder.is_recording() else None)
        return self

    def __exit__(self, *error: Any) -> None:
        start = self._starts.pop()
        if start is not None:
            recorder.close_mark(self.name, start, self.metadata)


class StepTraceAnnotation(TraceAnnotation):
    """Marks a step of training, as `TraceAnnotation` does, with its number.

    >>> with fnx.profile() as p:
    ...     with fnx.profiler.StepTraceAnnotation("train", step_num=3):
    ...         x = jnp.ones(3)
    >>> [(event.name, event.about) for event in p.events]
    [('train', {'step_num': 3})]
    """


def annotate_function(func: Callable, name: str | None = None, **decorator_kwargs: Any) -> Callable:
    """The function, whose calls are marked by `name`, by default its own, as by `TraceAnnotation`.

    >>> with fnx.profile() as p:
    ...     x = fnx.profiler.annotate_function(abs, "size")(-2)
    >>> [event.name for event in p.events]
    ['size']
    """

    @wraps(func)
    def annotated(*args: Any, **kwargs: Any) -> Any:
        with TraceAnnotation(name or name_of(func), **decorator_kwargs):
            return func(*args, **kwargs)

    return annotated


class ProfileOptions:
    """JAX's options of traces; they are kept, and traces have none of them.

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
        "there is no profiler server; use fnx.profiler.trace(folder), whose file Perfetto opens, "
        "fnx.profile(), or fnx.jit(f).lower(*args).compile().report()"
    )


def stop_server() -> None:
    """Nothing: no server can have been started.

    >>> fnx.profiler.stop_server()
    """


_running: list[tuple[str, bool, recorder.Recorder]] = []


def start_trace(
    log_dir: str | os.PathLike,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> None:
    """Begin to record what `fnx.profile` records, which `stop_trace` writes below `log_dir`.

    The file has JAX's place, plugins/profile/TIME/HOST.trace.json.gz, and the Chrome trace event format:
    Perfetto opens it. RuntimeError if a trace is being recorded; no link is made.

    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fnx.profiler.start_trace(folder)
    ...     fnx.profiler.stop_trace()
    ...     os.listdir(f"{folder}/plugins")
    ['profile']
    """
    del profiler_options
    if _running:
        raise RuntimeError("a profile is running already; expected one at a time: call stop_trace")
    found = recorder.Recorder()
    _running.append((os.fspath(log_dir), create_perfetto_trace or create_perfetto_link, found))
    found.start()


def stop_trace() -> None:
    """End the trace and write it.

    RuntimeError if none runs; InvalidValue, a ValueError, if it was begun with an empty path.

    >>> fnx.profiler.stop_trace()
    Traceback (most recent call last):
    RuntimeError: no profile is running; expected start_trace before stop_trace
    """
    if not _running:
        raise RuntimeError("no profile is running; expected start_trace before stop_trace")
    log_dir, twice, found = _running.pop()
    found.stop()
    if not log_dir:
        raise InvalidValue("the profile has no directory to be written to")
    folder = os.path.join(log_dir, "plugins", "profile", time.strftime("%Y_%m_%d_%H_%M_%S"))
    os.makedirs(folder, exist_ok=True)
    names = [f"{platform.node() or 'host'}.trace.json.gz"]
    for name in names + ["perfetto_trace.json.gz"] * twice:
        chrome_trace.save(os.path.join(folder, name), found.events, found.threads)


@contextmanager
def trace(
    log_dir: str | os.PathLike,
    create_perfetto_link: bool = False,
    create_perfetto_trace: bool = False,
    profiler_options: ProfileOptions | None = None,
) -> Iterator[None]:
    """Within it a trace is recorded, as by `start_trace` and `stop_trace`.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with fnx.profiler.trace(folder):
    ...         x = jnp.ones(3) + 1
    ...     len(list(pathlib.Path(folder).glob("plugins/profile/*/*.trace.json.gz")))
    1
    """
    start_trace(log_dir, create_perfetto_link, create_perfetto_trace, profiler_options)
    try:
        yield
    finally:
        stop_trace()
