"""Linear algebra: LU factors, and linear systems; with what `triangular` has of it.

Derivatives follow Giles, "An extended collection of matrix derivative results for forward and
reverse mode algorithmic differentiation" (2008). All work on stacks of matrices in the last two
axes.
"""

from math import prod

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Undefined
from fnx.core.recipe import Fold, Library, Operand, Point, Recipe
from fnx.core.scalar import Expr
from fnx.ops.base.broadcast import Sum
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add, eq, mul, neg, stop_gradient, sub
from fnx.ops.linalg import matrix as m
from fnx.ops.linalg.triangular import (
    Cholesky,
    Stacked,
    TriangularSolve,
    cholesky,
    each,
    lanes_as_columns,
    lapack,
)
from fnx.ops.structure.basic import convert, scalar
from fnx.ops.structure.gather import Gather
from fnx.ops.structure.gather_dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from fnx.ops.structure.movement import Pad, Slice

_SOLVE_UNIT_LOWER = TriangularSolve(True, True, unit_diagonal=True)
_SOLVE_RIGHT_UPPER = TriangularSolve(False, False)


# --- LU ----------------------------------------------------------------------------------------


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
        return a, pivots, ShapedArray((*lead, rows), dtypes.int32)

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
    core_rank = 1

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
        return Library("lu_pivots_to_permutation", (pivots,))


# --- linear systems ----------------------------------------------------------------------------


@dataclass(frozen=True)
class LUSolve(Stacked):
    """X with op(A) X = B, from A, its factors and pivots, and B; linear in B.

    op: "n" as it is, "t" transposed. The factors only serve to solve: derivatives are those of A.
    Native code: Library("lu_solve", (lu, pivots, b), params=(op,)).
    """

    op: str = "n"
    name = "lu_solve"
    columns_apart = True

    def abstract(
        self, a: ShapedArray, lu: ShapedArray, pivots: ShapedArray, b: ShapedArray
    ) -> tuple:  # type: ignore[override]
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


@dataclass(frozen=True)
class Determinant(Stacked):
    """Determinants of A, from its factors and pivots; derivatives are those of A.

    det' = det trace(A^-1 A') needs one solution with the factors, which have no tangents here.
    `log`: of real matrices the logarithm of the determinant's size, whose tangent is the trace.
    """

    log: bool = False
    name = "det"

    def abstract(self, a: ShapedArray, lu: ShapedArray, pivots: ShapedArray) -> tuple:  # type: ignore[override]
        m.check_matrices(self.name, a, square=True)
        if lu.shape != a.shape or lu.dtype != a.dtype or pivots.shape != a.shape[:-1]:
            raise ShapeError(f"det of {a} needs its factors and pivots, not {lu} and {pivots}")
        return (ShapedArray(a.shape[:-2], a.dtype),)

    def impl(self, a: np.ndarray, lu: np.ndarray, pivots: np.ndarray) -> np.ndarray:  # type: ignore[override]
        diagonal = np.diagonal(lu, axis1=-2, axis2=-1)
        if self.log:
            with np.errstate(divide="ignore"):
                return np.asarray(np.log(np.abs(diagonal)).sum(-1), a.dtype, order="C")
        swaps = (pivots != np.arange(a.shape[-1])).sum(-1)
        found = np.prod(diagonal, -1, dtype=a.dtype)
        return np.asarray(np.where(swaps % 2, -found, found), order="C")

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        a, factors, pivots = primals
        det = self(a, factors, pivots)
        if tangents[0] is None:
            return (det,), (None,)
        if not self.log:
            # Tiny pivots in place of zeros: their inverses cancel, and what is left is the adjugate.
            factors = _without_zero_pivots(factors)
        change = m.diagonal(LUSolve()(a, factors, pivots, tangents[0]))
        change = Sum((len(change.shape) - 1,))(change)
        return (det,), (change if self.log else mul(self(a, factors, pivots), change),)

    def lower(self, a: Operand, lu: Operand, pivots: Operand) -> Recipe:  # type: ignore[override]
        def factor(*index: Expr) -> tuple[Expr, ...]:
            pivot = lu(*index, index[-1])
            if self.log:
                return (expr.apply("log", expr.apply("abs", pivot)),)
            moved = expr.compare("ne", expr.cast(pivots(*index), "int64"), index[-1])
            sign = expr.select(moved, expr.const(-1, lu.dtype), expr.const(1, lu.dtype))
            return (expr.mul(sign, pivot),)

        def joined(found: tuple[Expr, ...], new: tuple[Expr, ...]) -> tuple[Expr, ...]:
            return ((expr.add if self.log else expr.mul)(found[0], new[0]),)

        rank = len(pivots.shape)
        start = expr.const(0 if self.log else 1, lu.dtype)
        return Fold(pivots.shape, (rank - 1,), (start,), factor, joined, reassociate=True)


def _without_zero_pivots(factors: Array) -> Array:
    tiny = float(np.finfo(factors.dtype).tiny) ** (1 / 3)
    zero = convert(eq(factors, scalar(0, factors.dtype)), factors.dtype)
    pivots = mul(m.eye(factors.shape, factors.dtype), zero)
    return add(factors, mul(scalar(tiny, factors.dtype), pivots))


def det(a: Array) -> Array:
    """Determinants of stacks of square matrices."""
    factors, pivots, _ = lu(stop_gradient(a))
    return Determinant()(a, factors, pivots)


@dataclass(frozen=True)
class PseudoInverse(Stacked):
    """`p`, known to be the pseudo-inverse of A; its derivative is that of A's pseudo-inverse.

    Golub and Pereyra, "The differentiation of pseudo-inverses" (1973); A keeps its rank.
    """

    name = "pinv"

    def abstract(self, a: ShapedArray, p: ShapedArray) -> tuple:  # type: ignore[override]
        m.check_matrices(self.name, a)
        *lead, rows, columns = a.shape
        if p.shape != (*lead, columns, rows) or p.dtype != a.dtype:
            raise ShapeError(f"pinv of {a} given as {p}; expected the transposed shape")
        return (p.strong(),)

    def impl(self, a: np.ndarray, p: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return p

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        a, t = primals[0], tangents[0]
        p = self(*primals)
        if t is None:
            return (p,), (None,)
        th, ph = m.adjoint(t), m.adjoint(p)
        left = sub(th, m.matmul(m.matmul(p, a), th))  # (I - P A) dA^H
        right = sub(th, m.matmul(th, m.matmul(a, p)))  # dA^H (I - A P)
        change = add(m.matmul(m.matmul(left, ph), p), m.matmul(p, m.matmul(ph, right)))
        return (p,), (sub(change, m.matmul(m.matmul(p, t), p)),)

    def lower(self, a: Operand, p: Operand) -> Recipe:  # type: ignore[override]
        return Point(p)


pseudo_inverse = PseudoInverse()


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
    columns_apart = True

    def abstract(self, a: ShapedArray, b: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_system(self.name, a, b)
        return (b.strong(),)

    def impl(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:  # type: ignore[override]
        check_system(self.name, ShapedArray(a.shape, a.dtype), ShapedArray(b.shape, b.dtype))
        if not b.size:
            return b
        try:
            if a.dtype in (dtypes.float64, dtypes.complex128):  # all that NumPy computes in
                return np.linalg.solve(a, b)
        except np.linalg.LinAlgError:
            pass
        factors, pivots, _ = lu.impl(a)
        return LUSolve().impl(a, factors, pivots, b)

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

__all__ = [
    "LU",
    "Cholesky",
    "LUPivotsToPermutation",
    "LUSolve",
    "Solve",
    "TriangularSolve",
    "cholesky",
    "lu",
    "solve",
    "take_rows",
]
