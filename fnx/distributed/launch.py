"""Running a script as one rank of those that mpiexec starts: `python -m fnx.distributed SCRIPT`."""

import os
import runpy
import secrets
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

from fnx.distributed.sentinel import Sentinel
from fnx.distributed.watch import Watch
from fnx.process import devices
from fnx.process.distributed import end_all, initialize, line_now, line_of


def main(argv: list[str]) -> None:
    """Run a script, or with -m a module, as one rank; the first error of any rank ends all of them."""
    if not argv or argv[0] in ("-h", "--help"):
        sys.exit(
            "usage: mpiexec -n RANKS python -m fnx.distributed (SCRIPT | -m MODULE) [ARGUMENT ...]"
        )
    sentinel = Sentinel()
    initialize()
    ranks = devices.ranks[0]
    sentinel.meet(ranks.rank, ranks.size, ranks.comm.bcast(secrets.token_hex(8)))

    def end(what: str, code: int = 1) -> None:
        sentinel.speak_no_more()
        end_all(ranks, what, code)

    watch = Watch(ranks.comm.Dup(), end, sentinel.see)
    watch.start()
    _speak_before_exits(end)
    try:
        if argv[0] == "-m":
            sys.argv = argv[1:]
            runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = argv
            sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
            runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as exits:
        code = exits.code if isinstance(exits.code, int) else int(exits.code is not None)
        if code:
            end(f"exited with {exits.code!r}{line_of(exits)}", code)
    except BaseException as error:
        traceback.print_exc()
        end(f"failed: {type(error).__name__}: {error}{line_of(error)}")
    watch.leave()
    sentinel.leave()


def _speak_before_exits(end: Callable) -> None:
    """Let `os._exit` of this process end the job with a message: mpiexec may call that a success."""
    leave, own = os._exit, os.getpid()

    def ending(status: int) -> NoReturn:
        if os.getpid() == own:
            end(f"called os._exit({status}){line_now()}", status or 1)
        leave(status)

    os._exit = ending
