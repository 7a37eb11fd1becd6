"""Shardings: how arrays lie on devices. There is one device here, so that all of them mean the same."""

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np

from fnx.core.errors import InvalidValue
from fnx.placement import Device, devices


class PartitionSpec(tuple):
    """Names of mesh axes, or None, for each axis of an array.

    >>> PartitionSpec("data", None)
    PartitionSpec('data', None)
    """

    __slots__ = ()

    def __new__(cls, *partitions: Any, **_: Any) -> "PartitionSpec":
        return super().__new__(cls, partitions)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"

    def __reduce__(self) -> tuple:
        return PartitionSpec, tuple(self)


P = PartitionSpec


class AxisType(Enum):
    """How an axis of a mesh is used; it makes no difference on one device."""

    Auto = "auto"
    Explicit = "explicit"
    Manual = "manual"


class Mesh:
    """An array of devices with names for its axes; each axis has size 1 here."""

    def __init__(self, devices: Any, axis_names: str | Sequence[str], axis_types: Any = None):
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        self.devices = np.asarray(devices, dtype=object)
        self.axis_names, self.axis_types = names, axis_types
        if self.devices.ndim != len(names):
            raise InvalidValue(
                f"a mesh of shape {self.devices.shape} needs {self.devices.ndim} axis names, got {names}"
            )

    shape = property(lambda self: dict(zip(self.axis_names, self.devices.shape)))
    size = property(lambda self: self.devices.size)
    empty = property(lambda self: not self.devices.size)

    def __enter__(self) -> "Mesh":
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash(tuple(self.shape.items()))

    def __repr__(self) -> str:
        return f"Mesh({', '.join(f'{k!r}: {n}' for k, n in self.shape.items())})"


class Sharding:
    """Base of all shardings."""

    @property
    def device_set(self) -> set[Device]:
        return set(devices())

    is_fully_replicated = True
    is_fully_addressable = True


class SingleDeviceSharding(Sharding):
    """All of an array on one device."""

    def __init__(self, device: Device | None = None, **_: Any):
        self.device = device or devices()[0]


class NamedSharding(Sharding):
    """Axes of an array along axes of a mesh."""

    def __init__(self, mesh: Mesh, spec: PartitionSpec = PartitionSpec(), **_: Any):  # noqa: B008
        self.mesh, self.spec = mesh, spec

    def __repr__(self) -> str:
        return f"NamedSharding({self.mesh!r}, {self.spec!r})"


def make_mesh(
    axis_shapes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None, *, devices: Any = None
) -> Mesh:
    """A mesh of this shape; ValueError if it needs more devices than there are."""
    from fnx.placement import devices as all_devices

    found = list(devices) if devices is not None else all_devices()
    needed = int(np.prod(axis_shapes, dtype=int))
    if needed > len(found):
        raise InvalidValue(
            f"a mesh of shape {tuple(axis_shapes)} needs {needed} devices; there are {len(found)}. Use "
            "axes of size 1, or fnx.vmap: one native function uses all cores."
        )
    grid = np.empty(needed, object)
    grid[:] = found[:needed]
    return Mesh(grid.reshape(tuple(axis_shapes)), axis_names, axis_types)


__all__ = [
    "AxisType",
    "Mesh",
    "NamedSharding",
    "P",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "make_mesh",
]
