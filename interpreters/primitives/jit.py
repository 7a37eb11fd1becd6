"""The jit primitive: a jaxpr that is one operation, compiled when it is evaluated."""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, ClassVar

import numpy as np

from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.backend import Backend
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Jaxpr, made_once
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Operand, Recipe
from fnx.interpreters.analysis.dependence import of_jaxpr
from fnx.interpreters.batching import batch_jaxpr, place_axis
from fnx.interpreters.closure_conversion import HigherOrder, with_inputs
from fnx.interpreters.jvp import jvp_jaxpr
from fnx.interpreters.linearize import transpose_jaxpr
from fnx.interpreters.operands import check_operands, given, only, spread, undefined
from fnx.interpreters.passes.compiled import run
from fnx.interpreters.passes.dce import dce, used_inputs
from fnx.interpreters.reverse.split_call import split_call


@made_once
def has_effects(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr must run although nobody uses its results."""
    return any(e.prim.effects for e in jaxpr.eqns)


@dataclass(frozen=True)
class Jit(HigherOrder):
    """Call of a jaxpr. `donated` lists the operands whose memory results may take."""

    jaxpr: Jaxpr
    of: str = "f"
    backend: Backend | None = field(default=None, compare=False, repr=False)
    inline: bool = field(default=False, repr=False)
    donated: tuple[int, ...] = field(default=(), repr=False)
    name = "jit"
    in_jax: ClassVar = {"jaxpr": "jaxpr", "of": "name", "inline": "inline"}
    jaxpr_fields = ("jaxpr",)
    transparent = "always"

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return has_effects(self.jaxpr)

    def with_jaxpr(self, jaxpr: Jaxpr) -> "Jit":
        """The same call of another jaxpr, whose operands are not donated."""
        return replace(self, jaxpr=jaxpr, donated=())

    def converted(self, values: tuple, more: Sequence, operands: tuple) -> tuple[Primitive, tuple]:
        return self.with_jaxpr(with_inputs(self.jaxpr, values, 0)), (*more, *operands)

    def params(self) -> dict[str, Any]:
        return {"fun": self.of, "jaxpr": self.jaxpr}

    def public_params(self) -> dict[str, Any]:
        return super().public_params() | {"name": self.of}

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        check_operands(f"jit of {self.of}", avals, self.jaxpr.in_avals)
        return self.jaxpr.out_avals

    def impl(self, *values: np.ndarray) -> tuple:
        return run(self.jaxpr, self.backend, [ConcreteArray(v) for v in values])

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        jaxpr, mask = jvp_jaxpr(self.jaxpr, given(tangents))
        outs = self.with_jaxpr(jaxpr)(*primals, *only(given(tangents), tangents))
        n = len(mask)
        return outs[:n], spread(mask, outs[n:])

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        parts = split_call(self.jaxpr, given(tangents))
        n = len(self.jaxpr.outs)
        outs = self.with_jaxpr(parts.forward)(*primals)
        kept = [primals[k] for k in parts.inputs]
        linear = self.with_jaxpr(parts.linear)
        touts = linear(*kept, *outs[n:], *only(given(tangents), tangents))
        return outs[:n], spread(parts.mask, touts)

    def independent(self, unknown: tuple[bool, ...]) -> tuple[bool, ...]:
        """Which results do not depend on some operands."""
        return tuple([not d for d in of_jaxpr(self.jaxpr, unknown)])

    def prune(self, used: tuple[bool, ...]) -> tuple["Jit", tuple, tuple]:
        """Without the results that nobody needs, and the operands that the others do not read."""
        small = dce(self.jaxpr, used)
        ins = used_inputs(small)
        if small is self.jaxpr and all(ins):
            return self, ins, used
        jaxpr = Jaxpr(only(ins, small.inputs), small.eqns, small.outs, name=small.name)
        return self.with_jaxpr(jaxpr), ins, used

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        linear, nonzero = undefined(args), given(cts)
        jaxpr, mask = transpose_jaxpr(self.jaxpr, linear, nonzero)
        values = [a for a, lin in zip(args, linear) if not lin]
        outs = self.with_jaxpr(jaxpr)(*values, *only(nonzero, cts))
        return spread(linear, spread(mask, outs))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        jaxpr, mask = batch_jaxpr(self.jaxpr, size, given(axes))
        args = [x if k is None else place_axis(size, x, k, 0) for x, k in zip(args, axes)]
        return self.with_jaxpr(jaxpr)(*args), spread(mask, [0] * sum(mask))

    def lower(self, *operands: Operand) -> Recipe:
        return Call(self.jaxpr)
