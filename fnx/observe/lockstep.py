"""Members of a named axis run side by side, one at a time, from one collective to the next.

Each is a thread, so that debuggers stop in it; a member runs until it comes to a collective, then the next
does. When all are there the collective is computed for all at once, by its rule for vmap.
"""

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

from fnx.core.array import Array
from fnx.core.axis_size import axis_name_of
from fnx.core.errors import FnxError
from fnx.core.interpreter import Interpreter, current, use
from fnx.core.primitive import Primitive
from fnx.interpreters.batching import axis_names
from fnx.ops.base.permute import Reshape, move_axis
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import slice_axis


class Quiet:
    """Between `begin` and `end` debuggers do not stop."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], Any]] = []

    def begin(self) -> None:
        import pdb  # noqa: F401  # what is silenced must be there

        trace, hook = sys.gettrace(), sys.breakpointhook
        self.undo.append(lambda: sys.settrace(trace))
        self.undo.append(lambda: setattr(sys, "breakpointhook", hook))
        for module in [sys.modules[n] for n in ("pdb", "ipdb", "pudb") if n in sys.modules]:
            stop = module.set_trace
            self.undo.append(partial(setattr, module, "set_trace", stop))
            module.set_trace = _do_not_stop  # type: ignore[attr-defined]
        monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
        if monitoring is not None and monitoring.get_tool(monitoring.DEBUGGER_ID) is not None:
            tool = monitoring.DEBUGGER_ID
            events = monitoring.get_events(tool)
            self.undo.append(lambda: monitoring.set_events(tool, events))
            monitoring.set_events(tool, 0)
        sys.breakpointhook = _do_not_stop
        sys.settrace(None)

    def end(self) -> None:
        while self.undo:
            self.undo.pop()()


def _do_not_stop(*args: Any, **kwargs: Any) -> None:
    pass


class Disagreement(FnxError, RuntimeError):
    """Members of a named axis came to different collectives."""


class _Ended(BaseException):
    """Ends a member whose others failed."""


class _Member(Interpreter):
    """One member's program: collectives over its axis are asked of all members together."""

    what = "the program of one member"

    def __init__(self, parent: Interpreter, size: int, ask: Callable[[Primitive, tuple], tuple]):
        self.parent: Interpreter = parent
        self.size, self.axis_name, self.ask = size, axis_name_of(size), ask

    def process(self, prim: Any, args: tuple) -> tuple:
        if self.axis_name not in axis_names(prim):
            return self.parent.process(prim, args)
        return self.ask(prim, args)


class _Thread:
    """A member's thread, which runs when it is asked to, up to its next collective."""

    def __init__(self, program: Callable[["_Thread"], Any]):
        self.given: SimpleQueue = SimpleQueue()
        self.said: SimpleQueue = SimpleQueue()
        self.quiet: Quiet | None = None
        trace = sys.gettrace()

        def run() -> None:
            try:
                self.wait()
                sys.settrace(trace)
                answer = "done", program(self)
            except BaseException as error:
                answer = "failed", error
            finally:
                sys.settrace(None)
            self.said.put(answer)

        thread = threading.Thread(target=copy_context().run, args=(run,), daemon=True)
        thread.start()

    def wait(self) -> Any:
        value = self.given.get()
        if value is _Ended:
            raise _Ended
        return value

    def ask(self, prim: Primitive, args: tuple) -> tuple:
        """In the thread: what all members together make of a collective."""
        quiet = self.quiet
        if quiet is not None:
            quiet.end()
        self.said.put(("asks", (prim, args)))
        outs = self.wait()
        if quiet is not None:
            quiet.begin()
        return outs

    def go_on(self, value: Any) -> tuple[str, Any]:
        """From outside: run up to the next collective, or the end."""
        self.given.put(value)
        return self.said.get()

    @contextmanager
    def silent(self) -> Iterator[None]:
        self.quiet = Quiet()
        self.quiet.begin()
        try:
            yield
        finally:
            self.quiet.end()


def run_in_lockstep(
    fn: Callable, size: int, given: Callable[[int], list], seen: Sequence[int], at: Callable
) -> list[list[Array]]:
    """Results of all members; debuggers stop in those that are `seen`."""
    parent = current.get()

    def program(k: int, thread: _Thread) -> Any:
        with use(_Member(parent, size, thread.ask)), at(k):
            if k in seen:
                return fn(*given(k))
            with thread.silent():
                return fn(*given(k))

    threads = [_Thread(partial(program, k)) for k in range(size)]
    running = list(range(size))
    answers: list[Any] = [None] * size
    results: list[Any] = [None] * size
    try:
        while True:
            asked = {}
            for k in list(running):
                kind, value = threads[k].go_on(answers[k])
                if kind == "asks":
                    asked[k] = value
                    continue
                running.remove(k)
                if kind == "failed":
                    raise value
                results[k] = value
            if not asked:
                return results
            if len(asked) < size:
                raise _disagreement({k: asked.get(k) for k in range(size)})
            answers = _together(size, asked)
    finally:
        for k in running:
            threads[k].go_on(_Ended)


def _together(size: int, asked: dict[int, tuple[Primitive, tuple]]) -> list[tuple]:
    """What a collective gives to each member."""
    calls = [asked[k] for k in range(size)]
    prim = calls[0][0]
    kinds = [(type(p), [a.aval.shape for a in args]) for p, args in calls]
    if any(kind != kinds[0] for kind in kinds):
        raise _disagreement(dict(enumerate(calls)))
    columns = list(zip(*[args for _, args in calls], strict=True))
    same = [all(x is column[0] for x in column) for column in columns]
    values = [c[0] if s else _stacked(c) for c, s in zip(columns, same)]
    outs, axes = prim.batch(size, tuple(values), tuple([None if s else 0 for s in same]))
    rows = [x if a is None else move_axis(x, a, 0) for x, a in zip(outs, axes)]
    return [
        tuple([x if a is None else _row(x, k) for x, a in zip(rows, axes)]) for k in range(size)
    ]


def _stacked(xs: Sequence[Array]) -> Array:
    return Concatenate(0)(*[Reshape((1, *x.shape))(x) for x in xs])


def _row(x: Array, k: int) -> Array:
    return Reshape(x.shape[1:])(slice_axis(x, k, k + 1, 0))


def _disagreement(asked: dict[int, Any]) -> Disagreement:
    each = [
        f"member {k} ended" if a is None else f"member {k} came to {a[0].name}"
        for k, a in asked.items()
    ]
    return Disagreement(
        f"members of one axis came to different collectives: {'; '.join(each[:8])}. Expected the same "
        "collectives in the same order in all of them."
    )


__all__ = ["Quiet", "run_in_lockstep"]
