"""Running a script as one rank of those that mpiexec starts: `python -m fnx.distributed SCRIPT`."""

import os
import runpy
import sys
import traceback
from functools import partial
from typing import Any, NoReturn

from fnx.distributed.watch import Watch
from fnx.process import devices
from fnx.process.distributed import end_all, initialize, line_now, line_of


def main(argv: list[str]) -> None:
    """Run a script, or with -m a module, as one rank; the first error of any rank ends all of them."""
    if not argv or argv[0] in ("-h", "--help"):
        sys.exit(
            "usage: mpiexec -n RANKS python -m fnx.distributed (SCRIPT | -m MODULE) [ARGUMENT ...]"
        )
    initialize()
    ranks = devices.ranks[0]
    watch = Watch(ranks.comm.Dup(), partial(end_all, ranks, code=1))
    watch.start()
    _speak_before_exits(ranks)
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
        if code:
            end_all(ranks, f"exited with {end.code!r}", code)
    except BaseException as error:
        traceback.print_exc()
        end_all(ranks, f"failed: {type(error).__name__}: {error}{line_of(error)}", 1)
    watch.leave()


def _speak_before_exits(ranks: Any) -> None:
    """Let `os._exit` of this process end the job with a message: mpiexec may call that a success."""
    leave, own = os._exit, os.getpid()

    def ending(status: int) -> NoReturn:
        if os.getpid() == own:
            end_all(ranks, f"called os._exit({status}){line_now()}", status or 1)
        leave(status)

    os._exit = ending
