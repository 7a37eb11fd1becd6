"""Linear algebra of fnx.lax: decompositions of stacks of matrices."""

from typing import Any

from fnx.core.array import Array
from fnx.numpy.util import to_array
from fnx.ops import linalg as ops
from fnx.ops import matrix, spectral
from fnx.ops.basic import scalar
from fnx.ops.elementwise import add, mul
from fnx.ops.tridiagonal import tridiagonal_solve as _tridiagonal_solve


def _symmetric(x: Array, wanted: bool) -> Array:
    if not wanted:
        return x
    return mul(scalar(0.5, x.dtype), add(x, matrix.adjoint(x)))


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular L with L Lᴴ = x; nan where x is not positive definite."""
    return ops.cholesky(_symmetric(to_array(x, "cholesky"), symmetrize_input))


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """The x with op(a) x = b, or x op(a) = b, where a is triangular; b may be a vector."""
    a, b = to_array(a, "triangular_solve"), to_array(b, "triangular_solve", 1)
    vector = b.ndim == a.ndim - 1
    if vector:
        from fnx.lax.shapes import expand_dims

        b = expand_dims(b, (-1,) if left_side else (-2,))
    prim = ops.TriangularSolve(left_side, lower, transpose_a, conjugate_a, unit_diagonal)
    out = prim(a, b)
    if vector:
        from fnx.lax.shapes import squeeze

        out = squeeze(out, (-1,) if left_side else (-2,))
    return out


def lu(x: Any) -> tuple[Array, Array, Array]:
    """The LU decomposition with partial pivoting: (lu, pivots, permutation)."""
    return ops.lu(to_array(x, "lu"))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Array:
    """The permutation that row exchanges make."""
    return ops.LUPivotsToPermutation(int(permutation_size))(to_array(pivots))


def qr(
    x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: Any = None
) -> tuple:
    """The QR decomposition."""
    del use_magma
    return spectral.QR(bool(full_matrices), bool(pivoting))(to_array(x, "qr"))


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: Any = None,
    algorithm: Any = None,
) -> Any:
    """The singular value decomposition: (u, s, vᴴ), or s alone."""
    del algorithm, subset_by_index
    outs = spectral.SVD(bool(full_matrices), bool(compute_uv))(to_array(x, "svd"))
    if not compute_uv:
        return outs[0]
    s, u, vh = outs
    return u, s, vh


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: Any = None,
    implementation: Any = None,
) -> tuple[Array, Array]:
    """Eigenvectors and eigenvalues, ascending, of Hermitian matrices: (v, w), in this order."""
    del sort_eigenvalues, subset_by_index, implementation
    x = _symmetric(to_array(x, "eigh"), symmetrize_input)
    v, w = spectral.Eigh(bool(lower))(x)
    return v, w


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    **_: Any,
) -> list[Array]:
    """Eigenvalues and, as asked for, left and right eigenvectors."""
    prim = spectral.Eig(bool(compute_left_eigenvectors), bool(compute_right_eigenvectors))
    return list(prim(to_array(x, "eig")))


def schur(x: Any, *, compute_schur_vectors: bool = True, **_: Any) -> list[Array]:
    """The Schur decomposition: (T, Z) with x = Z T Zᴴ."""
    return list(spectral.Schur(bool(compute_schur_vectors))(to_array(x, "schur")))


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, **_: Any) -> Array:
    """The x with A x = b for tridiagonal A: lower, main and upper diagonals, each of d's length."""
    return _tridiagonal_solve(*(to_array(x, "tridiagonal_solve") for x in (dl, d, du, b)))
