"""Tells whether a change alters generated code: hashes of the LLVM text of every benchmark's program.

In the checkout before the change, then in the one after it, each with its own interpreter:

    .venv/bin/python benchmarks/same_code.py --write before.json
    .venv/bin/python benchmarks/same_code.py --against before.json

Gradients are compared as well, where a program has floating-point arguments. Nothing runs, and nothing
comes from a cache. The exit status is 1 where programs differ.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path

os.environ["FNX_NUM_THREADS"] = "2"  # programs depend on it

import numpy as np
import programs

import fnx
import fnx.numpy as jnp
from fnx import lax, tree_util
from fnx.core import config


def digest(fun, args) -> str:
    """A hash of the LLVM text of fun at args; why there is none, where it cannot be lowered."""
    try:
        fun = fun if hasattr(fun, "lower") else fnx.jit(fun)
        text = fun.lower(*args).as_text("llvm")
    except Exception as error:
        return f"error: {type(error).__name__}"
    return hashlib.sha256(text.encode()).hexdigest()


def gradient(fun, args):
    """The compiled gradient of the sum of fun's results by all arguments that are floats; or None."""
    leaves = [tree_util.tree_leaves(a) for a in args]
    numbers = tuple(
        k
        for k, some in enumerate(leaves)
        if some and all(np.asarray(x).dtype.kind == "f" for x in some)
    )

    def total(*args):
        outs = tree_util.tree_leaves(fun(*args))
        return sum(jnp.sum(jnp.real(x)) for x in outs if x.dtype.kind in "fc")

    return fnx.jit(fnx.grad(total, argnums=numbers)) if numbers else None


def hashes() -> dict[str, str]:
    """The hash of each program, and of its gradient, by name."""
    found = {}
    for program in programs.PROGRAMS.values():
        if program.eager:
            continue
        name = f"{program.group}: {program.name}"
        fun = program.make(fnx, jnp, lax, program.size)
        found[name] = digest(fun, program.inputs(program.size))
        if program.group == "derivatives":
            continue
        size = program.size if program.quick is None else program.quick
        args = program.inputs(size)
        slope = gradient(program.make(fnx, jnp, lax, size), args)
        if slope is not None:
            found[f"gradient of {name}"] = digest(slope, args)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="where to keep the hashes")
    parser.add_argument("--against", type=Path, help="hashes to compare with")
    options = parser.parse_args()
    with config.cache(False):
        found = hashes()
    if options.write:
        options.write.write_text(json.dumps(found, indent=0))
    if not options.against:
        print(f"{len(found)} programs")
        return 0
    before = json.loads(options.against.read_text())
    differ = sorted(k for k in before.keys() | found.keys() if before.get(k) != found.get(k))
    print(f"{len(found)} programs, {len(differ)} differ", *differ, sep="\n  ")
    return int(bool(differ))


if __name__ == "__main__":
    sys.exit(main())
