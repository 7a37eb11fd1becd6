"""What loops read of repeated arrays they read of the arrays themselves."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.interpreters.passes.broadcast_sinking import repeated_inside
from fnx.interpreters.passes.simplify import simplify

pytestmark = pytest.mark.usefixtures("checked")

TABLE = np.random.default_rng(5).uniform(0.1, 1.0, 101)


def searched(start, table):
    """Each row looks for its place in a table that is repeated for all of them."""
    rows = jnp.broadcast_to(table, (len(start), len(table)))
    read = lambda k: jnp.take_along_axis(rows, k[:, None], axis=1)[:, 0]
    step = lambda v: (jnp.where(v[1] < 2.0, (v[0] + 1) % 101, v[0]), v[1] + read(v[0]))
    return lax.while_loop(lambda v: jnp.any(v[1] + read(v[0]) < 2.0), step, (start, 0.0 * start))


def in_a_scan(start, table):
    rows = jnp.broadcast_to(table, (len(start), len(table)))

    def step(k, t):
        x = jnp.take_along_axis(rows, k[:, None], axis=1)[:, 0]
        return (k + t) % 101, x * t

    return lax.scan(step, start, jnp.arange(5))


def whole(start, table):
    """What is read as a whole stays where it is."""
    rows = jnp.broadcast_to(table, (len(start), len(table)))
    step = lambda v: (v[0] + 1, v[1] + rows @ jnp.cos(rows[0]))
    return lax.while_loop(lambda v: v[0] < 3, step, (0, 0.0 * start))


@pytest.mark.parametrize("f", [searched, in_a_scan, whole], ids=lambda f: f.__name__)
def test_results_stay(f):
    start = np.arange(40) % 7
    with fnx.disable_jit():
        expected = f(start, TABLE)
    for a, b in zip(fnx.tree_util.tree_leaves(fnx.jit(f)(start, TABLE)),
                    fnx.tree_util.tree_leaves(expected), strict=True):  # fmt: skip
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_repeated_array_is_never_made():
    start = np.arange(40) % 7
    text = fnx.jit(searched).lower(start, TABLE).as_text("kernel")
    assert f"float64[{40 * 101}]" not in text
    text = fnx.jit(in_a_scan).lower(start, TABLE).as_text("kernel")
    assert f"float64[{40 * 101}]" not in text


def test_equations_before_and_after():
    jaxpr = simplify(fnx.make_jaxpr(searched)(np.arange(40), TABLE).jaxpr)
    names = [e.prim.name for e in repeated_inside(jaxpr).eqns]
    (before,) = [e for e in jaxpr.eqns if e.prim.name == "while"]
    (after,) = [e for e in repeated_inside(jaxpr).eqns if e.prim.name == "while"]
    assert "while" in names
    assert (40, 101) in [a.aval.shape for a in before.inputs]
    assert (40, 101) not in [a.aval.shape for a in after.inputs]
    assert repeated_inside(simplify(fnx.make_jaxpr(jnp.sin)(1.0).jaxpr)).eqns
