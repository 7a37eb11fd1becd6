"""The driver of a GPU: cuda.core's calls, on one stream. No GPU has run it yet.

Memory is the stream's pool's. Kernels are cubins for the compute capability of the device
(`device_code.py`), arguments are pointers. What the GPU reports arrives with a later call: the error
then names the programs that it had been asked for since it was last known to be well.
"""

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np

from fnx.core.errors import JaxRuntimeError
from fnx.core.threads.fork_safety import cached_property

from . import device_code
from .driver import Argument, GpuDevice
from .kernels.kernel_printer import Printed

_OLDEST = 13000  # the driver's version, as it says it, that code of CUDA 13 needs
# Of CUDA's errors those after which a process cannot use the device any more.
_FATAL = (
    "ILLEGAL_ADDRESS MISALIGNED_ADDRESS ILLEGAL_INSTRUCTION INVALID_PC INVALID_ADDRESS_SPACE "
    "LAUNCH_FAILED LAUNCH_TIMEOUT HARDWARE_STACK_ERROR ASSERT ECC_UNCORRECTABLE DEVICE_UNAVAILABLE "
    "CONTEXT_IS_DESTROYED NVLINK_UNCORRECTABLE UNKNOWN"
).split()


class NoDevice(JaxRuntimeError):
    """A GPU was asked for where there is none that can be used."""


class OutOfMemory(JaxRuntimeError):
    """The memory of a GPU did not suffice; nothing that was there is lost."""


class DeviceLost(JaxRuntimeError):
    """A GPU failed such that this process can use it no more; the CPU goes on."""


class Loaded(NamedTuple):
    """A kernel that can be launched, and whose it is."""

    kernel: Any
    name: str


def _first_device() -> Any:
    """The first GPU; NoDevice, which says why it cannot be used."""
    try:
        from cuda.bindings import driver
        from cuda.core import Device

        _, version = driver.cuDriverGetVersion()
        if 0 < version < _OLDEST:
            raise RuntimeError(
                f"its driver is of CUDA {version // 1000}.{version % 1000 // 10}, too old"
            )
        device = Device(0)
        device.set_current()
        return device
    except Exception as error:
        raise NoDevice(
            f"no GPU can be used: {type(error).__name__}: {str(error).strip()}. Expected a GPU of "
            "NVIDIA's and its driver (nvidia-smi lists it), of version 580 or later for CUDA 13; "
            'backend="cpu" needs none.'
        ) from error


class GpuDriver:
    """Runs kernels on the first GPU of the process."""

    name = "cuda"

    def __init__(self) -> None:
        device_code.numba_cuda()
        self._process = os.getpid()
        self.device = _first_device()
        self.place = GpuDevice(self, str(self.device.name))
        self._own = (
            threading.local()
        )  # of each thread: that it has the context, and what it records
        self._own.is_ready = True
        self.stream = self.device.create_stream()
        self.handle = int(self.stream.handle)
        self._held: WeakSet[_Held] = WeakSet()
        self._in_use = self._peak = self._count = 0
        self._asked: dict[str, None] = {}  # kernels, since the GPU was last known to be well
        self._lost = ""

    @cached_property
    def architecture(self) -> str:
        return f"sm_{self.device.arch}"

    def _call(self, what: str, call: Callable, *args: Any, **kws: Any) -> Any:
        """What a call of CUDA's gives; an error of ours where it fails."""
        if os.getpid() != self._process:
            raise NoDevice(
                "this process was forked from one that had used the GPU, whose state a fork does not "
                'take along. Start workers by multiprocessing\'s "spawn", or use the CPU in them.'
            )
        if self._lost:
            raise DeviceLost(f"{what} is not possible: {self._lost}")
        try:
            self._enter()
            return call(*args, **kws)
        except Exception as error:
            raise self._failure(what, f"{type(error).__name__}: {error}") from error

    def _enter(self) -> None:
        """Make the device's context the current one of a thread that comes here first."""
        if not hasattr(self._own, "is_ready"):
            self.device.set_current()
            self._own.is_ready = True

    def _failure(self, what: str, said: str) -> JaxRuntimeError:
        asked = ", ".join([*self._asked]) or "nothing"
        self._asked.clear()
        text = f"{what} failed on the GPU: {said}. What it had been asked for before: {asked}."
        if not any(code in said for code in _FATAL):
            return JaxRuntimeError(text)
        self._lost = f"the GPU failed earlier ({said}, after {asked}), and this process has lost it"
        return DeviceLost(
            f"{text} Arrays that lay there are lost. This process goes on with the CPU "
            '(backend="cpu"); another process can use the GPU.'
        )

    # --- memory

    def allocate(self, nbytes: int, what: str = "an array") -> Any:
        size = max(nbytes, 16)
        ask = lambda: self.device.allocate(size, stream=self.stream)
        try:
            memory = self._call(f"the allocation of {nbytes} bytes", ask)
        except DeviceLost:
            raise
        except JaxRuntimeError as error:
            if "OUT_OF_MEMORY" not in str(error):
                raise
            gc.collect()  # arrays in circles, whose memory the pool gets when the stream is there
            self.synchronize()
            try:
                memory = ask()
            except Exception as again:
                raise self._no_memory(nbytes, what) from again
        self._count += 1
        return _Held(self, memory, nbytes, what)

    def _no_memory(self, nbytes: int, what: str) -> OutOfMemory:
        largest = sorted(self._held, key=lambda m: -m.nbytes)[:3]
        held = ", ".join(f"{m.what} ({m.nbytes} bytes)" for m in largest) or "none"
        return OutOfMemory(
            f"the GPU has no {nbytes} bytes left for {what}: {self._in_use} bytes are in use by this "
            f"process, the largest being {held}. Nothing is lost. Free arrays (del, x.delete()), donate "
            "arguments, or compute in parts."
        )

    def upload(self, memory: Any, offset: int, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array)
        self._copy(memory.address + offset, data.ctypes.data, data.nbytes)
        self.synchronize()  # the host's memory may go

    def download(self, memory: Any, offset: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        found = np.empty(shape, dtype)
        self._copy(found.ctypes.data, memory.address + offset, found.nbytes)
        self.synchronize()
        return found

    def copy(self, target: Any, to: int, source: Any, start: int, nbytes: int) -> None:
        self._copy(target.address + to, source.address + start, nbytes)

    def _copy(self, target: int, source: int, nbytes: int) -> None:
        def ask() -> None:
            from cuda.bindings import driver

            (error,) = driver.cuMemcpyAsync(target, source, nbytes, self.handle)
            if int(error):
                raise RuntimeError(repr(error))

        self._call(f"a copy of {nbytes} bytes", ask)

    # --- kernels

    def load(self, printed: Printed, program: str = "") -> Loaded:
        from cuda.core import ObjectCode

        code = device_code.cubin(printed, self.architecture)
        name = f"{program}: {printed.name}" if program else printed.name
        make = lambda: ObjectCode.from_cubin(code.cubin).get_kernel(code.entry)
        return Loaded(self._call(f"loading {name}", make), name)

    def launch(
        self,
        function: Loaded,
        grid: tuple[int, int],
        block: tuple[int, int],
        arguments: Sequence[Argument],
    ) -> None:
        from cuda.core import LaunchConfig, launch

        given = words(
            [
                (a.memory.address + a.offset, a.size, np.dtype(a.dtype).itemsize, a.is_array)
                for a in arguments
            ]
        )
        config = LaunchConfig(grid=grid, block=block)
        self._call(
            f"the launch of {function.name}",
            lambda: launch(
                getattr(self._own, "target", self.stream),
                config,
                function.kernel,
                *given,
            ),
        )
        self._asked[function.name] = None

    def record(self, launches: Callable[[], None]) -> Callable[[], None] | None:
        # On a stream of its own: what other threads ask for meanwhile, and memory that goes back, is not
        # recorded.
        builder = self._call("recording a graph", self.device.create_graph_builder)
        before = dict(self._asked)
        self._call("recording a graph", builder.begin_building)
        try:
            self._own.target = builder
            launches()
        finally:
            self._own.__dict__.pop("target", None)
            builder.end_building()
        names = {n: None for n in self._asked if n not in before}
        graph = self._call("recording a graph", builder.complete)

        def run() -> None:
            self._call("the launch of a graph", graph.launch, self.stream)
            self._asked.update(names)

        return run

    def synchronize(self) -> None:
        self._call("waiting for what was asked for", self.stream.sync)
        self._asked.clear()

    def settle(self) -> None:
        self._call("waiting for the device", self.device.sync)

    def memory_stats(self) -> dict[str, int]:
        from cuda.bindings import driver

        _, _, total = self._call("asking for its memory", driver.cuMemGetInfo)
        return {
            "bytes_in_use": self._in_use,
            "peak_bytes_in_use": self._peak,
            "num_allocs": self._count,
            "largest_alloc_size": max((m.nbytes for m in self._held), default=0),
            "bytes_limit": int(total),
        }


def words(places: Iterable[tuple[int, int, int, bool]]) -> list[ctypes.c_uint64]:
    """What a kernel gets for buffers: their addresses, and of arrays all of Numba's fields.

    Each is (address, elements, bytes of an element, whether it is an array).
    """
    found: list[int] = []
    for address, size, itemsize, is_array in places:
        if is_array:  # owner, parent, length, itemsize, data, shape, stride
            found += [0, 0, size, itemsize]
        found.append(address)
        if is_array:
            found += [size, itemsize]
    return [ctypes.c_uint64(word) for word in found]


class _Held:
    """Memory of a pool, which goes back when nobody holds this."""

    def __init__(self, driver: GpuDriver, memory: Any, nbytes: int, what: str):
        self._driver, self._memory, self.nbytes, self.what = driver, memory, nbytes, what
        self.address = int(memory.handle)
        self.is_lent = False  # to another library, whose streams may use it when it is let go
        driver._held.add(self)
        driver._in_use += nbytes
        driver._peak = max(driver._peak, driver._in_use)

    def __del__(self) -> None:
        if not hasattr(self, "address"):
            return
        self._driver._in_use -= self.nbytes
        if os.getpid() == self._driver._process and not self._driver._lost:
            with suppress(JaxRuntimeError):
                self._driver._enter()
                if self.is_lent:
                    self._driver.settle()
            self._memory.close(self._driver.stream)
