"""What arrays say of how they lie along the axes of a mesh: what was asked for last."""

from typing import Any

from fnx.core.array import ConcreteArray
from fnx.pytree import operations


def placed(x: Any, place: Any) -> Any:
    """An array that says that it lies as a sharding has it along a mesh; what is traced, as it is."""
    if type(x) is not ConcreteArray or not hasattr(place, "spec"):
        return x
    out = ConcreteArray(x._value, x.weak_type)
    out.placed = place
    return out


def placed_all(tree: Any, places: Any) -> Any:
    """The same for a tree, and a prefix of shardings; for None, and traced values, nothing."""
    places = operations.broadcast_prefix(places, tree, is_leaf=lambda d: d is None)
    leaves, structure = operations.tree_flatten(tree)
    return structure.unflatten(map(placed, leaves, places))
