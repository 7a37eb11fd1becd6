"""Ctrl-C in native code: a long loop asks now and then whether Python has a signal to deliver."""

import ctypes
from functools import lru_cache
from typing import Any

from . import call_wrapper_loader, host_callbacks


def address() -> int:
    """The address of `int32 fnx_poll(void)`: not 0 if the program should stop."""
    wrapper = call_wrapper_loader.get()
    if wrapper is not None:
        return wrapper.address["fnx_poll"]
    return ctypes.cast(_by_ctypes(), ctypes.c_void_p).value


@lru_cache(maxsize=1)
def _by_ctypes() -> Any:
    return ctypes.CFUNCTYPE(ctypes.c_int32)(_poll)


def _poll() -> int:
    # Any Python code that runs in the main thread delivers signals; this only waits for them.
    try:
        ctypes.pythonapi.PyErr_CheckSignals()
    except BaseException as error:
        host_callbacks.keep_error(error)
        return 1
    return 0
