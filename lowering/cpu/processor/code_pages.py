"""Memory for machine code: it is written first and made executable then, never both at a time."""

import ctypes
import os
import sys
from typing import Any

PAGE = 4096  # of x86-64
_READ, _WRITE, _EXECUTE = 1, 2, 4
_PRIVATE, _ANONYMOUS = 2, 32


def usable() -> bool:
    """Whether this is a platform whose numbers these are: Linux on x86-64."""
    return (
        sys.platform.startswith("linux")
        and os.uname().machine == "x86_64"
        and ctypes.sizeof(ctypes.c_void_p) == 8
    )


class Pages:
    """So many bytes of zeros at `address`, for as long as this object lives.

    OSError where the system has no memory, or lets no process make code of its own.
    """

    def __init__(self, size: int):
        self.size = -(-size // PAGE) * PAGE
        self.address = _map(None, self.size, _READ | _WRITE, _PRIVATE | _ANONYMOUS, -1, 0)
        if self.address == ctypes.c_void_p(-1).value:
            self.address = 0
            raise _failure()

    def seal(self, size: int) -> None:
        """Let the first bytes, up to a border of pages, be run, and no longer be written."""
        if size and _protect(self.address, size, _READ | _EXECUTE):
            raise _failure()

    def __del__(self, is_ending: Any = sys.is_finalizing) -> None:
        # While the interpreter ends, threads may still run code that nobody holds any more.
        if self.address and not is_ending():
            _unmap(self.address, self.size)


def _failure() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"no memory for machine code: {os.strerror(number)}")


def _routine(name: str, result: Any, *args: Any) -> Any:
    function = getattr(_libc, name, None)
    if function is not None:
        function.restype, function.argtypes = result, args
    return function


_libc = ctypes.CDLL(None, use_errno=True) if usable() else None
_size, _int, _pointer = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
_map = _routine("mmap", _pointer, _pointer, _size, _int, _int, _int, ctypes.c_long)
_protect = _routine("mprotect", _int, _pointer, _size, _int)
_unmap = _routine("munmap", _int, _pointer, _size)
