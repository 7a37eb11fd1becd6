"""Products of matrices in native code: dtypes, axes, views, shared code."""

import re
from itertools import product

import numpy as np
import pytest
from native_arrays import DTYPES, agrees, close, positive, random, run

import fnx
import fnx.numpy as jnp
from fnx.core import dtypes
from fnx.lowering.cpu.routines import fortran
from fnx.lowering.generate import affine_views
from fnx.ops.linalg.contraction import DotGeneral
from fnx.ops.linalg.eigen import QR, SVD
from fnx.ops.linalg.factorizations import solve
from fnx.ops.linalg.triangular import cholesky

# --- products ----------------------------------------------------------------------------------


PLAIN = (((1,), (0,)), ((), ()))


SIZES = [
    (3, 4, 2),
    (1, 5, 1),
    (8, 8, 8),
    (20, 30, 17),
    (1, 40, 70),
    (70, 40, 1),
    (3, 0, 4),
    (0, 3, 2),
]


@pytest.mark.parametrize(
    "dtype", [*DTYPES, "float16", "bfloat16", "int32", "int8", "uint8", "bool"]
)
def test_products_of_every_dtype(dtype):
    cases = [
        (DotGeneral(PLAIN), random(m, k, dtype=dtype), random(k, n, dtype=dtype, seed=1))
        for m, k, n in SIZES
    ]
    for lead, (m, k, n) in product(((3,), (2, 3)), SIZES[:5]):
        nb = len(lead)
        dims = (((nb + 1,), (nb,)), (tuple(range(nb)),) * 2)
        x, y = random(*lead, m, k, dtype=dtype), random(*lead, k, n, dtype=dtype, seed=1)
        cases.append((DotGeneral(dims), x, y))
    agrees(*cases, factor=10)


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_products_over_other_axes(dtype):
    cases = []
    for lc, rc in product((0, 1), repeat=2):
        for m, k, n in SIZES[:5]:
            x = random(*((m, k) if lc else (k, m)), dtype=dtype)
            y = random(*((n, k) if rc else (k, n)), dtype=dtype, seed=1)
            cases.append((DotGeneral((((lc,), (rc,)), ((), ()))), x, y))
    x, y = random(10, 5, 6, dtype=dtype), random(5, 20, 6, dtype=dtype)
    cases.append((DotGeneral((((1, 2), (0, 2)), ((), ()))), x, y))
    x, y = random(10, 5, 16, dtype=dtype), random(16, 20, 5, dtype=dtype)
    cases.append((DotGeneral((((2,), (0,)), ((1,), (2,)))), x, y))
    agrees(*cases, factor=10)


@pytest.mark.parametrize(
    ("dtype", "sums"),
    [("int8", "int32"), ("float32", "float64"), ("bfloat16", "float32"), ("int32", "float64")],
)
def test_products_summed_in_another_dtype(dtype, sums):
    prim = DotGeneral(PLAIN, dtypes.canonical(sums))
    agrees(
        *[(prim, random(m, k, dtype=dtype), random(k, n, dtype=dtype)) for m, k, n in SIZES[:6]],
        factor=10,
    )


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: a.T @ b.T,
        lambda a, b: (b @ a).T @ b,
        lambda a, b: a[3:33, 5:20].T @ b.T[3:33],
        lambda a, b: b[:, 3] @ b,
        lambda a, b: a[::2].T @ b[7, ::2],
        lambda a, b: jnp.tanh(a.T @ b.T + b[:, 0]),
    ],
)
def test_views_are_read_where_they_lie(fn):
    a, b = random(40, 50), random(60, 40)
    (found,), report = run(lambda a, b: (fn(a, b),), a, b)
    close(found, np.asarray(fn(jnp.asarray(a), jnp.asarray(b))), 100)
    kernels = [line for line in report.splitlines() if line.strip().startswith("kernel")]
    assert not any("store" in line or "transpose" in line for line in kernels), report


def test_a_view_is_strides_over_a_buffer():
    def strides(shape, wanted, rows, cols):
        found = affine_views.matrices(affine_views.View(None, None, wanted), shape, rows, cols)
        return found and (found.transposed, found.leading)

    assert strides((4, 6), (6, 1), (0,), (1,)) == (False, 6)
    assert strides((4, 6), (1, 4), (0,), (1,)) == (True, 4)
    assert strides((4, 6), (10, 1), (0,), (1,)) == (False, 10)
    assert strides((4, 6), (12, 2), (0,), (1,)) is None
    assert strides((4, 6), (0, 1), (0,), (1,)) is None
    assert strides((2, 3, 6), (18, 6, 1), (0, 1), (2,)) == (False, 6)
    assert strides((2, 3, 6), (6, 12, 1), (0, 1), (2,)) is None


@pytest.mark.own_code
def test_code_is_shared_by_all_sizes():
    def text(n):
        a = positive(n)

        def fn(a, b):
            return solve(a, b), cholesky(a), *QR(False)(a), *SVD(False)(a), a @ b

        return fnx.jit(fn).lower(a, random(n, 2 * n)).as_text("llvm")

    assert text(40) == text(77)


def test_lengths_of_work_arrays_are_asked_for():
    args = [
        "V",
        "L",
        30,
        None,
        30,
        None,
        fortran.Asked("float64"),
        fortran.Asked("int32"),
        None,
    ]
    work, integers = fortran._query("lapack:dsyevd", args)
    assert work >= 1 + 6 * 30 + 2 * 30**2
    assert integers >= 3 + 5 * 30


@pytest.mark.own_code
def test_the_right_operand_of_loops_has_its_rows_side_by_side():
    """Scores of attention: the keys of each head lie across what the loops go along."""
    q = np.random.default_rng(0).normal(size=(3, 2, 20, 6))
    f = lambda q, k: jnp.einsum("bhtd,bhsd->bhts", q, k)
    text = fnx.jit(f).lower(q, q).as_text("kernel")
    assert "gemm" not in text
    inner = [line for line in text.splitlines() if "fma(" in line]
    assert inner
    assert not [line for line in inner if re.search(r"\(j\d+ \* ", line)]
    np.testing.assert_allclose(fnx.jit(f)(q, q), f(q, q), rtol=1e-13)


@pytest.mark.own_code
def test_sums_of_many_terms_do_not_wait_in_memory():
    """Rows that end within a vector: what is added to under a mask is late to be read again."""
    a, b = random(5, 12, 20), random(5, 20, 12)
    f = lambda a, b: a @ b
    assert "gemm" in fnx.jit(f).lower(a, b).as_text("kernel")
    np.testing.assert_allclose(fnx.jit(f)(a, b), f(a, b), rtol=1e-13, atol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "complex128", "int32", "bool"])
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 6, 8, 9])
def test_many_small_products_with_few_columns(columns, dtype):
    """Sums of 17 terms and more, for few columns that lie side by side or not."""
    rng = np.random.default_rng(columns)
    make = lambda *shape: (rng.normal(size=shape) * 3).astype(dtype)
    if dtype == "complex128":
        make = lambda *shape: rng.normal(size=shape) + 1j * rng.normal(size=shape)
    exact = "complex128" if dtype == "complex128" else "float64"
    tolerance = {"float32": 1e-4, "float16": 0.05}.get(dtype, 1e-11)
    for terms in (17, 20, 50):
        for spec, shape in [
            ("nb,nbi->ni", (7, terms, columns)),
            ("nb,nib->ni", (7, columns, terms)),
            ("nab,nibc->naic", (7, columns, terms, 1)),
        ]:
            middle = (5,) if spec.count("a") else ()
            x, y = make(7, *middle, terms), make(*shape)
            wanted = np.einsum(spec, x.astype(exact), y.astype(exact))
            if dtype == "bool":
                wanted = wanted != 0
            found = fnx.jit(lambda x, y, spec=spec: jnp.einsum(spec, x, y))(x, y)
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * 20)


@pytest.mark.own_code
def test_few_columns_are_summed_up_in_registers():
    x, y = np.ones((500, 20)), np.ones((500, 20, 3))
    text = fnx.jit(lambda x, y: jnp.einsum("nb,nbi->ni", x, y)).lower(x, y).as_text("kernel")
    _, inner = text.split("< 20 with")
    before, _, after = inner.partition("yield")
    assert "out0[" in after
    assert "out0[" not in before


# --- with a matrix that is computed for the product ----------------------------------------------

COMPUTED = {
    "rows": lambda np, a, b, x, y: (2 * a + b) @ x,
    "columns": lambda np, a, b, x, y: y @ (2 * a + b),
    "transposed": lambda np, a, b, x, y: (a.T * 2 - b.T) @ y,
    "function": lambda np, a, b, x, y: np.exp(-((y[:, None] - x) ** 2)) @ x,
    "vector, too": lambda np, a, b, x, y: (a - b) @ (np.exp(x) - 1),
    "triangle": lambda np, a, b, x, y: np.tril(a) @ x + y,
    "batch": lambda np, a, b, x, y: np.einsum(
        "bij,bj->bi", np.ones((3, 1, 1)) * (a + b), np.stack([x] * 3)
    ),
}


@pytest.mark.own_code
@pytest.mark.parametrize("name", COMPUTED)
@pytest.mark.parametrize("shape", [(40, 60), (300, 170)])
def test_a_matrix_that_is_computed_for_one_product_needs_no_memory(name, shape):
    rng = np.random.default_rng(0)
    (a, b), x, y = (
        rng.normal(size=(2, *shape)),
        rng.normal(size=shape[1]),
        rng.normal(size=shape[0]),
    )
    f = fnx.jit(lambda *args: COMPUTED[name](jnp, *args))
    np.testing.assert_allclose(
        f(a, b, x, y), COMPUTED[name](np, a, b, x, y), rtol=1e-11, atol=1e-11
    )
    workspace = re.search(r"workspace (\d+)", fnx.compile_report(f, a, b, x, y))
    assert int(workspace[1]) < a.nbytes / 4


def test_a_matrix_that_others_read_is_stored_for_products():
    def f(a, b, x):
        c = a * b + 1
        return c @ x, jnp.sum(c * c), x @ c

    a, b = np.random.default_rng(0).normal(size=(2, 50, 50))
    x = b[0]
    c = a * b + 1
    for found, expected in zip(fnx.jit(f)(a, b, x), (c @ x, np.sum(c * c), x @ c), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
