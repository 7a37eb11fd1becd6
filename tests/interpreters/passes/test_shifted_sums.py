"""Shifted fields that are added to zeros, which become one field of pieces."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import check_jaxpr, eval_jaxpr
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.passes.updates_to_concatenate import in_pieces
from fnx.interpreters.trace import trace
from fnx.ops.structure.basic import full, zeros

pytestmark = pytest.mark.usefixtures("checked")

X = np.random.default_rng(3).normal(size=20)


def pieces(fn, x=X):
    """The sizes of what is concatenated, and how many additions to slices are left; values agree."""
    before = simplify(trace(fn, [ShapedArray(x.shape, x.dtype)])[0])
    after = in_pieces(before)
    check_jaxpr(after)
    with use(evaluate):
        arrays = [ConcreteArray(x)]
        for a, b in zip(eval_jaxpr(after, arrays), eval_jaxpr(before, arrays), strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    joined = [e.inputs for e in after.eqns if e.prim.name == "concatenate"]
    left = sum(e.prim.name == "slice_add" for e in after.eqns)
    return [a.aval.size for atoms in joined for a in atoms], left


def shifted(x, n, *starts, base=0.0):
    total = full((n,), base, x.dtype)
    for at in starts:
        total = total.at[at : at + len(x)].add(x)
    return total


def read_in_between(x):
    first = shifted(x, 21, 0)
    return first, first.at[1:].add(x)


def test_terms_overlap():
    assert pieces(lambda x: shifted(x, 21, 0, 1)) == ([1, 19, 1], 0)
    assert pieces(lambda x: shifted(x, 22, 2, 0)) == ([2, 18, 2], 0)


def test_there_may_be_gaps():
    assert pieces(lambda x: shifted(x, 22, 1, 1)) == ([1, 20, 1], 0)


@pytest.mark.parametrize(
    ("fn", "left"),
    [
        (lambda x: shifted(x, 21, 1), 1),  # no sum
        (lambda x: shifted(x, 21, 0, 1, base=1.0), 2),
        (lambda x: shifted(x, 31, 0, 11), 2),  # no piece is most of it
        (lambda x: shifted(x, 26, 0, 1, 2, 3, 4, 5, 6), 7),  # too many pieces
        (read_in_between, 2),
    ],
)
def test_other_additions_stay(fn, left):
    assert pieces(fn) == ([], left)


def test_of_more_axes_they_stay():
    x = np.ones((3, 20))
    assert pieces(
        lambda x: zeros(ShapedArray((3, 21), x.dtype)).at[:, 1:].add(x).at[:, :-1].add(x), x
    ) == ([], 2)


def test_gradients_of_padded_differences():
    def last(x):
        def step(u, _):
            p = jnp.pad(u, 2, mode="wrap")
            d = jnp.diff(p)
            s = jnp.where(d[:-1] * d[1:] > 0, jnp.minimum(d[:-1], d[1:]), 0.0)
            f = (p[1:-1] + 0.5 * s)[:-1] ** 2
            return u - 0.1 * jnp.diff(f), None

        return jnp.sum(lax.scan(step, x, None, length=5)[0] ** 2)

    v = np.cos(np.arange(20.0))
    _, slope = fnx.jvp(last, (X,), (v,))
    np.testing.assert_allclose(fnx.jit(fnx.grad(last))(X) @ v, slope, rtol=1e-12)


def test_the_cotangent_of_a_wrapped_field_is_one_pass():
    def last(x, c):
        def step(u, _):
            p = jnp.pad(u, 1, mode="wrap")
            return u - c * (p[1:-1] - p[:-2]) - jnp.sin(c) * (p[2:] - p[1:-1]), None

        return jnp.sum(lax.scan(step, x, None, length=5)[0] ** 2)

    jaxpr = simplify(fnx.make_jaxpr(fnx.grad(last, (0, 1)))(X, X).jaxpr, final=True)
    bodies = [e.prim.jaxpr for e in jaxpr.eqns if e.prim.name == "scan"]
    found = [e.prim.name for body in bodies for e in body.eqns]
    assert len(bodies) == 2
    assert "slice_add" not in found
