"""What arrays say of how they lie along the axes of a mesh: what was asked for last."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import config
from fnx.core.array import ConcreteArray
from fnx.pytree import operations

used: list[bool] = []  # not empty once an array lies on several devices


def use() -> None:
    """From now on calls look how arrays lie."""
    if not used:
        used.append(True)
        for forget in config.hooks:
            forget()


def places_of(arrays: Sequence[Any]) -> tuple:
    """How arrays lie on devices; nothing if none lies on several."""
    found = tuple([getattr(x, "placed", None) for x in arrays])
    return found if any([p is not None and p.mesh.size > 1 for p in found]) else ()


def checked(run: Callable, lies: tuple) -> Callable:
    """A program that takes only arrays that lie so."""

    def fitting(leaves: Sequence[Any]) -> Any:
        return run(leaves) if places_of(leaves) == lies else NotImplemented

    fitting.unchecked = run  # type: ignore[attr-defined]
    return fitting


def placed(x: Any, place: Any) -> Any:
    """An array that says that it lies as a sharding has it along a mesh; what is traced, as it is."""
    if type(x) is not ConcreteArray or not hasattr(place, "spec"):
        return x
    out = ConcreteArray(x._value, x.weak_type)
    out.placed = place
    if not used and place.mesh.size > 1:
        use()
    return out


def placed_all(tree: Any, places: Any) -> Any:
    """The same for a tree, and a prefix of shardings; for None, and traced values, nothing."""
    places = operations.broadcast_prefix(places, tree, is_leaf=lambda d: d is None)
    leaves, structure = operations.tree_flatten(tree)
    return structure.unflatten(map(placed, leaves, places))
