"""Jaxprs that look at the results of every operation as they run, bodies of loops and branches included."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Eqn, Jaxpr
from fnx.core.primitive import Primitive
from fnx.core.source import Source
from fnx.interpreters.rewrite import with_jaxprs

# Looks at an operation's name, line, operands and results, and raises where it does not like them.
Look = Callable[[str, Source | None, Sequence[Array], Sequence[Array]], None]


@dataclass(frozen=True)
class Watched(Primitive):
    """An operation whose operands and results are looked at when it was computed."""

    inner: Primitive
    look: Look = field(repr=False)
    source: Source | None = field(default=None, repr=False)
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
        outs = self.inner.impl(*values)
        results = outs if isinstance(outs, tuple) else (outs,)
        given = [ConcreteArray(v) for v in values]
        found = [x if isinstance(x, Array) else ConcreteArray(np.asarray(x)) for x in results]
        self.look(self.inner.name, self.source, given, found)
        return outs


def watched(jaxpr: Jaxpr, look: Look) -> Jaxpr:
    """The jaxpr, with each operation in it, at whatever depth, looked at."""
    return jaxpr.with_eqns(
        [
            Eqn(Watched(_within(e.prim, look), look, e.source), e.inputs, e.outs, e.source)
            for e in jaxpr.eqns
        ]
    )


def _within(prim: Primitive, look: Look) -> Primitive:
    """A primitive whose jaxprs are watched; of a program of members, the call that is the same."""
    as_call = getattr(prim, "as_call", None)
    prim = prim if as_call is None else as_call()
    return with_jaxprs(prim, lambda jaxpr: watched(jaxpr, look))


def run_watched(prim: Primitive, args: Sequence[Array], look: Look) -> None:
    """Compute an operation with jaxprs again, step by step, each looked at."""
    with use(evaluate), config.disable_jit(True):
        evaluate.process(_within(prim, look), tuple(args))


__all__ = ["Watched", "run_watched", "watched"]
