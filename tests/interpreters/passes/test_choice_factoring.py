"""Choices between results of one operation, which become operations of choices."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.jaxpr import check_jaxpr
from fnx.interpreters.passes.choice_factoring import factored_choices
from fnx.interpreters.passes.simplify import simplify

pytestmark = pytest.mark.usefixtures("checked")

RNG = np.random.default_rng(1)
X = [RNG.normal(size=50) for _ in range(4)]


def names(fn):
    """The primitives of a function of four arrays before and after; both are sound."""
    before = simplify(fnx.make_jaxpr(fn)(*X).jaxpr)
    after = factored_choices(before)
    check_jaxpr(after)
    return [sorted(e.prim.name for e in j.eqns) for j in (before, after)]


def upwind(u, a, b, c):
    return jnp.where(u > 0, u * (u - a) / 0.3, u * (b - u) / 0.3)


@pytest.mark.parametrize(
    ("fn", "left"),
    [
        (upwind, ["div", "gt", "mul", "select_n", "sub", "sub"]),
        (lambda u, a, b, c: jnp.where(u > 0, -a, -b), ["gt", "neg", "select_n"]),
        (lambda u, a, b, c: jnp.where(u > 0, a**2, b**2), ["gt", "select_n", "square"]),
        (lambda u, a, b, c: jnp.where(u > 0, a * c, c * b), ["gt", "mul", "select_n"]),
        (lambda u, a, b, c: jnp.where(u > 0, c - a, c - b) * c, ["gt", "mul", "select_n", "sub"]),
        (
            lambda u, a, b, c: lax.select_n(jnp.int32(u > 0), a + c, b + c),
            ["add", "convert_element_type", "gt", "ne", "select_n"],
        ),
    ],
)
def test_what_the_cases_share_is_done_once(fn, left):
    before, after = names(fn)
    assert after == left
    assert len(after) < len(before)
    np.testing.assert_array_equal(fnx.jit(fn)(*X), fn(*X))


@pytest.mark.parametrize(
    "fn",
    [
        lambda u, a, b, c: jnp.where(u > 0, a * c, b * c) + u,  # one rounding instead of two
        lambda u, a, b, c: jnp.where(u > 0, a * b + c, a * u + c),  # and the other way round
        lambda u, a, b, c: jnp.where(u > 0, c - a, b - c),
        lambda u, a, b, c: jnp.where(u > 0, c / a, b / c),
        lambda u, a, b, c: jnp.where(u > 0, a * c, b / c),
        lambda u, a, b, c: jnp.where(u > 0, a * 2.0, b * 3.0),
        lambda u, a, b, c: jnp.where(u > 0, c * a, c * a[0]),
    ],
)
def test_what_differs_stays(fn):
    before, after = names(fn)
    assert after == before


def test_what_others_read_stays():
    def fn(u, a, b, c):
        left = c * a
        return jnp.where(u > 0, left, c * b), left

    before, after = names(fn)
    assert after == before


def test_gradients_of_upwind_loops():
    def last(u):
        def step(u, _):
            return u - 0.01 * upwind(u, jnp.roll(u, 1), jnp.roll(u, -1), u), None

        return jnp.sum(lax.scan(step, u, None, length=20)[0] ** 2)

    u, v = X[0], X[1]
    _, slope = fnx.jvp(last, (u,), (v,))  # in eager code, which knows no such pass
    np.testing.assert_allclose(fnx.jit(fnx.grad(last))(u) @ v, slope, rtol=1e-12)
    np.testing.assert_array_equal(fnx.jit(fnx.value_and_grad(last))(u)[0], fnx.jit(last)(u))
