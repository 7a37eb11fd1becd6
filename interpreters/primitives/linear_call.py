"""Linear functions whose transposes users give: linear_call."""

from collections.abc import Sequence
from dataclasses import field, replace

import numpy as np

from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.errors import MissingRule
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Jaxpr
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Operand, Recipe
from fnx.interpreters.batching import batch_jaxpr, place_axis
from fnx.interpreters.operands import check_operands, given, spread, undefined
from fnx.interpreters.passes.compiled import run
from fnx.ops.base.broadcast import typed_zeros


@dataclass(frozen=True)
class LinearCall(Primitive):
    """`jaxpr` of residuals and linear operands; `transposed` of residuals and cotangents of results.

    The first `residuals` operands are those that it is not linear in.
    """

    jaxpr: Jaxpr
    transposed: Jaxpr
    residuals: int = field(repr=False)
    name = "linear_call"
    multiple_results = True
    jaxpr_fields = ("jaxpr", "transposed")
    transparent = "final"

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        check_operands("linear_call", avals, self.jaxpr.in_avals)
        return self.jaxpr.out_avals

    def impl(self, *values: np.ndarray) -> tuple:
        return run(self.jaxpr, None, [ConcreteArray(v) for v in values])

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        n = self.residuals
        if any(given(tangents[:n])):
            raise MissingRule(
                "linear_call has no derivative by its residual arguments; expected derivatives by the "
                "linear ones alone: use lax.stop_gradient, or custom_jvp"
            )
        slopes = [
            typed_zeros(x.aval) if t is None else t
            for x, t in zip(primals[n:], tangents[n:], strict=True)
        ]
        return self.apply(*primals), self.apply(*primals[:n], *slopes)

    def transpose(self, cts: tuple, *args: object) -> Sequence:
        n = self.residuals
        full = [
            typed_zeros(a) if ct is None else ct
            for ct, a in zip(cts, self.jaxpr.out_avals, strict=True)
        ]
        turned = replace(self, jaxpr=self.transposed, transposed=self.jaxpr)
        outs = turned.apply(*args[:n], *full)  # type: ignore[arg-type]
        linear = undefined(args)
        return spread(linear, [x for x, lin in zip(outs, linear[n:], strict=True) if lin])

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        n = self.residuals
        rows = [place_axis(size, x, k, 0) for x, k in zip(args, axes, strict=True)]
        forward, outs_of = batch_jaxpr(self.jaxpr, size, (True,) * len(args), True)
        back, _ = batch_jaxpr(self.transposed, size, (True,) * (n + len(outs_of)), True)
        outs = LinearCall(forward, back, n).apply(*rows)
        return outs, (0,) * len(outs)

    def lower(self, *operands: Operand) -> Recipe:
        return Call(self.jaxpr)
