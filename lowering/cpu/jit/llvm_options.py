"""LLVM's options, which are process-wide: passes that are left out while a session compiles.

Threads that make code side by side agree on how instructions are scheduled: whoever wants it another way
waits until nobody makes code.
"""

import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
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
# The order in which the operations of a block become instructions. The default one looks through a queue of
# those that are ready, and goes back where two want the processor's flags: a block of 13,000 instructions
# with 4,000 comparisons took it 22 of 23 seconds. The fast one copies flags; the scheduler before
# register allocation runs after either, and what they make is as long and as fast.
_LONG_BLOCKS = {"pre-RA-sched": ("fast", "default")}

IN_ORDER, LONG_BLOCKS = "in order", "long blocks"  # ways of making code
_OPTIONS = {"left out": _LEFT_OUT, IN_ORDER: _IN_ORDER, LONG_BLOCKS: _LONG_BLOCKS}

# What LLVM has been told; None: an interrupt may have come in between.
_state: dict[str, bool | None] = dict.fromkeys(_OPTIONS, False)
_makers: dict[object, frozenset[str]] = {}  # whoever makes code now, and in which ways
_lock = fork_safe(threading.RLock())

os.register_at_fork(after_in_child=_makers.clear)


def leave_out_passes() -> None:
    """Leave out passes that cost more than they bring, until `restore`."""
    with _lock:
        _tell("left out", True)


@contextmanager
def making_code(ways: Collection[str] = ()) -> Iterator[None]:
    """While this thread makes code in some ways, nobody makes it in others.

    Who has to wait asks again and again: what wakes others must be called, and an interrupt may come first.
    """
    me = object()
    try:
        while not _begins(me, frozenset(ways)):
            time.sleep(thresholds.ASK_AGAIN)
        yield
    finally:
        _makers.pop(me, None)


def _begins(me: object, ways: frozenset[str]) -> bool:
    with _lock:
        if any(others != ways for others in tuple(_makers.values())):
            return False
        for way in (IN_ORDER, LONG_BLOCKS):
            _tell(way, way in ways)
        _makers[me] = ways
    return True


def restore() -> None:
    """LLVM's defaults again, when a session ends."""
    with _lock:
        for what in _OPTIONS:
            _tell(what, False)


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
