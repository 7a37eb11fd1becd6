"""The GPU as a device of the process, and arrays put on it."""

from functools import lru_cache
from typing import Any

from fnx.core.array import Array, ConcreteArray, as_array

from .backend import driver
from .device_buffer import DeviceBuffer


class GpuDevice:
    """A GPU that programs run on with backend="cuda"."""

    platform = "gpu"
    id = 0
    process_index = 0

    @property
    def device_kind(self) -> str:
        return driver().name

    def memory_stats(self) -> dict[str, int]:
        """Bytes of arrays and workspaces in use now, and the most that ever were."""
        return driver().memory_stats()

    def __repr__(self) -> str:
        return f"GpuDevice(id={self.id})"


@lru_cache(maxsize=1)
def _device() -> GpuDevice:
    driver()
    return GpuDevice()


def devices() -> list[GpuDevice]:
    """The GPU, if one can be used; MissingPackage or NoDevice, which say what is missing."""
    return [_device()]


def put(x: Any, place: Any) -> Array:
    """A copy of an array, on the GPU or, for another place, on the host."""
    array: Any = as_array(x)
    if getattr(place, "platform", "cpu") != "gpu":
        return array.copy()
    value = array._value
    if type(value) is DeviceBuffer:
        return ConcreteArray(value.copied(), array.weak_type)  # type: ignore[arg-type]
    return ConcreteArray(DeviceBuffer.of(value, driver()), array.weak_type)  # type: ignore[arg-type]
