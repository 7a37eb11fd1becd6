"""Arrays whose parts lie in several processes: each holds those of its own devices."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.buffer import Buffer
from fnx.core.errors import InvalidValue
from fnx.process import placement
from fnx.process.devices import Device, process_index, ranks


class Spread(Buffer):
    """The parts of an array that are in this process, by their devices."""

    def __init__(self, shape: Any, dtype: np.dtype, sharding: Any, parts: Mapping[Device, Any]):
        super().__init__(tuple(shape), dtype)
        self.sharding, self.parts = sharding, dict(parts)

    def fetch(self) -> np.ndarray:
        """The numbers, if all are here; InvalidValue, which says how to get them, if not."""
        indices = self.sharding.devices_indices_map(self.shape)
        here = {str(indices[d]) for d in self.parts}
        if here != set(map(str, indices.values())):
            raise InvalidValue(
                f"an array of shape {self.shape} and dtype {self.dtype} lies in several processes, as "
                f"{self.sharding} says; process {process_index()} has {len(here)} of its parts "
                f"({self.text()}). For all of it, in every process, call "
                "fnx.experimental.multihost_utils.process_allgather(x, tiled=True); what is here are "
                "x.addressable_shards; to compute with it call a function under fnx.jit."
            )
        whole = np.empty(self.shape, self.dtype)
        for device, part in self.parts.items():
            whole[indices[device]] = part
        return whole

    def text(self) -> str:
        """Where the parts that are here lie."""
        indices = self.sharding.devices_indices_map(self.shape)
        return "; ".join(dict.fromkeys([place_text(indices[d]) for d in self.parts]))

    def shown(self) -> str | None:
        """What is here, where that is not all."""
        indices = self.sharding.devices_indices_map(self.shape)
        seen = {place_text(indices[d]): part for d, part in self.parts.items()}
        if len(seen) == len(set(map(place_text, indices.values()))):
            return None
        kind = f"shape={self.shape}, dtype={self.dtype}"
        lines = [f"Array({kind}, parts in process {process_index()}:"]
        for place, part in seen.items():
            text = np.array2string(np.asarray(part), prefix="  ", separator=", ", threshold=100)
            lines.append(f"  {place}: {text}")
        return "\n".join(lines) + ")"


def place_text(index: tuple[slice, ...]) -> str:
    """An index as it is written."""
    axes = [":" if i == slice(None) else f"{i.start}:{i.stop}" for i in index]
    return f"[{', '.join(axes)}]"


def spans(sharding: Any) -> bool:
    """Whether arrays that lie so have parts in other processes."""
    mesh = getattr(sharding, "mesh", None)
    return hasattr(mesh, "devices") and mesh_spans(mesh)


def mesh_spans(mesh: Any) -> bool:
    """Whether a mesh has devices of other processes."""
    if not ranks:
        return False
    own = process_index()
    return any(getattr(d, "process_index", own) != own for d in mesh.devices.flat)


def is_spread(x: Any) -> bool:
    return type(x) is ConcreteArray and type(x._value) is Spread


def spread(
    shape: Any, dtype: np.dtype, sharding: Any, part_at: Callable, weak_type: bool = False
) -> Array:
    """The array whose part at an index `part_at` gives, asked for the parts of this process."""
    own, found, made = process_index(), {}, {}
    for device, index in sharding.devices_indices_map(shape).items():
        if device.process_index != own:
            continue
        if str(index) not in made:
            made[str(index)] = np.array(part_at(index), dtype, order="C")
        found[device] = made[str(index)]
    return of_parts(shape, dtype, sharding, found, weak_type)


def put(x: Any, sharding: Any) -> Array:
    """An array that all processes have, or that lies in several, as one that lies so."""
    value = x._value
    if type(value) is Spread:
        if value.sharding == sharding:
            return x
        value = gathered(x)
    return spread(x.shape, x.dtype, sharding, lambda index: value[(*index, ...)], x.weak_type)


def of_parts(
    shape: Any, dtype: np.dtype, sharding: Any, parts: Mapping[Device, Any], weak_type: bool = False
) -> Array:
    """The array of which these are the parts on devices of this process."""
    placement.use()
    out = ConcreteArray(Spread(shape, dtype, sharding, parts), weak_type)  # type: ignore[arg-type]
    out.placed = sharding
    return out


def gathered(x: Any) -> np.ndarray:
    """All of an array whose parts lie in several processes, which all call this."""
    value = x._value
    indices = value.sharding.devices_indices_map(value.shape)
    mine = np.stack([*value.parts.values()])
    rows = ranks[0].all_gather(mine).reshape(-1, *mine.shape[1:])
    by_process: dict[int, list] = {}
    for device in indices:
        by_process.setdefault(device.process_index, []).append(device)
    whole = np.empty(value.shape, value.dtype)
    each = len(value.parts)
    for process, own in by_process.items():
        for k, device in enumerate(own):
            whole[indices[device]] = rows[process * each + k]
    return whole


__all__ = [
    "Spread",
    "gathered",
    "is_spread",
    "mesh_spans",
    "of_parts",
    "place_text",
    "spans",
    "spread",
]
