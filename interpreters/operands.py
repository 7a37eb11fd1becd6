"""Masks of operands: which are known, which are linear, and values at the places of a mask."""

from collections.abc import Sequence
from typing import Any

from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.errors import TypeMismatch
from fnx.core.primitive import Undefined


def typed(arrays: Sequence[Any], avals: Sequence[ShapedArray]) -> tuple[ConcreteArray, ...]:
    """Concrete results, weak where a jaxpr says so."""
    return tuple([ConcreteArray(x._value, a.weak_type) for x, a in zip(arrays, avals, strict=True)])


def check_operands(
    name: str, avals: Sequence[ShapedArray], expected: Sequence[ShapedArray]
) -> None:
    """Raise TypeMismatch unless operands have the types of a jaxpr's inputs."""
    if len(avals) != len(expected):
        raise TypeMismatch(
            f"{name} got {len(avals)} operands; its jaxpr has {len(expected)} inputs"
        )
    for k, (a, e) in enumerate(zip(avals, expected)):
        if a is not e and not a.like(e):
            raise TypeMismatch(f"operand {k} of {name} has type {a}; its jaxpr expects {e}")


def undefined(args: Sequence[Any]) -> tuple[bool, ...]:
    """Which arguments of a `transpose` rule are linear."""
    return tuple([isinstance(a, Undefined) for a in args])


def spread(mask: Sequence[bool], values: Sequence[Any], rest: Any = None) -> tuple:
    """`values` at the places where `mask` is true, `rest` elsewhere."""
    it = iter(values)
    return tuple([next(it) if m else rest for m in mask])


def only(mask: Sequence[bool], values: Sequence[Any]) -> list:
    """The values where `mask` is true."""
    return [v for v, m in zip(values, mask, strict=True) if m]


def given(values: Sequence[Any]) -> tuple[bool, ...]:
    """Which values are not None."""
    return tuple([v is not None for v in values])
