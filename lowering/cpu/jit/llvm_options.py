"""LLVM's options, which are process-wide: passes that are left out while a session compiles.

Threads that make code side by side agree on whether instructions are scheduled: whoever wants it the other
way waits until nobody makes code.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from fnx.core.threads.fork_safety import fork_safe
from fnx.lowering.cpu.processor import thresholds

# Passes that are left out; and the options' defaults.
# - Loop strength reduction takes up to three quarters of the time of stencils. Measured over 50
#   programs: code as fast without it (geometric mean 0.99, stencils 0.9), compiled in 0.86 of the
#   time (stencils 0.4).
# - Partial redundancy elimination of loads in loops keeps x[i + 1] for the next iteration, where it is
#   x[i]. The vectoriser then finds iterations that depend on each other: stencils ran at a third.
# - The list scheduler after register allocation takes time that grows with the square of a block, and
#   up to half of it where registers are spilt. Processors that reorder instructions run as fast.
_LEFT_OUT = {
    "disable-lsr": ("true", "false"),
    "enable-load-in-loop-pre": ("false", "true"),
    "disable-post-ra": ("true", "false"),
}
# The scheduler before register allocation, without which instructions stay in the order of the text.
_IN_ORDER = {"enable-misched": ("false", "true")}

_OPTIONS = {"left out": _LEFT_OUT, "in order": _IN_ORDER}

# What LLVM has been told; None: an interrupt may have come in between.
_state: dict[str, bool | None] = {"left out": False, "in order": False}
_makers: dict[object, bool] = {}  # whoever makes code now, and whether instructions stay in order
_lock = fork_safe(threading.RLock())

os.register_at_fork(after_in_child=_makers.clear)


def leave_out_passes() -> None:
    """Leave out passes that cost more than they bring, until `restore`."""
    with _lock:
        _tell("left out", True)


@contextmanager
def making_code(in_order: bool) -> Iterator[None]:
    """While this thread makes code, nobody changes whether instructions are left in order.

    Who has to wait asks again and again: what wakes others must be called, and an interrupt may come first.
    """
    me = object()
    try:
        while not _begins(me, in_order):
            time.sleep(thresholds.ASK_AGAIN)
        yield
    finally:
        _makers.pop(me, None)


def _begins(me: object, in_order: bool) -> bool:
    with _lock:
        if (not in_order) in tuple(_makers.values()):
            return False
        _tell("in order", in_order)
        _makers[me] = in_order
    return True


def restore() -> None:
    """LLVM's defaults again, when a session ends."""
    with _lock:
        _tell("in order", False)
        _tell("left out", False)


def _tell(what: str, wanted: bool) -> None:
    if _state[what] != wanted:
        _state[what] = None
        _set(_OPTIONS[what], 0 if wanted else 1)
        _state[what] = wanted


def _set(options: Mapping[str, tuple[str, str]], which: int) -> None:
    import llvmlite.binding as llvm

    # Not tried before LLVM 20; it ends the process if it does not know an option.
    if llvm.llvm_version_info[0] >= 20:
        for option, values in options.items():
            llvm.set_option("fnx", f"-{option}={values[which]}")
