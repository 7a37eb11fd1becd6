"""Calls of NumPy that do not warn of nan, overflow and division by zero: these are values here."""

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any

import numpy as np


class _Quiet(threading.local):
    """A context per thread in which NumPy ignores errors; entering `np.errstate` costs more."""

    def __init__(self) -> None:
        context = copy_context()
        context.run(np.seterr, all="ignore")
        self.run = context.run


_quiet = _Quiet()


def quiet(fn: Callable, *args: Any) -> Any:
    """fn(*args), a call of NumPy that uses nothing of fnx."""
    return _quiet.run(fn, *args)
