"""Processes that work together: ranks of MPI, under the names of jax.distributed.

`initialize` makes this process one of them; from then on `devices` are those of all ranks, `local_devices`
those of this one, and `pmap` maps over the devices of all.
"""

import os
import sys
import traceback
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.errors import InvalidValue
from fnx.core.source import is_internal
from fnx.process import devices

__all__ = ["end_all", "initialize", "is_initialized", "line_now", "line_of", "shutdown"]


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: Any = None,
    **options: Any,
) -> None:
    """Make this process one of those that `mpiexec` started, before arrays are mapped.

    What JAX needs to find other processes is known to MPI, and only compared with it; that is all that a
    script's call does under `python -m fnx.distributed SCRIPT`, where this is so from the start.
    MissingPackage, an ImportError, where there is no MPI; InvalidValue, a ValueError, for numbers that are
    not MPI's.

    >>> fnx.distributed.is_initialized()
    False
    """
    from fnx.lowering.transport.mpi import Mpi, world

    del coordinator_address, local_device_ids, options
    known = is_initialized()
    ranks = devices.ranks[0] if known else Mpi(world().COMM_WORLD.Dup())
    for what, given, found in (
        ("num_processes", num_processes, ranks.size),
        ("process_id", process_id, ranks.rank),
    ):
        if given is not None and given != found:
            raise InvalidValue(
                f"fnx.distributed.initialize got {what}={given}, but MPI says {found}. Start the program "
                f"with `mpiexec -n {num_processes or ranks.size} python -m fnx.distributed script.py`."
            )
    if known:
        return
    counts = {int(n) for n in ranks.all_gather(np.asarray(config.num_devices.value))}
    if len(counts) > 1:
        raise InvalidValue(
            f"ranks have different numbers of devices: {sorted(counts)}; expected the same FNX_NUM_DEVICES"
        )
    devices.ranks.append(ranks)
    if ranks.size > 1:
        _end_all_on_errors(ranks)


def _end_all_on_errors(ranks: Any) -> None:
    """Let an error that nobody caught end all ranks, which would wait for this one for ever."""
    before = sys.excepthook

    def ending(kind: Any, error: BaseException, traceback: Any) -> None:
        before(kind, error, traceback)
        end_all(ranks, f"failed: {kind.__name__}: {error}{line_of(error)}", 1)

    sys.excepthook = ending


def shutdown() -> None:
    """Make this process one that works alone.

    >>> fnx.distributed.shutdown()
    """
    devices.ranks.clear()


def is_initialized() -> bool:
    """Whether this process works together with others.

    >>> fnx.distributed.is_initialized()
    False
    """
    return bool(devices.ranks)


def line_of(error: BaseException) -> str:
    """Where in the user's code an error was raised."""
    return _last_own(traceback.extract_tb(error.__traceback__))


def line_now() -> str:
    """Where the user's code is."""
    return _last_own(traceback.extract_stack())


def _last_own(frames: list[traceback.FrameSummary]) -> str:
    own = [f for f in frames if not is_internal(f.filename) and not f.filename.startswith("<")]
    own = [f for f in own if os.path.basename(f.filename) != "runpy.py"]
    return f"\n  at {own[-1].filename}:{own[-1].lineno} ({own[-1].name})" if own else ""


def end_all(ranks: Any, what: str, code: int) -> None:
    """End all ranks with a message."""
    text = f"fnx.distributed: rank {ranks.rank} of {ranks.size} {what}\n"
    sys.stderr.write(text)
    sys.stdout.flush()
    sys.stderr.flush()
    ranks.comm.Abort(code)
