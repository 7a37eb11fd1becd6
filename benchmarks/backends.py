"""The Numba backend beside fnx's own code: steady calls and compiling, on one thread.

    python benchmarks/backends.py                       # the groups kernels and stencils
    python benchmarks/backends.py --only scan --quick
    python benchmarks/backends.py --write benchmarks/README.md   # puts the table where its mark is

Results are compared before anything is timed. A ratio below one means that Numba's code is quicker.
"""

import argparse
import os
import re
import sys
import time
from pathlib import Path

os.environ["FNX_NUM_THREADS"] = "1"  # Numba's code has one thread

from measure import Settings, Timed, geometric_mean, interleave, ratio
from programs import PROGRAMS
from systems import disagreement

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config

MARK = re.compile(r"(<!-- backends -->\n).*?(<!-- end -->)", re.DOTALL)


def measured(program, quick: bool, settings: Settings) -> tuple[float, float, float]:
    """Numba's steady time over ours, and seconds to compile: Numba's, ours."""
    size = program.size_for(quick)
    args = program.inputs(size)
    seconds, calls, results = {}, {}, {}
    for name in ("numba", "cpu"):
        fun = program.make(fnx, jnp, lax, size)
        with config.cache(False), config.backend(name):
            jitted = fnx.jit(getattr(fun, "__wrapped__", fun), backend=name)
            start = time.perf_counter()
            results[name] = fnx.block_until_ready(jitted(*args))
            seconds[name] = time.perf_counter() - start
        calls[name] = Timed(jitted, tuple(fnx.tree.map(jnp.asarray, args)), lambda r: r)
    wrong = disagreement(
        *[fnx.tree.leaves(results[n]) for n in ("numba", "cpu")], program.tolerance
    )
    if wrong:
        raise ValueError(wrong)
    samples = interleave(calls, settings)
    return ratio(samples["numba"], samples["cpu"]).median, seconds["numba"], seconds["cpu"]


def table(chosen, quick: bool, settings: Settings) -> list[str]:
    """Rows of the table, and the geometric mean of the ratios."""
    lines = ["| program | steady, Numba / own | first call, Numba | own |", "|---|---|---|---|"]
    ratios = []
    for program in chosen:
        try:
            steady, numba, own = measured(program, quick, settings)
        except Exception as error:
            lines.append(f"| {program.name} | {type(error).__name__}: {str(error)[:80]} | | |")
            continue
        ratios.append(steady)
        lines.append(f"| {program.name} | {steady:.2f} | {numba:.2f} s | {own:.2f} s |")
        print(lines[-1], flush=True)
    if ratios:
        lines.append(f"| geometric mean of {len(ratios)} | {geometric_mean(ratios):.2f} | | |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--only", nargs="*", default=["kernels", "stencils"], help="groups or names"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    parser.add_argument("--write", type=Path, help="a page with <!-- backends --> and <!-- end -->")
    options = parser.parse_args()
    chosen = [
        p
        for p in PROGRAMS.values()
        if not p.eager and any(w in (p.group, p.name) for w in options.only)
    ]
    few = Settings(rounds=5, budget=2.0, quick=options.quick)
    lines = table(chosen, options.quick, few)
    print(lines[-1])
    if options.write:
        text = options.write.read_text()
        page = "\n".join(lines)
        options.write.write_text(MARK.sub(lambda m: f"{m[1]}{page}\n{m[2]}", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
