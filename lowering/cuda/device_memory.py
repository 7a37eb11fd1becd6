"""Memory of a GPU: what is in use, what was given back and is kept, and who holds it."""

from contextlib import suppress
from functools import lru_cache
from typing import Any

from fnx.core.errors import JaxRuntimeError


class Usage:
    """Bytes in use by address, and what they are."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, str]] = {}
        self._in_use = self._peak = self._count = 0

    def add(self, address: int, nbytes: int, what: str) -> None:
        self._held[address] = nbytes, what
        self._count += 1
        self._in_use += nbytes
        if self._in_use > self._peak:
            self._peak = self._in_use

    def remove(self, address: int) -> None:
        self._in_use -= self._held.pop(address, (0, ""))[0]

    def said(self) -> str:
        """What is in use, for errors."""
        largest = sorted(self._held.values(), key=lambda m: -m[0])[:3]
        held = ", ".join(f"{what} ({size} bytes)" for size, what in largest) or "none"
        return f"{self._in_use} bytes are in use by this process, the largest being {held}"

    def stats(self) -> dict[str, int]:
        return {
            "bytes_in_use": self._in_use,
            "peak_bytes_in_use": self._peak,
            "num_allocs": self._count,
            "largest_alloc_size": max((size for size, _ in [*self._held.values()]), default=0),
        }


class Blocks:
    """Memory that was given back, by size: to be used again on the same stream without asking CUDA."""

    MOST = 4  # of a size that are kept; more go back to the pool
    PAGE = 256  # bytes, which CUDA aligns to

    def __init__(self, largest: int):
        self.largest = largest  # bytes of a block that is kept: a small part of the device's memory
        self.of_size: dict[int, list[Any]] = {}

    @staticmethod
    @lru_cache(maxsize=1024)
    def rounded(nbytes: int) -> int:
        """A size that others have too: at most an eighth more."""
        step = max(Blocks.PAGE, 1 << max(nbytes.bit_length() - 4, 0))
        return max(-(-nbytes // step), 1) * step

    def taken(self, size: int) -> Any:
        """A block, or None."""
        try:
            return self.of_size[size].pop()
        except (KeyError, IndexError):
            return None

    def kept(self, size: int, memory: Any) -> bool:
        """Whether a block is kept."""
        found = self.of_size.get(size)
        if found is None:
            found = self.of_size[size] = []
        if size > self.largest or len(found) >= self.MOST:
            return False
        found.append(memory)
        return True

    def all(self) -> list[Any]:
        """All blocks, which are no longer kept."""
        found, self.of_size = self.of_size, {}
        return [memory for blocks in found.values() for memory in blocks]


class Held:
    """Memory of the device, which goes back when nobody holds this."""

    __slots__ = ("__weakref__", "_driver", "_memory", "_size", "address", "is_lent", "nbytes")

    def __init__(self, driver: Any, memory: Any, address: int, nbytes: int, size: int, what: str):
        self.address = address
        self._driver, self._memory, self._size, self.nbytes = driver, memory, size, nbytes
        self.is_lent = False  # to another library, whose streams may use it when it is let go
        driver.memory.add(address, nbytes, what)

    def __del__(self) -> None:
        driver = self._driver
        driver.memory.remove(self.address)
        if not driver.is_forked and not driver.lost:
            if not self.is_lent and driver.blocks.kept(self._size, self._memory):
                return
            with suppress(JaxRuntimeError):
                if self.is_lent:
                    driver.settle()
                driver.call("giving memory back", self._memory.close, driver.stream)
