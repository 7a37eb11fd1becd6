"""Linear algebra of fnx.lax: decompositions of stacks of matrices."""

import enum
from typing import Any

from fnx.core import lazy_imports as _later
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.core.primitive import family
from fnx.lax.elementwise import checked
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.util import to_array
from fnx.ops.base.broadcast import scalar_like
from fnx.ops.elementwise.arithmetic import add, mul, sub
from fnx.ops.linalg import eigen, householder, matrix, triangular
from fnx.ops.linalg import factorizations as ops
from fnx.ops.linalg.tridiagonal import TridiagonalSolve
from fnx.ops.linalg.tridiagonal import tridiagonal_solve as _tridiagonal_solve
from fnx.ops.structure.basic import scalar

# The primitives under JAX's names.
cholesky_p, triangular_solve_p = family(triangular.Cholesky), family(triangular.TriangularSolve)
lu_p, lu_pivots_to_permutation_p = family(ops.LU), family(ops.LUPivotsToPermutation)
qr_p, svd_p, eigh_p = family(eigen.QR), family(eigen.SVD), family(eigen.Eigh)
eig_p, schur_p = family(eigen.Eig), family(eigen.Schur)
tridiagonal_solve_p = family(TridiagonalSolve)
hessenberg_p, tridiagonal_p = family(householder.Gehrd), family(householder.Sytrd)


class SvdAlgorithm(enum.Enum):
    """Names of algorithms that `svd` accepts; LAPACK's divide and conquer computes all of them.

    >>> lax.linalg.svd(jnp.eye(2), compute_uv=False, algorithm=lax.linalg.SvdAlgorithm.QR)
    Array([1., 1.], dtype=float64)
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


class EigImplementation(enum.Enum):
    """Names of libraries that `eig` accepts; LAPACK computes all of them.

    >>> lax.linalg.EigImplementation.LAPACK in lax.linalg.EigImplementation
    True
    """

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """Names of algorithms that `eigh` accepts; LAPACK's divide and conquer computes all of them.

    >>> lax.linalg.EighImplementation.QR in lax.linalg.EighImplementation
    True
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


def _matrices(name: str, x: Any, square: bool = False) -> Array:
    """An argument as a stack of matrices; batch rules see more axes, and cannot tell."""
    x = to_array(x, name)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise ShapeError(f"{name} of shape {x.shape}; expected {kind} in the last two axes")
    return x


def _symmetric(x: Array, wanted: bool) -> Array:
    if not wanted:
        return x
    return mul(scalar_like(0.5, x), add(x, matrix.adjoint(x)))


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular L with L Lᴴ = x; nan where x is not positive definite.

    >>> lax.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]]))
    Array([[2., 0.],
           [1., 2.]], dtype=float64)
    """
    return ops.cholesky(_symmetric(_matrices("cholesky", x, True), symmetrize_input))


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
    """The x with op(a) x = b, or x op(a) = b, where a is triangular; b may be a vector.

    >>> lower = jnp.array([[2.0, 0.0], [1.0, 4.0]])
    >>> lax.linalg.triangular_solve(lower, jnp.array([[2.0], [9.0]]), left_side=True, lower=True)
    Array([[1.],
           [2.]], dtype=float64)
    """
    a, b = _matrices("triangular_solve", a, True), to_array(b, "triangular_solve", 1)
    vector = b.ndim == a.ndim - 1
    if vector:
        from fnx.lax.shapes import expand_dims

        b = expand_dims(b, (-1,) if left_side else (-2,))
    prim = ops.TriangularSolve(left_side, lower, transpose_a, conjugate_a, unit_diagonal)
    out = checked(prim, a, b)
    if vector:
        from fnx.lax.shapes import squeeze

        out = squeeze(out, (-1,) if left_side else (-2,))
    return out


def lu(x: Any) -> tuple[Array, Array, Array]:
    """The LU decomposition with partial pivoting: (lu, pivots, permutation).

    >>> packed, pivots, order = lax.linalg.lu(jnp.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> packed, order
    (Array([[4.  , 4.  ],
           [0.25, 1.  ]], dtype=float64), Array([1, 0], dtype=int32))
    """
    return ops.lu(_matrices("lu", x))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Array:
    """The permutation that row exchanges make.

    >>> lax.linalg.lu_pivots_to_permutation(jnp.array([2, 2, 2]), 3)
    Array([2, 0, 1], dtype=int32)
    """
    return ops.LUPivotsToPermutation(int(permutation_size))(to_array(pivots))


def qr(
    x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: Any = None
) -> tuple:
    """Q and R of matrices, by Householder reflections; with `pivoting` also the order of the columns.

    Without `full_matrices` Q has as many columns as R has rows, min(m, n). TypeError for integers.

    >>> q, r = lax.linalg.qr(jnp.ones((3, 2)), full_matrices=False)
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
    """
    del use_magma
    return eigen.QR(bool(full_matrices), bool(pivoting))(_matrices("qr", x))


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: Any = None,
    algorithm: Any = None,
) -> Any:
    """The singular value decomposition: (u, s, vᴴ), or s alone.

    ValueError for `subset_by_index` together with full matrices.

    >>> lax.linalg.svd(jnp.diag(jnp.array([2.0, 3.0])), compute_uv=False)
    Array([3., 2.], dtype=float64)
    """
    del algorithm
    if subset_by_index is not None and full_matrices and compute_uv:
        raise InvalidValue("svd with subset_by_index and full_matrices=True; expected one of them")
    outs = eigen.SVD(bool(full_matrices), bool(compute_uv))(_matrices("svd", x))
    some = _chosen(subset_by_index)
    if not compute_uv:
        return outs[0][..., some]
    s, u, vh = outs
    return u[..., some], s[..., some], vh[..., some, :]


def _chosen(subset_by_index: Any) -> slice:
    return slice(None) if subset_by_index is None else slice(*map(int, subset_by_index))


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: Any = None,
    implementation: Any = None,
) -> tuple[Array, Array]:
    """Eigenvectors and eigenvalues, ascending, of Hermitian matrices: (v, w), in this order.

    >>> vectors, values = lax.linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round(6)
    Array([1., 3.], dtype=float64)
    """
    del sort_eigenvalues, implementation
    x = _symmetric(_matrices("eigh", x, True), symmetrize_input)
    v, w = eigen.Eigh(bool(lower))(x)
    some = _chosen(subset_by_index)
    return v[..., some], w[..., some]


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    **_: Any,
) -> list[Array]:
    """Eigenvalues and, as asked for, left and right eigenvectors.

    >>> lax.linalg.eig(jnp.diag(jnp.array([2.0, 3.0])))[0]
    Array([2.+0.j, 3.+0.j], dtype=complex128)
    """
    prim = eigen.Eig(bool(compute_left_eigenvectors), bool(compute_right_eigenvectors))
    return list(prim(_matrices("eig", x, True)))


def schur(
    x: Any,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Any = None,
) -> list[Array]:
    """The Schur decomposition: (T, Z) with x = Z T Zᴴ.

    ValueError for `sort_eig_vals`.

    >>> a = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    >>> t, z = lax.linalg.schur(a)
    >>> bool(jnp.allclose(z @ t @ z.T, a))
    True
    """
    if sort_eig_vals or select_callable is not None:
        raise InvalidValue("schur does not sort eigenvalues; expected sort_eig_vals=False")
    return list(eigen.Schur(bool(compute_schur_vectors))(_matrices("schur", x, True)))


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Array:
    """The x with A x = b for tridiagonal A: lower, main and upper diagonals, each of d's length.

    ValueError for `perturb_singular`.

    >>> off, diagonal = jnp.array([0.0, 1.0]), jnp.array([2.0, 2.0])
    >>> lax.linalg.tridiagonal_solve(off, diagonal, off[::-1], jnp.array([[3.0], [3.0]]))
    Array([[1.],
           [1.]], dtype=float64)
    """
    if perturb_singular:
        raise InvalidValue("tridiagonal_solve does not perturb; expected perturb_singular=False")
    return _tridiagonal_solve(*(to_array(x, "tridiagonal_solve") for x in (dl, d, du, b)))


# --- reflections ---------------------------------------------------------------------------------


def geqrf(a: Any) -> tuple[Array, Array]:
    """R above the diagonal, reflections below it, and their factors tau, for `householder_product`.

    >>> packed, taus = lax.linalg.geqrf(jnp.ones((3, 2)))
    >>> packed.shape, taus.shape
    ((3, 2), (2,))
    """
    return tuple(householder.Geqrf()(_matrices("geqrf", a)))


def hessenberg(a: Any) -> tuple[Array, Array]:
    """The upper Hessenberg form of square matrices, with reflections below it, and their taus.

    >>> packed, taus = lax.linalg.hessenberg(jnp.ones((3, 3)))
    >>> packed.shape, taus.shape
    ((3, 3), (2,))
    """
    return tuple(householder.Gehrd()(_matrices("hessenberg", a, True)))


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """Hermitian matrices made tridiagonal: packed with reflections, the diagonals d and e, taus.

    >>> packed, d, e, taus = lax.linalg.tridiagonal(jnp.diag(jnp.array([1.0, 2.0, 3.0])))
    >>> d, e
    (Array([1., 2., 3.], dtype=float64), Array([0., 0.], dtype=float64))
    """
    return tuple(householder.Sytrd(bool(lower))(_matrices("tridiagonal", a, True)))


def _reflections(a: Any, taus: Any, name: str) -> tuple[Array, Array]:
    """V and T with I - V T Vᴴ the product of the reflections in the columns of `a`."""
    a, taus = to_array(a, name), to_array(taus, name, 1)
    *lead, rows, columns = a.shape
    k = taus.shape[-1]
    if taus.shape[:-1] != tuple(lead) or k > min(rows, columns):
        raise InvalidValue(
            f"{name} of shapes {a.shape} and {taus.shape}; expected (..., m, n), (..., k)"
        )
    a = a[..., :k]
    v = add(matrix.tril(a, -1), matrix.eye(a.shape, a.dtype))
    inner = matrix.triu(matrix.matmul(matrix.adjoint(v), v), 1)
    scale = matrix.repeat_columns(taus, k)
    one = matrix.eye(inner.shape, inner.dtype)
    solve = ops.TriangularSolve(True, False, unit_diagonal=True)
    return v, solve(add(one, mul(scale, inner)), mul(one, scale))


def householder_product(a: Any, taus: Any) -> Array:
    """The first columns, as many as `a` has, of the product of the reflections in it.

    >>> packed, taus = lax.linalg.geqrf(jnp.array([[3.0, 1.0], [4.0, 2.0]]))
    >>> q = lax.linalg.householder_product(packed, taus)
    >>> bool(jnp.allclose(q.T @ q, jnp.eye(2)))
    True
    """
    v, t = _reflections(a, taus, "householder_product")
    shape = to_array(a).shape
    first = matrix.adjoint(v[..., : shape[-1], :])
    product = matrix.matmul(matrix.matmul(v, t), first)
    return sub(matrix.eye(shape, v.dtype), product)


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Array:
    """Q c, or c Q with left=False, for the product Q of reflections; Qᴴ with `transpose`.

    >>> a = jnp.array([[3.0, 1.0], [4.0, 2.0]])
    >>> packed, taus = lax.linalg.geqrf(a)
    >>> r = lax.linalg.ormqr(packed, taus, a, transpose=True)
    >>> bool(jnp.allclose(r, jnp.triu(packed)))
    True
    """
    v, t = _reflections(a, taus, "ormqr")
    c = to_array(c, "ormqr", 2)
    t = matrix.adjoint(t) if transpose else t
    vh = matrix.adjoint(v)
    if left:
        return sub(c, matrix.matmul(v, matrix.matmul(t, matrix.matmul(vh, c))))
    return sub(c, matrix.matmul(matrix.matmul(matrix.matmul(c, v), t), vh))


# --- products and updates ------------------------------------------------------------------------


def symmetric_product(
    a_matrix: Any,
    c_matrix: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Array:
    """alpha A Aᵀ + beta C for symmetric C, of which only the lower triangle counts.

    >>> lax.linalg.symmetric_product(jnp.array([[1.0], [2.0]]), jnp.zeros((2, 2)), symmetrize_output=True)
    Array([[1., 2.],
           [2., 4.]], dtype=float64)
    """
    a, c = to_array(a_matrix, "symmetric_product"), to_array(c_matrix, "symmetric_product", 1)
    product = mul(scalar(alpha, a.dtype), matrix.matmul(a, matrix.swap(a)))
    out = checked(add, product, mul(scalar(beta, c.dtype), c))
    if not symmetrize_output:
        return out
    return add(matrix.tril(out), matrix.swap(matrix.tril(out, -1)))


def cholesky_update(r_matrix: Any, w_vector: Any) -> Array:
    """The upper triangular factor of Rᵀ R + w wᵀ, from the upper triangular R.

    >>> lax.linalg.cholesky_update(jnp.array([[3.0]]), jnp.array([4.0]))
    Array([[5.]], dtype=float64)
    """
    r, w = to_array(r_matrix, "cholesky_update"), to_array(w_vector, "cholesky_update", 1)
    product = checked(
        add,
        matrix.matmul(matrix.swap(r), r),
        mul(matrix.repeat_columns(w, w.shape[-1]), matrix.repeat_rows(w, w.shape[-1])),
    )
    return matrix.swap(ops.cholesky(product))


_retell(globals())
_later.add(__name__, "fnx.lax.composed", "householder_product_p")


def __getattr__(name: str) -> Any:
    return _later.find(__name__, name)
