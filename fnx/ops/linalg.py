"""Triangular factorizations and what is solved with them: cholesky, LU, triangular_solve, solve.

Derivatives follow Giles, "An extended collection of matrix derivative results for forward and
reverse mode algorithmic differentiation" (2008), and Seeger et al., "Auto-differentiating linear
algebra" (2017). All work on stacks of matrices in the last two axes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Host, Library, Operand, Recipe
from fnx.ops import matrix as m
from fnx.ops.basic import add_any, broadcast_axis, move_axis, scalar
from fnx.ops.elementwise import add, conj, mul, neg, sub
from fnx.ops.indexing import Gather
from fnx.ops.permute import Reshape
from fnx.ops.shape import Pad, Slice
from fnx.ops.windows import GatherDimensionNumbers, GatherScatterMode

Shape = tuple[int, ...]


class Stacked(Primitive):
    """A primitive on stacks of matrices: lanes are one more leading axis of every operand."""

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        outs = self.bind(*first_lanes(size, args, axes))
        return outs, (0,) * len(outs)


def first_lanes(size: int, args: tuple, axes: tuple) -> list[Array]:
    """Operands with lanes along axis 0, by repetition where they had none."""
    return [
        broadcast_axis(x, size, 0) if k is None else move_axis(x, k, 0)
        for x, k in zip(args, axes, strict=True)
    ]


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


# --- cholesky --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cholesky(Stacked):
    """The lower triangular L with L L^H = A, of which the lower triangle is read.

    Matrices that are not positive definite give nan. Native code: Library("cholesky", (a,)).
    """

    name = "cholesky"

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a, square=True)
        return (a.strong(),)

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
        l = self(primals[0])
        t = m.hermitian_of_lower(tangents[0])
        t = _SOLVE_RIGHT_ADJOINT(l, t)
        t = m.tril(_SOLVE_LOWER(l, t))
        half = sub(t, mul(scalar(0.5, l.dtype), mul(t, m.eye(t.shape, t.dtype))))
        return (l,), (m.matmul(l, half),)

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library("cholesky", (a,))


cholesky = Cholesky()


# --- triangular systems ----------------------------------------------------------------------------


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
        t = None if tb is None else self(a, tb)
        if ta is not None:
            ta = self._read(ta)
            change = m.matmul(ta, x) if self.left_side else m.matmul(x, ta)
            change = neg(self(a, change))
            t = change if t is None else add_any(t, change)
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
        return (self(*first_lanes(size, args, axes)),), (0,)

    def _batch_b(self, size: int, a: Array, b: Array, k: int) -> Array:
        """One matrix, many right-hand sides: lanes become more of these."""
        if self.left_side:
            return lanes_as_columns(lambda b: self(a, b), size, b, k)
        n = len(b.shape)
        b = move_axis(b, k, n - 3)  # (..., lanes, rows, n)
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
_SOLVE_UNIT_LOWER = TriangularSolve(True, True, unit_diagonal=True)
_SOLVE_RIGHT_UPPER = TriangularSolve(False, False)
_SOLVE_RIGHT_ADJOINT = TriangularSolve(False, True, transpose_a=True, conjugate_a=True)


# --- LU --------------------------------------------------------------------------------------------


def permutation_of(pivots: np.ndarray, n: int) -> np.ndarray:
    """The permutation of n rows that successive swaps of rows i and pivots[i] make."""
    order = list(range(n))
    for i, p in enumerate(pivots.tolist()):
        order[i], order[p] = order[p], order[i]
    return np.array(order, np.int32)


@dataclass(frozen=True)
class LU(Stacked):
    """A[permutation] = L U with partial pivoting: both factors in one matrix, pivots, permutation.

    Native code: Library("lu", (a,)), results (lu, pivots: int32 from 0, permutation: int32).
    """

    name = "lu"
    multiple_results = True

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a)
        *lead, rows, columns = a.shape
        pivots = ShapedArray((*lead, min(rows, columns)), dtypes.int32)
        return a.strong(), pivots, ShapedArray((*lead, rows), dtypes.int32)

    def impl(self, a: np.ndarray) -> tuple:  # type: ignore[override]
        m.check_matrices(self.name, ShapedArray(a.shape, a.dtype))
        rows, columns = a.shape[-2:]
        if not a.size:
            lead = a.shape[:-2]
            order = np.broadcast_to(np.arange(rows, dtype=np.int32), (*lead, rows))
            return a, np.zeros((*lead, min(rows, columns)), np.int32), order
        getrf = lapack("getrf", a.dtype)

        def one(a: np.ndarray) -> tuple:
            lu, pivots, _ = getrf(a)
            pivots = pivots.astype(np.int32)
            return lu, pivots, permutation_of(pivots, rows)

        return tuple(each(one, a, ranks=(2,)))

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        lu, pivots, order = self(primals[0])
        *lead, rows, columns = lu.shape
        k = min(rows, columns)
        l = m.tril(lu, -1)
        l = _resize(l, rows, k, rows, rows)
        l = add(l, m.eye(l.shape, l.dtype))
        u = _resize(m.triu(lu), k, columns, columns, columns)
        if columns > k:  # ones on the rest of the diagonal
            square = _resize(m.eye((*lead, k, k), u.dtype), k, k, columns, columns)
            u = add(u, sub(m.eye(u.shape, u.dtype), square))
        t = take_rows(tangents[0], order)
        t = _SOLVE_RIGHT_UPPER(u, _SOLVE_UNIT_LOWER(l, t))
        t = add(m.matmul(l, m.tril(t, -1)), m.matmul(m.triu(t), u))
        return (lu, pivots, order), (t, None, None)

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library("lu", (a,))


lu = LU()


def _resize(a: Array, rows: int, columns: int, to_rows: int, to_columns: int) -> Array:
    """The first rows and columns, and zeros up to a new size."""
    *lead, r, c = a.shape
    if (r, c) != (rows, columns):
        start = (0,) * len(a.shape)
        a = Slice(start, (*lead, rows, columns), None)(a)
    pad = ((0, 0, 0),) * len(lead)
    pad = (*pad, (0, to_rows - rows, 0), (0, to_columns - columns, 0))
    if to_rows != rows or to_columns != columns:
        a = Pad(pad)(a, scalar(0, a.dtype))
    return a


def take_rows(a: Array, order: Array) -> Array:
    """a[..., order, :] for stacks of matrices and of permutations."""
    n = len(a.shape)
    lead = tuple(range(n - 2))
    dims = GatherDimensionNumbers((n - 1,), (n - 2,), (n - 2,), lead, lead)
    inside = GatherScatterMode.PROMISE_IN_BOUNDS
    sizes = (*(1,) * (n - 1), a.shape[-1])
    return Gather(dims, None, False, inside, sizes, True)(a, Reshape((*order.shape, 1))(order))


@dataclass(frozen=True)
class LUPivotsToPermutation(Stacked):
    """The permutation of `permutation_size` rows that pivots stand for."""

    permutation_size: int
    name = "lu_pivots_to_permutation"

    def abstract(self, pivots: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if not dtypes.is_integer(pivots.dtype) or not pivots.ndim:
            raise TypeMismatch(f"lu_pivots_to_permutation needs integer vectors, not {pivots}")
        if self.permutation_size < pivots.shape[-1]:
            raise InvalidValue(
                f"lu_pivots_to_permutation: {pivots.shape[-1]} pivots do not fit a permutation of "
                f"{self.permutation_size} rows"
            )
        return (ShapedArray((*pivots.shape[:-1], self.permutation_size), dtypes.int32),)

    def impl(self, pivots: np.ndarray) -> np.ndarray:  # type: ignore[override]
        one = lambda p: (permutation_of(p, self.permutation_size),)
        if not prod(pivots.shape[:-1]):
            return np.zeros((*pivots.shape[:-1], self.permutation_size), np.int32)
        return each(one, pivots, ranks=(1,))[0]

    def lower(self, pivots: Operand) -> Recipe:  # type: ignore[override]
        return Host()


# --- linear systems --------------------------------------------------------------------------------


@dataclass(frozen=True)
class LUSolve(Stacked):
    """X with op(A) X = B, from A, its factors and pivots, and B; linear in B.

    op: "n" as it is, "t" transposed. The factors only serve to solve: derivatives are those of A.
    Native code: Library("lu_solve", (lu, pivots, b), params=(op,)).
    """

    op: str = "n"
    name = "lu_solve"

    def abstract(self, a: ShapedArray, lu: ShapedArray, pivots: ShapedArray, b: ShapedArray) -> tuple:  # type: ignore[override]
        check_system(self.name, a, b)
        return (b.strong(),)

    def impl(self, a: np.ndarray, lu: np.ndarray, pivots: np.ndarray, b: np.ndarray) -> np.ndarray:  # type: ignore[override]
        if not b.size:
            return b
        getrs = lapack("getrs", lu.dtype)
        trans = "nt".index(self.op)
        one = lambda lu, pivots, b: (getrs(lu, pivots, b, trans=trans)[0],)
        return each(one, lu, pivots, b, ranks=(2, 1, 2))[0]

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        a, lu, pivots, b = primals
        ta, _, _, tb = tangents
        x = self(a, lu, pivots, b)
        if ta is not None:
            change = m.matmul(ta if self.op == "n" else m.swap(ta), x)
            tb = neg(change) if tb is None else sub(tb, change)
        return (x,), (None if tb is None else self(a, lu, pivots, tb),)

    def transpose(self, cts: tuple, a: Array, lu: Array, pivots: Array, b: Undefined) -> tuple:  # type: ignore[override]
        back = LUSolve("t" if self.op == "n" else "n")
        return None, None, None, back(a, lu, pivots, cts[0])

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        if any(k is not None for k in axes[:3]):
            return super().batch(size, args, axes)
        solve = lambda b: self(*args[:3], b)
        return (lanes_as_columns(solve, size, args[3], axes[3]),), (0,)

    def lower(self, a: Operand, lu: Operand, pivots: Operand, b: Operand) -> Recipe:  # type: ignore[override]
        return Library("lu_solve", (lu, pivots, b), (self.op,))


def lanes_as_columns(solve: Callable, size: int, b: Array, axis: int) -> Array:
    """One matrix, many right-hand sides: lanes of b become more columns."""
    n = len(b.shape)
    b = move_axis(b, axis, n - 1)  # (..., n, columns, lanes)
    shape = b.shape
    x = solve(Reshape((*shape[:-2], shape[-2] * size))(b))
    return move_axis(Reshape(shape)(x), n - 1, 0)


def check_system(name: str, a: ShapedArray, b: ShapedArray) -> None:
    """Raise unless a @ x = b makes sense for stacks of matrices a and b."""
    m.check_matrices(name, a, square=True)
    if a.dtype != b.dtype:
        raise TypeMismatch(
            f"{name} needs operands of one dtype, not {a.dtype} and {b.dtype}; convert one with .astype"
        )
    if a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"{name}: matrices of shape {a.shape} do not fit right-hand sides of shape {b.shape}; "
            f"expected equal leading axes and {a.shape[-1]} rows"
        )


@dataclass(frozen=True)
class Solve(Stacked):
    """X with A X = B, for stacks of square matrices A and of matrices B.

    A singular matrix gives inf or nan. Native code: Library("solve", (a, b)).
    """

    name = "solve"

    def abstract(self, a: ShapedArray, b: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_system(self.name, a, b)
        return (b.strong(),)

    def impl(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:  # type: ignore[override]
        check_system(self.name, ShapedArray(a.shape, a.dtype), ShapedArray(b.shape, b.dtype))
        if not b.size:
            return b
        try:
            return np.linalg.solve(a, b)
        except np.linalg.LinAlgError:
            return LUSolve().impl(a, *lu.impl(a)[:2], b)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        """A dX = dB - dA X; the factors serve the solution, its tangent and its cotangent."""
        (a, b), (ta, tb) = primals, tangents
        factors, pivots, _ = lu(a)
        return LUSolve().jvp((a, factors, pivots, b), (ta, None, None, tb))

    def transpose(self, cts: tuple, a: Array, b: Undefined) -> tuple:  # type: ignore[override]
        return None, self(m.swap(a), cts[0])

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        if axes[0] is not None:
            return super().batch(size, args, axes)
        return (lanes_as_columns(lambda b: self(args[0], b), size, args[1], axes[1]),), (0,)

    def lower(self, a: Operand, b: Operand) -> Recipe:  # type: ignore[override]
        return Library("solve", (a, b))


solve = Solve()
