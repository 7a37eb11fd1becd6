"""Collectives in loops and branches, in rules of users; what jaxprs show of names."""

import numpy as np
import pytest
from agreement import close
from named_axes import RING, N, X, mapped, spread

import fnx
import fnx.numpy as jnp
from fnx import lax

pytestmark = pytest.mark.usefixtures("reference")


def average(x):
    """Three iterations of averaging with the neighbours."""

    def step(c, _):
        left = lax.ppermute(c, "i", RING)
        right = lax.ppermute(c, "i", [(b, a) for a, b in RING])
        return (left + c * c + right) / 3, lax.psum(c, "i")

    return lax.scan(step, x, None, length=3)


def average_all(x):
    ys = []
    for _ in range(3):
        ys.append(jnp.broadcast_to(x.sum(0), x.shape))
        x = (jnp.roll(x, 1, 0) + x * x + jnp.roll(x, -1, 0)) / 3
    return x, jnp.stack(ys, 1)


def test_scan():
    for f in (mapped(average), fnx.jit(mapped(average)), mapped(fnx.jit(average))):
        for a, b in zip(f(X), average_all(jnp.asarray(X))):
            close(a, b)


def test_gradient_of_scan():
    def loss(f):
        return lambda x: sum(jnp.sum(jnp.sin(y)) for y in f(x))

    expected = fnx.grad(loss(average_all))(jnp.asarray(X))
    close(fnx.grad(loss(mapped(average)))(X), expected)
    close(fnx.jit(fnx.grad(loss(mapped(average))))(X), expected)
    close(mapped(fnx.grad(loss(average)))(X), expected)
    close(fnx.jit(mapped(fnx.grad(loss(average))))(X), expected)


def test_a_loop_that_only_collectives_give_members():
    def f(x):
        return lax.fori_loop(0, 3, lambda k, c: c + lax.axis_index("i"), 0) + 0 * x

    close(mapped(f)(np.zeros(N)), 3 * np.arange(N))
    close(fnx.jit(mapped(f))(np.zeros(N)), 3 * np.arange(N))


def test_branches():
    def f(x):
        return lax.cond(lax.axis_index("i") > 1, lambda v: lax.psum(v, "i"), lambda v: v, x)

    x = np.arange(4.0)
    close(mapped(f)(x), [0.0, 1.0, 6.0, 6.0])
    close(fnx.jit(mapped(f))(x), [0.0, 1.0, 6.0, 6.0])
    same = mapped(lambda x: lax.cond(True, lambda: lax.axis_index("i"), lambda: jnp.int32(7)))
    close(same(x), np.arange(4))


def test_while_until_all_members_are_done():
    def f(x):
        return lax.while_loop(
            lambda v: lax.pmin(v, "i") < 20.0, lambda v: v + lax.axis_index("i") + 1, x
        )

    x = np.zeros(N)
    close(mapped(f)(x), 20.0 * (np.arange(N) + 1))
    close(fnx.jit(mapped(f))(x), 20.0 * (np.arange(N) + 1))
    # The same loop under another name of the same size, with the first in memory.
    g = fnx.vmap(mapped(fnx.jit(f)), axis_name="j")
    close(g(np.zeros((N, N))), np.broadcast_to(20.0 * (np.arange(N) + 1), (N, N)))


def test_rules_of_users_speak_of_names():
    @fnx.custom_vjp
    def scale(x):
        return x * lax.psum(1.0, "i")

    scale.defvjp(lambda x: (scale(x), x), lambda x, ct: (lax.psum(ct * x, "i"),))
    expected = spread(X.sum(0))
    for f in (
        fnx.grad(lambda x: jnp.sum(scale(x))),
        fnx.grad(fnx.jit(lambda x: jnp.sum(scale(x)))),
    ):
        close(mapped(f)(X), expected)
        close(fnx.jit(mapped(f))(X), expected)

    @fnx.custom_jvp
    def twice(x):
        return 2.0 * x

    @twice.defjvp
    def _(primals, tangents):
        return twice(*primals), lax.psum(tangents[0], "i")

    x, t = np.arange(4.0), np.ones(4)
    for g in (mapped(twice), mapped(fnx.jit(twice)), fnx.jit(mapped(twice))):
        out, tangent = fnx.jvp(g, (x,), (t,))
        close(out, 2 * x)
        close(tangent, np.full(4, 4.0))


def test_the_jaxpr_shows_names():
    text = str(fnx.make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("i", 3)])(1.0))
    assert "psum[axes=('i',) axis_index_groups=None]" in text
    assert "reduce_sum" in str(fnx.make_jaxpr(mapped(lambda x: lax.psum(x, "i")))(X))
