"""Factorizations of stacks of matrices: Cholesky, QR, singular values, eigenvalues."""

from typing import Any, NamedTuple

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy.arrays.util import convert, promote_inexact
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.structure.shapes import expand_dims
from fnx.ops.base.broadcast import scalar_like
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.linalg import eigen, householder
from fnx.ops.linalg import factorizations as prims
from fnx.ops.linalg import matrix as m


class QRResult(NamedTuple):
    """Orthonormal columns Q and upper triangular R.

    >>> jnp.linalg.qr(jnp.eye(2)).R.shape
    (2, 2)
    """

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """U, the singular values S, and V^H.

    >>> jnp.linalg.svd(jnp.diag(jnp.array([2.0, 3.0]))).S
    Array([3., 2.], dtype=float64)
    """

    U: Array
    S: Array
    Vh: Array


class EighResult(NamedTuple):
    """Ascending eigenvalues, and eigenvectors as columns.

    >>> jnp.linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]])).eigenvalues.round(6)
    Array([1., 3.], dtype=float64)
    """

    eigenvalues: Array
    eigenvectors: Array


class EigResult(NamedTuple):
    """Eigenvalues, and right eigenvectors as columns.

    >>> jnp.linalg.eig(jnp.diag(jnp.array([2.0, 3.0]))).eigenvalues
    Array([2.+0.j, 3.+0.j], dtype=complex128)
    """

    eigenvalues: Array
    eigenvectors: Array


def matrix_of(name: str, a: Any, square: bool = False) -> Array:
    (x,) = promote_inexact(f"linalg.{name}", a)
    if dtypes.is_float(x.dtype) and x.dtype.itemsize < 4:
        x = convert(x, dtypes.float32)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise ShapeError(f"linalg.{name} of shape {x.shape}; expected {kind} in the last two axes")
    return x


def pair_of(name: str, a: Any, b: Any) -> tuple[Array, Array]:
    x, y = promote_inexact(f"linalg.{name}", a, b)
    if dtypes.is_float(x.dtype) and x.dtype.itemsize < 4:
        x, y = convert(x, dtypes.float32), convert(y, dtypes.float32)
    return x, y


def symmetrized(x: Array) -> Array:
    return ops.mul(ops.add(x, m.adjoint(x)), scalar_like(0.5, x))


def cholesky(a, *, upper=False, symmetrize_input=True):
    """The lower triangular L with L L^H = a (or the upper one with U^H U = a); nan if there is none.

    >>> jnp.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float64)
    """
    x = matrix_of("cholesky", a, square=True)
    x = symmetrized(x) if symmetrize_input else m.adjoint(x) if upper else x
    out = prims.cholesky(x)
    return m.adjoint(out) if upper else out


def qr(a, mode="reduced"):
    """Orthonormal Q and upper triangular R with Q R = a; with mode 'raw' LAPACK's reflections.

    Shapes (..., m, n) -> (..., m, k), (..., k, n) with k = min(m, n), or m where mode is 'complete'.

    ValueError for an unknown mode.

    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> q, r = jnp.linalg.qr(a)
    >>> q.shape, r.shape, bool(jnp.allclose(q @ r, a))
    ((3, 2), (2, 2), True)
    """
    x = matrix_of("qr", a)
    if mode == "raw":  # as NumPy gives it, transposed
        packed, taus = householder.Geqrf()(x)
        return QRResult(m.swap(packed), taus)
    if mode not in ("reduced", "full", "complete", "r"):
        raise InvalidValue(f"qr with mode={mode!r}; expected 'reduced', 'complete', 'r' or 'raw'")
    q, r = eigen.QR(mode == "complete")(x)
    return r if mode == "r" else QRResult(q, r)


def svd(a, full_matrices=True, compute_uv=True, hermitian=False, subset_by_index=None):
    """U, singular values in decreasing order, and V^H, with U S V^H = a.

    Shapes (..., m, n) -> (..., m, m), (..., k), (..., n, n) with k = min(m, n); without
    `full_matrices` (..., m, k), (..., k), (..., k, n).

    ValueError for `subset_by_index`.

    >>> a = jnp.array([[3.0, 0.0], [4.0, 5.0]])
    >>> u, s, vh = jnp.linalg.svd(a)
    >>> bool(jnp.allclose(u * s @ vh, a)), jnp.square(s).round(6)
    (True, Array([45.,  5.], dtype=float64))
    """
    x = matrix_of("svd", a)
    if subset_by_index is not None:
        raise InvalidValue("svd with subset_by_index is not supported; slice the result")
    if hermitian:
        return _hermitian_svd(x, compute_uv)
    if not compute_uv:
        return eigen.SVD(False, False)(x)[0]
    s, u, vh = eigen.SVD(bool(full_matrices), True)(x)
    return SVDResult(u, s, vh)


def _hermitian_svd(x: Array, compute_uv: bool) -> Any:
    w, v = eigh(x)
    from fnx.numpy.structure.selection import take_along_axis
    from fnx.numpy.structure.sorting import argsort

    size = ufuncs.abs(w)
    order = argsort(size, -1, descending=True)
    s = take_along_axis(size, order, -1)
    if not compute_uv:
        return s
    u = take_along_axis(v, expand_dims(order, -2), -1)
    signs = take_along_axis(ufuncs.where3(ufuncs.less(w, 0), -1.0, 1.0), order, -1)
    v = ufuncs.multiply(u, convert(expand_dims(signs, -2), u.dtype))
    return SVDResult(u, s, m.adjoint(v))


def svdvals(x, /):
    """Singular values in decreasing order.

    >>> jnp.linalg.svdvals(jnp.diag(jnp.array([1.0, -3.0])))
    Array([3., 1.], dtype=float64)
    """
    return svd(x, compute_uv=False)


def eigh(a, UPLO=None, symmetrize_input=True):
    """Ascending eigenvalues and eigenvectors (columns) of Hermitian matrices.

    They are symmetrized first; without `symmetrize_input` only the triangle `UPLO` is read.

    ValueError for another `UPLO` than 'L' or 'U'.

    >>> a = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    >>> w, v = jnp.linalg.eigh(a)
    >>> w.round(6), bool(jnp.allclose(a @ v, v * w))
    (Array([1., 3.], dtype=float64), True)
    """
    x = matrix_of("eigh", a, square=True)
    if UPLO not in (None, "L", "U"):
        raise InvalidValue(f"eigh with UPLO={UPLO!r}; expected 'L' or 'U'")
    x = symmetrized(x) if symmetrize_input else x
    v, w = eigen.Eigh(UPLO != "U")(x)
    return EighResult(w, v)


def eigvalsh(a, UPLO="L", *, symmetrize_input=True):
    """Ascending eigenvalues of Hermitian matrices.

    >>> jnp.linalg.eigvalsh(jnp.array([[2.0, 1.0], [1.0, 2.0]])).round(6)
    Array([1., 3.], dtype=float64)
    """
    return eigh(a, UPLO, symmetrize_input)[0]


def eig(a):
    """Eigenvalues and right eigenvectors (columns), complex.

    >>> a = jnp.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> w, v = jnp.linalg.eig(a)
    >>> bool(jnp.allclose(a @ v, v * w)), jnp.abs(w).round(6)
    (True, Array([1., 1.], dtype=float64))
    """
    w, v = eigen.Eig(False, True)(matrix_of("eig", a, square=True))
    return EigResult(w, v)


def eigvals(a):
    """Eigenvalues, complex.

    >>> jnp.linalg.eigvals(jnp.array([[2.0, 1.0], [0.0, 3.0]]))
    Array([2.+0.j, 3.+0.j], dtype=complex128)
    """
    return eigen.Eig(False, False)(matrix_of("eigvals", a, square=True))[0]
