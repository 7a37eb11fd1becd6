"""Two products with one matrix, from either side, in one pass over it: the routine, and its users."""

import ctypes
from itertools import product

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp
from fnx.lowering.cpu.kernels import gemv_pair, library
from fnx.lowering.cpu.llvm import ir_vectors
from fnx.lowering.cpu.runtime import thread_pool

if not ir_vectors.exists("float64"):
    pytest.skip("this CPU has no vectors with masks", allow_module_level=True)

I, P = ctypes.c_int64, ctypes.c_void_p
KIND = ctypes.CFUNCTYPE(None, I, I, P, I, P, P, P, P, P, I)
EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}
RNG = np.random.default_rng(0)


@pytest.mark.parametrize("chained", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_of_blocks(dtype, chained, bits):
    code = library.code.__wrapped__("gemv_pair", dtype)
    routine = KIND(code.addresses[library.name("gemv_pair", dtype)])
    lengths = (1, 2, 7, 8, 12, 15, 16, 17, 33, 129, 260)
    for m, k in [*product(lengths, lengths), (2049, 130), (3, 5000), (5000, 3)]:
        a = RNG.normal(size=(m, k + 3)).astype(dtype)[:, 1 : 1 + k]
        x, u = RNG.normal(size=k).astype(dtype), RNG.normal(size=m).astype(dtype)
        y, v = np.full(m + 2, 7, dtype), np.full(k + 2, 7, dtype)
        work = np.full(gemv_pair.work_elements(m, k) + 1, 7, dtype)
        numbers = y[1:] if chained else u
        arrays = [t.ctypes.data for t in (x, y[1:], numbers, v[1:], work)]
        apart = a.strides[0] // a.itemsize
        routine(m, k, a.ctypes.data, apart, *arrays, gemv_pair.rows_of_run(m))
        assert [*y[[0, -1]], *v[[0, -1]], work[-1]] == [7] * 5
        numbers = y[1:-1] if chained else u
        for made, left, right, n in ((y, a, x, k), (v, a.T, numbers, m)):
            left, right = left.astype("f8"), right.astype("f8")
            error = abs(made[1:-1] - left @ right)
            assert (error <= (8 + n / 4) * EPSILON[dtype] * (abs(left) @ abs(right))).all(), (m, k)


def uses(f, *args):
    return "gemv_pair" in jax.jit(f).lower(*args).as_text("kernel")


A, X, U = RNG.normal(size=(300, 200)), RNG.normal(size=200), RNG.normal(size=300)


def conjugate(a, x, u):
    """A step of BiCG's two sequences."""
    q, s = a @ x, u @ a
    t = (x @ s) / (q @ q)
    return u - t * q, x - t * s


def power(a, x, u):
    """Steps of A' A x, in a loop."""
    step = lambda _, x: (lambda v: v / jnp.sqrt(v @ v))((a @ x) @ a)
    return jax.lax.fori_loop(0, 3, step, x)


PAIRS = {
    "both sides": lambda a, x, u: (a @ x, u @ a),
    "the other order": lambda a, x, u: (a.T @ u, a @ x),
    "transposed": lambda a, x, u: (x @ a.T, jnp.einsum("ij,i->j", a, u)),
    "chained": lambda a, x, u: a.T @ (a @ x),
    "through memory of a transpose": lambda a, x, u: (a.T[:, 5:] @ u[5:], a[5:] @ x),
    "conjugate": conjugate,
    "power": power,
    "gradient": jax.grad(lambda a, x, u: jnp.sum(jnp.sin(a @ x) * u) + (u @ a) @ x, argnums=(1, 2)),
    "float32": lambda a, x, u: tuple(
        jnp.dot(*v) for v in [(a.astype("f4"), x.astype("f4")), (u.astype("f4"), a.astype("f4"))]
    ),
}


@pytest.mark.own_code
@pytest.mark.parametrize("name", PAIRS)
def test_pairs_are_one_pass(name):
    f = PAIRS[name]
    assert uses(f, A, X, U)
    wanted = f(jnp.asarray(A), jnp.asarray(X), jnp.asarray(U))
    tolerance = 1e-3 if name == "float32" else 1e-10
    for got, want in zip(
        jax.tree.leaves(jax.jit(f)(A, X, U)), jax.tree.leaves(wanted), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def changed(a, x, u):
    def step(a, _):
        s = u @ a
        a = a.at[3].add(s)
        return a, a @ s

    return jax.lax.scan(step, a, None, length=2)


OTHERS = {
    "the product from the right needs the other": lambda a, x, u: a @ jnp.tanh(u @ a),
    "what is between": lambda a, x, u: jnp.tanh(a @ x) @ a,
    "the same side": lambda a, x, u: (a @ x, a @ jnp.flip(x)),
    "other matrices": lambda a, x, u: (a @ x, u @ (a + 1)),
    "parts of one": lambda a, x, u: (a[1:] @ x, u[1:] @ a[:-1]),
    "small": lambda a, x, u: (a[:30, :30] @ x[:30], u[:30] @ a[:30, :30]),
    "a matrix that changes in between": changed,
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_alone(name):
    f = OTHERS[name]
    assert not uses(f, A, X, U)
    wanted = f(jnp.asarray(A), jnp.asarray(X), jnp.asarray(U))
    for got, want in zip(
        jax.tree.leaves(jax.jit(f)(A, X, U)), jax.tree.leaves(wanted), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.own_code
def test_threads_make_the_same_bits():
    a = RNG.normal(size=(1500, 1100))
    f = jax.jit(lambda a, x: ((a @ x), (a @ x) @ a))
    assert uses(lambda a, x: ((a @ x), (a @ x) @ a), a, a[0])
    before, found = thread_pool.get_num_threads(), []
    try:
        for n in (1, 2, 3):
            thread_pool.set_num_threads(n)
            found.append([np.asarray(v) for v in f(a, a[0])])
    finally:
        thread_pool.set_num_threads(before)
    for other in found[1:]:
        for one, several in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, several)
