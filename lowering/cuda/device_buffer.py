"""Numbers of an array that lie in memory of a GPU: they come to the host when somebody reads them."""

from typing import Any

import numpy as np

from fnx.core.buffer import Buffer
from fnx.core.errors import InvalidValue

from . import dlpack
from .driver import Driver, Memory


def described(value: Any) -> str:
    """The type of an array, for errors."""
    return f"{value.dtype}[{','.join(map(str, value.shape))}]"


class DeviceBuffer(Buffer):
    """C-contiguous numbers in memory that a driver has given."""

    device = "cuda"
    computes = True

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype, memory: Memory, driver: Driver):
        super().__init__(shape, dtype)
        self.memory, self.driver, self.place = memory, driver, driver.place

    @classmethod
    def of(cls, array: Any, driver: Driver) -> "DeviceBuffer":
        """A copy of an array of the host."""
        value = np.ascontiguousarray(array)
        memory = driver.allocate(max(value.nbytes, value.itemsize), described(value))
        if value.size:
            driver.upload(memory, 0, value)
        return cls(np.shape(array), value.dtype, memory, driver)

    def beside(self, memory: Memory) -> "DeviceBuffer":
        """One of the same type in other memory; nobody has read this one."""
        made = object.__new__(DeviceBuffer)
        fields = self.__dict__.copy()
        fields["memory"] = memory
        made.__dict__ = fields
        return made

    def copied(self) -> "DeviceBuffer":
        """The same numbers in memory of their own."""
        memory = self.driver.allocate(max(self.nbytes, self.dtype.itemsize), described(self))
        self.driver.copy(memory, 0, self.memory, 0, self.nbytes)
        return DeviceBuffer(self.shape, self.dtype, memory, self.driver)

    def wait(self) -> None:
        self.driver.synchronize()

    def fetch(self) -> np.ndarray:
        return self.driver.download(self.memory, 0, self.shape, self.dtype)

    def _lend(self) -> None:
        """All that was asked for is done, and the memory goes back when nobody uses it any more."""
        self.driver.synchronize()
        self.memory.is_lent = True

    def __dlpack__(self, **_: Any) -> Any:
        """A capsule of the memory itself, when all that was asked for is done."""
        if self.driver.handle is None:
            return super().__getattr__("__dlpack__")()  # the simulator's memory is the host's
        self._lend()
        return dlpack.capsule_of(self, self.memory.address)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0) if self.driver.handle is None else (dlpack.CUDA, 0)

    def __getattr__(self, name: str) -> Any:
        if name == "__cuda_array_interface__":
            return self._interface()
        return super().__getattr__(name)

    def _interface(self) -> dict[str, Any]:
        """The protocol of CuPy, Numba and torch: the pointer, without a copy; all work is done by then."""
        if self.driver.name != "cuda":
            raise AttributeError("__cuda_array_interface__")  # the simulator's memory is the host's
        if self.dtype.name == "bfloat16":
            raise InvalidValue(
                "__cuda_array_interface__ of a bfloat16 array; expected a dtype that NumPy has: "
                "view it as uint16 (lax.bitcast_convert_type)"
            )
        self._lend()
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.memory.address, True),
            "strides": None,
            "version": 3,
        }
