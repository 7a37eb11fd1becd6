"""A process that times one program of a library, on fnx or on JAX; answers lines on standard input.

`first` is answered by the seconds until the first result is there, `steady NUMBER` by the seconds of a
call, `result` by the leaves of the result; each as a line of JSON.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from typing import Any

FAMILIES = ("odes", "solvers", "samplers", "training", "physics")


def main() -> None:
    """Serve one program: the arguments are the system, the family and the program's name."""
    system, family, name = sys.argv[1:]
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # what libraries print must not mix with the answers
        if system == "fnx":
            importlib.import_module("fnx.jax")
        start = time.perf_counter()
        cases = importlib.import_module(f"libraries.{family}").CASES
        answer(out, time.perf_counter() - start)
        import jax

        jax.config.update("jax_enable_x64", True)
        function, args = next(case for case in cases if case.name == name).make()
        jax.block_until_ready([x for x in jax.tree_util.tree_leaves(args) if hasattr(x, "dtype")])
        serve(jax, function, args, out)


def answer(out: Any, value: Any) -> None:
    """One line of JSON."""
    out.write(json.dumps(value) + "\n")
    out.flush()


def serve(jax: Any, function: Any, args: tuple, out: Any) -> None:
    """Answer until the input ends."""
    result: Any = None

    def seconds(number: int) -> float:
        nonlocal result
        start = time.perf_counter()
        for _ in range(number):
            result = jax.block_until_ready(function(*args))
        return (time.perf_counter() - start) / number

    for line in sys.stdin:
        words = line.split()
        if words[0] == "first":
            answer(out, seconds(1))
            gc.collect()
            gc.disable()
        elif words[0] == "steady":
            answer(out, seconds(int(words[1])))
        else:
            arrays = [jax.numpy.asarray(x) for x in jax.tree_util.tree_leaves(result)]
            answer(out, [jax.numpy.ravel(x).astype(float).tolist() for x in arrays])


if __name__ == "__main__":
    main()
