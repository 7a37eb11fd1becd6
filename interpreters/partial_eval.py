"""Names of JAX's partial evaluation, which fnx does not have, for programs that register rules with it.

Primitives that carry jaxprs define `linearize`, and equations that nobody reads are dropped, so that
the rules are never asked for.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.jaxpr import Jaxpr

from .simplify import dce, used_inputs
from .trace import StageTracer as DynamicJaxprTracer

__all__ = [
    "DynamicJaxprTracer",
    "JaxprTracer",
    "custom_partial_eval_rules",
    "dce_jaxpr",
    "dce_rules",
    "partial_eval_jaxpr_custom_rules",
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
