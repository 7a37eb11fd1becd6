"""The driver of a GPU: cuda.core's calls, on one stream.

Memory is the stream's pool's, which it goes back to by way of lists of blocks of a size. Kernels are
cubins for the compute capability of the device (`device_code.py`), arguments are pointers. What the GPU
reports arrives with a later call: the error then names the programs that it had been asked for since it
was last known to be well.
"""

import gc
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from fnx.core.errors import JaxRuntimeError
from fnx.core.fast_dataclasses import dataclass
from fnx.core.threads.fork_safety import cached_property

from . import device_code
from .device_memory import Blocks, Held, Usage
from .driver import Argument, GpuDevice
from .kernels.kernel_printer import Printed
from .launches import Launch

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


@dataclass(eq=False)
class Loaded:
    """A kernel that can be launched, as CUDA's driver knows it, and whose it is."""

    handle: Any
    name: str
    kernel: Any  # holds the code, which is unloaded when nobody has this


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
        device_code.needed()
        self.is_forked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._fork)
        self.device = _first_device()
        self.place = GpuDevice(self, str(self.device.name))
        self._own = (
            threading.local()
        )  # of each thread: that it has the context, and what it records
        self._own.is_ready = True
        self.stream = self.device.create_stream()
        self._stream = _handle(self.stream)
        self.handle = int(self.stream.handle)
        # Kernels, since the GPU was last known to be well: their code stays until they have run.
        self.asked: dict[Loaded, None] = {}
        self.lost = ""
        self.memory = Usage()
        self.blocks = Blocks(self.memory_limit() >> 10)

    @cached_property
    def architecture(self) -> str:
        return f"sm_{self.device.arch}"

    def call(self, what: str, call: Callable, *args: Any, **kws: Any) -> Any:
        """What a call gives that is CUDA's or a library's; an error of ours where it fails."""
        self.check(what)
        try:
            return call(*args, **kws)
        except Exception as error:
            raise self.failure(what, f"{type(error).__name__}: {error}") from error

    def _fork(self) -> None:
        self.is_forked = True

    def check(self, what: str) -> None:
        """See to it that this thread of this process can call CUDA; else an error that says why not."""
        if self.is_forked:
            raise NoDevice(
                "this process was forked from one that had used the GPU, whose state a fork does not "
                'take along. Start workers by multiprocessing\'s "spawn", or use the CPU in them.'
            )
        if self.lost:
            raise DeviceLost(f"{what} is not possible: {self.lost}")
        if not hasattr(self._own, "is_ready"):  # a thread that comes here first has no context
            try:
                self.device.set_current()
            except Exception as error:
                raise self.failure(what, f"{type(error).__name__}: {error}") from error
            self._own.is_ready = True

    def failure(self, what: str, said: str) -> JaxRuntimeError:
        asked = ", ".join({f.name: None for f in [*self.asked]}) or "nothing"
        self.asked.clear()
        text = f"{what} failed on the GPU: {said}. What it had been asked for before: {asked}."
        if not any(code in said for code in _FATAL):
            return JaxRuntimeError(text)
        self.lost = f"the GPU failed earlier ({said}, after {asked}), and this process has lost it"
        return DeviceLost(
            f"{text} Arrays that lay there are lost. This process goes on with the CPU "
            '(backend="cpu"); another process can use the GPU.'
        )

    # --- memory

    def allocate(self, nbytes: int, what: str = "an array") -> Any:
        size = Blocks.rounded(nbytes)
        memory = self.blocks.taken(size)
        if memory is None:
            memory = self._new(size, nbytes, what)
        return Held(self, memory, int(memory.handle), nbytes, size, what)

    def _new(self, size: int, nbytes: int, what: str) -> Any:
        ask = lambda: self.device.allocate(size, stream=self.stream)
        try:
            return self.call(f"the allocation of {nbytes} bytes", ask)
        except DeviceLost:
            raise
        except JaxRuntimeError as error:
            if "OUT_OF_MEMORY" not in str(error):
                raise
            gc.collect()  # arrays in circles, whose memory the pool gets when the stream is there
            for memory in self.blocks.all():
                memory.close(self.stream)
            self.synchronize()
            try:
                return ask()
            except Exception as again:
                raise self._no_memory(nbytes, what) from again

    def _no_memory(self, nbytes: int, what: str) -> OutOfMemory:
        return OutOfMemory(
            f"the GPU has no {nbytes} bytes left for {what}: {self.memory.said()}. Nothing is lost. Free "
            "arrays (del, x.delete()), donate arguments, or compute in parts."
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

        self.call(f"a copy of {nbytes} bytes", ask)

    # --- kernels

    def load(self, kernels: Sequence[Printed], program: str = "") -> list[Loaded]:
        codes = device_code.cubins(kernels, self.architecture)
        return [self._loaded(p, c, program) for p, c in zip(kernels, codes, strict=True)]

    def _loaded(self, printed: Printed, code: device_code.Code, program: str) -> Loaded:
        from cuda.bindings import driver
        from cuda.core import ObjectCode

        name = f"{program}: {printed.name}" if program else printed.name
        make = lambda: ObjectCode.from_cubin(code.cubin).get_kernel(code.entry)
        kernel = self.call(f"loading {name}", make)
        return Loaded(driver.CUfunction(int(kernel.handle)), name, kernel)

    def bind(
        self,
        function: Loaded,
        grid: tuple[int, int],
        block: tuple[int, int],
        arguments: Sequence[Argument],
    ) -> Launch:
        return Launch(self, function, (*grid, 1, *block, 1), arguments)

    def target(self, what: str) -> Any:
        """The stream that this thread launches on: its recording's, else the one of all.

        An error that says why, where it cannot.
        """
        own = self._own
        if self.is_forked or self.lost or not hasattr(own, "is_ready"):
            self.check(what)
        return getattr(own, "target", self._stream)

    def record(self, launches: Callable[[], None]) -> Callable[[], None] | None:
        # On a stream of its own: what other threads ask for meanwhile, and memory that goes back, is not
        # recorded.
        builder = self.call("recording a graph", self.device.create_graph_builder)
        self.call("recording a graph", builder.begin_building)
        before, self.asked = self.asked, {}
        try:
            self._own.target = _handle(builder.stream)
            launches()
        except BaseException:
            with suppress(Exception):  # a recording that failed ends with an error of its own
                builder.end_building()
            raise
        finally:
            self._own.__dict__.pop("target", None)
            functions, self.asked = self.asked, {**before, **self.asked}
        self.call("recording a graph", builder.end_building)
        graph = self.call("recording a graph", builder.complete)

        def run() -> None:
            self.call("the launch of a graph", graph.launch, self.stream)
            self.asked.update(functions)

        return run

    def synchronize(self) -> None:
        what = "waiting for what was asked for"
        self.check(what)
        asked, self.asked = self.asked, {}  # what other threads ask for meanwhile may not have run
        try:
            self.stream.sync()
        except BaseException as error:
            self.asked = {**asked, **self.asked}
            if not isinstance(error, Exception):
                raise
            raise self.failure(what, f"{type(error).__name__}: {error}") from error

    def settle(self) -> None:
        self.call("waiting for the device", self.device.sync)

    def memory_limit(self) -> int:
        """Bytes of the device."""
        from cuda.bindings import driver

        return int(self.call("asking for its memory", driver.cuMemGetInfo)[2])

    def memory_stats(self) -> dict[str, int]:
        return {**self.memory.stats(), "bytes_limit": self.memory_limit()}


def _handle(stream: Any) -> Any:
    from cuda.bindings import driver

    return driver.CUstream(int(stream.handle))
