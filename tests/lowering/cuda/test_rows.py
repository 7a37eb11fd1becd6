"""Rows whose loops hand numbers on to one another: a block of threads has each of them."""

import re
from dataclasses import replace

import numpy as np
import pytest
from launched import same, shapes

import fnx
import fnx.numpy as jnp
from fnx.core import policy
from fnx.lowering.cuda import backend
from fnx.lowering.cuda.kernels.thresholds import LIMITS, SIMULATED

X = np.random.default_rng(0).normal(size=(40, 50))


@pytest.mark.parametrize(
    ("shared", "space"), [(40 << 10, "shared"), (64, "global")], ids=["short", "long"]
)
def test_what_rows_keep_is_their_blocks(gpu, monkeypatch, shared, space):
    gpu.watches = True
    monkeypatch.setattr(backend, "limits", lambda: replace(SIMULATED, shared=shared))
    f = lambda x: fnx.nn.softmax(x, 1)
    kinds, compiled = shapes(f, X)
    assert kinds == ["block"]
    (printed,) = compiled.printed.values()
    assert "cuda.local" not in printed.source
    assert ("s1 = cuda.shared.array(50" in printed.source) == (space == "shared")
    same(f, X)
    same(fnx.grad(lambda x: (f(x) * x).sum()), X)
    assert not gpu.races


CHAINS = {
    "sum": lambda a, b, c, d: 1.5 * (a @ b) @ c @ d + 0.7 * a,
    "products": lambda a, b, c, d: a @ b @ c @ d @ b,
}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("n", [12, 240, 2100])
def test_rows_that_are_much_for_a_thread_are_a_blocks(gpu, monkeypatch, chain, n):
    """Products that hand on their rows: one thread each would keep kilobytes far from itself."""
    monkeypatch.setattr(backend, "limits", lambda: LIMITS)
    args = [jnp.ones(shape) for shape in ((n, 230), (230, 250), (250, 240), (240, 230))]
    compiled = fnx.jit(CHAINS[chain], backend="cuda").lower(*args).program.compiled()
    assert {k.shape for k in compiled.plan.kernels()} == {"block"}
    assert not any("cuda.local" in p.source for p in compiled.printed.values())


def bodies(p):
    d = p[:, None] - p[None]
    r = (d * d).sum(-1) + 0.01
    return (d * (r**-1.5)[..., None]).sum(1)


@pytest.mark.parametrize("shared", [40 << 10, 0])
def test_short_loops_around_long_ones(gpu, monkeypatch, shared):
    gpu.watches = True
    monkeypatch.setattr(backend, "limits", lambda: replace(SIMULATED, shared=shared))
    monkeypatch.setattr(policy, "ROW_RESULTS", 2)  # else one loop makes the three
    p = np.random.default_rng(0).normal(size=(70, 3))
    kinds, compiled = shapes(bodies, p)
    assert kinds == ["block"]
    (printed,) = compiled.printed.values()
    assert "in range(thread, 3," not in printed.source
    same(bodies, p)
    assert not gpu.races


@pytest.mark.parametrize("count", [120, 2100])
def test_few_results_of_a_row_are_summed_where_its_numbers_are_made(count):
    """Distances, their powers, and three sums of products with these: one loop, and no array between."""
    _, compiled = shapes(bodies, np.zeros((count, 3)))
    for printed in compiled.printed.values():
        assert len(re.findall(r"\bin0\[", printed.source)) in (0, 2 + 6)
        assert not re.search(r"shared\.array\(\d{3,}", printed.source)
    first, *_ = compiled.plan.kernels()
    # A thread has some terms of a body; of few bodies a warp has each.
    assert first.shape == ("block" if count < 2048 else "flat")


def test_rows_of_complex_numbers_and_of_few_elements(gpu):
    f = lambda x: fnx.nn.softmax(x, 1)
    same(lambda x: f(x) * (1 + 1j), X)
    kinds, _ = shapes(f, X[:, :4])
    assert "block" not in kinds
    same(f, X[:, :4])


@pytest.mark.parametrize("shape", [(40, 17), (33, 20), (41, 18), (70, 5)])
def test_short_rows_are_warps(gpu, shape):
    gpu.watches = True
    x = np.random.default_rng(0).normal(size=shape)
    _, compiled = shapes(lambda x: fnx.nn.softmax(x, 1), x)
    assert "cuda.syncwarp(0xf)" in compiled.cuda_text() or shape[1] < 6
    assert "syncthreads" not in compiled.cuda_text()
    for f in (
        lambda x: fnx.nn.softmax(x, 1),
        lambda x: (x.sum(1), x.max(1), (x * 9).astype(int).sum(1), (x > 1).any(1)),
        lambda x: (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True),
    ):
        same(f, x)
    assert not gpu.races
