"""The Numba backend beside fnx's own code: steady calls and compiling, on one thread each or more.

    python benchmarks/backends.py                       # the groups kernels and stencils
    python benchmarks/backends.py --only scan --quick
    python benchmarks/backends.py --threads 2           # of both, and what is left to the caller
    python benchmarks/backends.py --write benchmarks/README.md   # puts the table where its mark is

Results are compared before anything is timed. A ratio below one means that Numba's code is quicker.
"""

import argparse
import functools
import re
import sys
import time
from pathlib import Path

from measure import Settings, Timed, geometric_mean, interleave, ratio
from programs import PROGRAMS
from systems import disagreement

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.lowering.cpu.runtime import thread_pool

MARK = re.compile(r"(<!-- backends -->\n).*?(<!-- end -->)", re.DOTALL)


def measured(program, quick: bool, settings: Settings, threads: int) -> dict[str, float]:
    """Numba's steady time over ours, what is left to the calling thread, seconds of first calls."""
    size = program.size_for(quick)
    args = program.inputs(size)
    seconds, calls, results = {}, {}, {}
    for name in ("numba", "cpu"):
        fun = program.make(fnx, jnp, lax, size)
        with config.cache(False), config.backend(name):
            fun = fun.__wrapped__ if hasattr(fun, "lower") else fun
            jitted = fnx.jit(fun, backend=name)
            start = time.perf_counter()
            results[name] = fnx.block_until_ready(jitted(*args))
            seconds[name] = time.perf_counter() - start
        given = tuple(fnx.tree.map(jnp.asarray, args))
        calls[name] = Timed(on(threads, jitted), given, lambda r: r)
    wrong = disagreement(
        *[fnx.tree.leaves(results[n]) for n in ("numba", "cpu")], program.tolerance
    )
    if wrong:
        raise ValueError(wrong)
    samples = interleave(calls, settings)
    over = lambda name: ratio(samples["numba"], samples[name]).median
    found = {"own": over("cpu"), **{f"first {k}": v for k, v in seconds.items()}}
    return found | ({"left": left_to_caller(calls["numba"], threads)} if threads > 1 else {})


def left_to_caller(timed: Timed, threads: int, rounds: int = 5) -> float:
    """Processor time of the calling thread over what it takes alone: other work does not disturb it."""
    seconds: dict[int, list[float]] = {1: [], threads: []}
    for n in [1, threads] * rounds:
        thread_pool.set_num_threads(n)
        start = time.thread_time()
        timed.function.__wrapped__(*timed.args)
        seconds[n].append(time.thread_time() - start)
    return min(seconds[threads]) / min(seconds[1])


def on(threads: int, call):
    """A call with so many threads."""

    @functools.wraps(call)
    def run(*args):
        thread_pool.set_num_threads(threads)
        return call(*args)

    return run


def table(chosen, quick: bool, settings: Settings, threads: int) -> list[str]:
    """Rows of the table, and the geometric means of the ratios."""
    more = [f"left to the caller of {threads} threads"] if threads > 1 else []
    head = ["program", "steady, Numba / own", *more, "first call, Numba", "own"]
    lines = [row(head), row(["---"] * len(head)).replace(" ", "")]
    found = []
    for program in chosen:
        try:
            found.append(measured(program, quick, settings, threads))
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:80]}"
            lines.append(row([program.name, said, *[""] * (len(head) - 2)]))
            continue
        ratios = [f"{found[-1][k]:.2f}" for k in ("own", "left") if k in found[-1]]
        seconds = [f"{found[-1][f'first {k}']:.2f} s" for k in ("numba", "cpu")]
        lines.append(row([program.name, *ratios, *seconds]))
        print(lines[-1], flush=True)
    if found:
        means = [geometric_mean([f[k] for f in found]) for k in ("own", "left") if k in found[0]]
        figures = [f"{x:.2f}" for x in means]
        lines.append(row([f"geometric mean of {len(found)}", *figures, "", ""]))
    return lines


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="*", default=["kernels", "stencils"], help="groups or names"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--threads", type=int, default=1, help="of both, at most")
    parser.add_argument("--write", type=Path, help="a page with <!-- backends --> and <!-- end -->")
    options = parser.parse_args()
    chosen = [
        p
        for p in PROGRAMS.values()
        if not p.eager and any(w in (p.group, p.name) for w in options.only)
    ]
    few = Settings(rounds=5, budget=2.0, quick=options.quick)
    lines = table(chosen, options.quick, few, options.threads)
    print(lines[-1])
    if options.write:
        text = options.write.read_text()
        page = "\n".join(lines)
        options.write.write_text(MARK.sub(lambda m: f"{m[1]}{page}\n{m[2]}", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
