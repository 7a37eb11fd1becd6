"""Programs run by kernels in Numba's CUDA simulator, or on a GPU; the process was started for it.

`python -m simulated GROUP [K/N]` runs a group of checks, or each N-th of them from the K-th on, and prints
a line for each failure, and a number. Without NUMBA_ENABLE_CUDASIM=1 a GPU runs them.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# Whose vectors are those of LAPACK up to factors of absolute value 1, where cuSOLVER computes them.
UP_TO_PHASES = ("svd", "eigh")
EPS = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "complex64": 2e-5}


def checked(group: str, timeout: int = 900) -> tuple[int, str]:
    """How many programs of a group were right, and what was wrong, from a process of its own."""
    here = Path(__file__).parent
    folders = [here, here / "primitives", here / "generators", here.parent / "ops"]
    path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1", "PYTHONPATH": path}
    env["PYTHONWARNINGS"] = "ignore"  # arithmetic of NumPy's scalars in threads
    done = subprocess.run(
        [sys.executable, "-m", "simulated", group],
        capture_output=True, text=True, timeout=timeout, env=env, check=False,
    )  # fmt: skip
    *wrong, count = done.stdout.splitlines() or ["-1"]
    failed = "\n".join(wrong) or ("" if done.returncode == 0 else done.stderr[-3000:])
    return int(count) if done.returncode == 0 else -1, failed


# --- in the process -------------------------------------------------------------------------------


def run(jaxpr: Any, values: Sequence[np.ndarray], target: Any = None) -> list[np.ndarray]:
    """The results of a jaxpr for arrays, by its kernels."""
    from fnx.core import scalar
    from fnx.lowering import pipeline
    from fnx.lowering.cuda import backend
    from fnx.lowering.cuda.executable import Executable
    from fnx.lowering.cuda.kernels import schedule
    from fnx.lowering.cuda.target import CudaTarget

    program, _ = pipeline.build(jaxpr, (), target or CudaTarget(backend.limits()))
    driver, limits = backend.driver(), backend.limits()
    executable = Executable(schedule.plan(program, limits), limits, driver)
    scalar.forget()
    inputs = []
    for v in values:
        inputs.append(driver.allocate(max(v.size, 1) * v.dtype.itemsize))
        driver.upload(inputs[-1], 0, v)
    avals = jaxpr.out_avals
    outs = [driver.allocate(max(a.size, 1) * a.dtype.itemsize) for a in avals]
    executable(inputs, outs, executable.workspace())
    return [driver.download(m, 0, a.shape, a.dtype) for m, a in zip(outs, avals, strict=True)]


def compare(found: Sequence[np.ndarray], wanted: Sequence[Any], tolerance: float = 1.0) -> None:
    from fnx.core import dtypes

    for a, b in zip(found, map(np.asarray, wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if not dtypes.is_inexact(b.dtype):
            np.testing.assert_array_equal(a, b)
            continue
        eps = EPS.get(dtypes.NAME[b.dtype], 1e-11) * tolerance
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=eps, atol=eps)


def samples() -> Iterator[tuple[str, Callable[[], None]]]:
    """Samples of all primitives, arrays in memory; each dtype of some."""
    import test_primitives
    from samples import all_samples

    from fnx.core.array import ConcreteArray
    from fnx.interpreters.trace import trace_closed
    from fnx.lowering.cuda import backend, simulator
    from fnx.lowering.cuda.target import CudaTarget

    class Stored(CudaTarget):
        def is_small(self, shape: tuple[int, ...]) -> bool:
            return shape == ()

    def check(sample: Any, values: Any) -> None:
        arrays = [ConcreteArray(np.asarray(v)) for v in values]
        jaxpr = trace_closed(sample.prim.apply, [a.aval for a in arrays])
        found = run(jaxpr, [np.asarray(a) for a in arrays], Stored(backend.limits()))
        wanted = sample.prim.apply(*arrays)
        if sample.prim.name in UP_TO_PHASES and not simulator.is_simulated():
            found, wanted = map(abs, found), map(abs, map(np.asarray, wanted))
        compare([*found], [*wanted], sample.tolerance)

    step = 1 if os.environ.get("FNX_FUZZ") else 4
    for k, s in enumerate(all_samples()[::step]):
        versions = test_primitives.versions(s)
        for dtype, values in versions if k % 8 == 0 else versions[-1:]:
            yield f"{s.id} {dtype}", lambda s=s, values=values: check(s, values)


def programs() -> Iterator[tuple[str, Callable[[], None]]]:
    """Whole programs with reductions, loops, gradients, and random ones."""
    from cuda_programs import PROGRAMS, random_ones

    import fnx
    from fnx.interpreters.passes.simplify import simplify

    def check(f: Callable, args: list) -> None:
        args = [fnx.numpy.asarray(x) for x in args]
        closed = fnx.make_jaxpr(f)(*args)
        jaxpr = simplify(closed.jaxpr, final=True)
        found = run(jaxpr, [np.asarray(x) for x in (*closed.consts, *args)])
        compare(found, fnx.tree.leaves(f(*args)), 10.0)

    for name, (f, args) in {**PROGRAMS, **random_ones()}.items():
        yield name, lambda f=f, args=args: check(f, args)


def calls() -> Iterator[tuple[str, Callable[[], None]]]:
    """What a user does: jit, gradients, donation, arrays that stay on the device."""
    import cuda_programs

    yield from cuda_programs.CALLS.items()


def main(group: str, part: str = "0/1") -> None:
    count = 0
    first, step = map(int, part.split("/"))
    checks = {"samples": samples, "programs": programs, "calls": calls}[group]()
    for name, check in itertools.islice(checks, first, None, step):
        try:
            check()
            count += 1
        except Exception as error:
            sys.stdout.write(
                f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}\n"
            )
    sys.stdout.write(f"{count}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
