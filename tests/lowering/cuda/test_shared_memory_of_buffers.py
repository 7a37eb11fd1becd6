"""Buffers that share bytes of the workspace are never met in one kernel: its threads wait for nobody."""

from itertools import combinations

import cuda_programs
import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.cuda import backend
from fnx.lowering.cuda.kernels import thresholds
from fnx.lowering.ir.number_formats import itemsize


def orbit(state):
    """The last of some steps whose residuals, by steps, and cotangents, by members, could share bytes."""

    def step(c, _):
        x, y = c
        x, y = x + 0.1 * (1.1 - y) * x, y + 0.1 * (x - 0.4) * y
        return (x, y), (x, y)

    start = jnp.exp(state)
    _, (x, y) = lax.scan(step, (start[0], start[1]), None, length=20)
    return (jnp.log(x) + jnp.log(y)).sum() + start[2]


ENSEMBLE = np.random.default_rng(0).normal(size=(64, 6)) * 0.3
PROGRAMS = {
    **cuda_programs.PROGRAMS,
    "gradients of an ensemble": (fnx.vmap(fnx.grad(orbit)), [ENSEMBLE]),
    "derivatives of an ensemble": (fnx.vmap(fnx.jacfwd(orbit)), [ENSEMBLE]),
}


@pytest.mark.parametrize("limits", ["SIMULATED", "LIMITS"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_kernel_has_two_buffers_of_the_same_bytes(monkeypatch, name, limits):
    monkeypatch.setattr(backend, "limits", lambda: getattr(thresholds, limits))
    f, args = PROGRAMS[name]
    compiled = fnx.jit(f, backend="cuda").lower(*args).program.compiled()
    for k in [k for k in compiled.plan.kernels() if k.shape != "single"]:  # which is one thread's
        found = [b for b in compiled.printed[k].buffers if b.space == "global"]
        for a, b in combinations(found, 2):
            ends = [x.place + x.size * itemsize(x.dtype) for x in (a, b)]
            assert a.place >= ends[1] or b.place >= ends[0], (k.name, a.name, b.name)


def test_gradients_of_many_members(gpu):
    found = fnx.jit(fnx.vmap(fnx.grad(orbit)), backend="cuda")(ENSEMBLE[:40])
    wanted = fnx.jit(fnx.vmap(fnx.grad(orbit)), backend="cpu")(ENSEMBLE[:40])
    np.testing.assert_allclose(found, wanted, rtol=1e-11)
