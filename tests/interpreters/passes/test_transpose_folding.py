"""Matrix products of transposes, and transposes of matrix products."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.interpreters.passes.simplify import simplify

pytestmark = pytest.mark.usefixtures("checked")

RNG = np.random.default_rng(8)
A, B, C = RNG.normal(size=(5, 7)), RNG.normal(size=(7, 9)), RNG.normal(size=(3, 5, 7))
T = RNG.normal(size=(4, 7, 2, 3))


def product_of_transposes(a, b):
    return jnp.sin(b).T @ jnp.cos(a).T


def transposed(a, b):
    return jnp.exp((a @ b).T)


def both(a, b):
    return (jnp.sin(b).T @ jnp.sin(a).T).T * 2.0


def read_twice(a, b):
    """The product itself is read as well."""
    c = a @ b
    return c.T, c + 1


def returned(a, b):
    c = a @ b
    return c, c.T


def several_axes(a, t):
    """Free axes in another order than those of the operand: nothing to fold."""
    x = lax.dot_general(a, jnp.transpose(t, (3, 1, 0, 2)), (((1,), (1,)), ((), ())))
    return jnp.transpose(x, (1, 2, 3, 0)), jnp.transpose(x, (2, 1, 3, 0))


def lanes(c, b):
    x = lax.dot_general(jnp.transpose(c, (0, 2, 1)), c, (((2,), (1,)), ((0,), (0,))))
    return jnp.transpose(x, (0, 2, 1)), x.sum() + b.sum()


def gradient(a, b):
    return fnx.grad(lambda a, b: jnp.sum(jnp.tanh((a @ b).T) @ a), (0, 1))(a, b)


def in_a_loop(a, b):
    return lax.scan(lambda c, _: ((jnp.tanh(c.T @ a.T @ a).T), (c.T @ a.T).T), b, None, length=3)


def half(a, b):
    a, b = a.astype("float16"), b.astype("float16")
    return lax.dot_general(b.T, a.T, (((1,), (0,)), ((), ())), preferred_element_type="float32").T


def empty(a, b):
    return (a[:, :0] @ b[:0]).T, (b[:0].T @ a[:, :0].T).T


CASES = [
    (product_of_transposes, A, B), (transposed, A, B), (both, A, B), (read_twice, A, B),
    (returned, A, B), (several_axes, A, T), (lanes, C, B), (gradient, A, B), (in_a_loop, A, B[:, :5]),
    (half, A, B), (empty, A, B),
]  # fmt: skip


@pytest.mark.parametrize(("f", "x", "y"), CASES, ids=[f.__name__ for f, *_ in CASES])
def test_compiled_as_eager(f, x, y):
    with fnx.disable_jit():
        expected = f(jnp.asarray(x), jnp.asarray(y))
    found = fnx.jit(f)(x, y)
    check = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)
    fnx.tree.map(check, found, expected)


def transposes(f, *args):
    jaxpr = simplify(fnx.make_jaxpr(f)(*args).jaxpr, final=True)
    return sum(e.prim.name == "transpose" for e in jaxpr.eqns)


@pytest.mark.parametrize("f", [product_of_transposes, transposed, both])
def test_no_transposes_are_left(f):
    assert transposes(f, A, B) == 0


@pytest.mark.parametrize("f", [read_twice, returned])
def test_what_is_read_itself_stays(f):
    assert transposes(f, A, B) == 1


def test_beside_a_callback_without_results(capsys):
    def f(a, b):
        fnx.debug.print("{}", a[0, 0])
        return (a @ b).T

    np.testing.assert_allclose(fnx.jit(f)(np.ones((2, 3)), np.ones((3, 4))), np.full((4, 2), 3.0))
    fnx.effects_barrier()
    assert capsys.readouterr().out == "1.0\n"
