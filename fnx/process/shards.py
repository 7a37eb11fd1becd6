"""Shards: the parts of arrays that lie on devices, as a sharding has it, and arrays made of parts.

Devices of a process share its memory, so that a shard is a view of the array.
"""

import math
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.core.fast_dataclasses import dataclass
from fnx.ops.elementwise.convert import convert
from fnx.process.devices import Device, process_index
from fnx.process.mesh import Mesh, spec_names
from fnx.process.placement import placed
from fnx.process.shardings import NamedSharding, sharding_of
from fnx.process.spread import is_spread, of_parts, place_text, spans, spread
from fnx.pytree import operations


@dataclass(frozen=True)
class Shard:
    """The part of an array that a device has; `replica_id` counts devices with the same part.

    >>> jnp.ones(3).addressable_shards[0].data.shape
    (3,)
    """

    device: Device
    index: tuple[slice, ...]
    replica_id: int
    data: Array | None  # None where the device is another process's


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
        found.append(Shard(device, index, replica, _part(x, device, index)))
    return found


def _part(x: Any, device: Device, index: tuple[slice, ...]) -> Any:
    """What a device has; None for one of another process."""
    if is_spread(x):
        part = x._value.parts.get(device)
        return None if part is None else ConcreteArray(part, x.weak_type)
    place: Any = (*index, ...)
    return ConcreteArray(np.asarray(x)[place], x.weak_type)


def shards(x: Any) -> list[Shard]:
    """The parts of an array on the devices of this process."""
    return [s for s in global_shards(x) if s.device.process_index == process_index()]


def is_here(x: Any) -> bool:
    """Whether all parts of an array are in this process."""
    return not is_spread(x) or sharding_of(x).device_set == {s.device for s in shards(x)}


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
    if spans(sharding):
        kind = _dtype_of_parts(sharding, shape, data_callback, dtype)
        part = sharding.shard_shape(shape)
        at = lambda index: np.asarray(_checked(data_callback(index), part, name))
        return spread(shape, kind, sharding, at)
    indices = sharding.devices_indices_map(shape).values()
    given = {str(i): data_callback(i) for i in {str(i): i for i in indices}.values()}
    return _joined(shape, sharding, [given[str(i)] for i in indices], dtype, name)


def _dtype_of_parts(sharding: Any, shape: tuple, data_callback: Callable, dtype: Any) -> np.dtype:
    if dtype is not None:
        return dtypes.canonical(dtype)
    own = process_index()
    indices = sharding.devices_indices_map(shape).items()
    first = next(i for d, i in indices if d.process_index == own)
    return as_array(data_callback(first)).dtype


def make_array_from_process_local_data(
    sharding: Any, local_data: Any, global_shape: Any = None
) -> Any:
    """The leaves of a pytree, of which this process has its devices' part, as arrays that lie so.

    What a process has is the box that its devices' parts fill, or, if `global_shape` is its shape, all.
    `global_shape` is one shape for all leaves, or a pytree of them. ShapeError for data of another shape.

    >>> fnx.make_array_from_process_local_data(None, np.ones(2))
    Array([1., 1.], dtype=float64)
    """
    from fnx.process.devices import device_put

    leaves, structure = operations.tree_flatten(local_data)
    shapes = [global_shape] * len(leaves)
    if global_shape is not None and not all(isinstance(n, Integral) for n in global_shape):
        shapes = structure.flatten_up_to(global_shape)
    if spans(sharding):
        made = [_from_local(sharding, as_array(x), s) for x, s in zip(leaves, shapes)]
        return structure.unflatten(made)
    for x, shape in zip(leaves, shapes):
        if shape is not None and np.shape(x) != tuple(shape):
            raise ShapeError(
                f"make_array_from_process_local_data got data of shape {np.shape(x)} for an array of shape "
                f"{tuple(shape)} on one device; expected all of it"
            )
    return device_put(local_data, sharding)


def _from_local(sharding: Any, x: Array, global_shape: Any) -> Array:
    """The array of which `x` is what this process has."""
    own = process_index()
    parts = _parts_along(sharding, x.ndim)
    shape = tuple(n * len(every) // len(mine) for n, (every, mine) in zip(x.shape, parts))
    if global_shape is not None:
        shape = tuple(global_shape)
    sharding.check(x.aval.update(shape=shape))
    value = np.asarray(x)
    if x.shape == shape:
        return spread(shape, x.dtype, sharding, lambda i: value[(*i, ...)], x.weak_type)  # type: ignore
    places = [i for d, i in sharding.devices_indices_map(shape).items() if d.process_index == own]
    starts = [sorted({i[k].start or 0 for i in places}) for k in range(x.ndim)]
    sizes = sharding.shard_shape(shape)
    expected = tuple([len(s) * n for s, n in zip(starts, sizes)])
    if x.shape != expected:
        raise ShapeError(
            f"make_array_from_process_local_data got data of shape {x.shape} for an array of shape "
            f"{shape} on {sharding}; expected {expected}, what process {own} has, or all"
        )

    def part_at(index: tuple[slice, ...]) -> np.ndarray:
        box = []
        for i, known, n in zip(index, starts, sizes):
            k = known.index(i.start or 0)
            box.append(slice(k * n, (k + 1) * n))
        place: Any = (*box, ...)
        return value[place]

    return spread(shape, x.dtype, sharding, part_at, x.weak_type)  # type: ignore[attr-defined]


def _parts_along(sharding: Any, rank: int) -> list[tuple[set, set]]:
    """The places of parts along each axis: of all devices, and of this process's."""
    names = [*spec_names(sharding.spec), *[()] * rank][:rank]
    shape = tuple([math.prod(sharding.mesh.shape[n] for n in along) for along in names])
    own = process_index()
    found: list[tuple[set, set]] = [(set(), set()) for _ in range(rank)]
    for device, index in sharding.devices_indices_map(shape).items():
        for (every, mine), i in zip(found, index):
            every.add(i.start or 0)
            if device.process_index == own:
                mine.add(i.start or 0)
    return found


def make_array_from_single_device_arrays(
    shape: Any, sharding: Any, arrays: Sequence[Array], *, dtype: Any = None
) -> Array:
    """The array that the parts of devices make, in the order in which the sharding lists these.

    ValueError for another number of arrays than there are parts and for another dtype than theirs,
    ShapeError for other shapes.

    >>> fnx.make_array_from_single_device_arrays((2,), None, [jnp.ones(2)])
    Array([1., 1.], dtype=float64)
    """
    shape, name = tuple(shape), "make_array_from_single_device_arrays"
    if dtype is not None and any(x.dtype != dtypes.canonical(dtype) for x in arrays):
        found = sorted({str(x.dtype) for x in arrays})
        raise InvalidValue(
            f"{name} of arrays of {', '.join(found)} with dtype={dtype}; convert them"
        )
    if spans(sharding):
        own = process_index()
        here = [d for d in sharding.devices_indices_map(shape) if d.process_index == own]
        if len(here) != len(arrays):
            raise InvalidValue(
                f"{name} of {len(arrays)} arrays; this process has {len(here)} parts"
            )
        given = [_checked(x, sharding.shard_shape(shape), name) for x in arrays]
        kind = given[0].dtype if dtype is None else dtypes.canonical(dtype)
        parts = {d: np.asarray(x) for d, x in zip(here, given)}
        return of_parts(shape, kind, sharding, parts)
    if _is_cut(sharding):
        return _joined(shape, sharding, arrays, dtype, name)
    if len(arrays) != 1:
        raise InvalidValue(f"{name} of {len(arrays)} arrays; expected one, for one device")
    return _checked(arrays[0], shape, name)


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
    part = sharding_of(x).shard_shape(x.shape)
    for same in owners.values():
        names = ",".join(str(s.device.id) for s in same)
        where = f" at {place_text(same[0].index)}" if len(owners) > 1 else ""
        process = {s.device.process_index for s in same} if is_spread(x) else ()
        of = f" in process {', '.join(map(str, sorted(process)))}" if process else ""
        lines.append(f"CPU {names}: {tuple(part)}{where}{of}\n")
    return "".join(lines)
