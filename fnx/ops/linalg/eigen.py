"""Orthogonal factorizations: QR, SVD, eigenvalues of symmetric and of general matrices, Schur.

Derivatives follow Giles (2008), Seeger et al., "Auto-differentiating linear algebra" (2017), and
Townsend, "Differentiating the singular value decomposition" (2016). All work on stacks of matrices
in the last two axes. Where singular values or eigenvalues are equal, the vectors' derivatives do
not exist; the terms that would divide by zero are left out.
"""

from collections.abc import Callable

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import MissingRule
from fnx.core.fast_dataclasses import dataclass
from fnx.core.recipe import Library, Operand, Recipe
from fnx.ops.base.broadcast import Sum
from fnx.ops.elementwise.arithmetic import (
    abs_,
    add,
    complex_,
    conj,
    div,
    eq,
    imag,
    mul,
    real,
    select,
    sub,
)
from fnx.ops.linalg import matrix as m
from fnx.ops.linalg.factorizations import solve, take_rows
from fnx.ops.linalg.triangular import Stacked, TriangularSolve, each
from fnx.ops.reduction.reduction import Max
from fnx.ops.structure.basic import convert, scalar, zeros
from fnx.ops.structure.movement import Concatenate, Slice

_NUMPYS = (dtypes.float64, dtypes.complex128)  # NumPy computes everything in double precision
_SOLVE_RIGHT_UPPER = TriangularSolve(False, False)


def _as_real(x: Array) -> Array:
    return real(x) if dtypes.is_complex(x.dtype) else x


def _times(a: Array, x: Array) -> Array:
    """Elementwise product of an array and a real one."""
    return mul(a, convert(x, a.dtype))


def _reciprocal(x: Array) -> Array:
    """1 / x, and 0 where x is 0."""
    zero, one = scalar(0, x.dtype), scalar(1, x.dtype)
    is_zero = eq(x, zero)
    return select(is_zero, zero, div(one, select(is_zero, one, x)))


def _columns_of(a: Array, start: int, stop: int) -> Array:
    *lead, rows, _ = a.shape
    n = len(lead)
    return Slice((*(0,) * n, 0, start), (*lead, rows, stop), None)(a)


def _rows_of(a: Array, start: int, stop: int) -> Array:
    *lead, _, columns = a.shape
    n = len(lead)
    return Slice((*(0,) * n, start, 0), (*lead, stop, columns), None)(a)


def zeros_of(a: Array) -> Array:
    return zeros(ShapedArray(a.shape, a.dtype))


def _or_nan(prim: Stacked, one: Callable[[np.ndarray], tuple], a: np.ndarray) -> tuple:
    """one(matrix) for each matrix of a stack, nan for those that are not finite or where it fails."""

    def safe(a: np.ndarray) -> tuple:
        try:
            if np.isfinite(a).all():
                return one(a)
        except np.linalg.LinAlgError:
            pass
        avals = prim.abstract(ShapedArray(a.shape, a.dtype))
        return tuple(np.full(x.shape, np.nan, x.dtype) for x in avals)

    return tuple(each(safe, a, ranks=(2,)))


def _lapack_ready(name: str, a: np.ndarray, square: bool = False) -> None:
    m.check_matrices(name, ShapedArray(a.shape, a.dtype), square)


# --- QR ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class QR(Stacked):
    """Q with orthonormal columns and upper triangular R with Q R = A.

    `full_matrices` makes Q square. With `pivoting`, Q R = A[:, p], and p (int32) is a third result.
    Native code: Library("qr", (a,), params=(full_matrices, pivoting)).
    """

    full_matrices: bool
    pivoting: bool = False
    name = "qr"
    multiple_results = True

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a)
        *lead, rows, columns = a.shape
        k = rows if self.full_matrices else min(rows, columns)
        q = ShapedArray((*lead, rows, k), a.dtype, a.weak_type)
        r = ShapedArray((*lead, k, columns), a.dtype, a.weak_type)
        return (q, r, ShapedArray((*lead, columns), dtypes.int32)) if self.pivoting else (q, r)

    def impl(self, a: np.ndarray) -> tuple:  # type: ignore[override]
        _lapack_ready(self.name, a)
        if not a.size:
            return self._empty(a)
        if not self.pivoting and a.dtype in _NUMPYS:
            return tuple(np.linalg.qr(a, "complete" if self.full_matrices else "reduced"))
        import scipy.linalg

        def one(a: np.ndarray) -> tuple:
            mode = "full" if self.full_matrices else "economic"
            found = scipy.linalg.qr(a, mode=mode, pivoting=self.pivoting, check_finite=False)
            return (*found[:2], *(p.astype(np.int32) for p in found[2:]))

        return tuple(each(one, a, ranks=(2,)))

    def _empty(self, a: np.ndarray) -> tuple:
        avals = self.abstract(ShapedArray(a.shape, a.dtype))
        q, *rest = (np.zeros(x.shape, x.dtype) for x in avals)
        q[...] = np.eye(*q.shape[-2:])
        if self.pivoting:
            rest[1][...] = np.arange(a.shape[-1])
        return (q, *rest)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        a, t = primals[0], tangents[0]
        *_, rows, columns = a.shape
        q, r, *order = self(a)
        if self.pivoting:
            a, t = (m.swap(take_rows(m.swap(x), order[0])) for x in (a, t))
        none = (None,) * len(order)
        if rows < columns:
            # Wide: Q belongs to the first columns, and the rest of R is Q^H times the rest of A.
            left = _columns_of(r, 0, rows)
            tq, tleft = _qr_tangents(q, left, _columns_of(t, 0, rows))
            more = m.matmul(m.adjoint(tq), _columns_of(a, rows, columns))
            more = add(more, m.matmul(m.adjoint(q), _columns_of(t, rows, columns)))
            return (q, r, *order), (tq, Concatenate(len(a.shape) - 1)(tleft, more), *none)
        if not self.full_matrices or rows == columns or not columns:
            tangents = _qr_tangents(q, r, t) if columns else (zeros_of(q), zeros_of(r))
            return (q, r, *order), (*tangents, *none)
        thin = _columns_of(q, 0, columns)
        tq, tr = _qr_tangents(thin, _rows_of(r, 0, columns), t)
        rest = _complement_tangent(q, thin, tq)
        tr = Concatenate(len(a.shape) - 2)(tr, zeros_of(_rows_of(r, columns, rows)))
        return (q, r, *order), (Concatenate(len(a.shape) - 1)(tq, rest), tr, *none)

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library("qr", (a,), (self.full_matrices, self.pivoting))


def _complement_tangent(q: Array, thin: Array, tq: Array) -> Array:
    """The tangent of the columns of Q that complete the thin ones, as reflectors make them.

    Arxiv 2409.13374, equations 32 and 33: such columns are a function of the thin ones.
    """
    rows, columns = thin.shape[-2:]
    top, low = _rows_of(thin, 0, columns), _rows_of(thin, columns, rows)
    ttop, tlow = _rows_of(tq, 0, columns), _rows_of(tq, columns, rows)
    shifted = sub(top, m.eye(top.shape, top.dtype))
    zh = solve(m.adjoint(shifted), m.adjoint(low))
    z = m.adjoint(zh)
    base = add(thin, m.matmul(_columns_of(q, columns, rows), z))
    change = m.adjoint(sub(tlow, m.matmul(z, ttop)))
    return sub(m.matmul(tq, zh), m.matmul(base, change))


def _qr_tangents(q: Array, r: Array, t: Array) -> tuple[Array, Array]:
    t = _SOLVE_RIGHT_UPPER(r, t)  # dA R^-1
    inner = m.matmul(m.adjoint(q), t)
    low = m.tril(inner, -1)
    skew = sub(low, m.adjoint(low))  # Q^H dQ
    if dtypes.is_complex(q.dtype):
        diag = mul(inner, m.eye(inner.shape, inner.dtype))
        part = imag(diag)
        skew = add(skew, complex_(scalar(0, part.dtype), part))
    tq = add(m.matmul(q, sub(skew, inner)), t)
    return tq, m.matmul(sub(inner, skew), r)


# --- SVD ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SVD(Stacked):
    """Singular values, largest first, and with `compute_uv` the matrices U and V^H.

    Native code: Library("svd", (a,), params=(full_matrices, compute_uv)).
    """

    full_matrices: bool
    compute_uv: bool = True
    name = "svd"
    multiple_results = True

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a)
        *lead, rows, columns = a.shape
        k = min(rows, columns)
        s = ShapedArray((*lead, k), dtypes.real_of(a.dtype), a.weak_type)
        if not self.compute_uv:
            return (s,)
        ku, kv = (rows, columns) if self.full_matrices else (k, k)
        u = a.update(shape=(*lead, rows, ku))
        return s, u, a.update(shape=(*lead, kv, columns))

    def impl(self, a: np.ndarray) -> tuple:  # type: ignore[override]
        _lapack_ready(self.name, a)
        if a.size and a.dtype not in _NUMPYS:
            return _or_nan(self, self._one, a)
        try:
            found = np.linalg.svd(a, self.full_matrices, self.compute_uv)
        except np.linalg.LinAlgError:
            return _or_nan(self, self._one, a)
        return (found[1], found[0], found[2]) if self.compute_uv else (found,)

    def _one(self, a: np.ndarray) -> tuple:
        import scipy.linalg

        found = scipy.linalg.svd(a, self.full_matrices, self.compute_uv, check_finite=False)
        return (found[1], found[0], found[2]) if self.compute_uv else (found,)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        a, t = primals[0], tangents[0]
        *_, rows, columns = a.shape
        if self.compute_uv and self.full_matrices and rows != columns:
            raise MissingRule(
                f"svd of shape {a.shape} with full_matrices=True has no derivative: the singular "
                "vectors that belong to no singular value are not unique. Use full_matrices=False."
            )
        s, u, vh = SVD(False, True)(a)
        uh, v = m.adjoint(u), m.adjoint(vh)
        inner = m.matmul(m.matmul(uh, t), v)
        ts = m.diagonal(_as_real(inner))
        if not self.compute_uv:
            return (s,), (ts,)
        k = s.shape[-1]
        at_row, at_column = m.repeat_columns(s, k), m.repeat_rows(s, k)
        gaps = _reciprocal(mul(add(at_column, at_row), sub(at_column, at_row)))
        left = _times(inner, at_column)  # dS Sigma
        right = _times(inner, at_row)  # Sigma dS
        wu = _times(add(left, m.adjoint(left)), gaps)
        wv = _times(add(right, m.adjoint(right)), gaps)
        inverse = _reciprocal(s)
        if dtypes.is_complex(a.dtype):  # the phases: fixed by V's staying as it is
            diag = mul(inner, m.eye(inner.shape, inner.dtype))
            phase = imag(diag)
            phase = complex_(scalar(0, phase.dtype), phase)
            wu = add(wu, _times(phase, m.repeat_rows(inverse, k)))
        tu, tv = m.matmul(u, wu), m.matmul(v, wv)
        if rows > columns:
            tav = m.matmul(t, v)
            rest = sub(tav, m.matmul(u, m.matmul(uh, tav)))
            tu = add(tu, _times(rest, m.repeat_rows(inverse, rows)))
        if columns > rows:
            tau = m.matmul(m.adjoint(t), u)
            rest = sub(tau, m.matmul(v, m.matmul(vh, tau)))
            tv = add(tv, _times(rest, m.repeat_rows(inverse, columns)))
        return (s, u, vh), (ts, tu, m.adjoint(tv))

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library("svd", (a,), (self.full_matrices, self.compute_uv))


# --- eigenvalues -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Eigh(Stacked):
    """Eigenvectors (columns) and ascending eigenvalues of Hermitian matrices.

    Only the triangle named by `lower` is read. Native code: Library("eigh", (a,), params=(lower,)).
    """

    lower_triangle: bool = True
    name = "eigh"
    multiple_results = True

    def params(self) -> dict:
        return {"lower": self.lower_triangle}

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a, square=True)
        return a, ShapedArray(a.shape[:-1], dtypes.real_of(a.dtype), a.weak_type)

    def impl(self, a: np.ndarray) -> tuple:  # type: ignore[override]
        _lapack_ready(self.name, a, square=True)
        if not a.size:
            return a, np.zeros(a.shape[:-1], dtypes.real_of(a.dtype))
        try:
            if a.dtype in _NUMPYS:
                return tuple(np.linalg.eigh(a, "L" if self.lower_triangle else "U"))[::-1]
        except np.linalg.LinAlgError:
            pass
        import scipy.linalg

        def one(a: np.ndarray) -> tuple:
            w, v = scipy.linalg.eigh(a, lower=self.lower_triangle, driver="evd", check_finite=False)
            return v, w

        return _or_nan(self, one, a)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        v, w = self(primals[0])
        t = tangents[0]
        t = m.hermitian_of_lower(t if self.lower_triangle else m.adjoint(t))
        inner = m.matmul(m.adjoint(v), m.matmul(t, v))
        n = w.shape[-1]
        gaps = _reciprocal(sub(m.repeat_rows(w, n), m.repeat_columns(w, n)))
        tv = m.matmul(v, _times(inner, gaps))
        return (v, w), (tv, m.diagonal(_as_real(inner)))

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library("eigh", (a,), (self.lower_triangle,))


@dataclass(frozen=True)
class Eig(Stacked):
    """Eigenvalues, and left and right eigenvectors (columns) as asked for, all complex.

    Vectors have norm 1 and a real largest component.
    """

    compute_left_eigenvectors: bool = False
    compute_right_eigenvectors: bool = True
    name = "eig"
    multiple_results = True

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a, square=True)
        vectors = ShapedArray(a.shape, dtypes.complex_of(a.dtype), a.weak_type)
        count = self.compute_left_eigenvectors + self.compute_right_eigenvectors
        return (vectors.update(shape=a.shape[:-1]), *(vectors,) * count)

    def impl(self, a: np.ndarray) -> tuple:  # type: ignore[override]
        _lapack_ready(self.name, a, square=True)
        dtype = dtypes.complex_of(a.dtype)
        if not a.size:
            avals = self.abstract(ShapedArray(a.shape, a.dtype))
            return tuple(np.zeros(x.shape, x.dtype) for x in avals)
        import scipy.linalg

        left, right = self.compute_left_eigenvectors, self.compute_right_eigenvectors

        def one(a: np.ndarray) -> tuple:
            found = scipy.linalg.eig(a, left=left, right=right)
            found = found if isinstance(found, tuple) else (found,)
            return tuple(x.astype(dtype) for x in found)

        return _or_nan(self, one, a)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        a, t = primals[0], tangents[0]
        left, right = self.compute_left_eigenvectors, self.compute_right_eigenvectors
        w, *found, v = Eig(left, True)(a)
        t = convert(t, v.dtype)
        tw, tv = _eig_tangents(w, v, t, right)
        outs, touts = [w, *found, v], [tw]
        if left:  # they are the right ones of the adjoint, whose eigenvalues are the conjugate ones
            touts.append(_eig_tangents(conj(w), found[0], m.adjoint(t), True)[1])
        if right:
            touts.append(tv)
        return tuple(outs[: len(touts)]), tuple(touts)

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library(
            "eig", (a,), (self.compute_left_eigenvectors, self.compute_right_eigenvectors)
        )


def _eig_tangents(w: Array, v: Array, t: Array, vectors: bool) -> tuple[Array, Array | None]:
    """Tangents of eigenvalues and, if asked for, of right eigenvectors."""
    inner = solve(v, m.matmul(t, v))
    tw = m.diagonal(inner)
    if not vectors:
        return tw, None
    n = w.shape[-1]
    gaps = _reciprocal(sub(m.repeat_rows(w, n), m.repeat_columns(w, n)))
    return tw, _normalized(v, m.matmul(v, mul(inner, gaps)))


def _normalized(v: Array, t: Array) -> Array:
    """Without the parts of tangents that change the norms of v, or the phase of largest components."""
    rank, n = len(v.shape), v.shape[-1]
    size = abs_(v)
    largest = convert(eq(size, m.repeat_rows(Max((rank - 2,))(size), n)), v.dtype)
    along = real(Sum((rank - 2,))(mul(conj(v), t)))
    turn = imag(Sum((rank - 2,))(mul(largest, t)))
    turn = div(turn, real(Sum((rank - 2,))(mul(largest, v))))
    return sub(t, mul(v, m.repeat_rows(complex_(along, turn), n)))


# --- Schur -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Schur(Stacked):
    """The Schur form T and, with `compute_schur_vectors`, Z with A = Z T Z^H; no derivative."""

    compute_schur_vectors: bool = True
    name = "schur"
    multiple_results = True

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a, square=True)
        return (a,) * (1 + self.compute_schur_vectors)

    def impl(self, a: np.ndarray) -> tuple:  # type: ignore[override]
        _lapack_ready(self.name, a, square=True)
        count = 1 + self.compute_schur_vectors
        if not a.size:
            return (a,) * count
        import scipy.linalg

        output = "complex" if dtypes.is_complex(a.dtype) else "real"
        return _or_nan(self, lambda a: scipy.linalg.schur(a, output=output)[:count], a)

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library("schur", (a,), (self.compute_schur_vectors,))
