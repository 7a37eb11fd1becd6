"""Names of JAX's for where arrays may be: kinds of devices, of memory, and of axes inside of shard_map."""

from enum import Enum
from typing import Any

from fnx.core.aval import ManualAxisType
from fnx.core.fast_dataclasses import dataclass
from fnx.process.shardings import SingleDeviceSharding


class Space(Enum):
    """Kinds of memory. There is one, the host's, which `device_put` leaves arrays in.

    >>> fnx.device_put(1.0, fnx.memory.Space.Host)
    Array(1., dtype=float64, weak_type=True)
    """

    Device = 1
    Host = 2
    Any = 3

    def __repr__(self) -> str:
        return f"MemorySpace.{self.name}"

    __str__ = __repr__


@dataclass(frozen=True)
class AbstractDevice:
    """A kind of device, without one being there.

    >>> fnx.sharding.AbstractDevice("cpu", None, "cpu")
    AbstractDevice(device_kind=cpu, num_cores=None, platform=cpu)
    """

    device_kind: str
    num_cores: int | None
    platform: str = "cpu"

    def __repr__(self) -> str:
        return (
            f"AbstractDevice(device_kind={self.device_kind}, num_cores={self.num_cores}, "
            f"platform={self.platform})"
        )


def make_single_device_sharding(
    device: Any, *, memory_kind: str | None = None
) -> SingleDeviceSharding:
    """The sharding of arrays that are on one device as a whole.

    >>> fnx.sharding.make_single_device_sharding(fnx.devices()[0]).num_devices
    1
    """
    del memory_kind
    return SingleDeviceSharding(device)


__all__ = ["AbstractDevice", "ManualAxisType", "Space", "make_single_device_sharding"]
