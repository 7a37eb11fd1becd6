"""The GPU as a device of the process, and arrays put on it."""

from typing import Any

from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.source import user_source

from .backend import driver
from .device_buffer import DeviceBuffer
from .driver import GpuDevice


def devices() -> list[GpuDevice]:
    """The GPU, if one can be used; MissingPackage or NoDevice, which say what is missing."""
    return [driver().place]


def put(x: Any, place: Any) -> Array:
    """A copy of an array, on the GPU or, for another place, on the host."""
    array: Any = as_array(x)
    if getattr(place, "platform", "cpu") != "gpu":
        return array.copy()
    value, origin = array._value, user_source()
    if type(value) is DeviceBuffer:
        value = value.copied()
    else:
        value = DeviceBuffer.of(value, driver())
    value.origin = origin
    return ConcreteArray(value, array.weak_type)  # type: ignore[arg-type]
