"""What is made of products over lanes, in the order of axes in which they leave it."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.interpreters.passes.simplify import simplify

pytestmark = pytest.mark.usefixtures("checked")

RNG = np.random.default_rng(12)
A, B = RNG.normal(size=(6, 4, 4)), RNG.normal(size=(70, 6, 4))  # lanes first, lanes in between
C = RNG.normal(size=(70, 4))


def product(a, b):
    return jnp.einsum("kij,nkj->nki", a, b)


def summed(a, b, c):
    y = product(a, b) + b * jnp.exp(-c)[:, None, :]
    return jnp.sum(y**2, axis=2), y.max(0), y.prod((1, 2)), jnp.sum(y)


def log_sum_exp(a, b, c):
    y = jnp.sum((product(a, b) - 0.5 * b) ** 2, -1)
    return fnx.scipy.special.logsumexp(-y, axis=1), c


def returned(a, b, c):
    y = product(a, b)
    return y, jnp.sin(y), jnp.argmax(y, 1), y > c[:, None, :], jnp.cumsum(y, 0)


def other_orders(a, b, c):
    """Two transposes that differ meet."""
    y = jnp.einsum("kij,nkj->kin", a, b)
    return jnp.transpose(y, (2, 0, 1)) * jnp.transpose(y, (2, 1, 0)).reshape(70, 6, 4), y.T + 1


def through_a_branch(a, b, c):
    y = product(a, b)
    return lax.cond(c[0, 0] > 0, lambda y: y.sum(0), lambda y: y[0] * 2, jnp.cos(y))


def in_a_loop(a, b, c):
    return lax.fori_loop(
        0, 3, lambda _, b: jnp.tanh(product(a, b) + c[:, None, :] / (1 + b * b)), b
    )


def compared(a, b, c):
    y = product(a, b)
    return jnp.where(y > y.mean(0), y, c[:, None, :]).any(2), jnp.all(y > -9, axis=(0, 2))


CASES = [summed, log_sum_exp, returned, other_orders, through_a_branch, in_a_loop, compared]


@pytest.mark.parametrize("f", CASES)
def test_compiled_as_eager(f):
    with fnx.disable_jit():
        expected = f(*map(jnp.asarray, (A, B, C)))
    check = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)
    fnx.tree.map(check, fnx.jit(f)(A, B, C), expected)


@pytest.mark.parametrize("f", [summed, log_sum_exp, in_a_loop])
def test_gradients(f):
    def total(*args):
        return sum(jnp.sum(jnp.sqrt(1 + x * x)) for x in fnx.tree.leaves(f(*args)))

    with fnx.disable_jit():
        expected = fnx.grad(total, (0, 1, 2))(*map(jnp.asarray, (A, B, C)))
    check = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-11)
    fnx.tree.map(check, fnx.jit(fnx.grad(total, (0, 1, 2)))(A, B, C), expected)


@pytest.mark.parametrize("dtype", ["float32", "int32", "complex128"])
def test_dtypes_and_empty_arrays(dtype):
    a, b = (9 * A).astype(dtype), (9 * B).astype(dtype)
    found = fnx.jit(lambda a, b: (product(a, b) * b).sum(2))(a, b)
    np.testing.assert_allclose(
        found, (np.einsum("kij,nkj->nki", a, b) * b).sum(2), rtol=1e-4, atol=1e-2
    )
    assert fnx.jit(lambda a, b: (product(a, b) * b).sum(2))(a, b[:0]).shape == (0, 6)


def test_values_lie_as_the_product_leaves_them():
    """No array of all lanes and points is transposed."""

    def density(a, b):
        return jnp.sum(fnx.scipy.special.logsumexp(jnp.sum((product(a, b) + b) ** 2, 2), axis=1))

    b = np.broadcast_to(B[:, :1], B.shape)
    made = simplify(
        fnx.make_jaxpr(lambda a, c: density(a, c[:, None, :] + A[:, 0]))(A, C).jaxpr, True
    )
    turned = [e.outs[0].aval.size for e in made.eqns if e.prim.name == "transpose"]
    assert b.size not in turned
