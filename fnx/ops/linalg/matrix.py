"""Small words about matrices in the last two axes, for the rules of linear algebra."""

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.ops.base.broadcast import Broadcast, Sum, scalar_like
from fnx.ops.base.permute import Transpose
from fnx.ops.elementwise.arithmetic import add, complex_, conj, eq, ge, mul, real, select
from fnx.ops.linalg.contraction import DotGeneral
from fnx.ops.structure.basic import convert, scalar
from fnx.ops.structure.movement import Iota

_INT = np.dtype(np.int64)
LAPACK = frozenset({dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128})
Shape = tuple[int, ...]


def matmul(a: Array, b: Array) -> Array:
    """a @ b for stacks of matrices of equal leading axes."""
    n = len(a.shape)
    lead = tuple(range(n - 2))
    return DotGeneral((((n - 1,), (n - 2,)), (lead, lead)))(a, b)


def swap(a: Array) -> Array:
    """The transposed matrices."""
    n = len(a.shape)
    return Transpose((*range(n - 2), n - 1, n - 2))(a)


def adjoint(a: Array) -> Array:
    """The conjugate transposed matrices."""
    t = swap(a)
    return conj(t) if dtypes.is_complex(a.dtype) else t


def _places(shape: Shape) -> tuple[Array, Array]:
    n = len(shape)
    return Iota(n - 2, _INT, shape)(), Iota(n - 1, _INT, shape)()


def tril(a: Array, k: int = 0) -> Array:
    """With zeros above diagonal k."""
    row, column = _places(a.shape)
    return select(ge(_plus(row, k), column), a, scalar_like(0, a))


def triu(a: Array, k: int = 0) -> Array:
    """With zeros below diagonal k."""
    row, column = _places(a.shape)
    return select(ge(column, _plus(row, k)), a, scalar_like(0, a))


def _plus(x: Array, k: int) -> Array:
    return add(x, scalar(k, _INT)) if k else x


def eye(shape: Shape, dtype: np.dtype) -> Array:
    """Identity matrices (with zeros beside or below where they are not square)."""
    return convert(eq(*_places(shape)), dtype)


def diagonal(a: Array) -> Array:
    """The diagonals of square matrices."""
    return Sum((len(a.shape) - 1,))(mul(a, eye(a.shape, a.dtype)))


def repeat_rows(x: Array, n: int) -> Array:
    """Matrices of n rows that are all x, of shape (..., m): (..., n, m)."""
    r = len(x.shape)
    return Broadcast((*x.shape[:-1], n, x.shape[-1]), (*range(r - 1), r))(x)


def repeat_columns(x: Array, n: int) -> Array:
    """Matrices of n columns that are all x, of shape (..., m): (..., m, n)."""
    return Broadcast((*x.shape, n), tuple(range(len(x.shape))))(x)


def hermitian_of_lower(a: Array) -> Array:
    """The Hermitian matrices of which the lower triangles are given."""
    strict, middle = tril(a, -1), mul(a, eye(a.shape, a.dtype))
    if dtypes.is_complex(a.dtype):
        re = real(middle)
        middle = complex_(re, scalar(0, re.dtype))
    return add(add(strict, adjoint(strict)), middle)


def check_matrices(name: str, x: ShapedArray, square: bool = False) -> None:
    """Raise unless x is a stack of (square) matrices of a dtype that LAPACK has."""
    if x.dtype not in LAPACK:
        raise TypeMismatch(
            f"{name} of dtype {x.dtype}; expected float32, float64, complex64 or complex128: convert "
            "the operand with .astype"
        )
    if x.ndim < 2 or square and x.shape[-1] != x.shape[-2]:
        kind = "square matrices" if square else "matrices"
        raise ShapeError(
            f"{name} needs {kind} in the last two axes, not an array of shape {x.shape}"
        )
