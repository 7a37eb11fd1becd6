"""Ranks of MPI: exchanges beside mpi4py's own, and a gradient on two ranks against one.

A probe starts mpiexec for each contender, and lets them take turns: a line asks for one sample of one
program, the answer of rank 0 is the seconds of a call, or of one exchange in it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

if __name__ != "__main__":
    from measure import Settings
    from program import Probe

HERE = Path(__file__).resolve()
SIZES = {"psum of 8 B": (1, 1000), "psum of 8 MB": (1 << 20, 10)}  # numbers, exchanges of a call


def psum(jax, count, length):
    """A sum over the ranks again and again, in one compiled program."""
    from fnx.core.transport import use
    from fnx.interpreters.spmd import spmd
    from fnx.process.devices import ranks

    lax = jax.lax
    run = lambda x: lax.scan(lambda c, _: (lax.psum(c, "d") * 0.5, None), x, None, length)[0]
    f = jax.jit(spmd(run, {"d": ranks[0].size}))
    x = jax.numpy.ones(count)

    def call():
        with use({"d": ranks[0]}):
            f(x)

    return call


def allreduce(count, length):
    """The same number of calls of mpi4py's, on arrays that are there."""
    from mpi4py import MPI

    x, y = np.ones(count), np.empty(count)

    def call():
        for _ in range(length):
            MPI.COMM_WORLD.Allreduce(x, y)

    return call


def gradient(jax):
    """The gradient of the loss of a small network, each rank with its part of a batch."""
    jnp, rng, n = jax.numpy, np.random.default_rng(0), jax.process_count()
    w = [jnp.asarray(rng.normal(size=s) / 8) for s in ((64, 128), (128, 128), (128, 1))]
    xs = jnp.asarray(rng.normal(size=(1, 8192 // n, 64)))

    def loss(w, x):
        for layer in w:
            x = jnp.tanh(x @ layer)
        return jnp.mean(x**2)

    step = lambda w, x: jax.lax.pmean(jax.grad(loss)(w, x), "d")
    f = jax.pmap(step, axis_name="d", in_axes=(None, 0), out_axes=None) if n > 1 else None
    f = f or jax.jit(lambda w, x: jax.grad(loss)(w, x[0]))
    return lambda: f(w, xs)


def serve(library: str) -> None:
    """Answer the lines that rank 0 gets; all ranks compute."""
    import time

    from mpi4py import MPI

    jax = importlib.import_module(library)
    comm, made = MPI.COMM_WORLD, {}
    while name := comm.bcast(sys.stdin.readline() if comm.rank == 0 else None):
        kind, program = json.loads(name)
        count, length = SIZES.get(program, (0, 1))
        if name not in made:
            if program not in SIZES:
                made[name] = gradient(jax)
            elif kind == "mpi4py":
                made[name] = allreduce(count, length)
            else:
                made[name] = psum(jax, count, length)
            made[name]()
        comm.Barrier()
        start = time.perf_counter()
        made[name]()
        if comm.rank == 0:
            sys.stdout.write(json.dumps((time.perf_counter() - start) / length) + "\n")
            sys.stdout.flush()


class _Job:
    def __init__(self, mpiexec: str, subject: str, count: int):
        env = os.environ | {"FNX_NUM_DEVICES": "1", "FNX_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        start = [mpiexec, "-n", str(count), sys.executable, "-m", f"{subject}.distributed"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        command = [*start, str(HERE), subject]
        self.process = subprocess.Popen(command, text=True, env=env, cwd=HERE.parents[1], **pipes)

    def seconds(self, kind: str, program: str) -> float:
        self.process.stdin.write(json.dumps((kind, program)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def ranks(subject: str, settings: Settings) -> list[dict]:
    """Seconds of each program; nothing where there is no MPI."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None or importlib.util.find_spec("mpi4py") is None:
        return []
    two, one = _Job(mpiexec, subject, 2), _Job(mpiexec, subject, 1)
    rows = []
    rounds = 5 if settings.quick else 31
    for program in SIZES:
        samples: dict[str, list[float]] = {"subject": [], "mpi4py": []}
        for _ in range(rounds):
            for name, found in samples.items():
                found.append(two.seconds(name, program))
        target = {"mpi4py": 1.1 if "MB" in program else None}
        rows.append(_row(f"{program}, two ranks", samples, target))
    samples = {"subject": [], "one rank": []}
    for _ in range(rounds):
        samples["subject"].append(two.seconds("subject", "gradient"))
        samples["one rank"].append(one.seconds("subject", "gradient"))
    rows.append(_row("data-parallel gradient, two ranks", samples, {"one rank": 1 / 1.8}))
    for job in (two, one):
        job.process.stdin.close()
        job.process.wait(timeout=60)
    return rows


def _row(program: str, samples: dict, targets: dict) -> dict:
    return {"program": program, "samples": samples, "errors": {}, "targets": {"run": targets}}


if __name__ == "__main__":
    serve(sys.argv[1])
else:
    PROBES = [Probe("ranks", "ranks", ranks)]
