"""The driver of a GPU: cuda.core's calls, on one stream. No GPU has run it yet.

Memory is the stream's pool's. Kernels are cubins for the compute capability of the device
(`device_code.py`), arguments are pointers.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.errors import JaxRuntimeError
from fnx.core.threads.fork_safety import cached_property

from . import device_code
from .driver import Argument
from .kernel_printer import Printed


class NoDevice(JaxRuntimeError):
    """A GPU was asked for where there is none that can be used."""


class OutOfMemory(JaxRuntimeError):
    """The memory of a GPU did not suffice; nothing that was there is lost."""


class GpuDriver:
    """Runs kernels on the first GPU of the process."""

    name = "cuda"

    def __init__(self) -> None:
        device_code.numba_cuda()
        self._process = os.getpid()
        try:
            from cuda.core import Device

            self.device = Device(0)
            self.device.set_current()
        except Exception as error:
            raise NoDevice(
                f"no GPU can be used: {type(error).__name__}: {str(error).strip()}. Expected a GPU of "
                "NVIDIA's and its driver (nvidia-smi lists it), of version 580 or later for CUDA 13; "
                'backend="cpu" needs none.'
            ) from error
        self.stream = self.device.create_stream()
        self._in_use = self._peak = 0

    @cached_property
    def architecture(self) -> str:
        return f"sm_{self.device.arch}"

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise NoDevice(
                "this process was forked from one that had used the GPU, whose state a fork does not "
                'take along. Start workers by multiprocessing\'s "spawn", or use the CPU in them.'
            )

    def allocate(self, nbytes: int) -> Any:
        self._check_process()
        try:
            memory = self.device.allocate(max(nbytes, 16), stream=self.stream)
        except Exception as error:
            raise OutOfMemory(
                f"{nbytes} bytes could not be allocated on the GPU, of which {self._in_use} bytes are in "
                f"use by this process: {error}. Free arrays (del, x.delete()), or donate arguments."
            ) from error
        return _Held(self, memory, nbytes)

    def upload(self, memory: Any, offset: int, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array)
        self._copy(memory.address + offset, data.ctypes.data, data.nbytes)
        self.stream.sync()  # the host's memory may go

    def download(self, memory: Any, offset: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        found = np.empty(shape, dtype)
        self._copy(found.ctypes.data, memory.address + offset, found.nbytes)
        self.stream.sync()
        return found

    def copy(self, target: Any, to: int, source: Any, start: int, nbytes: int) -> None:
        self._copy(target.address + to, source.address + start, nbytes)

    def _copy(self, target: int, source: int, nbytes: int) -> None:
        from cuda.bindings import driver

        (error,) = driver.cuMemcpyAsync(target, source, nbytes, int(self.stream.handle))
        if int(error):
            raise JaxRuntimeError(f"a copy of {nbytes} bytes failed on the GPU: {error!r}")

    def load(self, printed: Printed) -> Any:
        from cuda.core import ObjectCode

        code = device_code.cubin(printed, self.architecture)
        return ObjectCode.from_cubin(code.cubin).get_kernel(code.entry)

    def launch(
        self,
        function: Any,
        grid: tuple[int, int],
        block: tuple[int, int],
        arguments: Sequence[Argument],
    ) -> None:
        from cuda.core import LaunchConfig, launch

        self._check_process()
        given: list[Any] = []
        for a in arguments:
            address, itemsize = a.memory.address + a.offset, np.dtype(a.dtype).itemsize
            if a.is_array:  # owner, parent, length, itemsize, data, shape, stride
                given += [0, 0, a.size, itemsize, address, a.size, itemsize]
            else:
                given.append(address)
        launch(self.stream, LaunchConfig(grid=grid, block=block), function, *map(_word, given))

    def record(self, launches: Callable[[], None]) -> Callable[[], None] | None:
        return None  # a graph is recorded only by what a GPU has been seen to run

    def synchronize(self) -> None:
        self.stream.sync()

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_in_use": self._in_use, "peak_bytes_in_use": self._peak}


def _word(value: int) -> ctypes.c_uint64:
    return ctypes.c_uint64(value)


class _Held:
    """Memory of a pool, which goes back when nobody holds this."""

    def __init__(self, driver: GpuDriver, memory: Any, nbytes: int):
        self._driver, self._memory, self.nbytes = driver, memory, nbytes
        self.address = int(memory.handle)
        driver._in_use += nbytes
        driver._peak = max(driver._peak, driver._in_use)

    def __del__(self) -> None:
        self._driver._in_use -= self.nbytes
        self._memory.close(self._driver.stream)
