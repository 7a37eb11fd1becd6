"""Meshes and shardings: names for axes of devices, and how arrays lie on them.

All devices of a process share its memory, so that shardings move nothing; a mesh is for `shard_map`.
"""

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import Enum
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue
from fnx.core.lazy_imports import repr_html
from fnx.process.devices import Device, device_put, devices

_all_devices = devices
MORE_DEVICES = (
    "All devices are this CPU, which computes in parallel with one, too. For more of them set "
    "FNX_NUM_DEVICES, or fnx.config.update('num_devices', n), before devices are asked for."
)


class _Unconstrained:
    """An axis of an array that may lie anyhow."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "_UNCONSTRAINED"


_UNCONSTRAINED = _Unconstrained()


class PartitionSpec(tuple):
    """Names of mesh axes, None, or `PartitionSpec.UNCONSTRAINED`, for each axis of an array.

    >>> fnx.sharding.PartitionSpec("data", None)
    PartitionSpec('data', None)
    """

    __slots__ = ()
    UNCONSTRAINED = _UNCONSTRAINED

    def __new__(cls, *partitions: Any, **_: Any) -> "PartitionSpec":
        return super().__new__(cls, partitions)

    def __repr__(self) -> str:
        return f"PartitionSpec({', '.join(map(repr, self))})"

    def __reduce__(self) -> tuple:
        return PartitionSpec, tuple(self)

    @property
    def partitions(self) -> tuple:
        return tuple(self)

    def update(self, *, partitions: Sequence | None = None, **_: Any) -> "PartitionSpec":
        """The same, but for what is given."""
        return self if partitions is None else PartitionSpec(*partitions)


P = PartitionSpec


def spec_names(spec: Sequence[Any]) -> list[tuple[str, ...]]:
    """The names of mesh axes along which each axis of an array lies."""
    return [
        ()
        if entry in (None, _UNCONSTRAINED)
        else tuple(entry)
        if isinstance(entry, (tuple, list))
        else (entry,)
        for entry in spec
    ]


class AxisType(Enum):
    """How an axis of a mesh is used; it makes no difference on one device.

    >>> mesh = fnx.make_mesh((1,), ("x",), axis_types=(fnx.sharding.AxisType.Auto,))
    >>> mesh.axis_types
    (<AxisType.Auto: 'auto'>,)
    """

    Auto = "auto"
    Explicit = "explicit"
    Manual = "manual"


class _AnyMesh:
    """Names and sizes of axes of devices."""

    axis_names: tuple[str, ...]
    axis_sizes: tuple[int, ...]
    axis_types: Any
    _repr_html_ = repr_html

    shape = property(lambda self: dict(zip(self.axis_names, self.axis_sizes)))
    size = property(lambda self: math.prod(self.axis_sizes))
    empty = property(lambda self: not self.axis_names)
    are_all_axes_auto = property(lambda self: self._all(AxisType.Auto))
    are_all_axes_explicit = property(lambda self: self._all(AxisType.Explicit))
    are_all_axes_manual = property(lambda self: self._all(AxisType.Manual))

    def _all(self, kind: AxisType) -> bool:
        return not self.empty and all(t is kind for t in self.axis_types)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.shape == other.shape  # type: ignore

    def __hash__(self) -> int:
        return hash(tuple(self.shape.items()))

    def __repr__(self) -> str:
        axes = ", ".join(f"{k!r}: {n}" for k, n in self.shape.items())
        return f"{type(self).__name__}({axes})"


class Mesh(_AnyMesh):
    """An array of devices with names for its axes; in a `with`, the mesh that shard_map finds.

    InvalidValue, a ValueError, for names that are not one for each axis, or not different.

    >>> fnx.sharding.Mesh(fnx.devices(), ("data",))
    Mesh('data': 1)
    """

    def __init__(self, devices: Any, axis_names: str | Sequence[str], axis_types: Any = None):
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        self.devices = np.asarray(devices, dtype=object)
        self.axis_names, self.axis_types = names, axis_types or (AxisType.Auto,) * len(names)
        self.axis_sizes = self.devices.shape
        self._entered: list = []
        if self.devices.ndim != len(names):
            raise InvalidValue(
                f"a mesh of shape {self.devices.shape} needs {self.devices.ndim} axis names, got {names}"
            )
        if len(set(names)) != len(names):
            raise InvalidValue(f"axis names of a mesh must be different, got {names}")

    @property
    def abstract_mesh(self) -> "AbstractMesh":
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    local_mesh = property(lambda self: self)
    device_ids = property(lambda self: np.vectorize(lambda d: d.id, otypes=[int])(self.devices))

    def __enter__(self) -> "Mesh":
        self._entered.append(_mesh.set(self))
        return self

    def __exit__(self, *error: object) -> None:
        _mesh.reset(self._entered.pop())


class AbstractMesh(_AnyMesh):
    """A mesh without devices: sizes and names of axes, for functions that are only traced.

    >>> fnx.sharding.AbstractMesh((2, 4), ("x", "y")).size
    8
    """

    def __init__(
        self, axis_sizes: Sequence[int], axis_names: Sequence[str], axis_types: Any = None, **_: Any
    ):
        self.axis_sizes, self.axis_names = tuple(axis_sizes), tuple(axis_names)
        self.axis_types = axis_types or (AxisType.Auto,) * len(self.axis_names)


_mesh: ContextVar["Mesh | AbstractMesh | None"] = ContextVar("fnx_mesh", default=None)


class _SetMesh:
    """Undoes `set_mesh` at the end of a `with`."""

    def __init__(self, token: Any, mesh: Any):
        self.token, self.mesh = token, mesh

    def __enter__(self) -> Any:
        return self.mesh

    def __exit__(self, *error: object) -> None:
        _mesh.reset(self.token)


def set_mesh(mesh: "Mesh | AbstractMesh | None") -> Any:
    """Make `mesh` the one that shard_map finds: from now on, or within a `with`.

    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("x",))):
    ...     names = fnx.sharding.get_mesh().axis_names
    >>> names
    ('x',)
    """
    return _SetMesh(_mesh.set(mesh), mesh)


use_abstract_mesh = set_mesh


def get_mesh() -> Mesh:
    """The mesh that was set; an empty one if there is none.

    >>> fnx.sharding.get_mesh().empty
    True
    """
    mesh = _mesh.get()
    return mesh if isinstance(mesh, Mesh) else Mesh(np.empty((), object), ())


def get_abstract_mesh() -> AbstractMesh:
    """The mesh that was set, without its devices; an empty one if there is none.

    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("x",))):
    ...     mesh = fnx.sharding.get_abstract_mesh()
    >>> mesh
    AbstractMesh('x': 1)
    """
    mesh = _mesh.get()
    if mesh is None:
        return AbstractMesh((), ())
    return mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh


def reshard(xs: Any, out_shardings: Any) -> Any:
    """The leaves of a pytree as arrays.

    >>> fnx.sharding.reshard(np.ones(2), None)
    Array([1., 1.], dtype=float64)
    """
    return device_put(xs, out_shardings)


def _same_function(f: Callable | None = None, /, **options: Any) -> Any:
    """The function itself; without one, a decorator. Types of mesh axes make no difference here.

    >>> fnx.sharding.auto_axes(abs, axes="x")(-1.0)
    1.0
    """
    del options
    return f if f is not None else lambda g: g


auto_axes = explicit_axes = _same_function


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
    is_fully_addressable = True
    memory_kind = "device"

    @property
    def addressable_devices(self) -> set[Device]:
        return self.device_set

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

    @property
    def addressable_devices_indices_map(self) -> Callable:
        return self.devices_indices_map


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
        return f"SingleDeviceSharding(device={self.device})"


class NamedSharding(Sharding):
    """Axes of an array along axes of a mesh.

    >>> mesh = fnx.make_mesh((1,), ("x",))
    >>> fnx.NamedSharding(mesh, fnx.P("x")).shard_shape((4, 2))
    (4, 2)
    """

    def __init__(self, mesh: Any, spec: PartitionSpec = PartitionSpec(), **_: Any):  # noqa: B008
        self.mesh, self.spec = mesh, spec

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

    def check(self, aval: ShapedArray) -> None:
        """InvalidValue, a ValueError, unless arrays of this type can be cut so."""
        where = spec_names(self.spec)
        unknown = {n for names in where for n in names} - set(self.mesh.axis_names)
        if unknown:
            raise InvalidValue(f"{self.spec} names {unknown}, which are no axes of {self.mesh}")
        if len(where) > aval.ndim:
            raise InvalidValue(f"{self.spec} is longer than the rank of {aval.str_short()}")
        for k, names in enumerate(where):
            parts = math.prod(self.mesh.shape[n] for n in names)
            if aval.shape[k] % parts:
                raise InvalidValue(
                    f"{self.spec} cuts axis {k} of {aval.str_short()} into {parts} parts; expected a size "
                    f"that is a multiple of {parts}"
                )

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of one device's part of an array of this shape."""
        shape = list(global_shape)
        for k, names in enumerate(spec_names(self.spec)):
            shape[k] //= math.prod(self.mesh.shape[n] for n in names)
        return tuple(shape)

    def devices_indices_map(self, global_shape: Sequence[int]) -> dict[Device, tuple[slice, ...]]:
        """The indices of each device's part of an array of this shape."""
        shape, part = self.mesh.devices.shape, self.shard_shape(global_shape)
        names = [*spec_names(self.spec), *[()] * len(part)][: len(part)]
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
        same = isinstance(other, NamedSharding)
        return same and (self.mesh, self.spec) == (other.mesh, other.spec)  # type: ignore

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))

    def __repr__(self) -> str:
        return f"NamedSharding({self.mesh!r}, {self.spec!r})"


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[str],
    axis_types: Any = None,
    *,
    devices: Any = None,
) -> Mesh:
    """A mesh of this shape; ValueError if it needs more devices than there are.

    >>> fnx.make_mesh((1, 1), ("x", "y"))
    Mesh('x': 1, 'y': 1)
    """
    found = list(devices) if devices is not None else _all_devices()
    needed = int(np.prod(axis_shapes, dtype=int))
    if needed > len(found):
        raise InvalidValue(
            f"a mesh of shape {tuple(axis_shapes)} needs {needed} devices; there are {len(found)}. "
            f"{MORE_DEVICES}"
        )
    grid = np.empty(needed, object)
    grid[:] = found[:needed]
    return Mesh(grid.reshape(tuple(axis_shapes)), axis_names, axis_types)


def sharding_of(x: Array) -> Sharding:
    """How an array lies on devices, as was asked for last."""
    place: Any = getattr(x, "placed", None)
    return place if hasattr(place, "spec") else SingleDeviceSharding(x.device)  # type: ignore[attr-defined]


def sharding_of_aval(aval: ShapedArray) -> NamedSharding:
    """How arrays of a type lie: along no axis of any mesh."""
    return NamedSharding(AbstractMesh((), ()), PartitionSpec(*[None] * aval.ndim))


__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "NamedSharding",
    "P",
    "PartitionSpec",
    "Sharding",
    "SingleDeviceSharding",
    "auto_axes",
    "explicit_axes",
    "get_abstract_mesh",
    "get_mesh",
    "make_mesh",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
]
