"""Many devices at once: pmap and shard_map on two threads, against one device and against JAX's two.

A probe starts one process for each contender, and lets them take turns: a line asks a process for one
sample of one program, its answer is the seconds of a call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

if __name__ != "__main__":
    from measure import Settings
    from program import Probe

HERE = Path(__file__).resolve()
POINTS = 1024  # of a side of shallow water
STEPS = 10


def ensemble(jax, jnp, lax, devices):
    """A vmapped ODE, bound by computing."""

    def orbit(y):
        def step(y, _):
            return y + 1e-3 * jnp.sin(y) * jnp.cos(0.5 * y), None

        return lax.scan(step, y, None, length=400)[0]

    ys = jnp.asarray(np.random.default_rng(0).random((devices, 40_000 // devices)))
    return jax.pmap(jax.vmap(orbit)), (ys,)


def data_parallel(jax, jnp, lax, devices):
    """A gradient of the loss of a small network over parts of a batch."""
    rng = np.random.default_rng(0)
    w = [jnp.asarray(rng.normal(size=s) / 8) for s in ((64, 128), (128, 128), (128, 1))]
    xs = jnp.asarray(rng.normal(size=(devices, 8192 // devices, 64)))

    def loss(w, x):
        for layer in w:
            x = jnp.tanh(x @ layer)
        return jnp.mean(x**2)

    def step(w, x):
        return lax.pmean(jax.grad(loss)(w, x), "d")

    return jax.pmap(step, axis_name="d", in_axes=(None, 0)), (w, xs)


def shallow_water(jax, jnp, lax, devices):
    """Linear shallow-water equations, rows of a grid on each device, with halos of its neighbours."""
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:devices]), ("d",))
    spec = jax.sharding.PartitionSpec("d")
    up = [(k, (k + 1) % devices) for k in range(devices)]
    down = [(b, a) for a, b in up]

    def step(state, _):
        h, u, v = state
        below = lax.ppermute(h[:1], "d", down)
        u = u - 0.1 * (jnp.roll(h, -1, 1) - h)
        v = v - 0.1 * (jnp.concatenate([h[1:], below]) - h)
        above = lax.ppermute(v[-1:], "d", up)
        h = h - 0.1 * (u - jnp.roll(u, 1, 1) + v - jnp.concatenate([above, v[:-1]]))
        return (h, u, v), None

    def run(h, u, v):
        return lax.scan(step, (h, u, v), None, length=STEPS)[0]

    f = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=(spec,) * 3, out_specs=(spec,) * 3))
    rng = np.random.default_rng(0)
    return f, tuple(jnp.asarray(rng.normal(size=(POINTS, POINTS))) for _ in range(3))


def sums(count, length):
    def program(jax, jnp, lax, devices):
        def run(x):
            return lax.scan(lambda c, _: (lax.psum(c, "d") * 0.5 + 1.0, None), x, None, length)[0]

        return jax.pmap(run, axis_name="d"), (jnp.ones((devices, count)),)

    return program


PROGRAMS_OF_DEVICES = {
    "ensemble": (ensemble, 1),
    "data-parallel gradient": (data_parallel, 1),
    "shallow water": (shallow_water, 1),
    "psum of 8 B": (sums(1, 2000), 2000),  # exchanges of a call
    "psum of 8 MB": (sums(1 << 20, 10), 10),
}
TARGETS = {
    "ensemble": {"one device": 1 / 1.85, "jax": 0.5},
    "data-parallel gradient": {"one device": 1 / 1.85, "jax": 0.5},
    "shallow water": {"one device": 1 / 1.6, "jax": 0.5},
    "psum of 8 B": {"jax": 0.5},
    "psum of 8 MB": {"jax": 0.5},
}
# A contender: library, devices. Two devices beside one, and beside two of JAX's.
CONTENDERS = {"fnx 2": ("fnx", 2), "fnx 1": ("fnx", 1), "jax 2": ("jax", 2)}


def serve(library: str, devices: int) -> None:
    """Answer lines with the seconds of a call."""
    import importlib
    import time

    jax = importlib.import_module(library)
    jnp, lax = (importlib.import_module(f"{library}.{name}") for name in ("numpy", "lax"))
    if library == "jax":
        jax.config.update("jax_enable_x64", True)
    made = {}
    for line in sys.stdin:
        name = json.loads(line)
        program, part = PROGRAMS_OF_DEVICES[name]
        if name not in made:
            f, args = made[name] = program(jax, jnp, lax, devices)
            jax.block_until_ready(f(*args))
        f, args = made[name]
        start = time.perf_counter()
        jax.block_until_ready(f(*args))
        sys.stdout.write(json.dumps((time.perf_counter() - start) / part) + "\n")
        sys.stdout.flush()


class _Contender:
    def __init__(self, library: str, devices: int):
        env = os.environ | {"FNX_NUM_DEVICES": str(devices), "FNX_NUM_THREADS": str(devices)}
        env["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        env |= {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, str(HERE), library, str(devices)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, text=True, env=env, cwd=HERE.parents[1], **pipes)

    def seconds(self, name: str) -> float | None:
        try:
            self.process.stdin.write(json.dumps(name) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except OSError:
            return None
        return json.loads(line) if line else None


def devices(subject: str, settings: Settings) -> list[dict]:
    """Seconds of each program by each contender, in turn."""
    libraries = {
        name: (subject if lib == "fnx" else lib, n) for name, (lib, n) in CONTENDERS.items()
    }
    contenders = {name: _Contender(*given) for name, given in libraries.items()}
    rows = []
    for program in PROGRAMS_OF_DEVICES:
        samples: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(3 if settings.quick else 21):
            for name, contender in contenders.items():
                if name == "fnx 1" and program.startswith("psum"):
                    continue  # one device has nobody to exchange with
                found = contender.seconds(program)
                if found is not None:
                    samples[name].append(found)
        told = {
            "subject": samples["fnx 2"],
            "one device": samples["fnx 1"],
            "jax": samples["jax 2"],
        }
        rows.append(
            {
                "program": f"{program}, two devices",
                "samples": {k: v for k, v in told.items() if v},
                "errors": {},
                "targets": {"run": TARGETS[program]},
            }
        )
    for contender in contenders.values():
        contender.process.kill()
        contender.process.wait()
    return rows


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
else:
    PROBES = [Probe("devices", "devices", devices)]
