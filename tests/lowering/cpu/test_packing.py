"""Rows of many small problems are read and written whole, by blocks of problems."""

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp
from fnx import lax

pytestmark = pytest.mark.usefixtures("checked")


def normal(*shape, dtype=float, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def transposed(f, *args, **options):
    """Blocks that the kernels of a program transpose: those that it reads, and those it writes."""
    text = jax.jit(f, **options).lower(*args).as_text("kernel")
    blocks = [line for line in text.splitlines() if line.lstrip().startswith("transpose")]
    return sum("to &s" in b for b in blocks), sum("from &s" in b for b in blocks)


def agrees(f, *args, rtol=1e-12, **options):
    expected = f(*map(jnp.asarray, args))
    found = jax.jit(f, **options)(*map(jnp.array, args))
    for ours, theirs in zip(*map(jax.tree_util.tree_leaves, (found, expected)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol)


def spread(k):
    """A function of a point to k numbers."""

    def f(x):
        return jnp.stack([x[0] * x[1] + j * x[0] for j in range(k)]) * jnp.dot(x, x)

    return jax.vmap(f)


@pytest.mark.parametrize(("lanes", "k"), [(17, 8), (32, 11), (1003, 33)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
def test_rows_that_are_written(lanes, k, dtype):
    x = (3 * normal(lanes, 2)).astype(dtype)
    assert transposed(spread(k), x) == (0, 1)
    agrees(spread(k), x, rtol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.parametrize(("lanes", "k"), [(17, 6), (32, 9), (1003, 20)])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rows_that_are_read(lanes, k, dtype):
    f = jax.vmap(lambda x: sum((x[j] + j) * x[j] for j in range(k)) * jnp.dot(x, x))
    x = abs(normal(lanes, k, dtype=dtype))
    assert transposed(f, x) == (1, 0)
    agrees(f, x, rtol=1e-5 if dtype == "float32" else 1e-12)


TOTALS = {
    "sums": lambda x: (jnp.sum(x / x[:, :1], axis=0), jnp.sum(x * x)),
    "sums and rows": lambda x: (x / jnp.sum(x, axis=1, keepdims=True), jnp.sum(x[:, :2] ** 2)),
    "least and most": lambda x: (jnp.max(x / x[:, :1], axis=0), jnp.min(x[:, 0] - x[:, 8])),
    "products": lambda x: (jnp.prod(1 + x[:, :1] * x / 50, axis=0), jnp.sum(x[:, 1] * x[:, 2])),
}


@pytest.mark.parametrize("name", TOTALS)
@pytest.mark.parametrize(("lanes", "dtype"), [(17, "float32"), (40, "float64"), (1003, "float64")])
def test_totals_over_lanes(name, lanes, dtype):
    x = 1 + abs(normal(lanes, 9, dtype=dtype))
    assert sum(transposed(TOTALS[name], x)) >= 1
    agrees(TOTALS[name], x, rtol=1e-5 if dtype == "float32" else 1e-12)


def test_totals_of_lanes_that_are_written():
    def f(x):
        y = x * x[:, :1]
        return y, jnp.sum(y, axis=0), jnp.sum(jnp.where(y > 0, y, 0.0))

    agrees(f, normal(50, 8), donate_argnums=0)


def test_gradient_of_a_small_net():
    """Its loops read rows of 8 and 5, write such, and sum up what biases need."""

    def loss(w, b, v, x):
        return jnp.mean(jax.vmap(lambda x: jnp.tanh(x @ w + b) @ v)(x) ** 2)

    f = jax.grad(loss, argnums=(0, 1, 2))
    args = normal(6, 8), normal(8), normal(8, 5), normal(100, 6)
    assert sum(transposed(f, *args)) >= 3
    agrees(f, *args, rtol=1e-11)


def test_short_rows_and_other_dtypes_stay():
    assert transposed(spread(3), normal(100, 2)) == (0, 0)
    assert transposed(spread(12), normal(100, 2) * 1j) == (0, 0)
    assert transposed(spread(12), normal(15, 2)) == (0, 0)
    agrees(spread(12), normal(100, 2) * 1j)


def test_a_row_of_two_matrices():
    """Between the parts of a lane that are read are others."""
    f = jax.vmap(lambda x: x[:5] * x[9:14] / jnp.sum(x[:5]))
    assert transposed(f, normal(50, 15))[0] == 2
    agrees(f, normal(50, 15))


def test_neighbouring_lanes():
    def f(x):
        return jnp.sum(x[1:] * x[:-1], axis=1, keepdims=True) * x[1:] - x[:-1, ::-1]

    agrees(f, normal(70, 9))


@pytest.mark.parametrize("lanes", [17, 24, 50])
def test_donated_lanes_are_overwritten(lanes):
    f = jax.vmap(lambda a: a @ a / jnp.trace(a))
    agrees(f, normal(lanes, 3, 3), donate_argnums=0, rtol=1e-10)


def test_lanes_of_a_grid():
    f = jax.vmap(jax.vmap(lambda a: jnp.linalg.inv(a + 4 * jnp.eye(3))))
    agrees(f, normal(18, 21, 3, 3), rtol=1e-10)


@pytest.mark.parametrize("lanes", [20, 333])
def test_states_of_a_loop(lanes):
    def step(p, _):
        return p @ p.T / jnp.sum(p * p) + 0.1 * jnp.eye(4), p[0]

    f = jax.vmap(lambda p: lax.scan(step, p, None, length=6))
    agrees(f, normal(lanes, 4, 4), rtol=1e-10)


def scalar_function(x):
    return jnp.sin(x[0] * x[1]) * jnp.exp(-(x[2] ** 2)) + jnp.sum(x**3) / (1 + x[3] ** 2)


def vector_function(x):
    return jnp.stack([scalar_function(x), jnp.prod(x), jnp.tanh(x[0] - x[3])])


DERIVATIVES = {
    "jacrev": jax.jacrev(vector_function),
    "jacfwd": jax.jacfwd(vector_function),
    "grad": jax.grad(scalar_function),
    "hessian": jax.hessian(scalar_function),
    "value and jacobian": lambda x: (vector_function(x), jax.jacrev(vector_function)(x)),
}


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize("layout", ["rows", "lanes last", "transposed results"])
def test_derivatives(name, layout):
    one = DERIVATIVES[name]
    x = normal(41, 4)
    if layout == "rows":
        agrees(jax.vmap(one), x, rtol=1e-11)
    elif layout == "lanes last":
        agrees(jax.vmap(one, in_axes=1), x.T, rtol=1e-11)
    else:
        agrees(lambda x: jax.tree_util.tree_map(jnp.transpose, jax.vmap(one)(x)), x, rtol=1e-11)


def test_blocks_are_shared_by_threads():
    jacobian = jax.vmap(DERIVATIVES["jacrev"])
    text = jax.jit(jacobian).lower(normal(20_001, 4)).as_text("kernel")
    assert any("parallel" in line for line in text.splitlines() if "< 2501" in line)
    agrees(jacobian, normal(20_001, 4), rtol=1e-9)
