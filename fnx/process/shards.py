"""Shards: the parts of arrays that lie on devices, as a sharding has it, and arrays made of parts.

Devices of a process share its memory, so that a shard is a view of the array.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.core.fast_dataclasses import dataclass
from fnx.ops.elementwise.convert import convert
from fnx.process.devices import Device, process_index
from fnx.process.mesh import Mesh, NamedSharding, sharding_of
from fnx.process.placement import placed


@dataclass(frozen=True)
class Shard:
    """The part of an array that a device has; `replica_id` counts devices with the same part.

    >>> jnp.ones(3).addressable_shards[0].data.shape
    (3,)
    """

    device: Device
    index: tuple[slice, ...]
    replica_id: int
    data: Array


def _is_cut(sharding: Any) -> bool:
    return isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh)


def global_shards(x: Any) -> list[Shard]:
    """The parts of an array on all devices."""
    sharding = sharding_of(x)
    if not _is_cut(sharding):
        return [Shard(x.device, (slice(None),) * x.ndim, 0, x)]
    seen: dict[str, int] = {}
    found = []
    for device, index in sharding.devices_indices_map(x.shape).items():
        replica = seen[str(index)] = seen.get(str(index), -1) + 1
        place: Any = (*index, ...)
        part = ConcreteArray(np.asarray(x)[place], x.weak_type)
        found.append(Shard(device, index, replica, part))
    return found


def shards(x: Any) -> list[Shard]:
    """The parts of an array on the devices of this process."""
    return [s for s in global_shards(x) if s.device.process_index == process_index()]


def devices_of(x: Any) -> set[Device]:
    """The devices that have parts of an array."""
    return sharding_of(x).device_set


def make_array_from_callback(
    shape: Any, sharding: Any, data_callback: Callable, dtype: Any = None
) -> Array:
    """The array whose part at an index (a tuple of slices) `data_callback` gives, asked for each part once.

    ShapeError for parts of another shape.

    >>> fnx.make_array_from_callback((3,), None, lambda index: np.arange(3)[index])
    Array([0, 1, 2], dtype=int64)
    """
    shape, name = tuple(shape), "make_array_from_callback"
    if not _is_cut(sharding):
        found = _checked(data_callback((slice(None),) * len(shape)), shape, name)
        return found if dtype is None else convert(found, dtypes.canonical(dtype))
    indices = sharding.devices_indices_map(shape).values()
    given = {str(i): data_callback(i) for i in {str(i): i for i in indices}.values()}
    return _joined(shape, sharding, [given[str(i)] for i in indices], dtype, name)


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Any = None
) -> Any:
    """The leaves of a pytree, of which this process has all data, as arrays that lie as `sharding` says.

    >>> fnx.make_array_from_process_local_data(None, np.ones(2))
    Array([1., 1.], dtype=float64)
    """
    from fnx.process.devices import device_put, process_count

    if process_count() > 1:
        raise InvalidValue(
            "make_array_from_process_local_data in one of several processes: arrays do not reach over "
            "processes here. Map over the devices of all with pmap, which takes each process's own data."
        )
    del global_shape
    return device_put(local_data, sharding)


def make_array_from_single_device_arrays(
    shape: Any, sharding: Any, arrays: Sequence[Array], *, dtype: Any = None
) -> Array:
    """The array that the parts of devices make, in the order in which the sharding lists these.

    ValueError for another number of arrays than there are parts, ShapeError for other shapes.

    >>> fnx.make_array_from_single_device_arrays((2,), None, [jnp.ones(2)])
    Array([1., 1.], dtype=float64)
    """
    shape, name = tuple(shape), "make_array_from_single_device_arrays"
    if _is_cut(sharding):
        return _joined(shape, sharding, arrays, dtype, name)
    if len(arrays) != 1:
        raise InvalidValue(f"{name} of {len(arrays)} arrays; expected one, for one device")
    found = _checked(arrays[0], shape, name)
    return found if dtype is None else convert(found, dtypes.canonical(dtype))


def _joined(
    shape: tuple, sharding: NamedSharding, parts: Sequence[Any], dtype: Any, name: str
) -> Array:
    indices = list(sharding.devices_indices_map(shape).values())
    if len(parts) != len(indices):
        raise InvalidValue(f"{name} of {len(parts)} arrays; {sharding} has {len(indices)} parts")
    part = sharding.shard_shape(shape)
    arrays = [_checked(x, part, name) for x in parts]
    kind = arrays[0].dtype if dtype is None else dtypes.canonical(dtype)
    whole = np.empty(shape, kind)
    for index, x in zip(indices, arrays):
        whole[index] = np.asarray(x)
    return placed(as_array(whole), sharding)


def _checked(x: Any, shape: tuple, name: str) -> Array:
    found = as_array(x)
    if found.shape != shape:
        raise ShapeError(f"{name} got an array of shape {found.shape}; expected {shape}")
    return found


def description(x: Any) -> str:
    """A line for each part of an array: the devices that have it, its place, its shape."""
    owners: dict[str, list[Shard]] = {}
    for shard in global_shards(x):
        owners.setdefault(str(shard.index), []).append(shard)
    lines = []
    for same in owners.values():
        names = ",".join(str(s.device.id) for s in same)
        place = ", ".join(":" if i == slice(None) else f"{i.start}:{i.stop}" for i in same[0].index)
        where = f" at [{place}]" if len(owners) > 1 else ""
        lines.append(f"CPU {names}: {tuple(same[0].data.shape)}{where}\n")
    return "".join(lines)
