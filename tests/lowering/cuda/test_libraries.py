"""What CuPy's libraries compute for a GPU, against a record of the calls; what the host does without."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

RNG = np.random.default_rng(0)
DTYPES = ["float32", "float64", "complex64", "complex128"]


def matrices(dtype, *shape):
    found = RNG.normal(size=shape)
    if dtype.startswith("complex"):
        found = found + 1j * RNG.normal(size=shape)
    return found.astype(dtype)


def definite(dtype, *lead):
    a = matrices(dtype, *lead, 4, 4)
    return a @ a.conj().swapaxes(-1, -2) + 4 * np.eye(4, dtype=dtype)


def triangular(left, lower, trans, conjugate, unit):
    def f(a, b):
        return lax.linalg.triangular_solve(
            a, b, left_side=left, lower=lower, transpose_a=trans, conjugate_a=conjugate,
            unit_diagonal=unit,
        )  # fmt: skip

    return f


def batched(x, y):
    return lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))))


def two_axes(x, y):
    return jnp.tensordot(x, y, 2)


PROGRAMS = {
    "matmul": (lambda x, y: x @ y, [(40, 50), (50, 30)]),
    "batched": (batched, [(3, 40, 20), (3, 20, 30)]),
    "tensordot": (two_axes, [(40, 6, 20), (6, 20, 30)]),
    "transposed": (lambda x, y: x.T @ y.T, [(50, 40), (30, 50)]),
    "qr": (jnp.linalg.qr, [(6, 4)]),
    "qr, whole": (lambda a: jnp.linalg.qr(a, mode="complete"), [(6, 4)]),
    "svd": (lambda a: jnp.linalg.svd(a, full_matrices=False), [(2, 5, 4)]),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), [(5, 4)]),
    "lu": (lax.linalg.lu, [(5, 5)]),
    "lu of a stack": (lax.linalg.lu, [(3, 5, 5)]),
    "fft": (lambda x: jnp.fft.fft(x + 0j), [(5, 8)]),
    "fft in two dimensions": (lambda x: jnp.fft.ifft2(x + 0j), [(3, 6, 8)]),
}
ASKED = {
    "matmul": "matmul", "batched": "matmul", "tensordot": "matmul", "transposed": "matmul",
    "qr": "qr", "qr, whole": "qr", "svd": "svd", "singular values": "svd", "lu": "lu_factor",
    "lu of a stack": "lu_factor", "fft": "fftn", "fft in two dimensions": "ifftn",
}  # fmt: skip


def same(found, wanted, dtype):
    tolerance = 2e-4 if dtype in ("float32", "complex64") else 1e-10
    for a, b in zip(*map(fnx.tree.leaves, (found, wanted)), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_libraries_are_asked_on_our_stream(cupy, gpu, name, dtype):
    f, shapes = PROGRAMS[name]
    args = [matrices(dtype, *shape) for shape in shapes]
    same(fnx.jit(f, backend="cuda")(*args), f(*args), dtype)
    asked = [c for c in cupy.calls if c[0] == ASKED[name]]
    assert asked
    assert {stream for _, stream, _ in asked} == {7}
    copies = sum(a.nbytes for a in args)
    assert sum(n for n, _ in gpu.made("copy")) <= copies + sum(
        x.nbytes for x in fnx.tree.leaves(f(*args))
    )  # what comes in and goes out: nothing goes by the host


@pytest.mark.parametrize("dtype", DTYPES)
def test_factorizations_of_hermitian_matrices(cupy, dtype):
    a = definite(dtype, 3)
    same(fnx.jit(jnp.linalg.cholesky, backend="cuda")(a), jnp.linalg.cholesky(a), dtype)
    values, vectors = fnx.jit(jnp.linalg.eigh, backend="cuda")(a)
    same(values, jnp.linalg.eigvalsh(a), dtype)
    same(vectors * values[:, None, :] @ vectors.conj().swapaxes(-1, -2), jnp.asarray(a), dtype)
    assert {"cholesky", "eigh"} <= {*cupy.names}


def test_cholesky_of_what_is_not_definite(cupy):
    a = np.stack([definite("float64"), -np.eye(4)])
    found = fnx.jit(jnp.linalg.cholesky, backend="cuda")(a)
    same(found[0], jnp.linalg.cholesky(a[0]), "float64")
    assert np.isnan(np.diagonal(found[1])).all()


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(
    ("trans", "conjugate"), [(False, False), (True, False), (True, True), (False, True)]
)
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_systems(cupy, dtype, left, lower, trans, conjugate, unit):
    a = matrices(dtype, 2, 4, 4) + 4 * np.eye(4, dtype=dtype)
    b = matrices(dtype, *((2, 4, 3) if left else (2, 3, 4)))
    f = triangular(left, lower, trans, conjugate, unit)
    same(fnx.jit(f, backend="cuda")(a, b), f(a, b), dtype)
    assert "solve_triangular" in cupy.names


@pytest.mark.parametrize(
    ("precision", "used"),
    [(None, "default"), ("float32", "default"), ("highest", "default"), ("tensorfloat32", "tf32")],
)
def test_precision_of_products(cupy, precision, used):
    x = matrices("float32", 60, 60)
    f = fnx.jit(lambda x: x @ x, backend="cuda")
    with fnx.default_matmul_precision(precision):
        f(x)
    assert [c for c in cupy.calls if c[0] == "matmul"] == [("matmul", 7, used)]
    assert cupy.compute["float32"] == "default"  # others that use CuPy are left alone


def test_small_products_and_small_floats_are_kernels(cupy):
    for x in (matrices("float64", 5, 5), matrices("float32", 60, 60).astype("float16")):
        found = fnx.jit(lambda x: x @ x, backend="cuda")(x)
        np.testing.assert_allclose(found, x @ x, rtol=0.02, atol=0.1)
    assert "matmul" not in cupy.names


def test_reports_say_who_computes(cupy):
    f = lambda a: jnp.linalg.cholesky(a) + jnp.linalg.qr(a, mode="r")
    report = fnx.jit(f, backend="cuda").lower(definite("float64")).compile().report()
    assert "library call cholesky: CuPy's" in report
    assert "library call qr: CuPy's" in report
    assert "host call" not in report


def test_without_cupy_the_host_computes(gpu):
    a = definite("float64")
    f = fnx.jit(jnp.linalg.cholesky, backend="cuda")
    same(f(a), jnp.linalg.cholesky(a), "float64")
    assert "\n  host call cholesky\n" in f.lower(a).compile().report()


def test_empty_arrays_stay_with_the_host(cupy):
    found = fnx.jit(jnp.linalg.cholesky, backend="cuda")(np.zeros((0, 4, 4)))
    assert found.shape == (0, 4, 4)
    assert not cupy.calls


def test_gradients_go_through_libraries(cupy):
    a = definite("float64")
    f = lambda a: jnp.sum(jnp.linalg.cholesky(a) ** 3)
    same(fnx.jit(fnx.grad(f), backend="cuda")(a), fnx.grad(f)(a), "float64")
    assert "solve_triangular" in cupy.names
