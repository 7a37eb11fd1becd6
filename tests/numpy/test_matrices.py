"""Matrices for users: derivatives of factorizations, reflections, functions of matrices."""

import numpy as np
import pytest
import scipy.linalg

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.scipy import linalg
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


@pytest.mark.slow
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


# --- functions and forms of matrices ------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_functions_of_matrices_are_scipys(dtype):
    a = random(5, 5, dtype=dtype)
    power = lambda x: x**-2.718
    close(linalg.funm(a, power), scipy.linalg.funm(a, power, disp=False)[0])
    close(fnx.jit(linalg.sqrtm)(a), scipy.linalg.sqrtm(a))
    close(linalg.sqrtm(np.zeros((3, 3))), np.zeros((3, 3)))


def test_square_roots_of_large_matrices_compile_as_loops():
    a = random(40, 40)
    a = a @ a.T
    root = fnx.jit(linalg.sqrtm)(a)
    np.testing.assert_allclose(root @ root, a, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_hessenberg_forms_are_lapacks(dtype):
    a = random(2, 5, 5, dtype=dtype)
    h, q = fnx.jit(lambda a: linalg.hessenberg(a, calc_q=True))(a)
    for k in range(2):
        expected = scipy.linalg.hessenberg(a[k], calc_q=True)
        close(h[k], expected[0])
        close(q[k], expected[1])
    check_grads(linalg.hessenberg, (a[0],), 1, rtol=1e-4, atol=1e-4)


def test_complex_schur_forms_from_real_ones():
    for a in (random(5, 5), random(4, 4, seed=3)):
        t, z = scipy.linalg.schur(a)
        for found, expected in zip(linalg.rsf2csf(t, z), scipy.linalg.rsf2csf(t, z), strict=True):
            close(found, expected)
    t, z = random(3, 4, 4), random(4, 4, seed=1)  # no Schur forms, but the rotations are defined
    found = fnx.jit(linalg.rsf2csf)(t, z)
    for k in range(3):
        for x, expected in zip(found, scipy.linalg.rsf2csf(t[k], z), strict=True):
            close(x[k], expected)


def test_sylvester_equations_in_stacks():
    a, b, x = random(2, 4, 4), random(3, 3, seed=1), random(2, 4, 3, seed=2)
    close(fnx.jit(linalg.solve_sylvester)(a, b, a @ x + x @ b), x)


def test_special_matrices_in_stacks():
    c, r = random(2, 3, 4), random(1, 3, 5, seed=1)
    expected = [[scipy.linalg.hankel(c[i, j], r[0, j]) for j in range(3)] for i in range(2)]
    close(linalg.hankel(c, r), expected)
    for n in (1, 2, 3, 6, 7):
        c = random(2, n)
        found = linalg.fiedler_companion(c)
        assert found.shape == (2, n - 1, n - 1)
        if n > 1:
            close(found, [scipy.linalg.fiedler_companion(row) for row in c])


@pytest.mark.parametrize("order", [1, 2, np.inf, "fro", "nuc"])
def test_norms_of_empty_matrices_are_zero(order):
    for shape in ((0, 3), (3, 0), (0, 0)):
        assert float(jnp.linalg.norm(np.zeros(shape), order)) == 0


def test_raw_qr_is_numpys():
    a = random(4, 3)
    for found, expected in zip(jnp.linalg.qr(a, "raw"), np.linalg.qr(a, "raw"), strict=True):
        close(found, expected)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: jnp.linalg.pinv(np.eye(2), rtol=0.1, rcond=0.1),
        lambda: jnp.linalg.matrix_rank(np.eye(2), rtol=0.1, tol=0.1),
        lambda: linalg.dft(4, dtype="float32"),
        lambda: linalg.helmert(0),
        lambda: linalg.leslie(np.ones(1), np.ones(0)),
        lambda: linalg.fiedler_companion(np.ones((2, 0))),
        lambda: linalg.convolution_matrix(5.0, 3),
        lambda: lax.linalg.schur(np.eye(2), sort_eig_vals=True),
        lambda: lax.linalg.tridiagonal_solve(
            *np.ones((3, 2)), np.ones((2, 1)), perturb_singular=True
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError):
        bad()


def test_rank_by_an_absolute_or_a_relative_tolerance():
    x = np.array([[3.0, 1.0], [1.0, 2.0]])  # of singular values 3.6 and 1.4
    for tol in (1.0, 2.0, 4.0, np.array([1.0, 4.0])):
        stack = x if np.ndim(tol) == 0 else np.stack([x, x])
        np.testing.assert_array_equal(
            jnp.linalg.matrix_rank(stack, tol=tol), np.linalg.matrix_rank(stack, tol=tol)
        )
    for rtol in (0.3, 0.5, 1.5):
        assert jnp.linalg.matrix_rank(x, rtol=rtol) == np.linalg.matrix_rank(x, rtol=rtol)
    assert jnp.linalg.matrix_rank(x[0]) == 1
    assert jnp.linalg.matrix_rank(0 * x[0]) == 0


@pytest.mark.parametrize("axes", [(1, 1), (0, 1, 0), (1, 0, 0)])
def test_fourier_transforms_along_one_axis_twice(axes):
    rng = np.random.default_rng(0)
    x, s = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4)), (5,) * len(axes)
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        given = x.real if name[0] == "r" else x
        for options in ({}, {"s": s}, {"norm": "ortho"}, {"s": s, "norm": "forward"}):
            found = getattr(jnp.fft, name)(given, axes=axes, **options)
            close(found, getattr(np.fft, name)(given, axes=axes, **options))


def test_transforms_of_numbers_of_another_kind():
    for error in (TypeError, ValueError):  # NumPy's, and JAX's
        with pytest.raises(error, match="real numbers"):
            jnp.fft.rfft(jnp.ones(3, complex))
        with pytest.raises(error, match="bfloat16"):
            lax.fft(jnp.ones(4, "bfloat16"), "rfft", (4,))
    with pytest.raises(TypeError, match="size"):
        jnp.ones(4).reshape(2, 2, size=3)
    assert jnp.array([1j, 0]).astype(bool).tolist() == [True, False]  # without a warning


@pytest.mark.parametrize("name", ["fmin", "fmax"])
def test_smaller_and_larger_complex_numbers(name):
    parts = [0.0, 1.0, np.nan, np.inf]
    x, y = np.meshgrid(*[[complex(a, b) for a in parts for b in parts]] * 2)
    for f in (getattr(jnp, name), fnx.jit(getattr(jnp, name))):
        np.testing.assert_array_equal(f(x, y), getattr(np, name)(x, y))
    assert lax.full_like(np.ones(2, "float32"), 3).dtype == "float32"
