"""Images: linked code as a file keeps it. To load one is to copy it and to fill in some addresses.

The bytes work wherever they lie, but for words that hold addresses: of the routines that the code
calls, and of its own parts. `linker.py` makes images of object files.
"""

import ctypes
import marshal
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from fnx.lowering.cpu.processor.code_pages import Pages

_REACH = 1 << 31  # of a call, which holds the distance in 32 bits
_WORD = (1 << 64) - 1


class Image(NamedTuple):
    """Code, with its constants and tables, then from `writable` on its variables.

    `words` are 8 bytes each: where, which of `names` or -1 for the image's own start, and what to
    add. `calls` lie in the code: where the distance is written, and which of `names` it leads to.
    Until then they lead to a jump by way of a word, which reaches farther.
    """

    code: bytes
    size: int  # in memory: there are zeros after `code`
    writable: int  # a multiple of a page
    names: tuple[str, ...]
    words: tuple[tuple[int, int, int], ...]
    calls: tuple[tuple[int, int], ...]
    exports: dict[str, int]

    def packed(self) -> bytes:
        return marshal.dumps(tuple(self))

    @classmethod
    def unpacked(cls, data: bytes) -> "Image":
        """ValueError, EOFError or TypeError where the bytes are no image."""
        return cls(*marshal.loads(data))

    def place(self, known: Mapping[str, int]) -> tuple[dict[str, int], Any]:
        """The addresses of the exports in memory, and what keeps them there.

        Names that are not `known` are the process's; LookupError if it does not know one, OSError if
        no code can be put into memory.
        """
        targets = [known.get(name) or _of_process(name) for name in self.names]
        pages = Pages(self.size)
        base, code = pages.address, bytearray(self.code)
        for at, which, addend in self.words:
            target = base if which < 0 else targets[which]
            struct.pack_into("<Q", code, at, (target + addend) & _WORD)
        for at, which in self.calls:
            distance = targets[which] - (base + at + 4)
            if -_REACH <= distance < _REACH:
                struct.pack_into("<i", code, at, distance)
        ctypes.memmove(base, bytes(code), len(code))
        pages.seal(self.writable)
        return {name: base + offset for name, offset in self.exports.items()}, pages


@lru_cache(maxsize=1)
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _of_process(name: str) -> int:
    found = address_in_process(name)
    if found is None:
        raise LookupError(f"no routine {name!r} in this process")
    return found


def address_in_process(name: str) -> int | None:
    """The address of a routine of the C library, or of another that this process loaded for all."""
    try:
        return ctypes.cast(getattr(_process(), name), ctypes.c_void_p).value
    except AttributeError:
        return None
