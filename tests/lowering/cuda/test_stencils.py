"""Neighbours that a stencil reads go through tiles in shared memory, where they are enough."""

import numpy as np
import pytest
from launched import same, shapes

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import policy

RNG = np.random.default_rng(0)


def five(u):
    inner = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    return inner - 4 * u[1:-1, 1:-1]


def nine(u):
    return sum(
        u[i : u.shape[0] - 2 + i, j : u.shape[1] - 2 + j] for i in range(3) for j in range(3)
    )


def sources(compiled):
    return "\n".join(p.source for p in compiled.printed.values())


@pytest.mark.parametrize("shape", [(14, 16), (15, 11), (13, 13)])
@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64", "int8"])
def test_five_points(gpu, shape, dtype):
    u = jnp.asarray(RNG.normal(size=shape) * 9).astype(dtype)
    kinds, compiled = shapes(five, u)
    assert kinds == ["square"]
    assert sources(compiled).count("in0[") == 1
    same(five, u)


def test_more_arrays_and_wider_stencils(gpu):
    u, v = RNG.normal(size=(2, 18, 21))
    both = lambda u, v: nine(u) * five(v)
    kinds, compiled = shapes(both, u, v)
    assert kinds == ["square"]
    assert sources(compiled).count("cuda.shared.array") == 2
    same(both, u, v)
    wide = lambda u: sum(
        u[4:-4, k : u.shape[1] - 8 + k] + u[k : u.shape[0] - 8 + k, 4:-4] for k in range(9)
    )
    assert shapes(wide, u)[0] == ["square"]
    same(wide, u)


def test_planes_of_three_dimensions(gpu):
    u = RNG.normal(size=(5, 12, 13))
    f = lambda u: fnx.vmap(five)(u)[1:-1] + (u[:-2] + u[2:])[:, 1:-1, 1:-1]
    kinds, compiled = shapes(f, u)
    assert kinds == ["square"]
    assert (
        sources(compiled).count("in0[") == 3
    )  # the planes above and below are read where they lie
    same(f, u)


def test_what_reads_few_or_far_neighbours_stays_as_it_is(gpu):
    u = RNG.normal(size=(14, 40))
    three = lambda u: u[:, 2:] + u[:, 1:-1] + u[:, :-2]
    far = lambda u: sum(u[2:, 9 * k : 4 + 9 * k] for k in range(5))
    thin = lambda u: five(u[:3])  # one row is no tile
    for f in (three, far, thin):
        assert "square" not in shapes(f, u)[0]
        same(f, u)


def test_steps_and_gradients(gpu, monkeypatch):
    monkeypatch.setattr(policy, "CHOSEN_SIZE", 0)  # as of large arrays
    u = RNG.normal(size=(12, 14))
    step = lambda i, u: u.at[1:-1, 1:-1].add(0.1 * five(u))
    steps = lambda u: lax.fori_loop(0, 3, step, u)
    assert "square" in shapes(steps, u)[0]  # which writes the other half of what it reads
    same(steps, u)
    same(lambda u: five(u + u.T).at[:, 0].set(0), jnp.asarray(u[:12, :12]))
    same(fnx.grad(lambda u: jnp.sum(jnp.sin(nine(u)) * u[1:-1, 1:-1])), u)
    same(
        lambda u: jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + u[:, ::-1] + 2 * u, u
    )
