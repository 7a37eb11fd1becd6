"""Types of users that vmap maps by rules of their own, under JAX's names."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fnx.core.errors import MissingRule


class Vmappable(NamedTuple):
    """How the element of a value of a type is made, and of elements a value with a batch axis."""

    to_elt: Callable  # (of an array and its axis the element's, _, value, axis) -> element
    from_elt: (
        Callable  # (of size, an element's array and an axis all, size, element, axis) -> value
    )


vmappables: dict[type, Vmappable] = {}


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable,
    from_elt: Callable,
    make_iota: Callable | None,
) -> None:
    """Let vmap map values of a type by its own rules, along axes that are integers."""
    if spec_type is not int or axis_size_type is not int or make_iota is not None:
        raise MissingRule(
            f"register_vmappable of {data_type.__name__} with axes of type {spec_type.__name__} and "
            f"sizes of type {axis_size_type.__name__}: vmap has integers for both; give int, int, "
            "and None for make_iota"
        )
    vmappables[data_type] = Vmappable(to_elt, from_elt)


def unregister_vmappable(data_type: type) -> None:
    """Forget the rules of a type, whose values are pytrees again, if they were."""
    vmappables.pop(data_type, None)


def is_vmappable(x: Any) -> bool:
    """Whether the type of a value is registered."""
    return type(x) in vmappables
