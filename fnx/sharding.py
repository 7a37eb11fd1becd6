"""Meshes and shardings, a module path of JAX."""

from fnx.process.abstract_devices import (
    AbstractDevice,
    ManualAxisType,
    make_single_device_sharding,
)
from fnx.process.mesh import (
    AbstractMesh,
    AxisType,
    Infer,
    Mesh,
    P,
    PartitionSpec,
    auto_axes,
    explicit_axes,
    get_abstract_mesh,
    get_mesh,
    make_mesh,
    reshard,
    set_mesh,
    use_abstract_mesh,
)
from fnx.process.shardings import NamedSharding, Sharding, SingleDeviceSharding

__all__ = [
    "AbstractDevice",
    "AbstractMesh",
    "AxisType",
    "Infer",
    "ManualAxisType",
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
    "make_single_device_sharding",
    "reshard",
    "set_mesh",
    "use_abstract_mesh",
]
