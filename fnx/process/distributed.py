"""Processes that work together: ranks of MPI, under the names of jax.distributed.

`initialize` makes this process one of them; from then on `devices` are those of all ranks, `local_devices`
those of this one, and `pmap` maps over the devices of all. `main` is what `python -m fnx.distributed` runs.
"""

import os
import runpy
import sys
import traceback
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.errors import InvalidValue
from fnx.core.source import is_internal
from fnx.process import devices

__all__ = ["initialize", "is_initialized", "main", "shutdown"]


def initialize(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    local_device_ids: Any = None,
    **options: Any,
) -> None:
    """Make this process one of those that `mpiexec` started; once a process, before arrays are mapped.

    What JAX needs to find other processes is known to MPI, and only compared with it. MissingPackage, an
    ImportError, where there is no MPI; InvalidValue, a ValueError, for numbers that are not MPI's.

    >>> fnx.distributed.is_initialized()
    False
    """
    from fnx.lowering.transport.mpi import Mpi, world

    del coordinator_address, local_device_ids, options
    if is_initialized():
        raise InvalidValue("fnx.distributed is initialized already; expected one call a process")
    ranks = Mpi(world().COMM_WORLD.Dup())
    for what, given, found in (
        ("num_processes", num_processes, ranks.size),
        ("process_id", process_id, ranks.rank),
    ):
        if given is not None and given != found:
            raise InvalidValue(
                f"fnx.distributed.initialize got {what}={given}, but MPI says {found}. Start the program "
                f"with `mpiexec -n {num_processes or ranks.size} python -m fnx.distributed script.py`."
            )
    counts = {int(n) for n in ranks.all_gather(np.asarray(config.num_devices.value))}
    if len(counts) > 1:
        raise InvalidValue(
            f"ranks have different numbers of devices: {sorted(counts)}; expected the same FNX_NUM_DEVICES"
        )
    devices.ranks.append(ranks)


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


def main(argv: list[str]) -> None:
    """Run a script, or with -m a module, as one rank; the first error of any rank ends all of them."""
    if not argv or argv[0] in ("-h", "--help"):
        sys.exit(
            "usage: mpiexec -n RANKS python -m fnx.distributed (SCRIPT | -m MODULE) [ARGUMENT ...]"
        )
    initialize()
    ranks = devices.ranks[0]
    try:
        if argv[0] == "-m":
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not code:
            return
        _end_all(ranks, f"exited with {end.code!r}", code)
    except BaseException as error:
        traceback.print_exc()
        _end_all(ranks, f"failed: {type(error).__name__}: {error}{_line(error)}", 1)


def _line(error: BaseException) -> str:
    """Where in the user's code an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not is_internal(f.filename) and not f.filename.startswith("<")]
    own = [f for f in own if os.path.basename(f.filename) != "runpy.py"]
    return f"\n  at {own[-1].filename}:{own[-1].lineno} ({own[-1].name})" if own else ""


def _end_all(ranks: Any, what: str, code: int) -> None:
    text = f"fnx.distributed: rank {ranks.rank} of {ranks.size} {what}\n"
    sys.stderr.write(text)
    sys.stdout.flush()
    sys.stderr.flush()
    ranks.comm.Abort(code)
