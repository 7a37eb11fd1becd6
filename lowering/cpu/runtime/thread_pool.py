"""The thread pool as Python sees it: how many threads, and where its code (thread_pool_ir.py) lies."""

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from fnx.core.errors import InvalidValue
from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.jit.session import once
from fnx.lowering.cpu.runtime import interrupts

EXPORTS = ("fnx_parallel_for", "fnx_parallel_for_polled", "fnx_threads", "fnx_started")
EXPORTS += ("fnx_reset", "fnx_pool_busy")
_FUTEX = ("x86_64", "aarch64")  # where the code knows how threads sleep
_MOST = 1024


def _text() -> str:
    from . import thread_pool_ir  # a process that finds the code on disk needs no writer

    return thread_pool_ir.text()


class Pool:
    """The loaded pool."""

    def __init__(self) -> None:
        imports = {"fnx_poll": interrupts.address()}
        code = code_cache.code(_text, EXPORTS, imports, kind="glue", name="threads")
        code_cache.keep_forever(code.keep)  # its threads never end
        self.address = code.addresses["fnx_parallel_for"]
        self.polled = code.addresses["fnx_parallel_for_polled"]
        self.busy = code.addresses["fnx_pool_busy"]
        self._threads = ctypes.c_int64.from_address(code.addresses["fnx_threads"])
        self._started = ctypes.c_int64.from_address(code.addresses["fnx_started"])
        self._threads.value = _settings["threads"] or default_threads()
        reset = ctypes.PYFUNCTYPE(None)(code.addresses["fnx_reset"])
        os.register_at_fork(after_in_child=reset)

    def set(self, n: int) -> None:
        self._threads.value = n if _can_wait() else 1

    def workers(self) -> int:
        """How many threads were started."""
        return self._started.value


def _can_wait() -> bool:
    """Threads sleep by a system call of Linux; elsewhere loops run in their callers."""
    return sys.platform.startswith("linux") and platform.machine() in _FUTEX


_settings: dict[str, int | None] = {"threads": None}  # what set_num_threads was told
watchers: list[Callable[[int], None]] = []  # who else wants to know


@once
def pool() -> Pool:
    return Pool()


def address() -> int:
    """The address of `fnx_parallel_for`."""
    return pool().address


def set_num_threads(n: int) -> None:
    """Let parallel loops use `n` threads, the caller's included, from the next loop on."""
    if not isinstance(n, int) or not 1 <= n <= _MOST:
        raise InvalidValue(f"the number of threads is an integer from 1 to {_MOST}, not {n!r}")
    _settings["threads"] = n
    for told in watchers:
        told(n)
    if pool.values:
        pool().set(n)


def get_num_threads() -> int:
    """The number of threads that parallel loops may use, the caller's included."""
    return _settings["threads"] or default_threads()


def default_threads() -> int:
    """`FNX_NUM_THREADS`, or the CPUs that this process may use."""
    if not _can_wait():
        return 1
    chosen = os.environ.get("FNX_NUM_THREADS", "")
    if chosen:
        if not chosen.isdigit() or not 1 <= int(chosen) <= _MOST:
            raise InvalidValue(
                f"FNX_NUM_THREADS is {chosen!r}; expected an integer from 1 to {_MOST}"
            )
        return int(chosen)
    return available_cpus()


def available_cpus() -> int:
    """CPUs that the process may run on, by its affinity and by the quota of its control groups."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(max(1, min(count or 1, quota())), _MOST)


def quota(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The whole CPUs that control groups grant (version 2, or 1), rounded up; many if unlimited."""
    least = _MOST
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        number, controllers, path = line.split(":", 2)
        inner = path.lstrip("/")
        if number == "0":
            folders = [root / inner, *(root / inner).parents, root]
            texts = [
                _read(folder / "cpu.max") for folder in folders if root in (folder, *folder.parents)
            ]
        elif "cpu" in controllers.split(","):
            base = root / "cpu"
            texts = [
                f"{_read(place / 'cpu.cfs_quota_us')} {_read(place / 'cpu.cfs_period_us')}"
                for place in (base / inner, base)
            ]
        else:
            continue
        least = min([least, *map(_cpus, texts)])
    return least


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _cpus(text: str) -> int:
    """CPUs by "quota period" in microseconds; "max" or a negative quota is no limit."""
    words = text.split()
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return _MOST
    return max(1, -(-int(words[0]) // int(words[1])))
