"""Shardings: how arrays lie on devices."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue
from fnx.core.lazy_imports import repr_html
from fnx.process import spread
from fnx.process.devices import Device, devices, process_index
from fnx.process.mesh import AbstractMesh, Mesh, PartitionSpec, spec_names
from fnx.process.placement import placed


class Sharding:
    """Base of all shardings.

    >>> isinstance(jnp.ones(2).sharding, fnx.sharding.Sharding)
    True
    """

    @property
    def device_set(self) -> set[Device]:
        return set(devices())

    _repr_html_ = repr_html
    is_fully_replicated = True
    memory_kind = "device"

    @property
    def addressable_devices(self) -> set[Device]:
        """Those of this process."""
        own = process_index()
        return {d for d in self.device_set if getattr(d, "process_index", own) == own}

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are this process's."""
        return self.addressable_devices == self.device_set

    @property
    def num_devices(self) -> int:
        return len(self.device_set)

    def is_equivalent_to(self, other: "Sharding", ndim: int) -> bool:
        """Whether arrays of this rank lie on the same devices in the same way."""
        one = self.num_devices == 1
        return self == other or (one and self.device_set == other.device_set)

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of one device's part of an array of this shape."""
        return tuple(global_shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple[slice, ...]]:
        """The indices of each device's part of an array of this shape."""
        return dict.fromkeys(self.device_set, (slice(None),) * len(global_shape))

    def addressable_devices_indices_map(self, global_shape: Sequence[int]) -> dict:
        """The same for the devices of this process."""
        own = self.addressable_devices
        return {d: i for d, i in self.devices_indices_map(global_shape).items() if d in own}


class SingleDeviceSharding(Sharding):
    """All of an array on one device.

    >>> fnx.sharding.SingleDeviceSharding().shard_shape((4, 2))
    (4, 2)
    """

    def __init__(self, device: Device | None = None, **_: Any):
        self.device = device or devices()[0]

    @property
    def device_set(self) -> set[Device]:
        return {self.device}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding) and self.device == other.device

    def __hash__(self) -> int:
        return hash(self.device)

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device}, memory_kind={self.memory_kind})"


class NamedSharding(Sharding):
    """Axes of an array along axes of a mesh.

    >>> mesh = fnx.make_mesh((1,), ("x",))
    >>> fnx.NamedSharding(mesh, fnx.P("x")).shard_shape((4, 2))
    (4, 2)
    """

    def __init__(self, mesh: Any, spec: PartitionSpec = PartitionSpec(), **_: Any):  # noqa: B008
        self.mesh, self.spec = mesh, spec
        used = [n for names in spec_names(spec) for n in names]
        unknown = set(used) - set(mesh.axis_names)
        if unknown:
            raise InvalidValue(f"{spec} names {unknown}, which are no axes of {mesh}")
        if len(used) > len(set(used)):
            raise InvalidValue(
                f"{spec} cuts more than one axis along one of the mesh; expected each name once"
            )

    def update(
        self, *, mesh: Any = None, spec: Sequence | None = None, **_: Any
    ) -> "NamedSharding":
        """The same, but for what is given."""
        new = self.spec if spec is None else PartitionSpec(*spec)
        return NamedSharding(self.mesh if mesh is None else mesh, new)

    @property
    def device_set(self) -> set[Device]:
        return set(self.mesh.devices.flat)

    @property
    def is_fully_replicated(self) -> bool:  # type: ignore[override]
        """Whether every device has the whole array."""
        return all(self.mesh.shape[n] == 1 for names in spec_names(self.spec) for n in names)

    def put(self, x: Any) -> Array:
        """An array that lies so, of one that all processes have."""
        return spread.put(x, self) if spread.spans(self) else placed(x.copy(), self)

    def check(self, aval: ShapedArray, even: bool = True) -> None:
        """InvalidValue, a ValueError, unless arrays of this type can be cut so; `even`: in equal parts."""
        where = spec_names(self.spec)
        if len(where) > aval.ndim:
            raise InvalidValue(f"{self.spec} is longer than the rank of {aval.str_short()}")
        if even:
            self._part_of(aval.shape, aval.str_short())

    def is_even(self, shape: Sequence[int]) -> bool:
        """Whether arrays of this shape are cut in parts of one size."""
        names = spec_names(self.spec)
        return not any(n % math.prod(self.mesh.shape[a] for a in k) for n, k in zip(shape, names))

    def _part_of(self, whole: Sequence[int], what: str) -> tuple[int, ...]:
        """The shape of one device's part of an array."""
        shape = list(whole)
        for k, names in enumerate(spec_names(self.spec)):
            parts = math.prod(self.mesh.shape[n] for n in names)
            if shape[k] % parts:
                raise InvalidValue(
                    f"{self.spec} cuts axis {k} of {what} into {parts} parts; expected a size that is a "
                    f"multiple of {parts}"
                )
            shape[k] //= parts
        return tuple(shape)

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of one device's part of an array of this shape."""
        return self._part_of(global_shape, f"an array of shape {tuple(global_shape)}")

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether arrays of this rank lie on the same devices in the same way."""
        if not isinstance(other, NamedSharding):
            return super().is_equivalent_to(other, ndim)
        if isinstance(self.mesh, AbstractMesh) or isinstance(other.mesh, AbstractMesh):
            return self.mesh == other.mesh and _cuts(self.spec, ndim) == _cuts(other.spec, ndim)
        whole = (math.lcm(self.mesh.size, other.mesh.size),) * ndim  # all cuts of it are even
        return self.devices_indices_map(whole) == other.devices_indices_map(whole)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple[slice, ...]]:
        """The indices of each device's part of an array of this shape."""
        shape, part = self.mesh.devices.shape, self.shard_shape(global_shape)
        names = _cuts(self.spec, len(part))
        found = {}
        for place in np.ndindex(shape):
            at = dict(zip(self.mesh.axis_names, place))
            index = []
            for n, along in zip(part, names):
                sizes = [self.mesh.shape[a] for a in along]
                k = int(np.ravel_multi_index([at[a] for a in along], sizes)) if along else 0
                index.append(slice(k * n, (k + 1) * n) if math.prod(sizes) > 1 else slice(None))
            found[self.mesh.devices[place]] = tuple(index)
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSharding) and (self.mesh, self.spec) == (
            other.mesh,
            other.spec,
        )

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        return f"NamedSharding(mesh={self.mesh}, spec={self.spec}, memory_kind={self.memory_kind})"


def _cuts(spec: Sequence[Any], ndim: int) -> list[tuple[str, ...]]:
    """The names of mesh axes along which each axis of an array of a rank lies."""
    return [*spec_names(spec), *[()] * ndim][: max(ndim, len(spec))]


def sharding_of(x: Array) -> Sharding:
    """How an array lies on devices, as was asked for last."""
    place: Any = getattr(x, "placed", None) or getattr(x, "mapped", None)
    return place if hasattr(place, "spec") else SingleDeviceSharding(x.device)  # type: ignore[attr-defined]


def mapped_over(
    avals: Sequence, axes: Sequence[int | None], name: Any, on: Sequence | None
) -> list:
    """How arrays lie whose elements along these axes are on one device each: of `on`, or of all."""
    sizes = [a.shape[k] for a, k in zip(avals, axes, strict=True) if k is not None]
    if not sizes:
        return [None] * len(avals)
    name = "_internal_pmap_axis_name" if name is None else name
    mesh = Mesh((devices() if on is None else on)[: sizes[0]], (name,))
    before = [None if k is None else k % a.ndim for a, k in zip(avals, axes)]
    specs = [() if k is None else (*[None] * k, name) for k in before]
    return [NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs]


def sharding_of_aval(aval: ShapedArray) -> NamedSharding:
    """How arrays of a type lie: along no axis of any mesh."""
    return NamedSharding(AbstractMesh((), ()), PartitionSpec(*[None] * aval.ndim))


__all__ = [
    "NamedSharding",
    "Sharding",
    "SingleDeviceSharding",
    "mapped_over",
    "sharding_of",
    "sharding_of_aval",
]
