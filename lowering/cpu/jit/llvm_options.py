"""LLVM's options, which are process-wide: passes that are left out while a session compiles.

Threads that make code side by side agree on whether instructions are scheduled: whoever wants it the other
way waits until nobody makes code.
"""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

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

_state: dict[str, Any] = {"ours": False, "in order": False, "threads": 0}
_changed = threading.Condition()


def _after_fork() -> None:
    _changed._at_fork_reinit()  # type: ignore[attr-defined] # another thread may hold it
    _state["threads"] = 0


os.register_at_fork(after_in_child=_after_fork)


def leave_out_passes() -> None:
    """Leave out passes that cost more than they bring, until `restore`."""
    with _changed:
        if not _state["ours"]:
            _set(_LEFT_OUT, 0)
            _state["ours"] = True


@contextmanager
def making_code(in_order: bool) -> Iterator[None]:
    """While this thread makes code, nobody changes whether instructions are left in order."""
    with _changed:
        _changed.wait_for(lambda: not _state["threads"] or _state["in order"] == in_order)
        _in_order(in_order)
        _state["threads"] += 1
    try:
        yield
    finally:
        with _changed:
            _state["threads"] -= 1
            _changed.notify_all()


def _in_order(wanted: bool) -> None:
    if _state["in order"] != wanted:
        _set(_IN_ORDER, 0 if wanted else 1)
        _state["in order"] = wanted


def restore() -> None:
    """LLVM's defaults again, when a session ends."""
    with _changed:
        _in_order(False)
        if _state["ours"]:
            _set(_LEFT_OUT, 1)
            _state["ours"] = False


def _set(options: Mapping[str, tuple[str, str]], which: int) -> None:
    import llvmlite.binding as llvm

    # Not tried before LLVM 20; it ends the process if it does not know an option.
    if llvm.llvm_version_info[0] >= 20:
        for option, values in options.items():
            llvm.set_option("fnx", f"-{option}={values[which]}")
