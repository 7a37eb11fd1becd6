"""Arrays of pieces, and updates of boxes, are chosen by index where they are read: one kernel for all."""

import numpy as np
import pytest
from launched import same, shapes

import fnx
import fnx.numpy as jnp
from fnx import lax

RNG = np.random.default_rng(0)
X, V = RNG.normal(size=(40, 50)), RNG.normal(size=90)
PROGRAMS = {
    "rolled": (lambda x: x * jnp.roll(x, 1, 0) + jnp.roll(x, -3, 1), [X], 1),
    "rolled and read twice": (lambda x: jnp.roll(x, 1) * 2 + jnp.roll(x, 1)[::-1], [X], 1),
    "padded": (lambda x: jnp.pad(x, 2)[1:-1] * 2, [X], 1),
    "joined": (lambda x, v: jnp.concatenate([x, v + 1, x * 2]), [V, V[:40]], 1),
    "slices that are set": (lambda x: jnp.zeros((50, 60)).at[3:43, 4:54].set(x) + 1, [X], 1),
    "gradient of a roll": (fnx.grad(lambda x: jnp.sum(jnp.tanh(x) * jnp.roll(x, 1))), [V], 2),
    "gradient of a stencil": (fnx.grad(lambda x: jnp.sum((x[1:] - x[:-1]) ** 2)), [X], 1),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels(gpu, name):
    gpu.watches = True
    f, args, most = PROGRAMS[name]
    kinds, _ = shapes(f, *args)
    assert len(kinds) <= most
    same(f, *args)
    assert not gpu.races


def test_in_place_and_in_loops(gpu):
    gpu.watches = True
    given = fnx.jit(lambda x: x + 1, backend="cuda")(V)
    f = fnx.jit(lambda x: jnp.roll(x, 1) + x[0], backend="cuda", donate_argnums=0)
    np.testing.assert_allclose(f(given), np.roll(V + 1, 1) + V[0] + 1, rtol=1e-12)
    same(lambda v: lax.fori_loop(0, 5, lambda i, x: jnp.roll(x, 1) * 0.5 + x[3], v), V)
    same(lambda v: lax.fori_loop(0, 5, lambda i, x: x.at[2:50].add(x[1:49] * x[0]), v), V)
    assert not gpu.races
