"""Jaxprs that look at the results of every operation as they run, bodies of loops and branches included."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import field, replace
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Eqn, Jaxpr, Literal
from fnx.core.primitive import Primitive
from fnx.core.source import Source
from fnx.core.threads.atomic import setter
from fnx.interpreters.control_flow import ScanRecord, WhileRecord
from fnx.interpreters.rewrite import with_jaxprs

# Looks at an operation, its line, operands and results, and raises where it does not like them; and at
# which of the operands are numbers in the text of the program.
Look = Callable[[Primitive, Source | None, Sequence[Array], Sequence[Array], Sequence[bool]], None]


class Iteration:
    """A loop that runs, and the number of the iteration that it is in."""

    def __init__(self, loop: ScanRecord | WhileRecord):
        self.loop, self.number = loop, -1

    def __str__(self) -> str:
        loop, k = self.loop, self.number
        if isinstance(loop, ScanRecord) and loop.reverse:
            k = loop.length - 1 - k
        return f"iteration {k} of {loop.site or loop.name}"


running: ContextVar[tuple[Iteration, ...]] = ContextVar("fnx_running", default=())
_set_running = setter(running)


@dataclass(frozen=True, eq=False)
class Tick(Primitive):
    """An iteration of the innermost loop that runs begins."""

    name = "tick"
    multiple_results = True
    effects = True

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        return ()

    def impl(self, *values: np.ndarray) -> tuple:
        running.get()[-1].number += 1
        return ()

    def apply(self, *args: Array) -> tuple[Array, ...]:
        return self.impl()


@dataclass(frozen=True)
class Watched(Primitive):
    """An operation whose operands and results are looked at when it was computed."""

    inner: Primitive
    look: Look = field(repr=False)
    source: Source | None = field(default=None, repr=False)
    written: tuple[bool, ...] = field(default=(), repr=False)
    multiple_results = True

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.inner.name

    @property
    def typed_by(self) -> Any:  # type: ignore[override]
        return self.inner.typed_by

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        return self.inner.abstract(*avals)

    def impl(self, *values: np.ndarray) -> Any:
        outs = run_counting(self.inner, lambda: self.inner.impl(*values))
        results = outs if isinstance(outs, tuple) else (outs,)
        given = [ConcreteArray(v) for v in values]
        found = [x if isinstance(x, Array) else ConcreteArray(np.asarray(x)) for x in results]
        self.look(self.inner, self.source, given, found, self.written)
        kept = tuple([x if isinstance(x, Array) else f._value for x, f in zip(results, found)])
        return kept if isinstance(outs, tuple) else kept[0]  # what the look may have written to


def run_counting(prim: Primitive, run: Callable[[], Any]) -> Any:
    """What `run` gives, which runs a primitive whose iterations are counted if it is a loop."""
    if not isinstance(prim, (ScanRecord, WhileRecord)):
        return run()
    token = _set_running[(*running.get(), Iteration(prim))]
    try:
        return run()
    finally:
        running.reset(token)


def watched(jaxpr: Jaxpr, look: Look) -> Jaxpr:
    """The jaxpr, with each operation in it, at whatever depth, looked at."""
    eqns = []
    for e in jaxpr.eqns:
        written = tuple([isinstance(a, Literal) for a in e.inputs])
        prim = Watched(_within(e.prim, look), look, e.source, written)
        eqns.append(Eqn(prim, e.inputs, e.outs, e.source))
    return jaxpr.with_eqns(eqns)


def _within(prim: Primitive, look: Look) -> Primitive:
    """A primitive whose jaxprs are watched; of a program of members, the call that is the same."""
    as_call = getattr(prim, "as_call", None)
    new = with_jaxprs(prim if as_call is None else as_call(), lambda jaxpr: watched(jaxpr, look))
    if isinstance(new, ScanRecord):
        return replace(new, jaxpr=_ticking(new.jaxpr))
    if isinstance(new, WhileRecord):
        return replace(new, body_jaxpr=_ticking(new.body_jaxpr))
    return new


def _ticking(body: Jaxpr) -> Jaxpr:
    return body.with_eqns([Eqn(Tick(), (), ()), *body.eqns])


def run_watched(prim: Primitive, args: Sequence[Array], look: Look) -> tuple[Array, ...]:
    """The results of an operation with jaxprs, computed again step by step, each looked at."""
    with use(evaluate), config.disable_jit(True):
        inner = _within(prim, look)
        return run_counting(inner, lambda: evaluate.process(inner, tuple(args)))


__all__ = ["Watched", "run_watched", "running", "watched"]
