"""What a GPU makes of fnx's programs: the figures that a first machine with one is to give.

    python benchmarks/gpu_figures.py                    # all; a line as soon as it is known
    python benchmarks/gpu_figures.py bandwidth matmul   # some
    python benchmarks/gpu_figures.py --jax              # beside JAX, on the same GPU, in turns
    python benchmarks/gpu_figures.py --compile sm_90    # what is compiled for them, where there is no GPU

Each name is a process of its own, so that a device that is lost costs one of them. Results are compared
with the CPU's, of small arrays or of a few members, before anything is timed. In Numba's simulator sizes
are those of a rehearsal, and times mean nothing.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from programs import PROGRAMS

# The library whose programs are measured: every function below is written in the names of both.
IS_JAX = "--rival" in sys.argv
fnx = importlib.import_module("jax" if IS_JAX else "fnx")
jnp = importlib.import_module(f"{fnx.__name__}.numpy")
lax = importlib.import_module(f"{fnx.__name__}.lax")
if IS_JAX:
    fnx.config.update("jax_enable_x64", True)
    fnx.config.update("jax_default_matmul_precision", "highest")  # float32's, as fnx has it
jitted = fnx.jit if IS_JAX else partial(fnx.jit, backend="cuda")

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


def sized(real: int, rehearsal: int) -> int:
    """The size of an array, or a number of steps."""
    return rehearsal if SIMULATED else real


class Case(NamedTuple):
    """A function of arrays that lie on the GPU, how they are made there, and what its seconds mean."""

    name: str
    function: Callable
    inputs: Callable[[], Any]  # of no arguments: makes all inputs, on the device
    figures: Callable[[float], dict[str, float]]
    wanted: str = ""
    small: tuple | None = None  # arguments at which the CPU's results are compared
    call: Callable | None = None  # what is timed, in place of one call and waiting for it


# --- what is measured ------------------------------------------------------------------------------


def _wave(*shape: int, dtype: str = "float64", phase: float = 0.0) -> Any:
    """An array without a pattern that matters."""
    count = int(np.prod(shape))
    return jnp.sin(jnp.arange(count) * 0.37 + phase).astype(dtype).reshape(shape)


def bandwidth() -> Iterator[Case]:
    """Bytes a second of fused elementwise operations and of reductions over a gigabyte."""
    n = sized(1 << 27, 64)
    rows = sized(1 << 13, 8)
    copied = 0.0 if SIMULATED or IS_JAX or "--compile" in sys.argv else bytes_copied(8 * n)
    kinds = {
        "x * y + 2 x": (lambda x, y: x * y + 2 * x, 24 * n, (n,)),
        "exp of a product": (lambda x, y: jnp.exp(-x * x) * y, 24 * n, (n,)),
        "sum of a product": (lambda x, y: jnp.sum(x * y), 16 * n, (n,)),
        "largest of a row": (lambda x, y: (x + y).max(1), 16 * n, (rows, n // rows)),
        "sums of columns": (lambda x, y: (x + y).sum(0), 16 * n, (rows, n // rows)),
    }
    for name, (f, nbytes, shape) in kinds.items():
        yield Case(
            name,
            f,
            lambda shape=shape: (_wave(*shape), _wave(*shape, phase=1.0)),
            lambda s, b=nbytes: {
                "GB/s": b / s / 1e9,
                "share of a copy": b / s / (copied or np.nan),
            },
            "0.85 of a device copy",
            (np.linspace(-1, 1, 60).reshape(6, 10)[: 6 if len(shape) > 1 else 1].squeeze(),) * 2,
        )


def bytes_copied(nbytes: int) -> float:
    """Bytes a second, read and written, of a copy from one array of the device to another."""
    from fnx.lowering.cuda.backend import driver

    here = driver()
    source, target = (here.allocate(nbytes) for _ in range(2))

    def copied() -> float:
        start = time.perf_counter()
        for _ in range(4):
            here.copy(target, 0, source, 0, nbytes)
        here.synchronize()
        return time.perf_counter() - start

    seconds = float(np.median([copied() for _ in range(9)][2:])) / 4
    print(f"device copy of {nbytes} bytes: {2 * nbytes / seconds / 1e9:.4g} GB/s", file=sys.stderr)
    return 2 * nbytes / seconds


def _stencil(u: Any) -> Any:
    inner = u[1:-1, 1:-1]
    return u.at[1:-1, 1:-1].add(
        0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4 * inner)
    )


def _normalised(x: Any) -> Any:
    return (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)


def _attracted(x: Any) -> Any:
    """Forces of as many bodies as there are rows: their places are the first three columns."""
    place = x[:, :3]
    away = place - place[:, None]
    return (away * ((away * away).sum(-1) + 0.01)[..., None] ** -1.5).sum(1)


def _sparse(x: Any) -> Any:
    """A sparse matrix with eight numbers a row, times a vector."""
    numbers = x.reshape(-1)
    count = numbers.size // 8
    column = jnp.arange(numbers.size) * 7919 % count
    rows = jnp.arange(numbers.size) // 8
    products = numbers * numbers[:count][column]
    return fnx.ops.segment_sum(products, rows, count, indices_are_sorted=True)


def _convolved(x: Any) -> Any:
    """Images of 16 channels, 3 x 3 weights, bias, rectified."""
    side = 128 if x.size % (16 * 128 * 128) == 0 else 3
    images = x.reshape(-1, 16, side, side)
    weights = jnp.sin(jnp.arange(9.0 * 16 * 16)).reshape(16, 16, 3, 3)
    bias = jnp.arange(16.0)[:, None, None]
    return fnx.nn.relu(lax.conv_general_dilated(images, weights, (1, 1), "SAME") + bias)


ARRAYS: dict[str, Callable] = {
    "polynomial": lambda x: 1 + x * (2 + x * (3 + x * (4 + x * (5 + x * 6)))),
    "black box of functions": lambda x: jnp.sin(x) * jnp.exp(-x * x) + jnp.log1p(x * x),
    "mean and variance": lambda x: (x.mean(), x.var()),
    "softmax of rows": lambda x: fnx.nn.softmax(x, 1),
    "layer norm of rows": _normalised,
    "transposed and added": lambda x: x + x.T,
    "five-point stencil": _stencil,
    "N-body forces": _attracted,
    "sparse matrix and vector": _sparse,
    "convolution and bias": _convolved,
    "cumulative sum": lambda x: jnp.cumsum(x.reshape(-1)),
    "sort": lambda x: jnp.sort(x.reshape(-1)),
    "histogram": lambda x: jnp.zeros(256, int).at[((x + 1) * 127).astype(int)].add(1),
    "gradient of a sum": fnx.grad(lambda x: jnp.sum(jnp.tanh(x) * jnp.roll(x, 1))),
}


def arrays() -> Iterator[Case]:
    """Programs on arrays of one and of sixteen million numbers."""
    for side in (sized(1 << 10, 12), sized(1 << 12, 24)):
        for name, f in ARRAYS.items():
            yield Case(
                f"{name}, {side}^2",
                f,
                lambda side=side: (_wave(side, side),),
                lambda s: {"us": 1e6 * s},
                small=(np.sin(np.arange(144.0)).reshape(12, 12),),
            )


def calls() -> Iterator[Case]:
    """The time of the host for a call, without waiting for the GPU."""
    for name, f, count in (("one array", lambda x: x + 1, 1), ("ten arrays", _together, 10)):
        yield Case(
            f"host time of a call, {name}",
            f,
            lambda count=count: tuple(_wave(sized(1 << 12, 40), phase=k) for k in range(count)),
            lambda s: {"us": 1e6 * s},
            "15 us",
            (np.linspace(0, 1, 40),) * count,
            call=_without_waiting,
        )


def _together(*xs: Any) -> Any:
    return sum(xs[1:], xs[0])


def _without_waiting(run: Callable) -> float:
    count = sized(500, 3)
    fnx.block_until_ready(run())
    start = time.perf_counter()
    for _ in range(count):
        found = run()
    seconds = (time.perf_counter() - start) / count
    fnx.block_until_ready(found)
    return seconds


def rounds() -> Iterator[Case]:
    """A loop whose rounds are kernels: a round has two stages of a reduction, and what uses it."""
    count = sized(100, 4)
    yield Case(
        f"loop of {count} rounds",
        lambda x: lax.fori_loop(0, count, lambda i, v: v * 0.5 + 0.1 * v.sum(), x),
        lambda: (_wave(sized(1 << 16, 60)),),
        lambda s: {"us a round": 1e6 * s / count},
        "5 us a kernel",
        (np.linspace(0, 1e-3, 60),),
    )


def lorenz_system(steps: int, u: Any) -> Any:
    """Lorenz's equations by Runge and Kutta's method of order 4, for members along the last axis."""

    def slope(s: Any) -> Any:
        x, y, z = s
        return 10 * (y - x), x * (28 - z) - y, x * y - (8 / 3) * z

    def moved(s: Any, k: Any, h: float) -> Any:
        return tuple(a + h * b for a, b in zip(s, k, strict=True))

    def step(s: Any, _: Any) -> Any:
        h = 1e-3
        k1 = slope(s)
        k2 = slope(moved(s, k1, h / 2))
        k3 = slope(moved(s, k2, h / 2))
        k4 = slope(moved(s, k3, h))
        total = tuple(a + 2 * b + 2 * c + d for a, b, c, d in zip(k1, k2, k3, k4, strict=True))
        return moved(s, total, h / 6), None

    return jnp.stack(lax.scan(step, tuple(u), None, length=steps)[0])


def lorenz() -> Iterator[Case]:
    """10^5 systems, 10^4 steps; fewer first, so that there is a figure if these take too long."""
    members = sized(100_000, 6)
    for steps in (sized(1000, 3), sized(10_000, 5)):
        run = partial(lorenz_system, steps)
        loss = lambda u, run=run: jnp.sum(run(u) ** 2)
        for name, f in (("", run), ("gradient of ", fnx.grad(loss))):
            yield Case(
                f"{name}{members} Lorenz systems, {steps} steps",
                f,
                lambda: (_wave(3, members) + 10,),
                lambda s, k=steps * members: {"ms": 1e3 * s, "ns a step": 1e9 * s / k},
                small=(np.linspace(5, 9, 9).reshape(3, 3),) if steps <= 1000 else None,
            )


def lanes() -> Iterator[Case]:
    """Loops of which each member has an end of its own: Mandelbrot's set, adaptive steps."""
    axis = jnp.linspace
    plane = lambda n: tuple(jnp.meshgrid(axis(-2, 0.5, n), axis(-1.25, 1.25, n)))
    kinds = {
        "mandelbrot in lanes": (sized(2000, 6), 6, plane),
        "10000 oscillators with adaptive steps": (
            sized(10_000, 3),
            3,
            lambda n: (0.1 * 1000 ** axis(0, 1, n),),
        ),
    }
    for name, (size, few, inputs) in kinds.items():
        yield Case(
            f"{name}, {size}",
            PROGRAMS[name].make(fnx, jnp, lax, size),
            partial(inputs, size),
            lambda s: {"ms": 1e3 * s},
            small=PROGRAMS[name].inputs(few),
        )


def matmul() -> Iterator[Case]:
    """Products of matrices, which are cuBLAS's where CuPy is installed."""
    n = sized(4096, 6)
    for dtype in ("float64", "float32"):
        yield Case(
            f"product of {n}^2, {dtype}",
            lambda a, b: a @ b,
            lambda dtype=dtype: (_wave(n, n, dtype=dtype), _wave(n, n, dtype=dtype, phase=1.0)),
            lambda s: {"TFlop/s": 2e-12 * n**3 / s},
            small=(np.sin(np.arange(36.0)).reshape(6, 6).astype(dtype),) * 2,
        )


GROUPS = {f.__name__: f for f in (calls, rounds, bandwidth, matmul, arrays, lanes, lorenz)}


# --- measuring ---------------------------------------------------------------------------------------


def _compare(case: Case) -> None:
    """The CPU's results, at the small arguments."""
    if case.small is None or IS_JAX:
        return
    pairs = [
        fnx.tree.leaves(fnx.jit(case.function, backend=b)(*case.small)) for b in ("cuda", "cpu")
    ]
    for a, b in zip(*pairs, strict=True):
        eps = 1e-4 if b.dtype == np.float32 else 1e-8
        np.testing.assert_allclose(a, b, rtol=eps, atol=eps)


def _waiting(run: Callable, budget: float = 3.0) -> float:
    """The median time of a call until its results are there, after two calls that are not timed."""
    for _ in range(2):
        fnx.block_until_ready(run())
    found: list[float] = []
    while len(found) < 3 or sum(found) < budget and len(found) < 50:
        start = time.perf_counter()
        fnx.block_until_ready(run())
        found.append(time.perf_counter() - start)
        if SIMULATED:
            break
    return float(np.median(found))


def measured(case: Case) -> dict:
    """The figures of a case, or why there are none."""
    row: dict = {"figure": case.name}
    try:
        _compare(case)
        given = fnx.block_until_ready(jitted(case.inputs)())
        f = jitted(case.function)
        start = time.perf_counter()
        fnx.block_until_ready(f(*given))
        row["first call, s"] = time.perf_counter() - start
        seconds = (case.call or _waiting)(lambda: f(*given))
        row |= {"seconds": seconds} | ({} if SIMULATED else case.figures(seconds))
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return row | ({"wanted": case.wanted} if case.wanted else {})


def compiled(case: Case, device: str) -> dict:
    """What is compiled for a case: no GPU is needed."""
    from gpu_code import Row

    shapes = fnx.eval_shape(case.inputs)
    program = fnx.jit(case.function, backend="cuda").lower(*shapes).program.compiled()
    row = Row((device,))
    row.add(program)
    found = {"figure": case.name, "kernels": row.kernels, "launches": row.launches}
    found |= {"registers": row.registers[device], "spilled bytes": row.spills[device]}
    return found | {"shared bytes": row.shared, "workspace bytes": program.plan.workspace}


def said(row: dict) -> str:
    parts = [f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()]
    return ", ".join(parts).removeprefix("figure ")


def beside(group: str) -> bool:
    """A line for each figure of a group: fnx's, and ratios of its times to JAX's."""
    settings = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    rows: list[dict[str, dict]] = []
    for whose in ("--here", "--rival"):
        command = [sys.executable, "-u", __file__, group, "--json", whose]
        done = subprocess.run(command, env=settings, stdout=subprocess.PIPE, text=True)
        found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        rows.append({row["figure"]: row for row in found})
    own, theirs = rows
    for name, row in own.items():
        other = theirs.get(name, {"error": "it did not get there"})
        for what in ("seconds", "first call, s"):
            if what in row and what in other:
                row[f"{what.split(',')[0]} to JAX's"] = row[what] / other[what]
        if "error" in other:
            row["of JAX"] = other["error"]
        print(said(row), flush=True)
    return not own or any("error" in row for row in own.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", default=[], help=", ".join(GROUPS))
    parser.add_argument("--compile", metavar="DEVICE", help="only compile, for sm_90, say")
    parser.add_argument("--json", action="store_true", help="lines of JSON")
    parser.add_argument("--here", action="store_true", help="in this process")
    parser.add_argument("--rival", action="store_true", help="JAX's figures, in this process")
    parser.add_argument("--jax", action="store_true", help="beside JAX's, with ratios to them")
    options = parser.parse_args()
    names = options.groups or [*GROUPS]
    if unknown := [n for n in names if n not in GROUPS]:
        parser.error(f"there is no {unknown[0]}; expected some of {', '.join(GROUPS)}")
    if options.jax:
        return int(any([beside(n) for n in names]))
    if not (options.here or options.rival or options.compile):
        more = ["--here", *(["--json"] if options.json else [])]
        codes = [subprocess.call([sys.executable, "-u", __file__, n, *more]) for n in names]
        return int(any(codes))
    bad = False
    for name in names:
        for case in GROUPS[name]():
            row = compiled(case, options.compile) if options.compile else measured(case)
            print(json.dumps(row) if options.json else said(row), flush=True)
            bad = bad or "error" in row
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
