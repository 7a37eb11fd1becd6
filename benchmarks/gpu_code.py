"""What GPU code costs: registers, spills and shared memory of kernels, made where there is no GPU.

    python benchmarks/gpu_code.py --write benchmarks/cuda_code.md

Kernels of the programs here and of their gradients (at the sizes at which they are timed), and of every
primitive's sample, are compiled for compute capabilities 8.0, 9.0 and 12.0. Needs numba-cuda (fnx[cuda]).
The exit status is 1 where an elementwise kernel keeps numbers in memory because registers do not suffice.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import programs
from same_code import gradient

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array import ConcreteArray
from fnx.interpreters.trace import trace_closed
from fnx.lowering.cuda import device_code
from fnx.lowering.cuda.kernels import plan

DEVICES = ("sm_80", "sm_90", "sm_120")
GROUPS = "stencils kernels loops npbench derivatives lanes matrices scan spectral".split()
HERE = Path(__file__).resolve().parent
for folder in ("", "primitives", "generators", "gpu"):
    sys.path.insert(0, str(HERE.parent / "tests" / "support" / folder))


def of_programs(groups: list[str]) -> Iterator[tuple[str, object]]:
    """Programs of groups or names, and their gradients, as the CUDA backend compiles them."""
    for program in programs.PROGRAMS.values():
        if program.eager or program.name.endswith(" k points"):
            continue  # what is there for 10^6 points, too
        if program.group not in groups and program.name not in groups:
            continue
        size = program.size_for(quick=False)
        args = program.inputs(size)
        fun = program.make(fnx, jnp, lax, size)
        yield program.name, lambda f=fun, args=args: _compiled(f, args)
        if "gradient" in program.name or program.group in ("derivatives", "loops"):
            continue  # it is one
        if not any(x.dtype.kind in "fc" for x in fnx.tree.leaves(fnx.eval_shape(fun, *args))):
            continue
        slope = gradient(fun, args)
        if slope is not None:
            yield f"gradient of {program.name}", lambda f=slope, args=args: _compiled(f, args)


def _compiled(fun, args):
    if hasattr(fun, "lower"):
        fun = fun.__wrapped__
    return fnx.jit(fun, backend="cuda").lower(*args).program.compiled()


def of_primitives(count: int = 2) -> Iterator[tuple[str, object]]:
    """Primitives, each with its samples' kernels, laid out as for large arrays."""
    from samples import all_samples
    from stored_kernels import Stored

    found: dict[str, list] = {}
    for sample in all_samples():
        found.setdefault(sample.prim.name, []).append(sample)
    for name, samples in sorted(found.items()):
        for sample in samples[:count]:
            arrays = [ConcreteArray(np.asarray(a)) for a in sample.args]
            avals = [x.aval for x in arrays]
            yield name, lambda s=sample, a=avals: Stored(trace_closed(s.prim.apply, a))


class Row:
    """Figures of the kernels of a name, by device."""

    def __init__(self, devices: tuple[str, ...] = DEVICES) -> None:
        self.kernels = self.calls = self.shared = self.launches = 0
        self.is_known = True  # how many launches there are
        self.registers = dict.fromkeys(devices, 0)
        self.spills = dict.fromkeys(devices, 0)
        self.bad: list[str] = []

    def add(self, compiled) -> None:
        from stored_kernels import is_elementwise

        kernels = list(compiled.printed)
        self.kernels += len(kernels)
        self.calls += compiled.plan.count(plan.Host)
        launches, known = _launches(compiled.plan.steps)
        self.launches, self.is_known = self.launches + launches, self.is_known and known
        for device in self.registers:
            for kernel, code in zip(kernels, compiled.ahead_of_time(device), strict=True):
                self.registers[device] = max(self.registers[device], code.registers)
                self.spills[device] += code.spills
                self.shared = max(self.shared, code.shared)
                if code.spills and is_elementwise(kernel):
                    self.bad.append(f"{kernel.name} for {device}: {code.spills} bytes")

    def text(self, name: str) -> str:
        both = (self.registers, self.spills)
        figures = [" / ".join(str(x[d]) for d in DEVICES) for x in both]
        if not self.kernels:
            figures = ["", ""]
        launches = f"{self.launches}{'' if self.is_known else ' +'}"
        counts = f"{self.kernels} | {launches} | {self.calls}"
        return f"| {name} | {counts} | {figures[0]} | {self.shared} | {figures[1]} |"


def _launches(steps: list[plan.Step]) -> tuple[int, bool]:
    """How many launches a call is; and False where a loop or a branch decides, which counts once."""
    total, known = 0, True
    for s in steps:
        inner = [_launches(block) for block in plan.blocks(s)]
        times = s.extent if isinstance(s, plan.For) and isinstance(s.extent, int) else 1
        total += isinstance(s, plan.Kernel) + times * sum(n for n, _ in inner)
        known = known and all(k for _, k in inner)
        known = known and (times != 1 or not inner or isinstance(s, plan.For) and s.extent == 1)
    return total, known


def table(items, seconds: float) -> tuple[list[str], list[str]]:
    """Lines of a table; elementwise kernels that spill, and what could not be compiled."""
    rows: dict[str, Row] = {}
    bad, end = [], time.monotonic() + seconds
    for name, make in items:
        if time.monotonic() > end:
            bad.append(f"time was over before {name}")
            break
        print(name, file=sys.stderr)
        try:
            rows.setdefault(name, Row()).add(make())
        except Exception as error:
            bad.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
    head = "| | kernels | launches | calls of the host | registers (8.0 / 9.0 / 12.0) "
    head += "| shared bytes | spilled bytes |"
    lines = [head, "|---|---|---|---|---|---|---|", *(r.text(n) for n, r in rows.items())]
    return lines, bad + [f"{n}: {b}" for n, r in rows.items() for b in r.bad]


def written(of_groups: list[str], of_samples: list[str], bad: list[str]) -> list[str]:
    """The lines of the page."""
    page = [
        "# Registers and memory of GPU code",
        "",
        f"`python benchmarks/gpu_code.py {' '.join(sys.argv[1:])}` writes this page, where numba-cuda is",
        f"installed; no GPU is needed. Made with {', '.join(_versions())}. Of several kernels the largest",
        "number of registers and of shared bytes counts, and the sum of spilled bytes. Launches are",
        "those of one call; with a + where loops or branches decide, which count once.",
    ]
    if of_groups:
        page += ["", "## Programs of the benchmarks, and their gradients", "", *of_groups]
    page += ["", "## Primitives, samples of each", "", *of_samples]
    if bad:
        page += ["", "## What is not as it should be", "", *(f"- {b}" for b in bad)]
    return page


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", type=Path, help="the page to write")
    parser.add_argument("--groups", nargs="*", default=GROUPS, help="of programs, or names; none")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each of the two tables")
    parser.add_argument("--samples", type=int, default=2, help="of each primitive")
    options = parser.parse_args()
    first, bad = table(of_programs(options.groups), options.seconds)
    second, more = table(of_primitives(options.samples), options.seconds)
    page = written(first if options.groups else [], second, bad + more)
    text = "\n".join(page) + "\n"
    if options.write:
        options.write.write_text(text)
    else:
        print(text)
    return int(bool(bad or more))


def _versions() -> list[str]:
    return device_code._toolkit().split(", ")


if __name__ == "__main__":
    sys.exit(main())
