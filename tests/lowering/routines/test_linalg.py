"""Products and factorizations in native code, against the primitives' own impl, NumPy and SciPy."""

from itertools import product

import numpy as np
import pytest
import scipy.linalg
from native_arrays import DTYPES, agrees, close, positive, random, run

import fnx
import fnx.numpy as jnp
from fnx.ops.linalg.eigen import QR, SVD, Eig, Eigh, Schur
from fnx.ops.linalg.factorizations import LU, LUPivotsToPermutation, LUSolve, solve
from fnx.ops.linalg.triangular import CholeskyCotangent, CholeskyTangent, TriangularSolve, cholesky
from fnx.ops.linalg.tridiagonal import tridiagonal_solve

lu = LU()


# --- factorizations ----------------------------------------------------------------------------

ORDERS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 65]
SOME = {"float64": ORDERS, "complex128": ORDERS, "float32": [4, 6, 20], "complex64": [3, 8, 20]}


@pytest.mark.own_code
@pytest.mark.parametrize("dtype", DTYPES)
def test_cholesky_of_all_orders(dtype):
    report = agrees(*[(cholesky, positive(n, dtype=dtype)) for n in SOME[dtype]])
    assert "fnx_cholesky" in report or "potrf" in report


@pytest.mark.parametrize("dtype", DTYPES)
def test_lu_of_all_orders_and_shapes(dtype):
    shapes = [(n, n) for n in SOME[dtype]] + [
        (3, 4),
        (4, 2),
        (5, 8),
        (8, 5),
        (9, 20),
        (20, 9),
        (0, 3),
    ]
    agrees(*[(lu, random(*s, dtype=dtype)) for s in shapes], factor=1000)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solve_of_all_orders(dtype):
    def system(n, k):
        return (
            solve,
            random(n, n, dtype=dtype) + 3 * np.eye(n, dtype=dtype),
            random(n, k, dtype=dtype),
        )

    agrees(*[system(n, k) for n in SOME[dtype] for k in (1, 3)], factor=1000)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lu_solve(dtype):
    cases = []
    for n, k, op in product((3, 8, 20), (1, 4), "nt"):
        a = random(n, n, dtype=dtype) + 3 * np.eye(n, dtype=dtype)
        factors, pivots, _ = lu.impl(a)
        cases.append(
            (LUSolve(op), a, np.ascontiguousarray(factors), pivots, random(n, k, dtype=dtype))
        )
    agrees(*cases, factor=1000)


@pytest.mark.parametrize("n", [3, 9])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_triangular_solve_in_all_ways(dtype, n):
    cases = []
    for left, low, transposed, conjugated, unit in product((True, False), repeat=5):
        if conjugated and dtype == "float64":
            continue
        prim = TriangularSolve(left, low, transposed, conjugated, unit)
        for k in (1, 4):
            b = random(n, k, dtype=dtype) if left else random(k, n, dtype=dtype)
            cases.append((prim, positive(n, dtype=dtype), b))
    agrees(*cases, factor=1e4)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("n", [5, 20])
def test_triangular_solve_in_single_precision(dtype, n):
    prims = [TriangularSolve(left, low) for left, low in product((True, False), repeat=2)]
    agrees(*[(p, positive(n, dtype=dtype), random(n, n, dtype=dtype)) for p in prims])


@pytest.mark.parametrize("dtype", DTYPES)
def test_qr(dtype):
    shapes = [(1, 1), (3, 3), (4, 3), (3, 4), (20, 9), (9, 20), (33, 33), (2, 4, 3), (3, 0), (0, 3)]
    prims = [QR(False), QR(True), QR(False, True)]
    agrees(*[(p, random(*s, dtype=dtype)) for p in prims for s in shapes], factor=1000)


@pytest.mark.parametrize("dtype", DTYPES)
def test_svd(dtype):
    shapes = [(1, 1), (3, 3), (4, 3), (3, 4), (20, 9), (9, 20), (2, 4, 3), (3, 0), (0, 3)]
    prims = [SVD(False), SVD(True), SVD(False, False)]
    agrees(*[(p, random(*s, dtype=dtype)) for p in prims for s in shapes], factor=1000)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh(dtype):
    cases = []
    for shape in ((1,), (3,), (2, 4), (20,), (0,)):
        a = random(*shape, shape[-1], dtype=dtype)
        hermitian = np.asarray(a + a.conj().swapaxes(-1, -2), dtype)
        cases += [(Eigh(low), hermitian) for low in (True, False)]
    agrees(*cases, factor=1000)


def test_only_the_named_triangle_is_read():
    a = positive(12)
    spoiled = np.where(np.tri(12, dtype=bool), a, np.nan)
    (v, w, c, s), _ = run(lambda a: (*Eigh(True)(a), cholesky(a), cholesky(a[:3, :3])), spoiled)
    close(v * w @ v.T, a, 1000)
    close(c, np.linalg.cholesky(a), 100)
    close(s, np.linalg.cholesky(a[:3, :3]), 100)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_eig_and_schur(dtype):
    cases = []
    for shape in ((1, 1), (4, 4), (2, 5, 5), (12, 12), (0, 0)):
        a = random(*shape, dtype=dtype)
        cases += [(Eig(left, right), a) for left, right in product((False, True), repeat=2)]
        cases += [(Schur(True), a), (Schur(False), a)]
    symmetric = positive(4, dtype=dtype)  # no eigenvalue is complex
    agrees(*cases, (Eig(True, True), symmetric), factor=1e4)


def test_library_results_are_scipys():
    a = random(20, 20)
    (t, z), _ = run(Schur(True).apply, a)
    want_t, want_z = scipy.linalg.schur(a)
    close(t, want_t, 1e4)
    close(z, want_z, 1e4)
    (w,), _ = run(Eig(False, False).apply, a)
    close(np.sort_complex(w), np.sort_complex(scipy.linalg.eigvals(a)), 1e4)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
@pytest.mark.parametrize("n", [2, 3, 8, 12])
def test_stacks(dtype, n):
    lead = (2, 3)
    a, b = positive(*lead, n, dtype=dtype), random(*lead, n, 2, dtype=dtype)
    tall = random(*lead, n + 1, n, dtype=dtype)
    hermitian = TriangularSolve(False, True, True, True)
    agrees(
        (cholesky, a),
        (lu, tall),
        (solve, a, b),
        (TriangularSolve(True, True), a, b),
        (hermitian, a, np.ascontiguousarray(b.swapaxes(-1, -2))),
        (QR(False), tall),
        (Eigh(), a),
        factor=1000,
    )


@pytest.mark.parametrize("n", [1, 2, 7])
def test_tridiagonal_systems(n):
    dl, d, du = (random(3, n, seed=k) for k in range(3))
    agrees(
        (tridiagonal_solve, dl, d + 4, du, random(3, n, 2)),
        (tridiagonal_solve, dl[0], d[0] + 4, du[0], random(n, 1)),
    )


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("n", [2, 3, 9])
def test_tridiagonal_systems_exchange_rows(n, dtype):
    dl, d, du = (random(2, n, seed=k, dtype=dtype) for k in range(3))
    d[0, 0] = d[1, n // 2] = 0
    b = random(2, n, 3, dtype=dtype)
    x, _ = run(tridiagonal_solve, dl, d, du, b)
    full = [np.diag(d[k]) + np.diag(dl[k, 1:], -1) + np.diag(du[k, :-1], 1) for k in range(2)]
    close(x, np.linalg.solve(np.stack(full), b), 100)
    close(tridiagonal_solve(*map(jnp.asarray, (dl, d, du, b))), x, 100)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_determinants_and_their_derivatives(dtype):
    a = random(3, 6, 6, dtype=dtype)

    def fn(a):
        d = jnp.linalg.det(a)
        return d, fnx.vmap(fnx.grad(jnp.linalg.det, holomorphic=dtype == "complex128"))(a)

    (d, g), _ = run(fn, a)
    close(d, np.linalg.det(a), 100)
    adjugate = np.linalg.det(a)[:, None, None] * np.linalg.inv(a).swapaxes(-1, -2)
    close(g, adjugate, 1e4)
    b = random(6, 6)
    (h,), _ = run(lambda b: (fnx.hessian(jnp.linalg.det)(b)[0, 0],), b)
    step = 1e-5 * np.eye(36)[0].reshape(6, 6)
    cofactors = [np.linalg.det(x) * np.linalg.inv(x).T for x in (b + step, b - step)]
    np.testing.assert_allclose(h, (cofactors[0] - cofactors[1]) / 2e-5, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5, 12, 40])
def test_logarithms_of_determinants_and_their_derivatives(n):
    a = random(3, n, n) + np.eye(n)

    def fn(a):
        log = lambda a: jnp.linalg.slogdet(a)[1]
        along = lambda a: fnx.jvp(fnx.grad(log), (a,), (jnp.ones_like(a),))
        return *jnp.linalg.slogdet(a), *fnx.vmap(along)(a)

    (sign, log, slope, change), _ = run(fn, a)
    expected = np.linalg.slogdet(a)
    close(sign, expected[0], 1)
    close(log, expected[1], 1e3)
    inverse = np.linalg.inv(a).swapaxes(-1, -2)
    close(slope, inverse, 1e5)
    close(change, -inverse @ np.ones((n, n)) @ inverse, 1e7)


def test_a_singular_matrix_has_no_logarithm_of_its_determinant():
    a = np.ones((2, 20, 20)) + np.array([0, 1])[:, None, None] * np.eye(20)
    (sign, log), _ = run(jnp.linalg.slogdet, a)
    np.testing.assert_array_equal(sign, [0, 1])
    assert log[0] == -np.inf
    assert abs(log[1] - np.log(21)) < 1e-12


def test_permutations_of_pivots():
    pivots = np.array([[3, 5, 2, 3], [1, 1, 3, 3]], np.int32)
    agrees((LUPivotsToPermutation(40), pivots), (LUPivotsToPermutation(4), pivots[1]))


@pytest.mark.parametrize("n", [3, 9, 20])
def test_one_triangle_for_many_vectors_is_one_system(n):
    b = random(30, 2, n, 1)
    a = positive(n)
    for low, transposed, unit in product((True, False), repeat=3):
        prim = TriangularSolve(True, low, transposed, False, unit)
        fn = lambda a, b, prim=prim: (prim(jnp.broadcast_to(a, (30, 2, n, n)), b),)
        (found,), report = run(fn, a, b)
        close(found, prim.impl(np.broadcast_to(a, (30, 2, n, n)), b), 1e4)
        assert "trsv" not in report


# --- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 8, 20])
def test_matrices_that_are_not_positive_definite_give_nan(n):
    stack = np.stack([positive(n), -np.eye(n), positive(n) - 3 * n * np.eye(n)])
    (found,), _ = run(lambda a: (cholesky(a),), stack)
    close(found, cholesky.impl(stack), 100)
    assert np.isnan(found[1][np.tri(n, dtype=bool)]).all()
    assert not np.isnan(found[0]).any()
    assert not found[:, np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_gives_nan_for_its_own_matrix(dtype):
    a = np.stack([np.full((4, 4), np.nan), np.eye(4)]).astype(dtype)
    for prim in (SVD(False), Eigh(), Eig(True, True), Schur()):
        outs, _ = run(lambda a, p=prim: p(*[a]), a)
        for found, expected in zip(outs, prim.impl(a), strict=True):
            assert np.isnan(found[0]).all()
            close(found[1], expected[1])
            assert np.isnan(expected[0]).all()


@pytest.mark.parametrize("n", [2, 4, 6, 20])
def test_singular_systems_give_inf_or_nan(n):
    a = np.stack([np.zeros((n, n)), np.eye(n)])
    b = np.ones((2, n, 1))
    (x, factors, pivots, order), _ = run(lambda a, b: (solve(a, b), *lu(a)), a, b)
    assert not np.isfinite(x[0]).any()
    close(x[1], b[1])
    for found, expected in zip((factors, pivots, order), lu.impl(a), strict=True):
        close(found, expected)


# --- derivatives and loops ---------------------------------------------------------------------


@pytest.mark.own_code
@pytest.mark.parametrize("n", [9, 17, 40, 100])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_slopes_of_cholesky_factors(n, dtype):
    l = np.linalg.cholesky(positive(n, dtype=dtype)).astype(dtype)
    l = np.stack([l, 2 * l]) + 7 * np.triu(np.ones((n, n), dtype), 1)  # what is not read
    t = random(2, n, n, dtype=dtype)
    report = agrees((CholeskyTangent(), l, t), (CholeskyCotangent(), l, t), factor=1e5)
    assert "host call" not in report
    inner = [np.vdot(np.tril(t), p.impl(l, t)) for p in (CholeskyTangent(), CholeskyCotangent())]
    np.testing.assert_allclose(*inner, rtol=1e-3 if dtype == "float32" else 1e-10)


@pytest.mark.slow
def test_second_derivatives_of_cholesky_factors():
    """Of orders at which tangents are routines, and below; they agree on a block diagonal matrix."""
    a, b = positive(5), positive(6)
    both = np.zeros((11, 11))
    both[:5, :5], both[5:, 5:] = a, b
    loss = lambda x: jnp.sum(jnp.sin(jnp.linalg.cholesky(x)))
    hvp = lambda x, v: fnx.jvp(fnx.grad(loss), (x,), (v,))[1]
    reverse = lambda x, v: fnx.grad(lambda x: jnp.vdot(fnx.grad(loss)(x), v))(x)
    for slope in (hvp, reverse):
        whole = run(lambda x, slope=slope: (slope(x, x @ x),), both)[0][0]
        for part, x in ((whole[:5, :5], a), (whole[5:, 5:], b)):
            found = run(lambda x, slope=slope: (slope(x, x @ x),), x)[0][0]
            close(part, found, 1e5)


@pytest.mark.parametrize("n", [3, 7, 20])
def test_derivatives_under_jit(n):
    a, b = positive(n), random(n)

    def loss(a, b):
        l = jnp.linalg.cholesky(a)
        x = jnp.linalg.solve(a, b)
        w = jnp.linalg.eigvalsh(a)
        sign, logdet = jnp.linalg.slogdet(a)
        _, r = jnp.linalg.qr(a)
        s = jnp.linalg.svd(a, compute_uv=False)
        parts = [l, x, jnp.log(w), jnp.linalg.inv(a), jnp.abs(r), s]
        return sum(jnp.sum(p**2) for p in parts) + sign * logdet

    expected = [np.asarray(g) for g in fnx.grad(loss, (0, 1))(jnp.asarray(a), jnp.asarray(b))]
    found, _ = run(fnx.grad(loss, (0, 1)), a, b)
    for x, y in zip(found, expected, strict=True):
        close(x, y, 1e5)


@pytest.mark.parametrize("n", [3, 6, 20])
def test_factorizations_inside_loops(n):
    a = positive(n)

    def fn(a):
        def step(c, _):
            l = cholesky(c + c.T)
            return TriangularSolve(True, True)(l, c), jnp.sum(l)

        last, sums = fnx.lax.scan(step, a, None, length=3)
        return last * 1.0, sums

    found, _ = run(fn, a)
    c, sums = a, []
    for _ in range(3):
        l = cholesky.impl(c + c.T)
        sums.append(l.sum())
        c = TriangularSolve(True, True).impl(l, c)
    close(found[1], np.array(sums), 1e3)
    close(found[0], c, 1e3)


def test_operands_that_live_on_are_not_overwritten():
    a, b = positive(12), random(12, 12)

    def fn(a, b):
        c, d = a + 1.0, b * 2.0  # in memory, and read after the routines that could take it
        return cholesky(c), solve(c, d), TriangularSolve(True, True)(c, d), c, d, solve(c, c)

    (l, x, y, c, d, one), _ = run(fn, a, b)
    close(c, a + 1.0)
    close(d, b * 2.0)
    close(l, np.linalg.cholesky(a + 1.0), 100)
    close(x, np.linalg.solve(a + 1.0, d), 100)
    close(y, scipy.linalg.solve_triangular(a + 1.0, d, lower=True), 100)
    close(one, np.eye(12), 100)
