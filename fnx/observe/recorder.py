"""What is traced, transformed, compiled and run while somebody records it.

Functions of other rooms are replaced where they are bound, while there is a recorder, and put back
after the last one: calls that nobody records take the way that they always take.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple

from fnx.core import config
from fnx.core.jaxpr import Jaxpr
from fnx.core.source import name_of
from fnx.core.threads.fork_safety import fork_safe
from fnx.interpreters import batching, jvp, linearize
from fnx.interpreters.passes import compiled as compiled_
from fnx.interpreters.passes import simplify as simplify_
from fnx.process.retraces import History
from fnx.transforms.jit import Jitted
from fnx.transforms.traced_program import NamedBackend

MOST = 200_000  # events that are kept; those after them are counted

# What is recorded as a transformation: where the function is, and what people call it.
_TRANSFORMS = {
    (simplify_, "simplify"): "simplify",
    (linearize, "linearize"): "linearize",
    (linearize, "linearize_jaxpr"): "linearize",
    (linearize, "transpose_jaxpr"): "transpose",
    (jvp, "jvp"): "jvp",
    (jvp, "jvp_jaxpr"): "jvp",
    (batching, "batch"): "vmap",
    (batching, "batch_jaxpr"): "vmap",
}


class Event(NamedTuple):
    """Something that took time: `start` is in seconds since the recorder began."""

    kind: str  # trace, transform, compile, pass, run, mark
    name: str
    start: float
    seconds: float
    thread: int
    depth: int  # how many others it lies in
    about: dict[str, Any]


class Work:
    """What was done for one jaxpr: how often, and for how many seconds."""

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr
        self.native: Any = None
        self.count = dict.fromkeys(("trace", "compile", "run"), 0)
        self.seconds = dict.fromkeys(("trace", "compile", "run"), 0.0)


class Recorder:
    """Keeps what happens between `start` and `stop`."""

    def __init__(self) -> None:
        self.started = self.ended = 0.0
        self.events: list[Event] = []
        self.left_out = 0
        self.works: dict[int, Work] = {}
        self.own: dict[str, float] = {}  # seconds of each kind, less what lies inside of it
        self.transforms: dict[str, tuple[int, float]] = {}  # how many, and their own seconds
        self.threads: dict[int, str] = {}
        self.history = History()
        self.notes: list[str] = []

    @property
    def seconds(self) -> float:
        """How long was recorded."""
        return (self.ended or time.perf_counter()) - self.started

    def start(self) -> None:
        _join(self)
        self.started = time.perf_counter()

    def stop(self) -> None:
        self.ended = time.perf_counter()
        _leave(self)

    def add(self, event: Event, own: float, jaxpr: Jaxpr | None, native: Any = None) -> None:
        """Keep what happened; `event.start` is what the clock said."""
        if self.ended or not 0.0 < self.started <= event.start:  # it began when nobody recorded
            return
        with _lock:
            self.own[event.kind] = self.own.get(event.kind, 0.0) + own
            if event.kind == "transform":
                count, seconds = self.transforms.get(event.name, (0, 0.0))
                self.transforms[event.name] = count + 1, seconds + own
            elif jaxpr is not None:
                work = self.works.get(id(jaxpr))
                if work is None:
                    work = self.works[id(jaxpr)] = Work(jaxpr)
                work.count[event.kind] += 1
                work.seconds[event.kind] += event.seconds
                work.native = native or work.native
            self.keep(event)

    def keep(self, event: Event) -> None:
        """Put an event into the list, if there is room."""
        if len(self.events) >= MOST:
            self.left_out += 1
            return
        if event.thread not in self.threads:
            self.threads[event.thread] = threading.current_thread().name
        kind, name, start, seconds, thread, depth, about = event
        self.events.append(Event(kind, name, start - self.started, seconds, thread, depth, about))


class _Local(threading.local):
    """What a thread is doing: the seconds inside of each open event, innermost last."""

    def __init__(self) -> None:
        self.inside: list[float] = []
        self.muted = False
        self.compiling: Jaxpr | None = None


_local = _Local()
_recorders: list[Recorder] = []
_lock = fork_safe(threading.RLock())


@contextmanager
def muted() -> Iterator[None]:
    """Within it nothing that this thread does is recorded."""
    before, _local.muted = _local.muted, True
    try:
        yield
    finally:
        _local.muted = before


def is_recording() -> bool:
    """Whether somebody records what this thread does."""
    return bool(_recorders) and not _local.muted


def timed(
    kind: str,
    name: str,
    jaxpr: Jaxpr | None,
    native: Any,
    call: Callable,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """What a call gives, which is recorded."""
    if not is_recording():
        return call(*args, **kwargs)
    inside = _local.inside
    inside.append(0.0)
    found: Any = None
    start = time.perf_counter()
    try:
        found = call(*args, **kwargs)
        return found
    finally:
        seconds = time.perf_counter() - start
        own = seconds - inside.pop()
        if inside:
            inside[-1] += seconds
        event = Event(kind, name, start, seconds, threading.get_ident(), len(inside), {})
        if found is not NotImplemented:  # leaves that did not fit: the call comes again
            _tell(event, own, jaxpr, native, found)


def _tell(event: Event, own: float, jaxpr: Jaxpr | None, native: Any, found: Any) -> None:
    if event.kind == "trace" and found is not None:
        jaxpr = found.jaxpr
    passes: dict[str, float] = {}
    if event.kind == "compile":
        passes = dict(getattr(found, "seconds", {}))
        event = event._replace(about=passes)
    began = getattr(found, "began", {})
    inner = event._replace(kind="pass", depth=event.depth + 1, about={})
    for recorder in tuple(_recorders):
        recorder.add(event, own, jaxpr, native)
        end = event.start + event.seconds
        for name, seconds in reversed(passes.items()):
            end = began.get(name, end - seconds)
            recorder.keep(inner._replace(name=name, start=end, seconds=seconds))


def mark(name: str, start: float, inside: float, about: dict[str, Any]) -> None:
    """Record what the user marked, which ends now."""
    end = time.perf_counter()
    event = Event(
        "mark", str(name), start, end - start, threading.get_ident(), len(_local.inside), about
    )
    for recorder in tuple(_recorders):
        recorder.add(event, end - start - inside, None)


def open_mark() -> float:
    """Begin what `close_mark` ends: the time."""
    _local.inside.append(0.0)
    return time.perf_counter()


def close_mark(name: str, start: float, about: dict[str, Any]) -> None:
    """Record what the user marked."""
    inside = _local.inside.pop() if _local.inside else 0.0  # opened by another thread
    if _local.inside:
        _local.inside[-1] += time.perf_counter() - start
    if not _local.muted:
        mark(name, start, inside, about)


# --- what is replaced -------------------------------------------------------------------------


class _Timed:
    """A native function whose calls are recorded."""

    def __init__(self, native: Any, jaxpr: Jaxpr):
        self._native, self._jaxpr = native, jaxpr

    def __call__(self, args: Any) -> Any:
        return timed("run", self._name, self._jaxpr, self._native, self._native, args)

    @property
    def _name(self) -> str:
        return self._jaxpr.name or "program"

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._native, name)
        if name != "fast":
            return found
        native, jaxpr, label = self._native, self._jaxpr, self._name
        return lambda leaves: timed("run", label, jaxpr, native, found, leaves)


def _compiled(jaxpr: Jaxpr, *args: Any, **kwargs: Any) -> Any:
    """The native function of a jaxpr; of one that runs in pieces, the whole."""
    outer = _local.compiling
    if outer is not None or not is_recording():
        return _original_compiled(jaxpr, *args, **kwargs)
    _local.compiling = jaxpr
    try:
        return _Timed(_original_compiled(jaxpr, *args, **kwargs), jaxpr)
    finally:
        _local.compiling = None


_original_compiled = compiled_.compiled
_original_compile = NamedBackend.compile
_original_trace = Jitted._trace


def _compile(self: NamedBackend, jaxpr: Jaxpr, *args: Any, **kwargs: Any) -> Any:
    owner = _local.compiling or jaxpr
    name = jaxpr.name or "program"
    return timed("compile", name, owner, None, _original_compile, self, jaxpr, *args, **kwargs)


def _trace(self: Jitted, avals: tuple, treedef: Any, fixed: tuple, lies: tuple = ()) -> Any:
    name = name_of(self.fun)
    found = timed("trace", name, None, None, _original_trace, self, avals, treedef, fixed, lies)
    if is_recording():
        for recorder in tuple(_recorders):
            note = recorder.history.note(self.fun, self.static, (treedef, fixed, avals))
            recorder.notes += [note] if note else []
    return found


def _transform(label: str, original: Callable) -> Callable:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return timed("transform", label, None, None, original, *args, **kwargs)

    return call


_replaced: dict[int, tuple[Any, Any]] = {}  # by identity: what was there, and what is there now


def _join(recorder: Recorder) -> None:
    with _lock:
        if not _recorders:
            _replace()
        _recorders.append(recorder)


def _leave(recorder: Recorder) -> None:
    with _lock:
        _recorders.remove(recorder)
        if not _recorders:
            _put_back()


def _replace() -> None:
    pairs: list[tuple[Any, Any]] = [(_original_compiled, _compiled)]
    for (module, name), label in _TRANSFORMS.items():
        original = getattr(module, name)
        pairs.append((original, _transform(label, original)))
    _replaced.update({id(old): (old, new) for old, new in pairs})
    _swap({id(old): new for old, new in pairs})
    NamedBackend.compile = _compile  # type: ignore[method-assign]
    Jitted._trace = _trace  # type: ignore[assignment, method-assign]
    _look_up_anew()


def _put_back() -> None:
    _swap({id(new): old for old, new in _replaced.values()})
    _replaced.clear()
    NamedBackend.compile = _original_compile  # type: ignore[method-assign]
    Jitted._trace = _original_trace  # type: ignore[method-assign]
    _look_up_anew()


def _swap(wanted: dict[int, Any]) -> None:
    """Bind other objects wherever fnx's modules, but those here, have a name for some."""
    for name, module in list(sys.modules.items()):
        if not name.startswith("fnx.") or name == __name__ or module is None:
            continue
        names = list(vars(module).items())
        if wanted.keys().isdisjoint([id(value) for _, value in names]):  # as for most
            continue
        for attribute, value in names:
            if id(value) in wanted:
                setattr(module, attribute, wanted[id(value)])


def _look_up_anew() -> None:
    """Let jitted functions forget which native functions they called last."""
    for hook in config.hooks:
        hook()


__all__ = ["Event", "Recorder", "Work", "close_mark", "is_recording", "muted", "open_mark", "timed"]
