"""`jax.experimental.hijax`: types of a library's own. Classes of them can be defined; none can be bound.

flax defines some for variables with `hijax=True`, which is not its default.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from fnx.core.aval import ShapedArray
from fnx.core.errors import MissingRule
from fnx.interpreters.ad import Zero, instantiate_zeros, is_undefined_primal
from fnx.ref import AbstractRef

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
    """Base of operations on values of such types, which there are none of."""

    multiple_results = False

    def __init__(self, name: str):
        self.name = name

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        """MissingRule: fnx traces arrays alone."""
        raise MissingRule(
            f"fnx has no values of a library's own types, and cannot bind {self.name}; expected arrays. "
            "With flax: hijax=False, its default."
        )


class _EffectTypes:
    def __init__(self) -> None:
        self.types: list[type] = []

    def add_type(self, effect_type: type) -> None:
        self.types.append(effect_type)

    def contains(self, effect: Any) -> bool:
        return isinstance(effect, tuple(self.types))


control_flow_allowed_effects = _EffectTypes()  # flax: of primitives that are none of fnx's
_types: dict[type, Callable] = {}


def register_hitype(value_type: type, typeof: Callable) -> None:  # flax
    """Remember the class of the values of such a type, which nothing here makes."""
    _types[value_type] = typeof
