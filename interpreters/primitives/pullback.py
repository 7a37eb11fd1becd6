"""The derivative of a function with a rule for cotangents: a linear map that is known by its transpose."""

from dataclasses import field, replace
from typing import Any

import numpy as np

from fnx.core.aval import ShapedArray
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Operand, Recipe
from fnx.interpreters.batching import place_axis
from fnx.interpreters.jvp import has_tangent
from fnx.interpreters.operands import only
from fnx.ops.base.broadcast import typed_zeros

from .batched_rules import Flat, Zeros, batched_rule


def no_forward_mode(of: str) -> Exception:
    """What forward mode through a rule for reverse mode ends in; begins as JAX's, which programs match."""
    return TypeMismatch(
        f"can't apply forward-mode autodiff (jvp, jacfwd) to the custom_vjp function {of}, whose rule is "
        "for reverse mode only. Expected grad, vjp or jacrev; or define it with custom_jvp, which "
        "serves both."
    )


@dataclass(frozen=True, eq=False)
class Pullback(Primitive):
    """The linear map whose transpose is `bwd`. Operands: residuals, tangents where `mask` is true."""

    bwd: Flat = field(repr=False)
    of: str
    residuals: int = field(repr=False)
    mask: tuple[bool, ...] = field(repr=False)
    outs: tuple[ShapedArray, ...] = field(repr=False)
    symbolic: bool = field(default=False, repr=False)
    name = "custom_vjp_pullback"
    multiple_results = True
    __eq__, __hash__ = object.__eq__, object.__hash__

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        return self.outs

    def impl(self, *values: np.ndarray) -> tuple:
        raise no_forward_mode(self.of)

    def lower(self, *operands: Operand) -> Recipe:
        raise no_forward_mode(self.of)

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        known, linear = args[: self.residuals], args[self.residuals :]
        full = [
            None if not has_tangent(a) or (ct is None and self.symbolic)
            else typed_zeros(a) if ct is None else ct
            for ct, a in zip(cts, self.outs)
        ]  # fmt: skip
        found = only(self.mask, self.bwd(*known, *full))
        found = [ct if isinstance(x, Undefined) else None for ct, x in zip(found, linear)]
        return (*(None for _ in known), *found)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        place = [place_axis(size, x, k, 0) for x, k in zip(args, axes)]
        outs = tuple([a.update(shape=(size, *a.shape)) for a in self.outs])
        bwd = batched_rule(self.bwd, size, Zeros())
        return replace(self, bwd=bwd, outs=outs).apply(*place), (0,) * len(outs)
