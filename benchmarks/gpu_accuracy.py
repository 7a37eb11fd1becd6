"""Errors of a GPU's elementary functions, which are libdevice's, in units in the last place.

    python benchmarks/gpu_accuracy.py --write FILE      # where there is a GPU: what it computes
    python benchmarks/gpu_accuracy.py FILE              # anywhere: the table, by mpmath

The numbers are those for which the CPU's functions are measured (docs/vmath.md).
"""

import argparse
import os

import numpy as np

from fnx.lowering.cpu.tools import accuracy

FLOATS = ("float32", "float64")
COUNT = 3 if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" else accuracy.COUNT


def operands(op: str, dtype: str) -> list[np.ndarray]:
    """The numbers that a function is measured for; on negatives, where it has zeros, it is not."""
    arrays = accuracy.inputs(op, dtype, COUNT)
    return [abs(arrays[0])] if op in accuracy.ON_NEGATIVES else arrays


def evaluate(op: str, arrays: list[np.ndarray]) -> np.ndarray:
    """The operation on arrays, by a kernel."""
    from fnx.lowering.cuda import backend
    from fnx.lowering.cuda.executable import Executable
    from fnx.lowering.cuda.kernels import schedule

    driver, limits = backend.driver(), backend.limits()
    plan = schedule.plan(accuracy.program(op, arrays), limits)
    places = [driver.allocate(x.nbytes) for x in (*arrays, arrays[0])]
    for memory, x in zip(places, arrays, strict=False):
        driver.upload(memory, 0, x)
    run = Executable(plan, limits, driver)
    run(places[:-1], places[-1:], run.workspace())
    return driver.download(places[-1], 0, arrays[0].shape, arrays[0].dtype)


def write(file: str) -> None:
    """Save what the GPU computes, and its name."""
    from fnx.lowering.cuda import backend

    found = {
        f"{op} {dtype}": evaluate(op, operands(op, dtype))
        for op in accuracy.SAMPLES
        for dtype in FLOATS
    }
    np.savez(file, device=backend.driver().place.device_kind, **found)


def table(file: str) -> str:
    """The largest error of each function."""
    found = np.load(file)
    lines = [
        f"# Errors of the elementary functions of {found['device']}\n",
        "`python benchmarks/gpu_accuracy.py` writes this page of what a GPU has computed. Each number",
        "is the largest error, in units in the last place of the exact result, over the numbers for",
        "which the CPU's functions are measured (docs/vmath.md); float16 and bfloat16 are computed in",
        "float32.\n",
        "| function | float32 | float64 |",
        "|---|---|---|",
    ]
    for op in accuracy.SAMPLES:
        worst = [
            accuracy.errors(op, operands(op, d), found[f"{op} {d}"]).max().item() for d in FLOATS
        ]
        lines.append(f"| {op} | " + " | ".join(f"{x:.2f}" for x in worst) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="of NumPy's, with the GPU's numbers")
    parser.add_argument("--write", action="store_true", help="compute them and write the file")
    options = parser.parse_args()
    if options.write:
        write(options.file)
    else:
        print(table(options.file), end="")


if __name__ == "__main__":
    main()
