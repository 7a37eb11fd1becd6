"""The driver of Numba's CUDA simulator: threads of Python on memory of the host."""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.threads.fork_safety import fork_safe

from . import simulator
from .driver import Argument, GpuDevice
from .kernels.kernel_printer import Printed

_one_kernel = fork_safe(threading.RLock())  # at a time: the simulator has one place for its state


class HostMemory:
    """Bytes of the host that stand for the device's."""

    def __init__(self, nbytes: int, count: dict[str, int]):
        self.nbytes, self._count = nbytes, count
        # Not zero: what nobody has written is to be seen.
        self.bytes = np.full(max(nbytes, 16), 0xAB, np.uint8)
        self.address, self.is_lent = self.bytes.ctypes.data, False
        count["bytes_in_use"] += nbytes
        count["peak_bytes_in_use"] = max(count["peak_bytes_in_use"], count["bytes_in_use"])
        count["num_allocs"] += 1

    def __del__(self) -> None:
        self._count["bytes_in_use"] -= self.nbytes


class _Launch:
    """A kernel of the simulator's with its arguments: views of memory, made when it is called."""

    def __init__(self, function: Any, arguments: Sequence[Argument]):
        self.function = function
        self.kinds = [(np.dtype(a.dtype), a.size) for a in arguments]
        self.addresses = [a.memory.address + a.offset for a in arguments]

    def __call__(self) -> None:
        from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray

        given = []
        for address, (dtype, size) in zip(self.addresses, self.kinds, strict=True):
            raw = (ctypes.c_uint8 * (size * dtype.itemsize)).from_address(address)
            given.append(FakeCUDAArray(np.frombuffer(raw, dtype)))
        with _one_kernel:
            self.function(*given)

    def move(self, k: int, address: int) -> None:
        self.addresses[k] = address


class SimulatedDriver:
    """Runs kernels in the simulator."""

    name = "simulator"
    handle = None

    def __init__(self) -> None:
        self.place = GpuDevice(self, self.name)
        self._stats = {"bytes_in_use": 0, "peak_bytes_in_use": 0, "num_allocs": 0}

    def call(self, what: str, call: Callable, *args: Any, **kws: Any) -> Any:
        return call(*args, **kws)

    def allocate(self, nbytes: int, what: str = "an array") -> HostMemory:
        return HostMemory(nbytes, self._stats)

    def upload(self, memory: Any, offset: int, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        memory.bytes[offset : offset + data.size] = data

    def download(self, memory: Any, offset: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return memory.bytes[offset : offset + nbytes].copy().view(dtype).reshape(shape)

    def copy(self, target: Any, to: int, source: Any, start: int, nbytes: int) -> None:
        target.bytes[to : to + nbytes] = source.bytes[start : start + nbytes]

    def load(self, kernels: Sequence[Printed], program: str = "") -> list[Any]:
        return [self._loaded(p) for p in kernels]

    def _loaded(self, printed: Printed) -> Any:
        from numba import cuda

        space = dict(simulator.names(), quiet=lambda: np.errstate(all="ignore"))
        # Each thread has settings of its own; the simulator asks for a function of the same globals.
        around = f"def quietly(*args):\n    with quiet():\n        {printed.name}(*args)\n"
        exec(compile(printed.source + around, f"<{printed.name}>", "exec"), space)
        return cuda.jit(space["quietly"])

    def bind(
        self,
        function: Any,
        grid: tuple[int, int],
        block: tuple[int, int],
        arguments: Sequence[Argument],
    ) -> "_Launch":
        return _Launch(function[grid, block], arguments)

    def record(self, launches: Callable[[], None]) -> Callable[[], None] | None:
        return launches  # which is as good, where nothing is asked for ahead of time

    def synchronize(self) -> None:
        pass

    def settle(self) -> None:
        pass

    def memory_stats(self) -> dict[str, int]:
        return dict(self._stats)
