"""Sparse arrays against dense ones: conversions, products, arithmetic, derivatives, batches."""

import numpy as np
import pytest
import scipy.sparse

import fnx
import fnx.numpy as jnp
from fnx.errors import ShapeError
from fnx.experimental import sparse
from fnx.experimental.sparse import BCOO, BCSR
from fnx.experimental.sparse.linalg import lobpcg_standard, spsolve

RNG = np.random.default_rng(0)
D = RNG.normal(size=(5, 7)) * (RNG.uniform(size=(5, 7)) < 0.4)
V, W = RNG.normal(size=7), RNG.normal(size=(7, 3))

pytestmark = pytest.mark.usefixtures("reference")


def close(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-12)


def matrices():
    m = BCOO.fromdense(D)
    twice = BCOO(
        (np.concatenate([m.data, m.data]) / 2, np.concatenate([m.indices, m.indices])),
        shape=D.shape,
    )
    return {
        "exact": m,
        "more places than elements": BCOO.fromdense(D, nse=m.nse + 4),
        "duplicates": twice,
        "rows": BCSR.fromdense(D),
        "rows with more places": BCSR.fromdense(D, nse=m.nse + 4),
    }


each = pytest.mark.parametrize("m", matrices().values(), ids=matrices())


@each
def test_dense_again(m):
    close(m.todense(), D)
    close(fnx.jit(lambda m: m.todense())(m), D)
    close(sparse.todense(m), D)


@each
def test_products(m):
    close(m @ V, D @ V)
    close(m @ W, D @ W)
    close(m @ np.stack([W, -W]), D @ np.stack([W, -W]))
    close(fnx.jit(lambda m, v: m @ v)(m, V), D @ V)
    u = RNG.normal(size=(4, 5))
    close(jnp.asarray(u[0]) @ m, u[0] @ D)
    close(jnp.asarray(u) @ m, u @ D)
    close(u @ m, u @ D)
    close(fnx.vmap(lambda v: m @ v)(np.stack([V, 2 * V])), np.stack([D @ V, 2 * D @ V]))


@each
def test_derivatives_of_products(m):
    ct = RNG.normal(size=5)
    gv = fnx.grad(lambda v: jnp.sum((m @ v) * ct))(V)
    close(gv, D.T @ ct)

    def loss(data):
        leaves, tree = fnx.tree_util.tree_flatten(m)
        return jnp.sum((tree.unflatten([data, *leaves[1:]]) @ V) * ct)

    rows, columns = m.todense().shape
    coo = m if isinstance(m, BCOO) else m.to_bcoo()
    at = np.asarray(coo.indices)
    inside = (at < [rows, columns]).all(1)
    expected = np.where(inside, ct[np.minimum(at[:, 0], 4)] * V[np.minimum(at[:, 1], 6)], 0)
    close(fnx.grad(loss)(m.data), expected)
    close(fnx.jit(fnx.grad(loss))(m.data), expected)


def test_arithmetic():
    m = BCOO.fromdense(D)
    close((2.0 * m).todense(), 2 * D)
    close((m * V).todense(), D * V)
    close((m / 4).todense(), D / 4)
    close((-m).todense(), -D)
    close((m + m).todense(), 2 * D)
    close((m - 2 * m).todense(), -D)
    close(m + np.ones_like(D), D + 1)
    close(1.0 - m, 1 - D)
    close(abs(m - 3 * m).todense(), 2 * abs(D))
    close(m.T.todense(), D.T)
    close(m.T @ np.ones(5), D.T @ np.ones(5))
    close(m.reshape(7, 5).todense(), D.reshape(7, 5))
    close(m.reshape((35,)).todense(), D.reshape(35))
    assert m.astype(np.float32).dtype == np.float32


@pytest.mark.parametrize("nse", [None, 30])
def test_sums(nse):
    m = BCOO.fromdense(D, nse=nse)
    close(m.sum(), D.sum())
    close(m.sum(0).todense(), D.sum(0))
    close(m.sum(axis=-1).todense(), D.sum(1))
    close(sparse.bcoo_reduce_sum(m, axes=(1,)).todense(), D.sum(1))


def test_sorting_and_duplicates():
    order = RNG.permutation(20)
    at = RNG.integers(0, [5, 7], (20, 2))
    data = RNG.normal(size=20)
    m = BCOO((data[order], at[order]), shape=(5, 7))
    expected = np.zeros((5, 7))
    np.add.at(expected, tuple(at.T), data)
    close(m.todense(), expected)
    ordered = m.sort_indices()
    flat = np.ravel_multi_index(np.asarray(ordered.indices).T, (5, 7))
    assert (np.diff(flat) >= 0).all()
    assert ordered.indices_sorted
    close(ordered.todense(), expected)
    single = m.sum_duplicates()
    assert single.nse == len({tuple(p) for p in at})
    assert single.unique_indices
    close(single.todense(), expected)
    close(fnx.jit(lambda m: m.sum_duplicates(nse=25).todense())(m), expected)
    close(BCSR.from_bcoo(m).todense(), expected)


def test_vectors_and_constructors():
    v = BCOO.fromdense(np.where(V > 0, V, 0))
    close(v @ V, np.where(V > 0, V, 0) @ V)
    close(v @ W, np.where(V > 0, V, 0) @ W)
    for k in (-2, 0, 1, 9):
        close(sparse.eye(4, 5, k).todense(), np.eye(4, 5, k))
    close(sparse.eye(3, sparse_format="bcsr").todense(), np.eye(3))
    close(sparse.empty((2, 3)).todense(), np.zeros((2, 3)))
    close(BCOO.from_scipy_sparse(scipy.sparse.csr_matrix(D)) @ V, D @ V)
    close(BCSR.from_scipy_sparse(scipy.sparse.coo_matrix(D)) @ V, D @ V)
    r = sparse.random_bcoo(fnx.random.key(0), (6, 5), nse=0.3)
    assert r.nse == 9
    assert (np.asarray(r.todense()) != 0).sum() == 9


def test_under_jit_the_number_of_elements_is_needed():
    close(fnx.jit(lambda d: BCOO.fromdense(d, nse=20) @ V)(D), D @ V)
    with pytest.raises(TypeError):
        fnx.jit(lambda d: BCOO.fromdense(d) @ V)(D)


def test_what_does_not_fit():
    m = BCOO.fromdense(D)
    with pytest.raises(ShapeError, match="as many columns"):
        m @ np.ones(5)
    with pytest.raises(ShapeError, match="indices"):
        BCOO((np.ones(2), np.zeros((2, 3), int)), shape=(4, 4))
    with pytest.raises(ShapeError, match="elements"):
        BCOO((np.ones(3), np.zeros((2, 2), int)), shape=(4, 4))
    with pytest.raises(TypeError, match="BCOO"):
        jnp.sin(m)
    assert "nse=" in repr(m)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_spsolve(dtype):
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((7, 7)) < 0.4, rng.normal(size=(7, 7)), 0) + 4 * np.eye(7)
    b = rng.normal(size=7).astype(dtype)
    if dtype == "complex128":
        dense, b = dense * (1 + 2j), b + 1j
    rows = scipy.sparse.csr_array(dense.astype(dtype))
    data, at, starts = map(jnp.asarray, (rows.data, rows.indices, rows.indptr))
    solve = lambda data, b: spsolve(data, at, starts, b)
    where = rows.tocoo().coords
    direct = lambda data, b: jnp.linalg.solve(jnp.zeros((7, 7), dtype).at[where].set(data), b)
    tolerance = (
        {"rtol": 1e-4, "atol": 1e-4} if dtype == "float32" else {"rtol": 1e-10, "atol": 1e-12}
    )
    for f in (solve, fnx.jit(solve)):
        found = f(data, b)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, direct(data, b), **tolerance)
    many = jnp.stack([b, 2 * b])
    mapped = fnx.vmap(solve, (None, 0))(data, many)
    np.testing.assert_allclose(mapped, np.stack([direct(data, c) for c in many]), **tolerance)
    slopes = lambda f: fnx.grad(lambda *xs: jnp.sum(abs(f(*xs)) ** 2), argnums=(0, 1))
    for f in (slopes(solve), fnx.jit(slopes(solve))):
        for x, y in zip(f(data, b), slopes(direct)(data, b), strict=True):
            np.testing.assert_allclose(x, y, **tolerance)


def test_spsolve_of_what_cannot_be_solved():
    at, starts = jnp.array([0, 0]), jnp.array([0, 1, 2])
    assert np.isnan(spsolve(jnp.ones(2), at, starts, jnp.ones(2))).all()
    with pytest.raises(TypeError, match="vector"):
        spsolve(jnp.ones(2), at, starts, jnp.ones(3))


@pytest.mark.parametrize(
    ("dtype", "tol"), [("float64", 1e-11), ("float32", 3e-4), ("complex128", 1e-11)]
)
def test_the_largest_eigenvalues(dtype, tol):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(60, 60)) + 1j * rng.normal(size=(60, 60))
    A = (
        (A + A.conj().T).astype(dtype)
        if dtype == "complex128"
        else (A + A.conj().T).real.astype(dtype)
    )
    X = rng.normal(size=(60, 3)).astype(dtype)
    for made in (lobpcg_standard, fnx.jit(lambda A, X: lobpcg_standard(lambda x: A @ x, X, m=200))):
        values, vectors, _ = made(A, X)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(A)[:-4:-1], rtol=tol)
        assert vectors.dtype == dtype
    np.testing.assert_allclose(A @ vectors, values * np.array(vectors), atol=100 * tol)
    negative, _, count = lobpcg_standard(
        -np.diag(np.arange(1.0, 31.0)), rng.normal(size=(30, 2)), m=150
    )
    np.testing.assert_allclose(negative, [-1.0, -2.0], rtol=1e-12)
    assert 0 < count < 150
    assert lobpcg_standard(np.zeros((30, 30)), rng.normal(size=(30, 2)))[0].tolist() == [0.0, 0.0]
    equal, _, _ = lobpcg_standard(np.eye(60, dtype=dtype), rng.normal(size=(60, 9)).astype(dtype))
    assert (np.diff(equal) <= 0).all()  # in order, although they differ by roundings alone


@pytest.mark.parametrize(
    ("A", "X", "match"),
    [
        (np.eye(10), np.ones((10, 2)), "0 < 5 k < n"),
        (np.eye(10), np.ones(10), "0 < 5 k < n"),
        (np.eye(10), np.ones((12, 2)), r"expected A of shape \(12, 12\)"),
        (np.eye(12), np.ones((12, 2), np.float32), "makes float64 of shape"),
        (lambda x: x[:3], np.ones((12, 2)), "of shape \\(3, 2\\) from X"),
    ],
)
def test_eigenvalues_that_cannot_be(A, X, match):
    with pytest.raises(ValueError, match=match):
        lobpcg_standard(A, X)


def padded(dense):
    """With duplicates, and with elements outside along each axis whose data is not zero."""
    m = BCOO.fromdense(dense)
    outside = np.array([[dense.shape[0], 0], [0, dense.shape[1]]], np.int32)
    half = np.asarray(m.data) / 2
    data = np.concatenate([half, half, [7.0, 8.0]])
    return BCOO((data, np.concatenate([np.asarray(m.indices)] * 2 + [outside])), shape=dense.shape)


PARTS = [
    0,
    -1,
    (2, 3),
    slice(1, 4),
    (slice(None), 2),
    (slice(0, 5, 2), slice(1, 6)),
    (..., 1),
    (1, ...),
]


@pytest.mark.parametrize("make", [BCOO.fromdense, padded])
def test_parts_and_joins(make):
    m = make(D)
    for index in PARTS:
        close(m[index].todense(), D[index])
    close([row.todense() for row in m], D)
    close(fnx.jit(lambda m, i: m[i].todense())(m, 3), D[3])
    close(m[1:1].todense(), D[1:1])
    both = [m, make(2 * D)]
    close(sparse.bcoo_concatenate(both, dimension=0).todense(), np.concatenate([D, 2 * D]))
    close(sparse.bcoo_concatenate(both, dimension=1).todense(), np.concatenate([D, 2 * D], 1))
    close(sparse.bcoo_reshape(m, new_sizes=(7, 5)).todense(), D.reshape(7, 5))
    with pytest.raises(ShapeError):
        m[::-1]
    with pytest.raises(ShapeError):
        sparse.bcoo_concatenate([m, m.T], dimension=0)


@pytest.mark.parametrize("make", [BCOO.fromdense, padded])
def test_products_of_two(make):
    m, t = make(D), make(2 * D.T)
    for product in m @ t, fnx.jit(lambda m, t: m @ t)(m, t):
        assert isinstance(product, BCOO)
        close(product.todense(), D @ (2 * D.T))
    close((m * make(D + 1)).todense(), D * (D + 1))
    first = (([0], [1]), ([], []))
    for a, b in ((m, t), (m, 2 * D.T), (D, t), (D, 2 * D.T)):
        close(sparse.todense(sparse.bcoo_dot_general(a, b, dimension_numbers=first)), D.T @ (2 * D))
    every = (([0, 1], [1, 0]), ([], []))
    close(sparse.bcoo_dot_general(m, 2 * D.T, dimension_numbers=every), np.sum(2 * D * D))
    with pytest.raises(ShapeError):
        m @ m
    with pytest.raises(ShapeError):
        sparse.bcoo_dot_general(m, D, dimension_numbers=(([1], [1]), ([0], [0])))


def test_gradients_of_sparse_arguments():
    loss = lambda tree, v: jnp.sum((tree["m"] @ v) ** 2) + jnp.sum(tree["b"] * v)
    for m in BCOO.fromdense(D), BCSR.fromdense(D):
        tree = {"m": m, "b": V}
        value, (slope, of_v) = sparse.value_and_grad(loss, (0, 1))(tree, V)
        close(value, loss(tree, V))
        assert type(slope["m"]) is type(m)
        close(slope["m"].todense(), 2 * np.outer(D @ V, V) * (D != 0))
        close(slope["b"], V)
        close(of_v, 2 * D.T @ (D @ V) + V)
        slope, extra = sparse.grad(lambda t: (loss(t, V), 5), has_aux=True)(tree)
        assert extra == 5
        close(fnx.jit(sparse.grad(loss))(tree, V)["m"].data, slope["m"].data)


def _times(m):
    """How often each element is stored: each of its parts has the slope."""
    ones = type(m).tree_unflatten(
        m.tree_flatten()[1], (jnp.ones_like(m.data), *m.tree_flatten()[0][1:])
    )
    return np.asarray(ones.todense())


@pytest.mark.parametrize("jacobian", [sparse.jacfwd, sparse.jacrev])
@each
def test_jacobians_with_respect_to_sparse_arguments(m, jacobian):
    def f(tree, v):
        y = tree["m"] @ v + tree["b"]
        return {"y": y**2, "total": [y.sum()]}

    b = RNG.normal(size=5)
    given = {"m": m, "b": b}
    slopes = fnx.jit(jacobian(f, (0, 1)))(given, V)
    of_tree, of_v = slopes["y"]
    stored = np.asarray(m.todense() != 0)
    expected = np.einsum("i,ij,k->ijk", 2 * (D @ V + b), np.eye(5), V) * stored
    assert of_tree["m"].shape == (5, 5, 7)
    close(of_tree["m"].todense() * stored, expected * _times(m))
    close(of_tree["b"], np.diag(2 * (D @ V + b)))
    close(of_v, 2 * (D @ V + b)[:, None] * D)
    total = slopes["total"][0][0]["m"]
    assert type(total) is type(m)
    close(total.todense() * stored, np.tile(V, (5, 1)) * stored * _times(m))
    made, aux = jacobian(lambda m: (m @ V, 3), has_aux=True)(m)
    assert aux == 3
    assert made.shape == (5, 5, 7)


@pytest.mark.parametrize("form", ["bcoo", "bcsr", "coo", "csr", "csc"])
@pytest.mark.parametrize("run", [fnx.jit, lambda f: f], ids=["jit", "eager"])
def test_formats_of_what_is_made_from_nothing(form, run):
    for m, k in (5, -2), (3, 1), (2, 0):
        made = run(lambda m=m, k=k: sparse.eye(5, m, k, sparse_format=form))()
        assert type(made).__name__ == form.upper()
        close(made.todense(), np.eye(5, m, k))
        assert made.nse == np.eye(5, m, k).sum()
    none = run(lambda: sparse.empty((5, 3), nse=2, sparse_format=form))()
    assert none.nse == 2
    assert none.block_until_ready() is none
    with pytest.raises(TypeError, match="unhashable"):
        hash(none)
    close(none.todense(), np.zeros((5, 3)))
    with pytest.raises(ValueError, match="expected one of bcoo, bcsr, coo, csr, csc"):
        sparse.eye(2, sparse_format="dia")


def test_elements_that_lie_outside_are_in_no_sum():
    indices = np.array([[1, 0], [2, 2], [5, 4], [0, 4]])
    m = BCOO((np.array([1.0, 2.0, 100.0, 100.0]), indices), shape=(5, 4))
    for axis in (None, 0, 1):
        total = m.sum(axis)
        close(total if axis is None else total.todense(), m.todense().sum(axis))
