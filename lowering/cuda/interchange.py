"""Arrays of a GPU that other libraries made, or get, without a copy: DLPack, __cuda_array_interface__."""

from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.core.errors import InvalidValue, JaxRuntimeError

from .backend import driver
from .device_buffer import DeviceBuffer
from .dlpack import ON_CUDA, Capsule


class Foreign:
    """Memory of another library's, which its owner keeps as long as this lives."""

    def __init__(self, address: int, nbytes: int, owner: Any):
        self.address, self.nbytes, self._owner, self.is_lent = address, nbytes, owner, True

    def __del__(self) -> None:
        """Its owner may use the memory again at once: when nothing of ours reads it any more."""
        with suppress(JaxRuntimeError):
            driver().synchronize()


def taken(x: Any) -> ConcreteArray | None:
    """An array of ours on the memory of one that lies on a GPU; None for any other object."""
    where = getattr(x, "__dlpack_device__", None)
    if where is not None and where()[0] in ON_CUDA:
        return _from_dlpack(x)
    interface = getattr(x, "__cuda_array_interface__", None)
    return None if interface is None else _from_interface(x, interface)


def _from_dlpack(x: Any) -> ConcreteArray:
    on = driver()
    if on.handle is None:
        capsule = Capsule(x.__dlpack__())
    else:
        capsule = Capsule(x.__dlpack__(stream=on.handle))  # what was asked for there comes first
    return _array(capsule.address, capsule.shape, capsule.dtype, capsule.strides, capsule)


def _from_interface(x: Any, interface: dict[str, Any]) -> ConcreteArray:
    dtype = np.dtype(interface["typestr"])
    strides = interface.get("strides")
    if strides is not None:
        strides = tuple(s // dtype.itemsize for s in strides)
    if interface.get("stream") is not None:  # what was asked for there comes first
        driver().settle()
    return _array(interface["data"][0], tuple(interface["shape"]), dtype, strides, x)


def _array(address: int, shape: tuple, dtype: Any, strides: Any, owner: Any) -> ConcreteArray:
    if dtypes.NAME.get(np.dtype(dtype)) is None:
        raise InvalidValue(f"an array of another library has dtype {dtype}, which fnx has not")
    if strides is not None and not _is_contiguous(shape, strides):
        raise InvalidValue(
            f"an array of another library, of shape {shape} and strides {strides}; expected one that is "
            "C-contiguous: copy it there first (cupy.ascontiguousarray, torch's .contiguous())"
        )
    memory = Foreign(address, prod(shape) * np.dtype(dtype).itemsize, owner)
    return ConcreteArray(DeviceBuffer(shape, np.dtype(dtype), memory, driver()))  # type: ignore[arg-type]


def _is_contiguous(shape: tuple, strides: tuple) -> bool:
    expected = 1
    for n, step in reversed(list(zip(shape, strides, strict=True))):
        if n > 1 and step != expected:
            return False
        expected *= n
    return True
