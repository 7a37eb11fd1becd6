"""Evaluation of what is known, and a jaxpr of the rest, under the names of JAX's module.

The dicts of rules are for programs that register some: primitives of fnx that carry jaxprs define
`linearize`, and equations that nobody reads are dropped, so that the rules are never asked for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.interpreter import current, use
from fnx.core.jaxpr import Jaxpr
from fnx.interpreters.passes.dce import dce, used_inputs

from .linearize import Tape
from .trace import Stage
from .trace import StageTracer as DynamicJaxprTracer

__all__ = [
    "DynamicJaxprTracer",
    "JaxprTracer",
    "PartialVal",
    "custom_partial_eval_rules",
    "dce_jaxpr",
    "dce_rules",
    "partial_eval_jaxpr_custom_rules",
    "trace_to_jaxpr_nounits",
]

JaxprTracer = DynamicJaxprTracer
custom_partial_eval_rules: dict[Any, Callable] = {}
partial_eval_jaxpr_custom_rules: dict[Any, Callable] = {}
dce_rules: dict[Any, Callable] = {}


def dce_jaxpr(
    jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False
) -> tuple[Jaxpr, list[bool]]:
    """The jaxpr with some of its outputs alone, and the inputs that these need; which inputs those are.

    Inputs that are to be kept although nobody reads them are those of `instantiate`.
    """
    small = dce(jaxpr, list(used_outputs))
    n = jaxpr.consts
    keep = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    used = [u or k for u, k in zip(used_inputs(small), [False] * n + keep, strict=True)]
    inputs = [v for v, u in zip(small.inputs, used) if u]
    return Jaxpr(inputs, small.eqns, small.outs, sum(used[:n]), jaxpr.name), used[n:]


@dataclass(frozen=True)
class PartialVal:
    """A value that is known, or of which only the type is; as a pair, (type or None, value or None)."""

    aval: ShapedArray | None
    value: Array | None

    @staticmethod
    def known(value: Any) -> "PartialVal":
        """A value."""
        return PartialVal(None, value if _is_keys(value) else as_array(value))

    @staticmethod
    def unknown(aval: ShapedArray) -> "PartialVal":
        """One of which only the type is known."""
        return PartialVal(aval, None)

    def is_known(self) -> bool:
        """Whether there is a value."""
        return self.aval is None

    def get_known(self) -> Array | None:
        """The value, if it is known."""
        return self.value

    def get_aval(self) -> ShapedArray:
        """The type of the value."""
        return self.value.aval if self.aval is None else self.aval  # type: ignore[union-attr]

    def __iter__(self) -> Any:
        return iter((self.aval, self.value))


def _is_keys(x: Any) -> bool:
    return getattr(type(x), "holds_keys", False)


def _input(stage: Stage, aval: ShapedArray) -> tuple[Any, Any]:
    """The tracer of an unknown value, and what the function gets: keys are made of the tracer's words."""
    dtype: Any = aval.dtype
    if getattr(dtype, "extended", None) != "prng_key":
        return (tracer := stage.new_input(aval)), tracer
    tracer = stage.new_input(ShapedArray((*aval.shape, dtype.words), np.dtype("u4")))
    return tracer, dtype.over(tracer, dtype)


def trace_to_jaxpr_nounits(
    fun: Any, pvals: Sequence[PartialVal], instantiate: bool = False
) -> tuple[Jaxpr, list[PartialVal], list[Array]]:
    """Evaluate what depends on known values alone of a `linear_util` function of arrays.

    Returns a jaxpr of the rest (its first inputs are what it closed over), from the unknown inputs to
    the unknown results; the results; and what the jaxpr closed over. With `instantiate` no result is
    known. Keys are arrays of words in the jaxpr.
    """
    stage = Stage("partial evaluation", parent=current.get())
    given = [(None, p.value) if p.is_known() else _input(stage, p.get_aval()) for p in pvals]
    with use(stage):
        results = [
            o if _is_keys(o) else as_array(o) for o in fun.call_wrapped(*[x for _, x in given])
        ]
    stage.ended = True
    outs = [o.words if _is_keys(o) else o for o in results]
    mine = [type(o) is DynamicJaxprTracer and o.owner is stage for o in outs]
    atoms = [stage.atom(o) if m or instantiate else None for o, m in zip(outs, mine)]
    inputs = [None if tracer is None else tracer._var for tracer, _ in given]
    jaxpr, consts, _ = Tape(inputs, stage.eqns, atoms).close()
    jaxpr = Jaxpr(jaxpr.inputs, jaxpr.eqns, jaxpr.outs, len(consts))
    found = [
        PartialVal.known(o)
        if atom is None
        else PartialVal.unknown(ShapedArray(o.shape, o.dtype) if _is_keys(o) else o.aval)
        for o, atom in zip(results, atoms)
    ]
    return jaxpr, found, consts
