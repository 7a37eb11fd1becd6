"""What is asked of a driver of a GPU: a few calls, so that another can stand in."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from .kernels.kernel_printer import Printed


class Memory(Protocol):
    """Bytes of the device; they are free when nobody holds the object."""

    address: int
    nbytes: int
    is_lent: bool


class Argument(NamedTuple):
    """What a kernel gets for a buffer: where it begins, and what lies there."""

    memory: Memory
    offset: int  # bytes
    dtype: str  # as it is stored
    size: int  # elements
    is_array: bool  # passed with its size, as Numba's arrays are, for atomic operations


class Launch(Protocol):
    """A kernel with its arguments, to be launched as often as one likes; of memory it holds none."""

    def __call__(self) -> None:
        """Run the kernel after all that was asked for before."""
        ...

    def move(self, k: int, address: int) -> None:
        """From now on argument k begins there."""
        ...


class GpuDevice:
    """A GPU that programs run on: with backend="cuda", or because their arrays were put on it."""

    platform = "gpu"
    id = process_index = 0

    def __init__(self, driver: "Driver", kind: str):
        self._driver, self.device_kind = driver, kind

    def memory_stats(self) -> dict[str, int]:
        """Bytes of arrays and workspaces in use now, and the most that ever were."""
        return self._driver.memory_stats()

    def __repr__(self) -> str:
        return f"GpuDevice(id={self.id})"


class Driver(Protocol):
    """The calls, which are in order as on one stream: the next one sees what the last one left."""

    name: str
    place: GpuDevice
    handle: int | None  # of the stream, for libraries; None where there are none

    def call(self, what: str, call: Callable, *args: Any, **kws: Any) -> Any:
        """What a call gives that is CUDA's or a library's; an error of ours where it fails."""
        ...

    def allocate(self, nbytes: int, what: str = "an array") -> Memory:
        """New memory for what errors then name; OutOfMemory if there is none left."""
        ...

    def upload(self, memory: Memory, offset: int, array: np.ndarray) -> None:
        """Copy an array of the host."""
        ...

    def download(
        self, memory: Memory, offset: int, shape: tuple[int, ...], dtype: Any
    ) -> np.ndarray:
        """A copy on the host, of all that was asked for before."""
        ...

    def copy(self, target: Memory, to: int, source: Memory, start: int, nbytes: int) -> None:
        """Copy from one place of the device to another."""
        ...

    def load(self, kernels: Sequence[Printed], program: str = "") -> list[Any]:
        """Kernels that can be launched, and the program that errors name."""
        ...

    def bind(
        self,
        function: Any,
        grid: tuple[int, int],
        block: tuple[int, int],
        arguments: Sequence[Argument],
    ) -> Launch:
        """A kernel with its arguments, which runs, when it is called, after all that was asked for."""
        ...

    def record(self, launches: Callable[[], None]) -> Callable[[], None] | None:
        """A graph of the launches that a function makes, to be run as often as one likes; or None.

        The function does nothing but launch, and what it launches has not run after this.
        """
        ...

    def synchronize(self) -> None:
        """Wait for all that was asked for."""
        ...

    def settle(self) -> None:
        """Wait for all that anybody has asked of the device, other libraries included."""
        ...

    def memory_stats(self) -> dict[str, int]:
        """Bytes in use, the most that ever were, those of the device."""
        ...
