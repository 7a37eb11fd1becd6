"""How programs would scale to 10^4 ranks, by simulation from what is measured here.

    python benchmarks/scaling.py            prints the tables
    python benchmarks/scaling.py --write    puts them into benchmarks/README.md

Measured on this machine: seconds of a step on one core, with how they vary, and the time of a message
between two ranks of MPI, of which a latency and a bandwidth are taken. Options say these of another
network.

The model. Ranks run alike but for the jitter of their cores: the time of each step of each rank is
drawn from the faster half of the samples, since the slower ones tell of other programs on this machine.
A message of n bytes takes latency + n / bandwidth. A step of shallow water ends for a rank when its own
work and the halos of its four neighbours are there: four messages, one after the other, of an edge of
its square each. A step of the fit ends for all when the slowest is ready and the sum is made, by
recursive halving and doubling (Rabenseifner 2004): 2 log2(p) latencies, and twice the gradient's bytes.
Nothing else is modelled: no contention in the network, no memory bandwidth that cores share, no start.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
RANKS = (1, 4, 16, 64, 256, 1024, 4096, 10_000)
SIDE = 512  # points of a side of each rank's square of shallow water
BATCH = 1 << 20  # examples of all ranks together in a step of the fit
STEPS = 100  # simulated
MESSAGES = """
import json, time
import numpy as np
from mpi4py import MPI
comm, found = MPI.COMM_WORLD, {}
other = 1 - comm.rank
for size, count in ((8, 2000), (1 << 23, 20)):
    x, y, best = np.ones(size, np.uint8), np.empty(size, np.uint8), []
    for _ in range(15):
        comm.Barrier()
        start = time.perf_counter()
        for _ in range(count):
            comm.Sendrecv(x, other, recvbuf=y, source=other)
        best.append((time.perf_counter() - start) / count)
    found[size] = min(best)
if comm.rank == 0:
    print(json.dumps(found))
"""


def samples(call, count: int = 31) -> np.ndarray:
    """Seconds of calls, the faster half of them."""
    found = []
    for _ in range(count):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return np.sort(found)[: (count + 1) // 2]


def water() -> np.ndarray:
    """Seconds of a step of shallow water on one rank's square, by samples."""
    import fnx
    import fnx.numpy as jnp

    def step(state, _):
        h, u, v = state
        u = u - 0.1 * (jnp.roll(h, -1, 1) - h)
        v = v - 0.1 * (jnp.roll(h, -1, 0) - h)
        h = h - 0.1 * (u - jnp.roll(u, 1, 1) + v - jnp.roll(v, 1, 0))
        return (h, u, v), None

    f = fnx.jit(lambda state: fnx.lax.scan(step, state, None, length=10)[0])
    state = tuple(jnp.asarray(np.random.default_rng(k).normal(size=(SIDE, SIDE))) for k in range(3))
    f(state)
    return samples(lambda: f(state)) / 10


def fit() -> tuple[np.ndarray, int]:
    """Seconds of a gradient per example, by samples, and the bytes of the gradient."""
    import fnx
    import fnx.numpy as jnp

    rng = np.random.default_rng(0)
    w = [jnp.asarray(rng.normal(size=s) / 8) for s in ((64, 128), (128, 128), (128, 1))]
    x = jnp.asarray(rng.normal(size=(2048, 64)))

    def loss(w, x):
        for layer in w:
            x = jnp.tanh(x @ layer)
        return jnp.mean(x**2)

    f = fnx.jit(fnx.grad(loss))
    f(w, x)
    return samples(lambda: f(w, x)) / len(x), sum(8 * layer.size for layer in w)


def network() -> tuple[float, float]:
    """Seconds of latency, and bytes a second, of messages between two ranks."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        sys.exit(
            "there is no mpiexec to measure with (pip install fnx[mpi]); or say --latency, --bandwidth"
        )
    command = [mpiexec, "-n", "2", sys.executable, "-c", MESSAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    small, large = (json.loads(done.stdout)[str(n)] for n in (8, 1 << 23))
    return small, (1 << 23) / (large - small)


def weak(ranks: int, step: np.ndarray, latency: float, bandwidth: float, rng) -> float:
    """Seconds of a step of shallow water, each rank with its own square."""
    rows = int(math.sqrt(ranks))
    ready = np.zeros((rows, ranks // rows))
    halo = 4 * (latency + 8 * SIDE / bandwidth) if ranks > 1 else 0.0
    for _ in range(STEPS):
        around = [np.roll(ready, k, axis) for axis in (0, 1) for k in (1, -1)]
        began = np.maximum.reduce([ready, *around])
        ready = began + rng.choice(step, ready.shape) + halo
    return float(ready.max()) / STEPS


def strong(
    ranks: int, example: np.ndarray, nbytes: int, latency: float, bandwidth: float, rng
) -> float:
    """Seconds of a step of the fit, the batch dealt out to the ranks."""
    share = BATCH / ranks
    total = 0.0
    exchange = 2 * math.ceil(math.log2(ranks)) * latency + 2 * nbytes * (1 - 1 / ranks) / bandwidth
    for _ in range(STEPS):
        total += float(rng.choice(example, ranks).max()) * share + (exchange if ranks > 1 else 0.0)
    return total / STEPS


def tables(latency: float | None, bandwidth: float | None) -> str:
    """The tables as Markdown."""
    measured = latency is None or bandwidth is None
    here = network() if measured else (0.0, 0.0)
    latency = here[0] if latency is None else latency
    bandwidth = here[1] if bandwidth is None else bandwidth
    step, (example, nbytes) = water(), fit()
    rng = np.random.default_rng(0)
    lines = [
        f"Messages: {latency * 1e6:.1f} us and {bandwidth / 1e9:.1f} GB/s "
        f"({'measured between two ranks here' if measured else 'as given'}). One core: a step of shallow "
        f"water of {SIDE} x {SIDE} points {np.median(step) * 1e3:.2f} ms (90 % below "
        f"{np.quantile(step, 0.9) * 1e3:.2f}), an example of the fit {np.median(example) * 1e6:.2f} us; "
        f"its gradient has {nbytes} bytes, its batch {BATCH} examples.",
        "",
        "| ranks | shallow water, weak: ms a step | efficiency | fit, strong: ms a step | speed-up "
        "| efficiency |",
        "|---|---|---|---|---|---|",
    ]
    first = None
    for ranks in RANKS:
        a = weak(ranks, step, latency, bandwidth, rng)
        b = strong(ranks, example, nbytes, latency, bandwidth, rng)
        first = first or (a, b)
        lines.append(
            f"| {ranks} | {a * 1e3:.2f} | {first[0] / a:.2f} | {b * 1e3:.3f} | {first[1] / b:.0f} | "
            f"{first[1] / b / ranks:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--latency", type=float, help="seconds of a short message of another network"
    )
    parser.add_argument("--bandwidth", type=float, help="its bytes a second")
    parser.add_argument(
        "--write", action="store_true", help="put the tables into benchmarks/README.md"
    )
    options = parser.parse_args()
    os.environ.setdefault("FNX_NUM_THREADS", "1")
    text = tables(options.latency, options.bandwidth)
    print(text)
    if options.write:
        readme = HERE / "README.md"
        head, rest = readme.read_text(encoding="utf-8").split("<!-- scaling -->\n", 1)
        _, tail = rest.split("<!-- end of scaling -->", 1)
        marked = f"<!-- scaling -->\n{text}\n<!-- end of scaling -->"
        readme.write_text(head + marked + tail, encoding="utf-8")


if __name__ == "__main__":
    main()
