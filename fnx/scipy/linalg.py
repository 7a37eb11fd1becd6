"""Linear algebra with scipy.linalg's names, on stacks of matrices."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy import linalg as nl
from fnx.numpy import reduce
from fnx.numpy import ufuncs as u
from fnx.numpy.contract import matmul
from fnx.numpy.creation import arange, array, eye, full, zeros
from fnx.numpy.shape import (
    concatenate,
    diag,
    diagonal,
    flip,
    take,
)
from fnx.numpy.util import common_shape, convert, promote, promote_inexact, reshape_to, to_array
from fnx.ops import linalg as prims
from fnx.ops import matrix as m
from fnx.ops import spectral
from fnx.ops.broadcast import broadcast_to

# --- factorizations -----------------------------------------------------------------------------------


def cholesky(a, lower=False, overwrite_a=False, check_finite=True):
    """The upper (or lower) triangular factor of a positive definite matrix."""
    del overwrite_a, check_finite
    return nl.cholesky(a, upper=not lower)


def cho_factor(a, lower=False, overwrite_a=False, check_finite=True):
    """The Cholesky factor and whether it is lower, for `cho_solve`."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower, b, overwrite_b=False, check_finite=True):
    """x with a x = b, from the result of `cho_factor`."""
    c, lower = c_and_lower
    c, y = promote_inexact("cho_solve", c, b)
    first = solve_triangular(c, y, trans=0 if lower else 2, lower=lower)
    return solve_triangular(c, first, trans=2 if lower else 0, lower=lower)


def solve_triangular(
    a, b, trans=0, lower=False, unit_diagonal=False, overwrite_b=False, debug=None, check_finite=True
):
    """x with a x = b for triangular a; `trans` 1 or "T" transposes, 2 or "C" conjugates too."""
    del overwrite_b, debug, check_finite
    codes = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}
    if trans not in codes:
        raise InvalidValue(f"solve_triangular with trans={trans!r}; expected 0, 1, 2, 'N', 'T' or 'C'")
    x, y = promote_inexact("solve_triangular", a, b)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"solve_triangular of shape {x.shape}; expected square matrices")
    vector = y.ndim == 1 or y.ndim < x.ndim
    y = reshape_to(y, (*y.shape, 1)) if vector else y
    lead = common_shape("solve_triangular", [x.shape[:-2], y.shape[:-2]])
    x = broadcast_to(x, (*lead, *x.shape[-2:]))
    y = broadcast_to(y, (*lead, *y.shape[-2:]))
    code = codes[trans]
    out = prims.TriangularSolve(True, bool(lower), code > 0, code == 2, bool(unit_diagonal))(x, y)
    return reshape_to(out, out.shape[:-1]) if vector else out


def lu_factor(a, overwrite_a=False, check_finite=True):
    """LU factors in one matrix, and pivots, for `lu_solve`."""
    (x,) = promote_inexact("lu_factor", a)
    lu, pivots, _ = prims.lu(x)
    return lu, pivots


def lu_solve(lu_and_piv, b, trans=0, overwrite_b=False, check_finite=True):
    """x with a x = b, from the result of `lu_factor`."""
    lu, pivots = lu_and_piv
    lu, y = promote_inexact("lu_solve", lu, b)
    vector = y.ndim == 1
    y = y[:, None] if vector else y
    n = lu.shape[-1]
    order = prims.LUPivotsToPermutation(n)(to_array(pivots))
    if trans == 0:
        x = _take_rows(y, order)
        x = solve_triangular(lu, x, lower=True, unit_diagonal=True)
        x = solve_triangular(lu, x, lower=False)
    else:
        x = solve_triangular(lu, y, trans=trans, lower=False)
        x = solve_triangular(lu, x, trans=trans, lower=True, unit_diagonal=True)
        from fnx.numpy.sorting import argsort

        x = _take_rows(x, argsort(order))
    return x[..., 0] if vector else x


def _take_rows(y: Array, order: Array) -> Array:
    if order.ndim == 1:
        return take(y, order, axis=-2, mode="clip")
    from fnx.numpy.shape import take_along_axis

    return take_along_axis(y, order[..., None], -2, mode="clip")


def lu(a, permute_l=False, overwrite_a=False, check_finite=True):
    """P, L and U with P L U = a; with `permute_l`, P L and U."""
    (x,) = promote_inexact("lu", a)
    factors, _, order = prims.lu(x)
    rows, columns = x.shape[-2:]
    k = min(rows, columns)
    low = m.tril(factors, -1)[..., :, :k]
    low = u.add(low, convert(eye(rows, k), x.dtype))
    up = m.triu(factors)[..., :k, :]
    p = convert(u.equal(arange(rows)[:, None], order[..., None, :]), x.dtype)
    return (matmul(p, low), up) if permute_l else (p, low, up)


def qr(a, overwrite_a=False, lwork=None, mode="full", pivoting=False, check_finite=True):
    """Orthonormal Q and upper triangular R with Q R = a; with `pivoting` also the columns' order."""
    if mode not in ("full", "economic", "r"):
        raise InvalidValue(f"qr with mode={mode!r}; expected 'full', 'economic' or 'r'")
    (x,) = promote_inexact("qr", a)
    q, r, *order = spectral.QR(mode != "economic", bool(pivoting))(x)
    return (r, *order) if mode == "r" else (q, r, *order)


def qr_multiply(a, c, mode="right", pivoting=False, conjugate=False, overwrite_a=False, overwrite_c=False):
    """c times the Q of `qr(a)` (or Q times c with mode "left"), and R."""
    q, r, *order = qr(a, mode="economic", pivoting=pivoting)
    q = u.conj(q) if conjugate else q
    c = to_array(c)
    if c.ndim == 1:
        out = matmul(q, c) if mode == "left" else matmul(c, q)
    else:
        out = matmul(q, c) if mode == "left" else matmul(c, q)
    return (out, r, *order)


def svd(a, full_matrices=True, compute_uv=True, overwrite_a=False, check_finite=True, lapack_driver="gesdd"):
    """U, singular values, V^H."""
    out = nl.svd(a, full_matrices, compute_uv)
    return tuple(out) if compute_uv else out


def eigh(
    a, b=None, lower=True, eigvals_only=False, overwrite_a=False, overwrite_b=False, turbo=True, eigvals=None,
    type=1, check_finite=True,
):  # fmt: skip
    """Ascending eigenvalues and eigenvectors of Hermitian matrices, also of pairs a v = w b v."""
    if eigvals is not None or type != 1:
        raise InvalidValue("eigh with eigvals or another type than 1 is not supported")
    if b is None:
        w, v = nl.eigh(a, "L" if lower else "U", symmetrize_input=False)
        return w if eigvals_only else (w, v)
    x, y = promote_inexact("eigh", a, b)
    low = nl.cholesky(_hermitian(y, lower), symmetrize_input=False)
    inner = solve_triangular(low, _hermitian(x, lower), lower=True)
    inner = m.adjoint(solve_triangular(low, m.adjoint(inner), lower=True))
    w, v = nl.eigh(inner)
    return w if eigvals_only else (w, solve_triangular(low, v, lower=True, trans=2))


def _hermitian(x: Array, lower: bool) -> Array:
    return m.hermitian_of_lower(x if lower else m.adjoint(x))


def schur(a, output="real"):
    """T and Z with a = Z T Z^H, T upper triangular (real: with blocks of 2)."""
    (x,) = promote_inexact("schur", a)
    if output not in ("real", "complex"):
        raise InvalidValue(f"schur with output={output!r}; expected 'real' or 'complex'")
    if output == "complex":
        x = convert(x, dtypes.complex_of(x.dtype))
    return tuple(spectral.Schur(True)(x))


def hessenberg(a, *, calc_q=False, overwrite_a=False, check_finite=True):
    """H, zero below the first subdiagonal, similar to a; with `calc_q` also Q with a = Q H Q^H.

    By Householder reflections (Golub and Van Loan, algorithm 7.4.2).
    """
    (h,) = promote_inexact("hessenberg", a)
    n = h.shape[-1]
    q = broadcast_to(convert(eye(n), h.dtype), h.shape)
    for k in range(n - 2):
        v = _reflector(h[..., k + 1 :, k])
        h = _reflect_rows(h, v, k + 1)
        h = m.adjoint(_reflect_rows(m.adjoint(h), v, k + 1))
        q = m.adjoint(_reflect_rows(m.adjoint(q), v, k + 1))
    h = m.triu(h, -1)
    return (h, q) if calc_q else h


def _reflector(x: Array) -> Array:
    """The unit vector v for which (1 - 2 v v^H) x is a multiple of the first unit vector."""
    head = x[..., :1]
    size = nl.norm(x, axis=-1, keepdims=True)
    phase = u.where3(head == 0, 1.0, u.divide(head, u.where3(head == 0, 1.0, convert(u.abs(head), head.dtype))))
    v = x.at[..., :1].add(u.multiply(phase, size))
    length = nl.norm(v, axis=-1, keepdims=True)
    return u.divide(v, u.where3(length == 0, 1.0, length))


def _reflect_rows(h: Array, v: Array, start: int) -> Array:
    part = h[..., start:, :]
    along = matmul(u.conj(v)[..., None, :], part)
    return h.at[..., start:, :].add(u.multiply(-2.0 * v[..., None], along))


# --- systems ------------------------------------------------------------------------------------------


def solve(
    a, b, lower=False, overwrite_a=False, overwrite_b=False, debug=False, check_finite=True, assume_a="gen"
):
    """x with a x = b; `assume_a` "pos" uses Cholesky's factorization."""
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise InvalidValue(f"solve with assume_a={assume_a!r}; expected 'gen', 'sym', 'her' or 'pos'")
    if assume_a == "pos":
        (x,) = promote_inexact("solve", a)
        factor = nl.cholesky(_hermitian(x, lower), symmetrize_input=False)
        return cho_solve((factor, True), b)
    return nl.solve(a, b)


def inv(a, overwrite_a=False, check_finite=True):
    """The inverse."""
    return nl.inv(a)


def det(a, overwrite_a=False, check_finite=True):
    """The determinant."""
    return nl.det(a)


def solve_sylvester(a, b, q, *, method="schur", tol=1e-8):
    """x with a x + x b = q, by the eigenvectors of a and b, or the Kronecker product."""
    del method, tol
    a, b, q = promote_inexact("solve_sylvester", a, b, q)
    n, k = a.shape[-1], b.shape[-1]
    left = u.multiply(a[..., :, None, :, None], convert(eye(k), a.dtype)[:, None, :])
    right = u.multiply(convert(eye(n), a.dtype)[:, None, :, None], b.swapaxes(-1, -2)[..., None, :, None, :])
    whole = reshape_to(u.add(left, right), (*a.shape[:-2], n * k, n * k))
    return reshape_to(nl.solve(whole, reshape_to(q, (*q.shape[:-2], n * k, 1))), q.shape)


# --- functions of matrices ----------------------------------------------------------------------------

# Coefficients of the Pade approximant of order 13, and the norm up to which it is exact.
_PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
_LIMIT = 5.371920351148152


def expm(A, *, upper_triangular=False, max_squarings=16):
    """The exponential of square matrices, by scaling and squaring of a Pade approximant.

    Matrices that would need more than `max_squarings` give nan. Source: Higham (2005),
    doi:10.1137/04061101X.
    """
    del upper_triangular
    (x,) = promote_inexact("expm", A)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"expm of shape {x.shape}; expected square matrices")
    if x.ndim > 2:
        flat = reshape_to(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))
        outs = [_expm(flat[k], max_squarings) for k in range(flat.shape[0])]
        from fnx.numpy.shape import stack

        return reshape_to(stack(outs), x.shape)
    return _expm(x, max_squarings)


def _expm(x: Array, max_squarings: int) -> Array:
    size = nl.norm(x, 1)
    needed = u.maximum(0.0, u.ceil(u.log2(size / _LIMIT)))
    needed = u.where3(size == 0, 0.0, needed)
    scaled = u.divide(x, convert(u.exp2(needed), x.dtype))
    out = _pade13(scaled)
    for k in range(max_squarings):
        out = u.where3(k < needed, matmul(out, out), out)
    return u.where3(needed > max_squarings, math.nan, out)


def _pade13(x: Array) -> Array:
    b = [float(c) for c in _PADE]
    one = convert(eye(x.shape[-1]), x.dtype)
    x2 = matmul(x, x)
    x4 = matmul(x2, x2)
    x6 = matmul(x4, x2)
    odd = matmul(x6, b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one
    odd = matmul(x, odd)
    even = matmul(x6, b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    return nl.solve(even - odd, even + odd)


def expm_frechet(A, E, *, method=None, compute_expm=True):
    """The exponential of A and its derivative in direction E, by the exponential of a block matrix."""
    del method
    a, e = promote_inexact("expm_frechet", A, E)
    n = a.shape[-1]
    whole = concatenate(
        [concatenate([a, e], -1), concatenate([u.multiply(a, 0.0), a], -1)], -2
    )
    out = expm(whole)
    return (out[..., :n, :n], out[..., :n, n:]) if compute_expm else out[..., :n, n:]


def sqrtm(A, blocksize=1):
    """The principal square root of a matrix, complex, by Schur's form (Bjorck and Hammarling 1983)."""
    del blocksize
    (x,) = promote_inexact("sqrtm", A)
    t, z = schur(x, output="complex")
    return matmul(matmul(z, _sqrt_triangular(t)), m.adjoint(z))


def _sqrt_triangular(t: Array) -> Array:
    n = t.shape[-1]
    out = convert(u.multiply(eye(n), u.sqrt(diagonal(t, 0, -2, -1))[..., None, :]), t.dtype)
    for j in range(n):
        for i in range(j - 1, -1, -1):
            inner = reduce.sum(out[..., i, i + 1 : j] * out[..., i + 1 : j, j], axis=-1)
            low = out[..., i, i] + out[..., j, j]
            low = u.where3(low == 0, 1.0, low)
            out = out.at[..., i, j].set((t[..., i, j] - inner) / low)
    return out


def funm(A, func: Callable, disp=True):
    """A function of a matrix, by its eigenvectors; with disp=False also an estimate of the error."""
    (x,) = promote_inexact("funm", A)
    w, v = nl.eig(x)
    out = matmul(u.multiply(v, func(w)[..., None, :]), nl.inv(v))
    if disp:
        return out
    return out, u.multiply(nl.norm(matmul(v, nl.inv(v)) - eye(x.shape[-1]), 1), 1.0)


def rsf2csf(T, Z, check_finite=True):
    """The complex Schur form of a real one."""
    t, z = promote_inexact("rsf2csf", T, Z)
    t, z = (convert(x, dtypes.complex_of(x.dtype)) for x in (t, z))
    t2, z2 = schur(t, output="complex")
    return t2, matmul(z, z2)


def polar(a, side="right", *, method="qdwh", eps=None, max_iterations=None):
    """Unitary u and positive semidefinite p with u p = a (or p u = a for side "left")."""
    del method, eps, max_iterations
    (x,) = promote_inexact("polar", a)
    left, size, right = nl.svd(x, full_matrices=False)
    unitary = matmul(left, right)
    scale = convert(size, x.dtype)
    if side == "right":
        p = matmul(u.multiply(m.adjoint(right), scale[..., None, :]), right)
    elif side == "left":
        p = matmul(u.multiply(left, scale[..., None, :]), m.adjoint(left))
    else:
        raise InvalidValue(f"polar with side={side!r}; expected 'right' or 'left'")
    return unitary, p


def eigh_tridiagonal(d, e, *, eigvals_only=False, select="a", select_range=None, tol=None):
    """Ascending eigenvalues and eigenvectors of symmetric tridiagonal matrices."""
    d, e = promote_inexact("eigh_tridiagonal", d, e)
    if select not in ("a", "i"):
        raise InvalidValue(f"eigh_tridiagonal with select={select!r}; expected 'a' or 'i'")
    whole = diag(d) + diag(e, 1) + diag(u.conj(e), -1)
    w, v = nl.eigh(whole)
    if select == "i":
        first, last = select_range
        w, v = w[first : last + 1], v[:, first : last + 1]
    return w if eigvals_only else (w, v)


# --- special matrices ---------------------------------------------------------------------------------


def block_diag(*arrs):
    """Matrices along the diagonal of a larger one."""
    xs = promote("block_diag", *(arrs or (full((1, 0), 0.0),)))
    xs = [reshape_to(x, (1,) * (2 - x.ndim) + x.shape) for x in xs]
    if any(x.ndim > 2 for x in xs):
        raise ShapeError(f"block_diag of shapes {[x.shape for x in xs]}; expected at most 2 axes")
    rows, columns = (sum(x.shape[k] for x in xs) for k in (0, 1))
    out = zeros((rows, columns), xs[0].dtype)
    i = j = 0
    for x in xs:
        out = out.at[i : i + x.shape[0], j : j + x.shape[1]].set(x)
        i, j = i + x.shape[0], j + x.shape[1]
    return out


def toeplitz(c, r=None):
    """The matrix with constant diagonals of first column c and first row r."""
    c = to_array(c, "toeplitz")
    r = u.conj(c) if r is None else to_array(r, "toeplitz")
    c, r = (reshape_to(x, (x.aval.size,)) if x.ndim == 0 else x for x in promote("toeplitz", c, r))
    n, k = c.shape[-1], r.shape[-1]
    lead = common_shape("toeplitz", [c.shape[:-1], r.shape[:-1]])
    c, r = broadcast_to(c, (*lead, n)), broadcast_to(r, (*lead, k))
    both = concatenate([flip(c, -1), r[..., 1:]], -1)
    index = np.arange(n)[::-1, None] + np.arange(k)
    return both[..., index]


def hankel(c, r=None):
    """The matrix with constant antidiagonals of first column c and last row r."""
    c = to_array(c, "hankel")
    r = u.multiply(c, 0) if r is None else to_array(r, "hankel")
    c, r = promote("hankel", c, r)
    both = concatenate([c, r[1:]])
    return both[np.arange(c.shape[0])[:, None] + np.arange(r.shape[0])]


def circulant(c):
    """The matrix whose columns are rotations of c."""
    c = to_array(c, "circulant")
    n = c.shape[-1]
    return c[..., (np.arange(n)[:, None] - np.arange(n)) % n]


def companion(a):
    """The companion matrix of a polynomial."""
    (a,) = promote_inexact("companion", a)
    n = a.shape[-1]
    out = zeros((*a.shape[:-1], n - 1, n - 1), a.dtype)
    out = out.at[..., 0, :].set(-a[..., 1:] / a[..., :1])
    below = np.arange(n - 2)
    return out.at[..., below + 1, below].set(1.0) if n > 2 else out


def convolution_matrix(a, n, mode="full"):
    """The matrix whose product with v is convolve(a, v, mode)."""
    a = to_array(a, "convolution_matrix")
    k = a.shape[0]
    column = concatenate([a, zeros(n - 1, a.dtype)])
    row = concatenate([a[:1], zeros(n - 1, a.dtype)])
    whole = toeplitz(column, row)
    if mode == "full":
        return whole
    low, high = min(k, n), max(k, n)
    start = (low - 1) // 2 if mode == "same" else low - 1
    length = high if mode == "same" else high - low + 1
    return whole[start : start + length]


def _of_numpy(name: str, *args: Any) -> Array:
    import scipy.linalg

    return array(np.asarray(getattr(scipy.linalg, name)(*args)))


def dft(n, scale=None):
    """The matrix of the discrete Fourier transform."""
    return _of_numpy("dft", n, scale)


def hadamard(n, dtype=int):
    """Hadamard's matrix of size n, a power of 2."""
    return convert(_of_numpy("hadamard", n), dtypes.canonical(dtype))


def hilbert(n):
    """The matrix 1 / (i + j + 1)."""
    return 1.0 / (arange(n)[:, None] + arange(n) + 1.0)


def invhilbert(n):
    """The inverse of `hilbert(n)`."""
    return _of_numpy("invhilbert", n)


def pascal(n, kind=None):
    """Pascal's matrix of binomial coefficients."""
    return _of_numpy("pascal", n, kind or "symmetric")


def invpascal(n, kind=None):
    """The inverse of `pascal(n)`."""
    return _of_numpy("invpascal", n, kind or "symmetric")


def helmert(n, full=False):
    """Helmert's matrix."""
    return _of_numpy("helmert", n, full)


def fiedler(a):
    """The matrix |a[i] - a[j]|."""
    a = to_array(a, "fiedler")
    return u.abs(a[..., :, None] - a[..., None, :])


def leslie(f, s):
    """The Leslie matrix of fecundities f and survivals s."""
    f, s = promote("leslie", f, s)
    n = f.shape[0]
    below = np.arange(n - 1)
    return zeros((n, n), f.dtype).at[0].set(f).at[below + 1, below].set(s)


__all__ = [
    "block_diag", "cho_factor", "cho_solve", "cholesky", "circulant", "companion", "convolution_matrix", "det",
    "dft", "eigh", "eigh_tridiagonal", "expm", "expm_frechet", "fiedler", "funm", "hadamard", "hankel", "helmert",
    "hessenberg", "hilbert", "inv", "invhilbert", "invpascal", "leslie", "lu", "lu_factor", "lu_solve", "pascal",
    "polar", "qr", "qr_multiply", "rsf2csf", "schur", "solve", "solve_sylvester", "solve_triangular", "sqrtm",
    "svd", "toeplitz",
]  # fmt: skip
