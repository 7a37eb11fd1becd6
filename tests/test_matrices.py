"""Matrices for users: derivatives of factorizations, reflections, functions of matrices."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.test_util import check_grads

DTYPES = ["float32", "float64", "complex64", "complex128"]


def random(*shape, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def close(a, b, dtype="float64"):
    tolerance = 1e-4 if dtype in ("float32", "complex64") else 1e-11
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


_RANDOM = {n: random(n, n, seed=n) for n in (3, 4)} | {"complex": random(4, 4, dtype="complex128")}
_DEPENDENT = _RANDOM[4] * [0, 1, 1, 1], _RANDOM[4][:, [1, 1, 2, 3]], np.zeros((4, 4))


@pytest.mark.parametrize(
    ("fn", "a"),
    [
        (lambda a: jnp.linalg.qr(a, "complete"), random(5, 3)),
        (lambda a: jnp.linalg.qr(a, "complete"), random(5, 3, dtype="complex128")),
        (lambda a: lax.linalg.qr(a, pivoting=True)[:2], random(5, 3)),
        (lambda a: lax.linalg.qr(a, pivoting=True, full_matrices=False)[:2], random(3, 5)),
        (lambda a: [v * v for v in lax.linalg.eig(a)], _RANDOM[3]),
        (lambda a: [v * v for v in lax.linalg.eig(a)], _RANDOM["complex"]),
        (jnp.linalg.slogdet, _RANDOM["complex"]),
        (jnp.linalg.pinv, random(4, 3)),
        (jnp.linalg.pinv, random(3, 4, dtype="complex128")),
        *((jnp.linalg.det, a) for a in _DEPENDENT),
    ],
)
def test_derivatives_of_factorizations(fn, a):
    order = 1 if a is _DEPENDENT[2] or fn is jnp.linalg.det else 2
    check_grads(fn, (a,), order, rtol=1e-4, atol=1e-4)
    check_grads(fnx.jit(fn), (a,), 1, rtol=1e-4, atol=1e-4)


def test_the_derivative_of_a_pseudo_inverse_of_lower_rank():
    a = lambda p: jnp.array([[0.0, 0.0], [-p, 1.0]]) / (1 + p**2)
    found = fnx.jacobian(lambda p: jnp.linalg.pinv(a(p)))(2.0)
    close(found, [[0.0, -1.0], [0.0, 0.0]])


def test_least_squares_of_zeros():
    for shape in ((2, 1), (2, 2), (1, 2), (0, 3)):
        x, _, rank, _ = fnx.jit(jnp.linalg.lstsq)(np.zeros(shape), np.ones((shape[0], 2)))
        assert not np.asarray(x).any()
        assert int(rank) == 0


@pytest.mark.parametrize("dtype", DTYPES)
def test_reflections_make_unitary_matrices(dtype):
    a, c = random(2, 5, 3, dtype=dtype), random(2, 5, 4, dtype=dtype, seed=1)
    packed, taus = lax.linalg.geqrf(a)
    full, r = np.linalg.qr(a, "complete")
    close(lax.linalg.householder_product(packed, taus), full[..., :3], dtype)
    close(np.triu(packed)[:, :3], r[:, :3], dtype)
    adjoint = full.conj().swapaxes(1, 2)
    close(lax.linalg.ormqr(packed, taus, c), full @ c, dtype)
    close(lax.linalg.ormqr(packed, taus, c, transpose=True), adjoint @ c, dtype)
    right = fnx.jit(lambda *x: lax.linalg.ormqr(*x, left=False))
    close(right(packed, taus, c.swapaxes(1, 2)), c.swapaxes(1, 2) @ full, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_hessenberg_and_tridiagonal_forms(dtype):
    a = random(4, 4, dtype=dtype)
    packed, taus = fnx.jit(lax.linalg.hessenberg)(a)
    h = np.triu(packed, -1)
    q = np.eye(4, dtype=dtype)
    q[1:, 1:] = lax.linalg.householder_product(packed[1:, :3], taus)
    close(q @ h @ q.conj().T, a, dtype)
    a = a + a.conj().T
    packed, d, e, taus = fnx.jit(lax.linalg.tridiagonal)(a)
    t = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
    q[1:, 1:] = lax.linalg.householder_product(packed[1:, :3], taus)
    close(q @ t @ q.conj().T, a, dtype)


def test_updates_products_and_subsets():
    a = random(4, 4)
    r, w = np.linalg.cholesky(a @ a.T + np.eye(4)).T, random(4, seed=1)
    found = np.asarray(lax.linalg.cholesky_update(r, w))
    close(found.T @ found, r.T @ r + np.outer(w, w))
    close(found, np.triu(found))
    lower = np.tril(a)
    found = lax.linalg.symmetric_product(a, lower, alpha=2.0, beta=3.0, symmetrize_output=True)
    close(found, 2 * a @ a.T + 3 * (lower + np.tril(lower, -1).T))
    u, s, vh = lax.linalg.svd(a, full_matrices=False, subset_by_index=(1, 3))
    whole = np.linalg.svd(a)
    close(s, whole[1][1:3])
    close((u * s) @ vh, (whole[0][:, 1:3] * whole[1][1:3]) @ whole[2][1:3])
    v, w = lax.linalg.eigh(a @ a.T, subset_by_index=(0, 2))
    assert v.shape == (4, 2)
    close(w, np.linalg.eigvalsh(a @ a.T)[:2])
