"""Ctrl-C in native code: a long loop asks now and then whether Python has a signal to deliver."""

import ctypes
from functools import lru_cache

from . import host

_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32)


def _poll() -> int:
    # Entering Python from a C function runs signal handlers that are due, in the main thread.
    try:
        ctypes.pythonapi.PyErr_CheckSignals()
    except BaseException as error:
        host.keep_error(error)
        return 1
    return 0


@lru_cache(maxsize=1)
def _native() -> ctypes._CFuncPtr:
    return _SIGNATURE(_poll)


def address() -> int:
    """The address of `int32 fnx_poll(void)`: not 0 if the program should stop."""
    return ctypes.cast(_native(), ctypes.c_void_p).value
