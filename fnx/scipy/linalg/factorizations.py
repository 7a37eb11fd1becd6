"""Factorizations of matrices: Cholesky, LU, QR, SVD, eigenvalues, Schur, Hessenberg, polar."""

from typing import Any

import numpy as np

from fnx.control_flow import fori_loop
from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.lax import dynamic_slice, dynamic_update_slice
from fnx.lax import linalg as lax_linalg
from fnx.numpy.algebra import products
from fnx.numpy.arrays import creation
from fnx.numpy.arrays.util import common_shape, convert, promote_inexact
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.structure.joining import stack
from fnx.ops.base.broadcast import broadcast_to
from fnx.ops.linalg import eigen
from fnx.ops.linalg import matrix as m
from fnx.transforms.vmap import vmap


def matrices(name: str, a: Any, square: bool = False) -> Array:
    """A stack of matrices of a dtype that LAPACK has."""
    (x,) = promote_inexact(name, a)
    if x.dtype not in m.LAPACK:
        x = convert(x, dtypes.float32)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise ShapeError(f"{name} of shape {x.shape}; expected {kind} in the last two axes")
    return x


def cholesky(a, lower=False, overwrite_a=False, check_finite=True):
    """The upper triangular U with U^H U = a, or the lower L with L L^H = a; nan where there is none.

    >>> fnx.scipy.linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 1.],
           [0., 2.]], dtype=float64)
    """
    del overwrite_a, check_finite
    x = matrices("cholesky", a, square=True)
    out = lax_linalg.cholesky(x if lower else m.adjoint(x), symmetrize_input=False)
    return out if lower else m.adjoint(out)


def cho_factor(a, lower=False, overwrite_a=False, check_finite=True):
    """A Cholesky factor and whether it is the lower one, for `cho_solve`.

    >>> factor, lower = fnx.scipy.linalg.cho_factor(jnp.array([[4.0, 2.0], [2.0, 5.0]]), lower=True)
    >>> jnp.tril(factor), lower
    (Array([[2., 0.],
           [1., 2.]], dtype=float64), True)
    """
    return cholesky(a, lower, overwrite_a, check_finite), lower


def lu_factor(a, overwrite_a=False, check_finite=True):
    """L and U in one matrix, and the rows (int32) that were exchanged, for `lu_solve`.

    >>> fnx.scipy.linalg.lu_factor(jnp.array([[1.0, 2.0], [4.0, 4.0]]))
    (Array([[4.  , 4.  ],
           [0.25, 1.  ]], dtype=float64), Array([1, 1], dtype=int32))
    """
    del overwrite_a, check_finite
    lu, pivots, _ = lax_linalg.lu(matrices("lu_factor", a))
    return lu, pivots


def lu(a, permute_l=False, overwrite_a=False, check_finite=True):
    """(P, L, U) with P L U = a, or (P L, U) with `permute_l`.

    >>> a = jnp.array([[1.0, 2.0], [4.0, 4.0]])
    >>> p, l, u = fnx.scipy.linalg.lu(a)
    >>> l, u
    (Array([[1.  , 0.  ],
           [0.25, 1.  ]], dtype=float64), Array([[4., 4.],
           [0., 1.]], dtype=float64))
    """
    del overwrite_a, check_finite
    x = matrices("lu", a)
    *lead, rows, columns = x.shape
    packed, _, permutation = lax_linalg.lu(x)
    k = min(rows, columns)
    lower = m.tril(packed, -1)[..., :k] + m.eye((*lead, rows, k), x.dtype)
    upper = m.triu(packed)[..., :k, :]
    places = u.equal(np.arange(rows, dtype=np.int32)[:, None], permutation[..., None, :])
    p = convert(places, dtypes.real_of(x.dtype))
    return (products.matmul(p, lower), upper) if permute_l else (p, lower, upper)


def qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    """(Q, R) with Q R = a; (R,) with mode 'r'; with `pivoting` a further P with Q R = a[:, P].

    ValueError for another mode than 'full', 'r' or 'economic'.

    >>> a = jnp.array([[3.0, 1.0], [4.0, 2.0]])
    >>> q, r = fnx.scipy.linalg.qr(a)
    >>> bool(jnp.allclose(q @ r, a)), float(abs(r[0, 0]).round(6))
    (True, 5.0)
    """
    del overwrite_a, lwork, check_finite
    if mode not in ("full", "r", "economic"):
        raise InvalidValue(f"qr with mode={mode!r}; expected 'full', 'r' or 'economic'")
    found = lax_linalg.qr(matrices("qr", a), pivoting=pivoting, full_matrices=mode != "economic")
    return tuple(found[1:]) if mode == "r" else tuple(found)


def qr_multiply(
    a, c, mode="right", pivoting=False, conjugate=False, overwrite_a=False, overwrite_c=False
):
    """c Q (or Q c with mode 'left') and R, for the economic Q R = a; with `pivoting` also P.

    ValueError for another mode than 'right' or 'left'.

    >>> a = jnp.array([[3.0, 1.0], [4.0, 2.0]])
    >>> q, r = fnx.scipy.linalg.qr_multiply(a, jnp.eye(2))
    >>> bool(jnp.allclose(q @ r, a))
    True
    """
    del overwrite_a, overwrite_c
    if mode not in ("right", "left"):
        raise InvalidValue(f"qr_multiply with mode={mode!r}; expected 'right' or 'left'")
    x, y = promote_inexact("qr_multiply", a, c)
    q, *rest = qr(x, mode="economic", pivoting=pivoting)
    q = u.conjugate(q) if conjugate else q
    out = products.matmul(y, q) if mode == "right" else products.matmul(q, y)
    return (out, *rest)


def svd(
    a,
    full_matrices=True,
    compute_uv=True,
    overwrite_a=False,
    check_finite=True,
    lapack_driver="gesdd",
):
    """(U, s, V^H) with U diag(s) V^H = a, or s alone.

    >>> fnx.scipy.linalg.svd(jnp.diag(jnp.array([2.0, 3.0])), compute_uv=False)
    Array([3., 2.], dtype=float64)
    """
    del overwrite_a, check_finite, lapack_driver
    return lax_linalg.svd(matrices("svd", a), full_matrices=full_matrices, compute_uv=compute_uv)


def eigh(
    a,
    b=None,
    lower=True,
    eigvals_only=False,
    overwrite_a=False,
    overwrite_b=False,
    turbo=True,
    eigvals=None,
    type=1,
    check_finite=True,
):
    """Ascending eigenvalues of Hermitian matrices and, unless `eigvals_only`, eigenvectors.

    NotImplementedError for `b` and other parts of the generalised problem.

    >>> w, v = fnx.scipy.linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> w.round(6)
    Array([1., 3.], dtype=float64)
    """
    del overwrite_a, overwrite_b, turbo, check_finite
    for what, given in (
        ("b", b is not None),
        ("eigvals", eigvals is not None),
        ("type", type != 1),
    ):
        if given:
            raise NotImplementedError(f"eigh has no {what}=; expected the ordinary problem")
    v, w = lax_linalg.eigh(matrices("eigh", a, square=True), lower=lower, symmetrize_input=False)
    return w if eigvals_only else (w, v)


def eigh_tridiagonal(
    d, e, *, eigvals_only=False, select="a", select_range=None, tol=None, key=None
):
    """Eigenvalues, and eigenvectors in columns, of a symmetric tridiagonal matrix, from its diagonals.

    Complex numbers `e` are above the diagonal, their conjugates below; `d` are real, or taken to be.
    ShapeError for other shapes than (n,) and (n - 1,); NotImplementedError for `select` by values.

    >>> d, e = jnp.array([2.0, 2.0]), jnp.array([1.0])
    >>> fnx.scipy.linalg.eigh_tridiagonal(d, e, eigvals_only=True).round(6)
    Array([1., 3.], dtype=float64)
    """
    del tol, key
    if select not in ("a", "i"):
        raise NotImplementedError(f"eigh_tridiagonal with select={select!r}; expected 'a' or 'i'")
    d, e = promote_inexact("eigh_tridiagonal", d, e)
    n = d.shape[-1]
    if e.shape[-1:] != (n - 1,):
        raise ShapeError(
            f"eigh_tridiagonal of shapes {d.shape} and {e.shape}; expected (n,), (n - 1,)"
        )
    off = creation.zeros((n, n), e.dtype).at[np.arange(n - 1), np.arange(1, n)].set(e)
    full = off + off.T.conj() + d[:, None] * np.eye(n, dtype=d.dtype)
    part = slice(None) if select == "a" else slice(select_range[0], select_range[1] + 1)
    if eigvals_only:
        return eigh(full, eigvals_only=True)[part]
    w, v = eigh(full)
    return w[part], v[:, part]


def schur(a, output="real"):
    """(T, Z) with a = Z T Z^H and T upper triangular (real: with 2x2 blocks).

    ValueError for another output than 'real' or 'complex'.

    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> t, z = fnx.scipy.linalg.schur(a)
    >>> bool(jnp.allclose(z @ t @ z.T, a)), float(abs(t[1, 0]))
    (True, 0.0)
    """
    if output not in ("real", "complex"):
        raise InvalidValue(f"schur with output={output!r}; expected 'real' or 'complex'")
    x = matrices("schur", a, square=True)
    if output == "complex":
        x = convert(x, dtypes.complex_of(x.dtype))
    t, z = eigen.Schur(True)(x)
    return t, z


def rsf2csf(T, Z, check_finite=True):
    """The complex Schur form, from a real one; leading axes broadcast.

    >>> t, z = fnx.scipy.linalg.schur(jnp.array([[0.0, 1.0], [-1.0, 0.0]]))
    >>> t, z = fnx.scipy.linalg.rsf2csf(t, z)
    >>> jnp.sort(jnp.diag(t).imag).round(6), float(abs(t[1, 0]))
    (Array([-1.,  1.], dtype=float64), 0.0)
    """
    del check_finite
    t, z = promote_inexact("rsf2csf", T, Z)
    dtype = dtypes.complex_of(t.dtype)
    lead = common_shape("rsf2csf", [t.shape[:-2], z.shape[:-2]])
    t, z = (convert(broadcast_to(x, (*lead, *x.shape[-2:])), dtype) for x in (t, z))
    one = _rotated
    for _ in lead:
        one = vmap(one)
    return one(t, z)


def _rotated(t: Array, z: Array) -> tuple[Array, Array]:
    """2x2 blocks made triangular by rotations, from the last one to the first."""
    n = t.shape[0]
    eps = float(np.finfo(t.dtype).eps)

    def step(k: Any, both: tuple[Array, Array]) -> tuple[Array, Array]:
        t, z = both
        i = n - 2 - k
        block = dynamic_slice(t, (i, i), (2, 2))
        low = block[1, 0]
        (w,) = eigen.Eig(False, False)(block)
        mu = w[0] - block[1, 1]
        size = u.hypot(u.abs(mu), u.abs(low))
        whole = u.abs(low) > eps * (u.abs(block[0, 0]) + u.abs(block[1, 1]))
        size = convert(u.where3(size == 0, 1.0, size), t.dtype)
        c, s = u.where3(whole, mu / size, 1), u.where3(whole, low / size, 0)
        g = stack([stack([u.conjugate(c), s]), stack([-s, c])])
        columns = np.arange(n)
        rows = dynamic_slice(t, (i, 0), (2, n))
        rows = u.where3(columns >= i, products.matmul(g, rows), rows)
        t = dynamic_update_slice(t, rows, (i, 0))
        beside = dynamic_slice(t, (0, i), (n, 2))
        turned = products.matmul(beside, m.adjoint(g))
        beside = u.where3(columns[:, None] <= i + 1, turned, beside)
        t = dynamic_update_slice(t, beside, (0, i)).at[i + 1, i].set(0)
        return t, dynamic_update_slice(
            z, products.matmul(dynamic_slice(z, (0, i), (n, 2)), m.adjoint(g)), (0, i)
        )

    return fori_loop(0, n - 1, step, (t, z)) if n > 1 else (t, z)


def hessenberg(a, *, calc_q=False, overwrite_a=False, check_finite=True):
    """The upper Hessenberg H with a = Q H Q^H and, with `calc_q`, Q.

    >>> h = fnx.scipy.linalg.hessenberg(jnp.arange(9.0).reshape(3, 3))
    >>> float(h[2, 0]), float(jnp.trace(h).round(6))
    (0.0, 12.0)
    """
    del overwrite_a, check_finite
    x = matrices("hessenberg", a, square=True)
    one = _hessenberg
    for _ in x.shape[:-2]:
        one = vmap(one)
    h, q = one(x)
    return (h, q) if calc_q else h


def _hessenberg(a: Array) -> tuple[Array, Array]:
    """A column after the other is reflected, as LAPACK does: to real numbers below the diagonal."""
    n = a.shape[0]
    rows = np.arange(n)

    def step(k: Any, both: tuple[Array, Array]) -> tuple[Array, Array]:
        a, q = both
        column = a[:, k]
        v, tau = _reflection(column, rows > k, rows == k + 1)
        a = a - u.conjugate(tau) * v[:, None] * products.matmul(u.conjugate(v), a)[None, :]
        a = a - tau * products.matmul(a, v)[:, None] * u.conjugate(v)[None, :]
        a = a.at[:, k].set(u.where3(rows > k + 1, 0, a[:, k]))
        return a, q - tau * products.matmul(q, v)[:, None] * u.conjugate(v)[None, :]

    start = (a, m.eye(a.shape, a.dtype))
    return fori_loop(0, n - 1, step, start) if n > 1 else start


def _reflection(x: Array, below: np.ndarray, first: np.ndarray) -> tuple[Array, Array]:
    """v and tau with (I - conj(tau) v v^H) x real and zero `below`, but for the place `first`."""
    alpha = u.where3(first, x, 0).sum()
    rest = u.where3(below & u.logical_not(first), x, 0)
    tail = u.square(u.abs(rest)).sum()
    nothing = (tail == 0) & (u.imag(alpha) == 0)
    size = u.sqrt(u.where3(nothing, 1.0, u.square(u.abs(alpha)) + tail))
    beta = u.where3(nothing, 1.0, u.where3(u.real(alpha) >= 0, -size, size))
    beta = convert(beta, x.dtype)
    tau = u.where3(nothing, 0, (beta - alpha) / beta)
    v = rest / u.where3(nothing, 1, alpha - beta)
    return u.where3(first, 1, v), tau


def polar(a, side="right", *, method="qdwh", eps=None, max_iterations=None):
    """(U, P) with a = U P (side 'left': a = P U), U unitary and P positive semidefinite.

    ValueError for another side or method.

    >>> a = jnp.array([[0.0, -2.0], [3.0, 0.0]])
    >>> u, p = fnx.scipy.linalg.polar(a)
    >>> u.round(6) + 0.0, p.round(6) + 0.0
    (Array([[ 0., -1.],
           [ 1.,  0.]], dtype=float64), Array([[3., 0.],
           [0., 2.]], dtype=float64))
    """
    del eps, max_iterations
    if side not in ("right", "left"):
        raise InvalidValue(f"polar with side={side!r}; expected 'right' or 'left'")
    if method not in ("qdwh", "svd"):
        raise InvalidValue(f"polar with method={method!r}; expected 'qdwh' or 'svd'")
    x = matrices("polar", a)
    left, s, right = svd(x, full_matrices=False)
    unitary = products.matmul(left, right)
    scaled = convert(s, x.dtype)
    if side == "right":
        return unitary, products.matmul(m.adjoint(right) * scaled[..., None, :], right)
    return unitary, products.matmul(left * scaled[..., None, :], m.adjoint(left))


__all__ = [
    "cho_factor",
    "cholesky",
    "eigh",
    "eigh_tridiagonal",
    "hessenberg",
    "lu",
    "lu_factor",
    "polar",
    "qr",
    "qr_multiply",
    "rsf2csf",
    "schur",
    "svd",
]
