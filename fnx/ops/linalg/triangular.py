"""Cholesky factors, triangular systems, and how routines of LAPACK run on stacks of matrices.

Derivatives follow Giles, "An extended collection of matrix derivative results for forward and
reverse mode algorithmic differentiation" (2008), and Seeger et al., "Auto-differentiating linear
algebra" (2017). All work on stacks of matrices in the last two axes.
"""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from fnx.core import dtypes, policy
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Library, Operand, Recipe
from fnx.ops.base.permute import Reshape, batch_first
from fnx.ops.base.sharding_rule import Factors
from fnx.ops.elementwise.arithmetic import add, conj, mul, neg, sub
from fnx.ops.linalg import matrix as m
from fnx.ops.structure.basic import add_any, move_axis, scalar

Shape = tuple[int, ...]


class Stacked(Primitive):
    """A primitive on stacks of matrices: a batch is one more leading axis of every operand."""

    core_rank = 2  # the axes of the first operand that belong together
    columns_apart = (
        False  # whether those of the last operand make those of the result, each its own
    )

    def sharding(self, *avals: ShapedArray) -> Factors | None:
        lead = avals[0].shape[: avals[0].ndim - self.core_rank]
        outs = self.abstract(*avals)
        if any(a.shape[: len(lead)] != lead for a in (*avals, *outs)):
            return None
        axes = tuple(range(len(lead)))
        spread = lambda a: (*axes, *(None,) * (a.ndim - len(axes)))
        operands, results = [list(map(spread, some)) for some in (avals, outs)]
        if self.columns_apart:
            for sides in (operands, results):
                sides[-1] = (*sides[-1][:-1], "columns")
        exact = dict(zip(axes, lead))
        return Factors(tuple(operands), tuple(results), {}, exact)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        outs = self.apply(*batch_first(size, args, axes))
        return outs, (0,) * len(outs)


def each(fn: Callable, *stacks: np.ndarray, ranks: Shape) -> list:
    """fn of the matrices (or vectors) of stacks one by one; the stacks of its results.

    `ranks` says how many last axes of each operand belong together.
    """
    lead = stacks[0].shape[: stacks[0].ndim - ranks[0]]
    if not lead:
        return [np.asarray(r, order="C") for r in fn(*stacks)]
    count = prod(lead)
    flat = [x.reshape(count, *x.shape[x.ndim - r :]) for x, r in zip(stacks, ranks)]
    results = [fn(*(x[i] for x in flat)) for i in range(count)]
    return [np.stack(column).reshape(*lead, *column[0].shape) for column in zip(*results)]


@lru_cache(maxsize=256)
def lapack(name: str, dtype: np.dtype) -> Callable:
    """LAPACK's (or BLAS's) routine of a name without its type letter."""
    import scipy.linalg

    sample = np.empty((0,), dtype)
    try:
        return scipy.linalg.get_lapack_funcs(name, (sample,))
    except ValueError:
        return scipy.linalg.get_blas_funcs(name, (sample,))


def nans_like(x: np.ndarray) -> np.ndarray:
    return np.full(x.shape, np.nan, x.dtype)


# --- cholesky ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cholesky(Stacked):
    """The lower triangular L with L L^H = A, of which the lower triangle is read.

    Matrices that are not positive definite give nan. Native code: Library("cholesky", (a,)).
    """

    name = "cholesky"

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a, square=True)
        return (a,)

    def impl(self, a: np.ndarray) -> np.ndarray:  # type: ignore[override]
        m.check_matrices(self.name, ShapedArray(a.shape, a.dtype), square=True)
        if not a.size:
            return a
        return each(self._one, a, ranks=(2,))[0]

    @staticmethod
    def _one(a: np.ndarray) -> tuple[np.ndarray]:
        # a.T is Fortran-ordered without a copy; its upper triangle is a's lower one, transposed.
        c, info = lapack("potrf", a.dtype)(a.T, lower=False, clean=True)
        return (c.T if info == 0 else np.tril(nans_like(a)),)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        l, t = self(primals[0]), tangents[0]
        if l.shape[-1] > policy.TANGENT_ORDER and not dtypes.is_complex(l.dtype):
            return (l,), (CholeskyTangent()(l, t),)
        return (l,), (m.matmul(l, _half(_between(l, m.hermitian_of_lower(t)))),)

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library("cholesky", (a,))


cholesky = Cholesky()


def _between(l: Array, s: Array) -> Array:
    """L^-1 S L^-H."""
    return _SOLVE_LOWER(l, _SOLVE_RIGHT_ADJOINT(l, s))


def _around(l: Array, s: Array) -> Array:
    """L^-T S L^-1."""
    return _SOLVE_TRANSPOSED(l, _SOLVE_RIGHT(l, s))


def _half(x: Array) -> Array:
    """The lower triangle, of the diagonal the half."""
    t = m.tril(x)
    return sub(t, mul(scalar(0.5, t.dtype), mul(t, m.eye(t.shape, t.dtype))))


def _folded(x: Array) -> Array:
    """What is above the diagonal added to what is below: the transpose of hermitian_of_lower."""
    return add(m.tril(x), m.swap(m.triu(x, 1)))


@dataclass(frozen=True)
class CholeskyTangent(Stacked):
    """L' from the Cholesky factors L of real matrices A and the lower triangles of A'; linear in A'.

    L' = L half(L^-1 A' L^-T), where half is the lower triangle with half of the diagonal. Native code:
    Library("cholesky_tangent", (l, t)).
    """

    name = "cholesky_tangent"

    def abstract(self, l: ShapedArray, t: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, l, square=True)
        if t.shape != l.shape or t.dtype != l.dtype:
            raise ShapeError(f"{self.name} of factors {l} and changes {t}; expected the same twice")
        return (l.strong(),)

    def impl(self, l: np.ndarray, t: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return each(self._one, l, t, ranks=(2, 2))[0] if l.size else t

    @staticmethod
    def _one(l: np.ndarray, t: np.ndarray) -> tuple[np.ndarray]:
        trsm, l = lapack("trsm", l.dtype), np.tril(l)
        s = np.tril(t) + np.tril(t, -1).T
        x = trsm(1.0, l, trsm(1.0, l, s, lower=1), side=1, lower=1, trans_a=1)
        return (l @ (np.tril(x) - np.diag(np.diag(x) / 2)),)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (l, t), (tl, tt) = primals, tangents
        found = self(l, t)
        change = None if tt is None else self(l, tt)
        if tl is not None:
            tl = m.tril(tl)
            x = _between(l, m.hermitian_of_lower(t))
            kx = m.matmul(_SOLVE_LOWER(l, tl), x)
            less = m.matmul(l, _half(add(kx, m.swap(kx))))
            more = sub(m.matmul(tl, _half(x)), less)
            change = more if change is None else add_any(change, more)
        return (found,), (change,)

    def transpose(self, cts: tuple, l: Array, t: Undefined) -> tuple:  # type: ignore[override]
        return None, CholeskyCotangent()(l, cts[0])

    def lower(self, l: Operand, t: Operand) -> Recipe:  # type: ignore[override]
        return Library(self.name, (l, t))


@dataclass(frozen=True)
class CholeskyCotangent(CholeskyTangent):
    """The transpose of CholeskyTangent: cotangents of the lower triangles of A from those of L.

    Native code: Library("cholesky_cotangent", (l, g)).
    """

    name = "cholesky_cotangent"

    @staticmethod
    def _one(l: np.ndarray, t: np.ndarray) -> tuple[np.ndarray]:
        trsm, l = lapack("trsm", l.dtype), np.tril(l)
        q = np.tril(l.T @ np.tril(t))
        q -= np.diag(np.diag(q) / 2)
        w = trsm(1.0, l, trsm(1.0, l, q, lower=1, trans_a=1), side=1, lower=1)
        return (np.tril(w) + np.triu(w, 1).T,)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (l, g), (tl, tg) = primals, tangents
        found = self(l, g)
        change = None if tg is None else self(l, tg)
        if tl is not None:
            tl, g = m.tril(tl), m.tril(g)
            w = _around(l, _half(m.matmul(m.swap(l), g)))
            k = _SOLVE_RIGHT(l, tl)
            more = _around(l, _half(m.matmul(m.swap(tl), g)))
            more = sub(sub(more, m.matmul(m.swap(k), w)), m.matmul(w, k))
            change = _folded(more) if change is None else add_any(change, _folded(more))
        return (found,), (change,)

    def transpose(self, cts: tuple, l: Array, t: Undefined) -> tuple:  # type: ignore[override]
        return None, CholeskyTangent()(l, cts[0])


# --- triangular systems ------------------------------------------------------------------------


@dataclass(frozen=True)
class TriangularSolve(Primitive):
    """X with op(A) X = B (left_side) or X op(A) = B, for triangular A.

    op transposes and conjugates as told; only the triangle named by `lower` is read, and with
    `unit_diagonal` not its diagonal. A zero on the diagonal gives inf and nan. Native code:
    Library("triangular_solve", (a, b), params=(left_side, lower, transpose_a, conjugate_a,
    unit_diagonal)).
    """

    left_side: bool
    lower_triangle: bool
    transpose_a: bool = False
    conjugate_a: bool = False
    unit_diagonal: bool = False
    name = "triangular_solve"

    def params(self) -> dict[str, Any]:
        found = super().params()
        return {"lower" if k == "lower_triangle" else k: v for k, v in found.items()}

    def abstract(self, a: ShapedArray, b: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a, square=True)
        if b.dtype != a.dtype:
            raise TypeMismatch(
                f"triangular_solve needs operands of one dtype, not {a.dtype} and {b.dtype}; convert "
                "one with .astype"
            )
        side = -2 if self.left_side else -1
        if b.ndim != a.ndim or b.shape[:-2] != a.shape[:-2] or b.shape[side] != a.shape[-1]:
            raise ShapeError(
                f"triangular_solve: a of shape {a.shape} does not fit b of shape {b.shape}; expected "
                f"equal leading axes, and {a.shape[-1]} at axis {side} of b"
            )
        return (b.strong(),)

    def sharding(self, a: ShapedArray, b: ShapedArray) -> Factors:
        lead = tuple(range(a.ndim - 2))
        last = (None, "free") if self.left_side else ("free", None)
        exact = dict(zip(lead, a.shape))
        return Factors(((*lead, None, None), (*lead, *last)), ((*lead, *last),), {}, exact)

    def impl(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:  # type: ignore[override]
        if not b.size:
            return b
        if self.conjugate_a and not self.transpose_a:
            a = a.conj()
        # In Fortran's order all matrices are transposed: the other triangle, the other side.
        trans = 0 if not self.transpose_a else 2 if self.conjugate_a else 1
        trsm = lapack("trsm", a.dtype)
        side, lower, unit = int(self.left_side), int(not self.lower_triangle), self.unit_diagonal

        def solve(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
            return (trsm(1.0, a.T, b.T, side=side, lower=lower, trans_a=trans, diag=unit).T,)

        return each(solve, a, b, ranks=(2, 2))[0]

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (a, b), (ta, tb) = primals, tangents
        x = self(a, b)
        if ta is not None:  # one solution for both changes
            ta = self._read(ta)
            change = m.matmul(ta, x) if self.left_side else m.matmul(x, ta)
            tb = neg(change) if tb is None else sub(tb, change)
        t = None if tb is None else self(a, tb)
        return (x,), (t,)

    def _read(self, a: Array) -> Array:
        """op(A), and zeros where it is not read."""
        k = int(self.unit_diagonal)
        a = m.tril(a, -k) if self.lower_triangle else m.triu(a, k)
        if self.transpose_a:
            a = m.swap(a)
        return conj(a) if self.conjugate_a and dtypes.is_complex(a.dtype) else a

    def transpose(self, cts: tuple, a: Array, b: Undefined) -> tuple:  # type: ignore[override]
        back = TriangularSolve(
            self.left_side,
            self.lower_triangle,
            not self.transpose_a,
            self.conjugate_a,
            self.unit_diagonal,
        )
        return None, back(a, cts[0])

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (a, b), (ka, kb) = args, axes
        if ka is None:
            return (self._batch_b(size, a, b, kb),), (0,)
        return (self(*batch_first(size, args, axes)),), (0,)

    def _batch_b(self, size: int, a: Array, b: Array, k: int) -> Array:
        """One matrix, many right-hand sides: batch elements become more of these."""
        if self.left_side:
            return lanes_as_columns(lambda b: self(a, b), size, b, k)
        n = len(b.shape)
        b = move_axis(b, k, n - 3)  # (..., batch, rows, n)
        shape = b.shape
        x = self(a, Reshape((*shape[:-3], size * shape[-2], shape[-1]))(b))
        return move_axis(Reshape(shape)(x), n - 3, 0)

    def lower(self, a: Operand, b: Operand) -> Recipe:  # type: ignore[override]
        params = (
            self.left_side,
            self.lower_triangle,
            self.transpose_a,
            self.conjugate_a,
            self.unit_diagonal,
        )
        return Library("triangular_solve", (a, b), params)


_SOLVE_LOWER = TriangularSolve(True, True)
_SOLVE_RIGHT = TriangularSolve(False, True)
_SOLVE_TRANSPOSED = TriangularSolve(True, True, transpose_a=True)
_SOLVE_RIGHT_ADJOINT = TriangularSolve(False, True, transpose_a=True, conjugate_a=True)


def lanes_as_columns(solve: Callable, size: int, b: Array, axis: int) -> Array:
    """One matrix, many right-hand sides: batch elements of b become more columns."""
    n = len(b.shape)
    b = move_axis(b, axis, n - 1)  # (..., n, columns, batch)
    shape = b.shape
    x = solve(Reshape((*shape[:-2], shape[-2] * size))(b))
    return move_axis(Reshape(shape)(x), n - 1, 0)
