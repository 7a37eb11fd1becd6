"""`python -m fnx.jax PROGRAM args`, `-m module args` or `-c code args`: a program for JAX, run on fnx.

Python processes that the program starts are served in the same way.
"""

import os
import runpy
import sys
from pathlib import Path
from types import ModuleType

import fnx.jax  # noqa: F401  (serves jax)

USAGE = "usage: python -m fnx.jax (PROGRAM | -m module | -c code) [args]\n"


def inherit() -> None:
    """Let Python processes that this one starts find `site/sitecustomize.py` first."""
    place = str(Path(__file__).with_name("site"))
    known = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if place not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([place, *known])


def main(arguments: list[str]) -> None:
    """Run a script, a module or code as Python would."""
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(USAGE)
    inherit()
    if arguments[0] in ("-m", "-c"):
        if len(arguments) < 2:
            sys.exit(USAGE)
        sys.path.insert(0, os.getcwd())
        if arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            sys.modules["__main__"] = ModuleType("__main__")  # where pickles look for its functions
            exec(compile(arguments[1], "<string>", "exec"), vars(sys.modules["__main__"]))
        else:
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
