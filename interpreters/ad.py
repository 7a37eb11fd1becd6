"""Derivatives of users' primitives, under the names of JAX's module."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

from fnx.core.aval import ShapedArray
from fnx.core.errors import MissingRule
from fnx.core.primitive import Undefined as UndefinedPrimal
from fnx.interpreters.primitives.user_primitives import Zero, primitive_jvps, primitive_transposes
from fnx.ops.structure.basic import add_any as add_jaxvals_p
from fnx.ops.structure.basic import zeros

from .jvp import JVP as JVPTrace
from .jvp import JVPTracer

__all__ = [
    "JVPTrace",
    "JVPTracer",
    "UndefinedPrimal",
    "Zero",
    "add_jaxvals",
    "add_jaxvals_p",
    "add_tangents",
    "defbilinear",
    "defjvp",
    "defjvp2",
    "deflinear",
    "deflinear2",
    "get_primitive_transpose",
    "instantiate_zeros",
    "is_undefined_primal",
    "primitive_jvps",
    "primitive_transposes",
    "zeros_like_aval",
]


def is_undefined_primal(x: Any) -> bool:
    """Whether a value in a transpose rule is a linear operand, of which only the type is known."""
    return type(x) is UndefinedPrimal


def instantiate_zeros(tangent: Any) -> Any:
    """The tangent as an array, if it is a Zero."""
    return tangent.instantiate() if isinstance(tangent, Zero) else tangent


def zeros_like_aval(aval: ShapedArray) -> Any:
    """Zeros of a type."""
    return zeros(aval)


def add_jaxvals(x: Any, y: Any) -> Any:
    """The sum of two cotangents."""
    return add_jaxvals_p(x, y)


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents, of which each may be a Zero."""
    if isinstance(x, Zero):
        return y
    return x if isinstance(y, Zero) else add_jaxvals_p(x, y)


def get_primitive_transpose(prim: Any) -> Callable:
    """The transpose rule of a primitive."""
    if prim not in primitive_transposes:
        raise MissingRule(
            f"Transpose rule (for reverse-mode differentiation) for {prim} not implemented"
        )
    return primitive_transposes[prim]


# --- rules from simpler ones ----------------------------------------------------------------------


def defjvp(prim: Any, *rules: Callable | None) -> None:
    """Register a jvp of one rule for each operand: (tangent, *operands, **params) -> tangent."""

    def jvp(primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
        out = prim.bind(*primals, **params)
        return out, _sum(out, rules, tangents, lambda rule, t: rule(t, *primals, **params))

    primitive_jvps[prim] = jvp


def defjvp2(prim: Any, *rules: Callable | None) -> None:
    """The same with rules that get the result too: (tangent, result, *operands, **params)."""

    def jvp(primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
        out = prim.bind(*primals, **params)
        return out, _sum(out, rules, tangents, lambda rule, t: rule(t, out, *primals, **params))

    primitive_jvps[prim] = jvp


def _sum(out: Any, rules: Sequence, tangents: Sequence, call: Callable) -> Any:
    parts = [
        call(rule, t)
        for rule, t in zip(rules, tangents, strict=True)
        if rule is not None and not isinstance(t, Zero)
    ]
    return reduce(add_tangents, parts, Zero.from_primal_value(out))


def _linear_jvp(prim: Any, primals: Sequence, tangents: Sequence, **params: Any) -> tuple:
    out = prim.bind(*primals, **params)
    if all(isinstance(t, Zero) for t in tangents):
        many = [Zero.from_primal_value(o) for o in (out if prim.multiple_results else [out])]
        return out, many if prim.multiple_results else many[0]
    return out, prim.bind(*map(instantiate_zeros, tangents), **params)


def deflinear(prim: Any, transpose: Callable) -> None:
    """Register the rules of a linear primitive: transpose(cotangent, **params) -> cotangents."""

    def rule(ct: Any, *args: Any, **params: Any) -> Any:
        if isinstance(ct, Zero):
            return [Zero(x.aval) for x in args]
        return transpose(ct, **params)

    deflinear2(prim, rule)


def deflinear2(prim: Any, transpose: Callable) -> None:
    """Register the rules of a linear primitive: transpose(cotangent, *operands, **params)."""
    primitive_jvps[prim] = partial(_linear_jvp, prim)

    def rule(ct: Any, *args: Any, **params: Any) -> Any:
        zero = (
            all(isinstance(c, Zero) for c in ct) if prim.multiple_results else isinstance(ct, Zero)
        )
        return [Zero(x.aval) for x in args] if zero else transpose(ct, *args, **params)

    primitive_transposes[prim] = rule


def defbilinear(prim: Any, left: Callable, right: Callable) -> None:
    """Register the rules of a product: left(cotangent, x, y, **params) is x's, right y's cotangent."""
    defjvp(
        prim,
        lambda t, x, y, **params: prim.bind(t, y, **params),
        lambda t, x, y, **params: prim.bind(x, t, **params),
    )

    def rule(ct: Any, x: Any, y: Any, **params: Any) -> tuple:
        if is_undefined_primal(x):
            return (Zero(x.aval) if isinstance(ct, Zero) else left(ct, x, y, **params)), None
        return None, (Zero(y.aval) if isinstance(ct, Zero) else right(ct, x, y, **params))

    primitive_transposes[prim] = rule
