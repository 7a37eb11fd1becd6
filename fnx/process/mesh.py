"""Meshes and shardings: names for axes of devices, and how arrays lie on them.

All devices of a process share its memory, so that shardings move nothing; a mesh is for `shard_map`.
"""

import math
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import Enum
from functools import partial, wraps
from typing import Any

import numpy as np

from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.lazy_imports import repr_html
from fnx.process.devices import device_put, devices, process_index
from fnx.process.placement import mesh_in_force, mesh_reads

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

    Several names for one axis are a tuple; that of one name is the name, and an empty one is None.
    InvalidValue, a ValueError, for tuples in tuples.

    >>> fnx.sharding.PartitionSpec(("data",), ("x", "y"), ())
    P('data', ('x', 'y'), None)
    """

    __slots__ = ()
    UNCONSTRAINED = _UNCONSTRAINED

    def __new__(cls, *partitions: Any, **_: Any) -> "PartitionSpec":
        return super().__new__(cls, map(_entry, partitions))

    def __add__(self, other: tuple) -> "PartitionSpec":
        return PartitionSpec(*self, *other)

    def __repr__(self) -> str:
        return f"P{super().__repr__()}"

    def __reduce__(self) -> tuple:
        return PartitionSpec, tuple(self)

    @property
    def partitions(self) -> tuple:
        return tuple(self)

    def update(self, *, partitions: Sequence | None = None, **_: Any) -> "PartitionSpec":
        """The same, but for what is given."""
        return self if partitions is None else PartitionSpec(*partitions)


def _entry(names: Any) -> Any:
    """What a spec keeps for one axis of an array."""
    if not isinstance(names, (tuple, list)):
        return names
    if any(isinstance(n, (tuple, list)) for n in names):
        raise InvalidValue(
            f"names of mesh axes for one axis of an array: got {names}, tuples in one"
        )
    return tuple(names) if len(names) > 1 else names[0] if names else None


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


class _Infer:
    """Says that how values are cut is to be seen from how they lie."""

    def __repr__(self) -> str:
        return "Infer"


Infer = _Infer()


class AxisType(Enum):
    """How an axis of a mesh is used; it makes no difference on one device.

    >>> mesh = fnx.make_mesh((1,), ("x",), axis_types=(fnx.sharding.AxisType.Auto,))
    >>> mesh.axis_types
    (Auto,)
    """

    Auto = "auto"
    Explicit = "explicit"
    Manual = "manual"

    def __repr__(self) -> str:
        return self.name


class _AnyMesh:
    """Names and sizes of axes of devices."""

    axis_names: tuple[str, ...]
    axis_sizes: tuple[int, ...]
    axis_types: Any
    _repr_html_ = repr_html

    shape = property(lambda self: dict(zip(self.axis_names, self.axis_sizes)))
    shape_tuple = property(lambda self: tuple(zip(self.axis_names, self.axis_sizes)))
    size = property(lambda self: math.prod(self.axis_sizes) if self.axis_names else 0)
    empty = property(lambda self: not self.axis_names)
    are_all_axes_auto = property(lambda self: self._all(AxisType.Auto))
    are_all_axes_explicit = property(lambda self: self._all(AxisType.Explicit))
    are_all_axes_manual = property(lambda self: self._all(AxisType.Manual))

    def _set_axes(self, sizes: tuple, axis_names: str | Sequence[str], axis_types: Any) -> None:
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if len(sizes) != len(names):
            raise InvalidValue(
                f"a mesh of shape {sizes} needs {len(sizes)} axis names, got {names}"
            )
        if len(set(names)) != len(names) or None in names:
            raise InvalidValue(f"axis names of a mesh must be different, and not None, got {names}")
        self.axis_names, self.axis_sizes = names, sizes
        self.axis_types = _types(axis_types, names)

    auto_axes = property(lambda self: self._of(AxisType.Auto))
    explicit_axes = property(lambda self: self._of(AxisType.Explicit))
    manual_axes = property(lambda self: self._of(AxisType.Manual))

    def _of(self, kind: AxisType) -> tuple[str, ...]:
        return tuple(n for n, t in zip(self.axis_names, self.axis_types) if t is kind)

    def _all(self, kind: AxisType) -> bool:
        return not self.empty and all(t is kind for t in self.axis_types)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._axes() == other._axes()  # type: ignore

    def __hash__(self) -> int:
        return hash(self._axes())

    def _axes(self) -> tuple:
        return self.axis_names, self.axis_sizes, self.axis_types

    def __str__(self) -> str:
        axes = "".join(f"{k!r}: {n}, " for k, n in self.shape.items())
        return f"{type(self).__name__}({axes}axis_types={self.axis_types})"

    __repr__ = __str__


def _types(given: Any, names: tuple[str, ...]) -> tuple[AxisType, ...]:
    """A type for each axis of a mesh, as they are given: by None all are Auto."""
    if given is None:
        return (AxisType.Auto,) * len(names)
    types = (given,) if isinstance(given, AxisType) else tuple(given)
    if not all(isinstance(t, AxisType) for t in types):
        raise TypeMismatch(f"axis_types {given!r} of a mesh; expected AxisType for each of {names}")
    if len(types) != len(names):
        raise InvalidValue(f"{len(types)} axis_types, {given!r}, for the axes {names} of a mesh")
    return types


class Mesh(_AnyMesh):
    """An array of devices with names for its axes; in a `with`, the mesh that shard_map finds.

    InvalidValue, a ValueError, for names that are not one for each axis, or not different.

    >>> fnx.sharding.Mesh(fnx.devices(), ("data",))
    Mesh(axis_sizes=(1,), axis_names=('data',), axis_types=(Auto,))
    """

    def __init__(self, devices: Any, axis_names: str | Sequence[str], axis_types: Any = None):
        self.devices = np.asarray(devices, dtype=object)
        self._set_axes(self.devices.shape, axis_names, axis_types)

    def __repr__(self) -> str:
        sizes, names, types = self.axis_sizes, self.axis_names, self.axis_types
        return f"Mesh(axis_sizes={sizes}, axis_names={names}, axis_types={types})"

    def __eq__(self, other: Any) -> bool:
        return super().__eq__(other) and self.devices.tolist() == other.devices.tolist()

    __hash__ = _AnyMesh.__hash__

    @property
    def abstract_mesh(self) -> "AbstractMesh":
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    local_mesh = property(lambda self: self)

    @property
    def local_devices(self) -> list[Any]:
        """Those of this process."""
        own = process_index()
        return [d for d in self.devices.flat if d.process_index == own]

    device_ids = property(lambda self: np.vectorize(lambda d: d.id, otypes=[int])(self.devices))

    def __enter__(self) -> "Mesh":
        before = _mesh.get(), _outer.get()
        try:
            _outer.set(before)
            _mesh.set(self)
            return self
        except BaseException:  # an interrupt: nobody calls __exit__
            _leave(*before)
            raise

    def __exit__(self, *error: object) -> None:
        _leave(*_outer.get())


class AbstractMesh(_AnyMesh):
    """A mesh without devices: sizes and names of axes, for functions that are only traced.

    >>> fnx.sharding.AbstractMesh((2, 4), ("x", "y")).size
    8
    """

    def __init__(
        self,
        axis_sizes: Sequence[int],
        axis_names: str | Sequence[str],
        axis_types: Any = None,
        **_: Any,
    ):
        self._set_axes(tuple(axis_sizes), axis_names, axis_types)


_mesh: ContextVar["Mesh | AbstractMesh | None"] = mesh_in_force
# Outside the `with mesh` that was entered last: the mesh, and what was outside of that.
_outer: ContextVar[tuple] = ContextVar("fnx_outer_mesh", default=(None, ()))


def _leave(mesh: "Mesh | AbstractMesh | None", outer: tuple) -> None:
    try:
        _mesh.set(mesh)
    finally:
        _outer.set(outer)


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


def _asked() -> "Mesh | AbstractMesh | None":
    mesh_reads[0] += 1
    return _mesh.get()


def get_mesh() -> Mesh:
    """The mesh that was set; an empty one if there is none.

    >>> fnx.sharding.get_mesh().empty
    True
    """
    mesh = _asked()
    return mesh if isinstance(mesh, Mesh) else Mesh(np.empty((), object), ())


def get_abstract_mesh() -> AbstractMesh:
    """The mesh that was set, without its devices; an empty one if there is none.

    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("x",))):
    ...     mesh = fnx.sharding.get_abstract_mesh()
    >>> mesh
    AbstractMesh('x': 1, axis_types=(Auto,))
    """
    mesh = _asked()
    if mesh is None:
        return AbstractMesh((), ())
    return mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh


def reshard(xs: Any, out_shardings: Any) -> Any:
    """The leaves of a pytree as arrays.

    >>> fnx.sharding.reshard(np.ones(2), None)
    Array([1., 1.], dtype=float64)
    """
    return device_put(xs, out_shardings)


def auto_axes(f: Callable | None = None, /, *, axes: Any = None, out_sharding: Any = None) -> Any:
    """The function, whose results lie as `out_sharding` says, given here or with each call.

    Types of mesh axes make no difference to what is computed. Without `f`, a decorator. TypeError for a
    call that is not told.

    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("x",))):
    ...     fnx.sharding.auto_axes(jnp.sin)(jnp.zeros(2), out_sharding=fnx.P("x"))
    Array([0., 0.], dtype=float64)
    """
    del axes
    if f is None:
        return partial(auto_axes, out_sharding=out_sharding)

    @wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        place = kwargs.pop("out_sharding", None) if out_sharding is None else out_sharding
        if place is None:
            raise TypeMismatch("a function of auto_axes is not told out_sharding: how results lie")
        out = f(*args, **kwargs)
        return out if get_abstract_mesh().empty else reshard(out, place)

    return called


def explicit_axes(
    f: Callable | None = None, /, *, axes: Any = None, in_sharding: Any = None
) -> Any:
    """The function of arguments that lie as `in_sharding` says, given here or with each call.

    Types of mesh axes make no difference to what is computed. Without `f`, a decorator. TypeError for a
    call that is not told, ValueError where no mesh was set.

    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("x",))):
    ...     fnx.sharding.explicit_axes(jnp.sin)(jnp.zeros(2), in_sharding=fnx.P("x"))
    Array([0., 0.], dtype=float64)
    """
    del axes
    if f is None:
        return partial(explicit_axes, in_sharding=in_sharding)

    @wraps(f)
    def called(*args: Any, **kwargs: Any) -> Any:
        place = kwargs.pop("in_sharding", None) if in_sharding is None else in_sharding
        if place is None:
            raise TypeMismatch(
                "a function of explicit_axes is not told in_sharding: how arguments lie"
            )
        if get_abstract_mesh().empty:
            raise InvalidValue("explicit_axes needs a mesh; call it within set_mesh(mesh)")
        return f(*reshard(args, place), **kwargs)

    return called


def make_mesh(
    axis_shapes: Sequence[int],
    axis_names: Sequence[str],
    axis_types: Any = None,
    *,
    devices: Any = None,
) -> Mesh:
    """A mesh of this shape; ValueError if it needs more devices than there are.

    >>> fnx.make_mesh((1, 1), ("x", "y"))
    Mesh(axis_sizes=(1, 1), axis_names=('x', 'y'), axis_types=(Auto, Auto))
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


__all__ = [
    "AbstractMesh",
    "AxisType",
    "Mesh",
    "P",
    "PartitionSpec",
    "auto_axes",
    "explicit_axes",
    "get_abstract_mesh",
    "get_mesh",
    "make_mesh",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
]
