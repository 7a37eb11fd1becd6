"""Where arrays lie: along the axes of a mesh, as was asked for last, or on a device that they were put on.

Programs of arrays that were put on a device run there, and are of one device only.
"""

import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from fnx.core import config, lazy_imports
from fnx.core.array import Array, ConcreteArray, is_placed, see_placed, some_placed, when_placed
from fnx.core.backend import donation
from fnx.core.buffer import Buffer, described
from fnx.core.errors import MixedDevices
from fnx.core.interpreter import evaluate_by
from fnx.core.source import name_of, user_source
from fnx.pytree import key_paths, operations

used = some_placed


use = see_placed  # from now on calls look how arrays lie

# The mesh that was set (mesh.py), and how often programs have asked for it: one that did, while it was
# traced, is of that mesh.
mesh_in_force: ContextVar[Any] = ContextVar("fnx_mesh", default=None)
mesh_reads = [0]


def _operate_there() -> None:
    evaluate_by(lazy_imports.find(__name__, "at_once"))
    for forget in config.hooks:
        forget()


def places_of(arrays: Sequence[Any]) -> tuple:
    """How arrays lie on devices; nothing if none lies on several."""
    found = tuple([getattr(x, "placed", None) for x in arrays])
    return found if any([p is not None and p.mesh.size > 1 for p in found]) else ()


def checked(run: Callable, lies: tuple) -> Callable:
    """A program that takes only arrays that lie so."""

    def whole(leaves: Sequence[Any]) -> Any:
        for x in leaves:
            place = getattr(x, "placed", None)
            if place is not None and place.mesh.size > 1:
                return NotImplemented
        return run(leaves)

    def lying(leaves: Sequence[Any]) -> Any:
        return run(leaves) if places_of(leaves) == lies else NotImplemented

    fitting: Any = lying if lies else whole
    fitting.unchecked = run
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


# --- devices --------------------------------------------------------------------------------------


class HostBuffer(Buffer):
    """Numbers of a CPU device that is not the first one: in the same memory, and known as its own."""

    def __init__(self, value: Any, place: Any, origin: Any):
        super().__init__(np.shape(value), value.dtype)
        self._value, self.place, self.origin = value, place, origin

    def fetch(self) -> np.ndarray:
        return np.asarray(self._value, order="C")  # np.ascontiguousarray makes rank 1 of rank 0


def put(x: Array, place: Any) -> ConcreteArray:
    """An array of a CPU device, which knows where that was asked for."""
    value = np.asarray(x)
    if place.id == 0 and config.num_devices.value == 1:  # where arrays are anyway
        made = ConcreteArray(value, x.weak_type)
        made.put_on = Committed(place, user_source())
        return made
    return ConcreteArray(HostBuffer(value, place, user_source()), x.weak_type)  # type: ignore[arg-type]


class Committed:
    """What an array says that was put on the first device."""

    def __init__(self, place: Any, origin: Any):
        self.place, self.origin = place, origin


def place_of(x: Any) -> Any:
    """The device that an array was put on; None for one that may be anywhere."""
    value = x._value if type(x) is ConcreteArray else None
    if isinstance(value, Buffer):
        return getattr(value, "place", None)  # of parts on many devices the sharding speaks
    found = getattr(x, "put_on", None)
    return None if found is None else found.place


def run(fun: Callable, program: Any, leaves: Sequence[Array], args: tuple, kwargs: dict) -> list:
    """The results of a program, on the device of its arguments."""
    given = [*program.consts, *leaves]
    placed = [k for k, x in enumerate(given) if place_of(x) is not None]
    if not placed:
        return program(leaves)
    place = place_of(given[placed[0]])
    far = [k for k, x in enumerate(given) if is_placed(x)]
    for k in (*placed, *far):
        if place_of(given[k]) != place:
            names = _names(fun, len(program.consts), args, kwargs, len(given))
            first, other = (_told(given[j], names[j]) for j in (placed[0], k))
            raise MixedDevices(
                f"{name_of(fun)} got arrays of different devices: {first}, and {other}. Expected all on "
                "one: fnx.device_put(x, device)."
            )
    if place.platform == "gpu":
        return list(program.on("cuda")(leaves))
    outs = program(leaves)
    for k in donation(program.jaxpr, program.donated).replaced:
        if k in placed:  # others the program itself has deleted
            given[k].delete()
    if place.id == 0:  # the first CPU device, where arrays are anyway
        return outs
    origin = user_source()
    return [
        ConcreteArray(HostBuffer(np.asarray(x), place, origin), x.weak_type)  # type: ignore[arg-type]
        for x in outs
    ]


def payload(x: Any) -> Any:
    """The numbers of an array, as a buffer if it was put on a device."""
    value, put = x._value, getattr(x, "put_on", None)
    if put is None or isinstance(value, Buffer):
        return value
    return HostBuffer(value, put.place, put.origin)


def _told(x: Any, name: str) -> str:
    if is_placed(x):
        return f"{name}, {x.aval.str_short()} on the devices of {x.placed.mesh}"
    return described(payload(x), f"{name}, ")


def _names(fun: Callable, closed: int, args: tuple, kwargs: dict, count: int) -> list[str]:
    """What a program's inputs are in the words of the function's signature."""
    try:
        names = list(inspect.signature(fun).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        names = []
    found = ["an array that it closes over"] * closed
    for path, _ in operations.tree_flatten_with_path((args, kwargs))[0]:
        positional, place = path[0].idx == 0, getattr(path[1], "idx", None)
        if not positional:
            name = str(path[1].key)
        else:
            name = names[place] if place is not None and place < len(names) else f"argument {place}"
        found.append(name + key_paths.keystr(path[2:]))
    return found if len(found) == count else [f"input {k}" for k in range(count)]


when_placed(
    _operate_there
)  # last: where arrays lie elsewhere already, it imports what imports this
