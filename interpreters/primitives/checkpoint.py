"""checkpoint: a function whose derivative keeps little and computes the rest again."""

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.backend import Backend
from fnx.core.cost import SELECTION
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, Jaxpr
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Operand, Point, Recipe
from fnx.interpreters.batching import batch_jaxpr, place_axis
from fnx.interpreters.closure_conversion import HigherOrder, with_inputs
from fnx.interpreters.jvp import jvp_jaxpr
from fnx.interpreters.linearize import transpose_jaxpr
from fnx.interpreters.operands import check_operands, given, only, spread, undefined
from fnx.interpreters.passes.compiled import run
from fnx.interpreters.reverse.residuals import split_saving
from fnx.ops.base.linear import Linear

Policy = Callable[..., bool]


@dataclass(frozen=True)
class Checkpoint(HigherOrder):
    """Call of a jaxpr whose derivative stores what `policy` says (None: only the operands).

    A `differentiated` one computes again on purpose: it stays a call of its own, so that nothing
    in it is found to be known already.
    """

    jaxpr: Jaxpr
    policy: Policy | None = field(default=None, repr=False)
    differentiated: bool = False
    backend: Backend | None = field(default=None, compare=False, repr=False)
    name = "checkpoint"
    jaxpr_fields = ("jaxpr",)

    @property
    def transparent(self) -> str:
        return "never" if self.differentiated else "final"

    def converted(self, values: tuple, more: Sequence, operands: tuple) -> tuple[Primitive, tuple]:
        return replace(self, jaxpr=with_inputs(self.jaxpr, values, 0)), (*more, *operands)

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        check_operands(self.name, avals, self.jaxpr.in_avals)
        return self.jaxpr.out_avals

    def impl(self, *values: np.ndarray) -> tuple:
        return run(self.jaxpr, self.backend, [ConcreteArray(v) for v in values])

    def lower(self, *operands: Operand) -> Recipe:
        return Call(self.jaxpr)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        jaxpr, mask = jvp_jaxpr(self.jaxpr, given(tangents))
        outs = replace(self, jaxpr=jaxpr)(*primals, *only(given(tangents), tangents))
        return outs[: len(mask)], spread(mask, outs[len(mask) :])

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        nonzero = given(tangents)
        key = ("checkpoint", nonzero, self.policy)
        parts = self.jaxpr.once(key, lambda: split_saving(self.jaxpr, nonzero, self.saves))
        n = len(self.jaxpr.outs)
        outs = replace(self, jaxpr=parts.forward)(*primals)
        kept = [primals[k] for k in parts.inputs]
        linear = replace(self, jaxpr=parts.linear, differentiated=True)
        touts = linear(*kept, *outs[n:], *only(nonzero, tangents))
        return outs[:n], spread(parts.mask, touts)

    def saves(self, eqn: Eqn) -> bool:
        """Whether the results of an equation are stored: of side effects always, which happen once."""
        if eqn.prim.effects:
            return True
        if self.policy is None:
            return False
        return bool(self.policy(eqn.prim, *[a.aval for a in eqn.inputs], **eqn.prim.params()))

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        linear, nonzero = undefined(args), given(cts)
        jaxpr, mask = transpose_jaxpr(self.jaxpr, linear, nonzero)
        values = [a for a, lin in zip(args, linear) if not lin]
        outs = replace(self, jaxpr=jaxpr)(*values, *only(nonzero, cts))
        return spread(linear, spread(mask, outs))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        jaxpr, mask = batch_jaxpr(self.jaxpr, size, given(axes))
        args = tuple([x if k is None else place_axis(size, x, k, 0) for x, k in zip(args, axes)])
        return replace(self, jaxpr=jaxpr)(*args), spread(mask, [0] * sum(mask))


@dataclass(frozen=True)
class Named(Linear):
    """The operand, under a name that policies can ask for."""

    label: str
    name = "name"
    cost = SELECTION

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (x,)

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return x

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return cts

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (self(args[0]),), axes

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        return Point(x)

    def params(self) -> dict[str, Any]:
        return {"name": self.label}
