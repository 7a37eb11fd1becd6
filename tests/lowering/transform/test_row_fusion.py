"""Loops over the same row of a nest become one where numbers are handed on, and nowhere else."""

import numpy as np
import pytest
from simulated import compare, run
from translated import TranslatedDriver

import fnx
import fnx.numpy as jnp
from fnx.interpreters.passes.simplify import simplify
from fnx.lowering.cuda import backend
from fnx.lowering.cuda.kernels.thresholds import SIMULATED
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Loop

X = np.random.default_rng(0).normal(size=(40, 50))


def loops(f, *args):
    """How many loops follow one another within the outer one, and the program's text."""
    program = fnx.jit(f, backend="cuda").lower(*args).program.compiled().program
    (nest,) = program.body
    (outer,) = nest.body
    rows = sum(isinstance(s, Loop) for s in outer.body)
    return rows, [b.name for b in traversal.buffers([nest]) if b.space == "private"]


def forces(p):
    away = p - p[:, None]
    return (away * ((away * away).sum(-1) + 0.01)[..., None] ** -1.5).sum(1)


def test_numbers_of_a_row_stay_in_registers():
    assert loops(forces, X[:, :3]) == (1, [])
    assert loops(forces, X[:, :4]) == (1, [])


def test_many_results_are_a_loop_of_their_own():
    count, rows = loops(forces, X[:, :6])
    assert count == 2  # what is stored is made in one, and read by the other
    assert len(rows) == 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: fnx.nn.softmax(x, 1),  # needs the maximum, then the sum
        lambda x: (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True)),
    ],
    ids=["softmax", "normalised"],
)
def test_what_needs_a_total_waits_for_it(f):
    assert loops(f, X)[0] == 3


@pytest.mark.parametrize("shape", [(33, 3), (40, 1), (17, 4), (35, 6)])
def test_numbers_are_the_same(monkeypatch, shape):
    monkeypatch.setattr(backend, "driver", TranslatedDriver)
    monkeypatch.setattr(backend, "limits", lambda: SIMULATED)
    x = np.random.default_rng(1).normal(size=shape)
    for f in (forces, fnx.grad(lambda x: (forces(x) * x).sum())):
        closed = fnx.make_jaxpr(f)(x)
        found = run(simplify(closed.jaxpr, final=True), [*map(np.asarray, closed.consts), x])
        compare(found, [f(x)], 10.0)
