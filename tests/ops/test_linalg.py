"""Contractions, convolutions and linear algebra against NumPy and SciPy."""

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core import dtypes, policy
from fnx.core.array import ConcreteArray
from fnx.core.errors import FnxError, MissingRule, ShapeError, TypeMismatch
from fnx.interpreters.linearize import linearize
from fnx.ops.linalg.contraction import DotGeneral
from fnx.ops.linalg.conv_layout import canonical_numbers
from fnx.ops.linalg.convolution import ConvGeneralDilated
from fnx.ops.linalg.eigen import QR, SVD, Eig, Eigh, Schur
from fnx.ops.linalg.factorizations import (
    LUPivotsToPermutation,
    TriangularSolve,
    cholesky,
    lu,
    solve,
)
from fnx.ops.linalg.tridiagonal import tridiagonal_solve

DTYPES = ["float32", "float64", "complex64", "complex128"]
RTOL = {"float32": 1e-4, "complex64": 1e-4, "float64": 1e-11, "complex128": 1e-11}


def array(x):
    return ConcreteArray(np.ascontiguousarray(x) if np.ndim(x) else np.asarray(x))


def run(prim, *args):
    outs = prim.apply(*map(array, args))
    return [np.asarray(o) for o in outs] if prim.multiple_results else np.asarray(outs[0])


def random(*shape, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def close(a, b, dtype="float64"):
    np.testing.assert_allclose(a, b, rtol=RTOL[dtype], atol=RTOL[dtype])


def adjoint(a):
    return a.conj().swapaxes(-1, -2)


def positive(*shape, dtype="float64"):
    a = random(*shape, dtype=dtype)
    return (a @ adjoint(a) + shape[-1] * np.eye(shape[-1])).astype(dtype)


# --- contractions ------------------------------------------------------------------------------


@st.composite
def contractions(draw):
    """Dimension numbers, the operands, and the same as an einsum."""
    counts = [draw(st.integers(0, 2)) for _ in range(4)]
    names = iter("abcdefgh")
    batch, inner, left, right = ("".join(next(names) for _ in range(n)) for n in counts)
    size = {c: draw(st.integers(1, 3)) for c in batch + inner + left + right}
    x_axes = "".join(draw(st.permutations(batch + inner + left)))
    y_axes = "".join(draw(st.permutations(batch + inner + right)))
    dims = (
        (tuple(map(x_axes.index, inner)), tuple(map(y_axes.index, inner))),
        (tuple(map(x_axes.index, batch)), tuple(map(y_axes.index, batch))),
    )
    free = [c for c in x_axes if c in left] + [c for c in y_axes if c in right]
    x, y = (random(*(size[c] for c in axes), seed=k) for k, axes in enumerate((x_axes, y_axes)))
    return dims, x, y, f"{x_axes},{y_axes}->{batch}{''.join(free)}"


@settings(max_examples=80, deadline=None)
@given(contractions())
def test_dot_general_is_einsum(case):
    dims, x, y, formula = case
    close(run(DotGeneral(dims), x, y), np.einsum(formula, x, y))


@pytest.mark.parametrize("dtype", ["float16", dtypes.bfloat16])
def test_half_precision_is_summed_in_float32(dtype):
    x = np.full((1, 4096), 1.0).astype(dtype)
    found = run(DotGeneral((((1,), (1,)), ((), ()))), x, x)
    assert found.dtype == dtype
    assert float(found[0, 0]) == 4096  # a sum in half precision stays at 2048 or 256


def test_preferred_type_is_that_of_the_sum():
    x = np.full((1, 100), 100, np.int8)
    prim = DotGeneral((((1,), (1,)), ((), ())), np.dtype(np.int32))
    assert run(prim, x, x).item() == 1_000_000


def test_contractions_that_do_not_fit_are_refused():
    product = DotGeneral((((1,), (0,)), ((), ())))
    with pytest.raises(ShapeError, match="contracted axes"):
        run(product, random(2, 3), random(4, 2))
    with pytest.raises(TypeMismatch, match="one dtype"):
        run(product, random(2, 2), np.ones((2, 2), int))
    twice = DotGeneral((((1,), (1,)), ((1,), (1,))))
    with pytest.raises(ShapeError, match="twice"):
        run(twice, random(2, 2), random(2, 2))


def conv(strides, padding, holes=None, groups=1):
    ones = (1,) * len(strides)
    numbers = canonical_numbers(len(strides))
    return ConvGeneralDilated(strides, padding, ones, holes or ones, numbers, groups)


def test_convolution_is_scipys_correlation():
    x, w = random(7, 9), random(3, 2, seed=1)
    found = run(conv((1, 1), ((0, 0), (0, 0))), x[None, None], w[None, None])
    close(found[0, 0], scipy.signal.correlate(x, w, "valid"))
    found = run(conv((1, 1), ((2, 2), (1, 1))), x[None, None], w[None, None])
    close(found[0, 0], scipy.signal.correlate(x, w, "full"))
    found = run(conv((2, 3), ((0, 0), (0, 0))), x[None, None], w[None, None])
    close(found[0, 0], scipy.signal.correlate(x, w, "valid")[::2, ::3])


def test_features_of_convolutions_are_summed_in_groups():
    x, w = random(2, 4, 8), random(6, 2, 3, seed=1)
    found = run(conv((1,), ((0, 0),), groups=2), x, w)
    for b in range(2):
        for o in range(6):
            g = o // 3
            parts = [np.correlate(x[b, 2 * g + i], w[o, i], "valid") for i in range(2)]
            close(found[b, o], sum(parts))


def test_holes_of_filters():
    x, w = random(1, 1, 9), random(1, 1, 3, seed=1)
    wide = np.zeros(5)
    wide[::2] = w[0, 0]
    found = run(conv((1,), ((0, 0),), holes=(2,)), x, w)
    close(found[0, 0], np.correlate(x[0, 0], wide, "valid"))


# --- factorizations ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_cholesky(dtype, lead):
    a = positive(*lead, 4, 4, dtype=dtype)
    found = run(cholesky, a)
    assert found.dtype == a.dtype
    close(found, np.linalg.cholesky(a), dtype)


def test_cholesky_reads_the_lower_triangle_and_gives_nan_without_one():
    a = positive(3, 3)
    np.testing.assert_array_equal(run(cholesky, np.tril(a)), run(cholesky, a))
    found = run(cholesky, np.stack([a, -a]))
    assert not np.isnan(found[0]).any()
    assert np.isnan(np.tril(found[1])[np.tril_indices(3)]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("low", [True, False])
@pytest.mark.parametrize("op", ["n", "t", "c", "conj"])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_solve(dtype, left, low, op, unit):
    a = positive(2, 3, 3, dtype=dtype)
    b = random(2, 3, 4, dtype=dtype) if left else random(2, 4, 3, dtype=dtype)
    transposed, conjugated = op in "tc", op.startswith("c")
    x = run(TriangularSolve(left, low, transposed, conjugated, unit), a, b)
    full = np.tril(a) if low else np.triu(a)
    if unit:
        full = full - full * np.eye(3) + np.eye(3)
    full = full.swapaxes(-1, -2) if transposed else full
    full = full.conj() if conjugated else full
    close(full @ x if left else x @ full, b, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 4, 4)])
def test_lu(dtype, shape):
    a = random(*shape, dtype=dtype)
    packed, pivots, order = run(lu, a)
    *_, rows, columns = shape
    k = min(rows, columns)
    lower = np.tril(packed[..., :, :k], -1) + np.eye(rows, k)
    upper = np.triu(packed[..., :k, :])
    close(lower @ upper, np.take_along_axis(a, order[..., None], -2), dtype)
    np.testing.assert_array_equal(run(LUPivotsToPermutation(rows), pivots), order)
    if len(shape) == 2 and rows == columns:
        expected, piv = scipy.linalg.lu_factor(a)
        close(packed, expected, dtype)
        np.testing.assert_array_equal(pivots, piv)


@pytest.mark.parametrize("dtype", DTYPES)
def test_solve_and_its_gradient(dtype):
    a, b = positive(2, 4, 4, dtype=dtype), random(2, 4, 3, dtype=dtype)
    x = run(solve, a, b)
    close(a @ x, b, dtype)
    _, tape = linearize(solve.apply, [array(a), array(b)], [True, True])
    ct = random(2, 4, 3, dtype=dtype, seed=5)
    ga, gb = (np.asarray(g) for g in tape.pull([array(ct)]))
    expected = np.linalg.solve(a.swapaxes(-1, -2), ct)
    close(gb, expected, dtype)
    close(ga, -expected @ x.swapaxes(-1, -2), dtype)


def test_a_singular_system_gives_no_error():
    assert not np.isfinite(run(solve, np.zeros((2, 2)), np.ones((2, 1)))).any()
    assert not np.isfinite(
        run(TriangularSolve(True, True), np.zeros((2, 2)), np.ones((2, 1)))
    ).any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 5, 3)])
@pytest.mark.parametrize("full", [True, False])
def test_qr(dtype, shape, full):
    a = random(*shape, dtype=dtype)
    q, r = run(QR(full), a)
    close(q @ r, a, dtype)
    close(
        adjoint(q) @ q,
        np.broadcast_to(np.eye(q.shape[-1]), (*shape[:-2], *[q.shape[-1]] * 2)),
        dtype,
    )
    np.testing.assert_array_equal(r, np.triu(r))
    q, r, order = run(QR(full, True), a)
    close(q @ r, np.take_along_axis(a, order[..., None, :], -1), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (2, 5, 3)])
def test_svd(dtype, shape):
    a = random(*shape, dtype=dtype)
    s, u, vh = run(SVD(False), a)
    close((u * s[..., None, :]) @ vh, a, dtype)
    close(s, np.linalg.svd(a, compute_uv=False), dtype)
    close(run(SVD(False, False), a)[0], s, dtype)
    assert run(SVD(True), a)[1].shape == (*shape[:-2], shape[-2], shape[-2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_eigh(dtype):
    a = positive(2, 4, 4, dtype=dtype)
    for low in (True, False):
        v, w = run(Eigh(low), np.tril(a) if low else np.triu(a))
        close(a @ v, v * w[..., None, :], dtype)
        close(w, np.linalg.eigvalsh(a), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eig_and_schur(dtype):
    a = random(2, 4, 4, dtype=dtype)
    w, left, right = run(Eig(True, True), a)
    close(a @ right, right * w[..., None, :], dtype)
    close(adjoint(left) @ a, w[..., :, None] * adjoint(left), dtype)
    t, z = run(Schur(), a)
    close(z @ t @ adjoint(z), a, dtype)
    assert np.isnan(run(Eig(False, False), np.full((2, 2), np.nan))[0]).all()


def test_gradient_of_singular_values_that_are_equal():
    """The sum of singular values is differentiable where they are equal."""
    a = np.eye(3)
    _, tape = linearize(SVD(False).apply, [array(a)], [True])
    (found,) = tape.pull([array(np.ones(3)), None, None])
    close(np.asarray(found), np.eye(3))


@pytest.mark.parametrize("dtype", DTYPES)
def test_tridiagonal_solve(dtype):
    dl, du = random(2, 5, dtype=dtype), random(2, 5, dtype=dtype, seed=1)
    d, b = (random(2, 5, dtype=dtype) + 5).astype(dtype), random(2, 5, 3, dtype=dtype, seed=3)
    x = run(tridiagonal_solve, dl, d, du, b)
    for k in range(2):
        full = np.diag(d[k]) + np.diag(dl[k, 1:], -1) + np.diag(du[k, :-1], 1)
        close(full @ x[k], b[k], dtype)


def test_factors_that_are_not_unique_have_no_derivative():
    with pytest.raises(MissingRule, match="not unique"):
        linearize(SVD(True).apply, [array(random(4, 3))], [True])


@pytest.mark.parametrize(
    "prim", [cholesky, lu, QR(False), SVD(False), Eigh(), Eig(), Schur(), solve]
)
def test_what_is_no_matrix_of_floats_is_refused(prim):
    count = 2 if prim is solve else 1
    for bad in (np.ones((2, 2), int), np.ones((2, 2), np.float16), np.ones(3)):
        with pytest.raises(FnxError):
            run(prim, *[bad] * count)


@pytest.mark.parametrize("bound", [2000, 300, 1])
def test_convolutions_of_few_windows_at_once_are_those_of_all_at_once(bound, monkeypatch):
    x = np.random.default_rng(0).normal(size=(3, 4, 7, 6))
    w = np.random.default_rng(1).normal(size=(6, 2, 3, 2))
    conv = ConvGeneralDilated(
        (2, 1), ((1, 1), (0, 1)), (1, 1), (1, 1), canonical_numbers(2), feature_group_count=2
    )
    expected = conv.impl(x, w)
    monkeypatch.setattr(policy, "WINDOWS_AT_ONCE", bound)
    np.testing.assert_allclose(conv.impl(x, w), expected, rtol=1e-14)
