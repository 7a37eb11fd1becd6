"""Two checkouts beside each other: import, compile, warm start and calls, as ratios of this one to that.

    .venv/bin/python benchmarks/against.py ../other [--rounds 5] [--only kernels] [--full]

Each checkout runs with the interpreter in its `.venv`, in processes of its own that take turns
(A B B A), so that what else the machine does meets both. A process measures all programs: seconds to
compile with an empty cache, or to load from one that is filled; least seconds of a call, of few elements
or with --full of the sizes of the table. The table has the geometric mean of the ratios of the medians,
the worst of them, and the spread of the ratios between rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
CALLS = 200  # of which the fastest counts


def measured(only: list[str], full: bool) -> dict[str, float]:
    """What one process measures, in seconds by name; this function runs in each checkout."""
    start = time.perf_counter()
    import fnx
    import fnx.numpy as jnp

    found = {"import": time.perf_counter() - start}
    import programs

    from fnx import lax

    for p in programs.PROGRAMS.values():
        if p.eager or only and not {p.group, p.name} & {*only}:
            continue
        size = p.size_for(not full)
        args = fnx.tree_util.tree_map(jnp.asarray, p.inputs(size))
        fun = p.make(fnx, jnp, lax, size)
        fun = fun if hasattr(fun, "lower") else fnx.jit(fun)
        call = lambda fun=fun, args=args: fnx.block_until_ready(fun(*args))
        gc.collect()  # what earlier programs left is not this one's work
        start = time.perf_counter()
        call()
        found[f"first call: {p.name}"] = time.perf_counter() - start
        found[f"call: {p.name}"] = fastest(call)
    x, y = jnp.ones(4), jnp.ones(4)
    for name, op in {
        "add": lambda: x + y,
        "index": lambda: x[1],
        "sum": lambda: jnp.sum(x),
    }.items():
        found[f"eager: {name}"] = fastest(op)
    return found


def fastest(call: Any) -> float:
    """Seconds of the fastest of many calls, as many as a second has room for."""
    best, stop = math.inf, time.perf_counter() + 0.3
    for _ in range(CALLS):
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        best = min(best, end - start)
        if end > stop:
            break
    return best


def process(tree: Path, cache: str, options: argparse.Namespace) -> dict[str, float]:
    """The figures of one process of a checkout, with its whole time."""
    start = time.perf_counter()
    env = dict(os.environ, FNX_CACHE_DIR=cache, PYTHONPATH=str(tree / "benchmarks"))
    command = [str(tree / ".venv/bin/python"), str(HERE / "against.py"), "--worker"]
    command += [*(["--only", *options.only] if options.only else []), *["--full"] * options.full]
    text = subprocess.run(command, env=env, cwd=tree, capture_output=True, text=True, check=True)
    found = json.loads(text.stdout.splitlines()[-1])
    return found | {"whole process": time.perf_counter() - start}


def session(tree: Path, options: argparse.Namespace) -> dict[str, float]:
    """Figures of a process with an empty cache, and of the next one, in which it is filled."""
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = process(tree, cache, options), process(tree, cache, options)
    kinds = {"first call": ("compile", "warm"), "whole process": ("process", "second process")}
    found = {}
    for name, seconds in cold.items():
        kind, _, rest = name.partition(":")
        first, second = kinds.get(kind, (kind, kind))
        found[f"{first}:{rest}"] = seconds if first != second else min(seconds, warm[name])
        found[f"{second}:{rest}"] = warm[name] if first != second else min(seconds, warm[name])
    return found


def compare(here: Path, there: Path, options: argparse.Namespace) -> None:
    """Measure in turn, and print a line for each kind of figure."""
    samples: dict[Path, list[dict[str, float]]] = {here: [], there: []}
    for k in range(options.rounds):
        for tree in (here, there) if k % 2 else (there, here):
            samples[tree].append(session(tree, options))
    kinds: dict[str, dict[str, tuple[float, float]]] = {}
    for name in samples[here][0]:
        pairs = [a[name] / b[name] for a, b in zip(samples[here], samples[there]) if name in b]
        a, b = ([s[name] for s in samples[t] if name in s] for t in (here, there))
        kind, _, rest = name.partition(":")
        if pairs:
            spread = max(pairs) - min(pairs)
            kinds.setdefault(kind, {})[rest.strip()] = (median(a) / median(b), spread)
    print(f"{'':16} {'rows':>5} {'mean':>7} {'worst':>7} {'spread':>7}")
    for kind, rows in kinds.items():
        ratios = [r for r, _ in rows.values()]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        worst = max(rows, key=lambda n: rows[n][0])
        spread = median([s for _, s in rows.values()])
        print(f"{kind:16} {len(rows):5} {mean:7.3f} {rows[worst][0]:7.3f} {spread:7.3f}  {worst}")


def main() -> None:
    """Compare, or measure for the comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", nargs="?", help="the other checkout, with its .venv")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=[], help="groups of programs, or their names")
    parser.add_argument("--full", action="store_true", help="the sizes of the table")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(measured(options.only, options.full)))
        return
    if options.other is None:
        sys.exit("which other checkout? its path is the argument")
    compare(HERE.parent, Path(options.other).resolve(), options)


if __name__ == "__main__":
    main()
