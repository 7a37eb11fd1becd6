"""`jax.experimental.hijax`: types of a library's own, whose values are Python objects here.

flax defines some for variables with `hijax=True`, which is not its default.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from fnx.core.array import objects
from fnx.core.aval import ShapedArray
from fnx.core.errors import MissingRule
from fnx.interpreters.ad import Zero, instantiate_zeros, is_undefined_primal
from fnx.ref import AbstractRef
from fnx.transforms.scopes import types_of_libraries

__all__ = ["AbstractRef", "ShapedArray", "Zero", "instantiate_zeros", "is_undefined_primal"]

AbstractValue = ShapedArray  # flax: the only types there are


class aval_property(NamedTuple):  # flax
    """What a value of such a type has as a property."""

    fget: Callable


class aval_method(NamedTuple):  # flax
    """What a value of such a type has as a method."""

    fun: Callable


class HiType:  # flax
    """Base of such types."""


class MutableHiType(HiType):  # flax
    """Base of such types of what changes."""


class HiPrimitive:  # flax
    """Base of operations on values of such types, which run as they are bound.

    Their values are Python objects that hold arrays: operations may make, read and change them, also
    within what is traced. What fnx traces are arrays, so such values are no arguments or results of
    jitted functions, derivatives and loops, whose errors say so.
    """

    multiple_results = False

    def __init__(self, name: str):
        self.name = name

    def bind(self, *args: Any, **params: Any) -> Any:
        """What `impl` of the class makes of values and parameters."""
        return self.impl(*args, **params)

    def impl(self, *args: Any, **params: Any) -> Any:
        """NotImplementedError, where a library has not said what its operation does."""
        raise MissingRule(f"{self.name} has no impl, and cannot be bound to values")


class _EffectTypes:
    def __init__(self) -> None:
        self.types: list[type] = []

    def add_type(self, effect_type: type) -> None:
        self.types.append(effect_type)

    def contains(self, effect: Any) -> bool:
        return isinstance(effect, tuple(self.types))


control_flow_allowed_effects = _EffectTypes()  # flax: of primitives that are none of fnx's


def register_hitype(value_type: type, typeof: Callable) -> None:  # flax
    """What `jax.typeof` says of the values of a class, which are no arguments of what is traced."""
    types_of_libraries[value_type] = typeof
    objects.add(value_type)
