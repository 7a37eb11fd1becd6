"""Sparse matrices by rows and columns of elements, as in `jax.experimental.sparse.coo`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fnx import numpy
from fnx.core.array import Array
from fnx.core.errors import ShapeError
from fnx.experimental.sparse.bcoo import BCOO, JAXSparse
from fnx.pytree import operations

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see


class COOInfo(NamedTuple):
    """What is known of a matrix by coordinates.

    >>> from fnx.experimental.sparse.coo import COOInfo
    >>> COOInfo((2, 3)).rows_sorted
    False
    """

    shape: tuple[int, ...]
    rows_sorted: bool = False
    cols_sorted: bool = False


class Matrix(JAXSparse):
    """A sparse matrix of three arrays, the data first, whose products are those of a BCOO.

    >>> from fnx.experimental.sparse.coo import Matrix
    >>> isinstance(fnx.experimental.sparse.CSR.fromdense(jnp.eye(2)), Matrix)
    True
    """

    def __init__(self, args: Sequence[Any], *, shape: Sequence[int]):
        self.shape = tuple([int(n) for n in shape])
        if len(self.shape) != 2:
            raise ShapeError(f"{type(self).__name__} of shape {self.shape}; expected a matrix")
        self._arrays = tuple([jnp.asarray(x) for x in args])

    data = property(lambda self: self._arrays[0])  # type: ignore[assignment]

    def tree_flatten(self) -> tuple:
        return self._arrays, self.shape

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Sequence) -> Any:
        self = object.__new__(cls)
        self.shape, self._arrays = aux, tuple(children)
        return self

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> Any:
        """The elements of a dense matrix that are not zero; under jit their number `nse` must be given.

        >>> from fnx.experimental import sparse
        >>> sparse.csr_fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]])).data
        Array([2., 3.], dtype=float64)
        """
        return cls.from_bcoo(BCOO.fromdense(mat, nse=nse, index_dtype=index_dtype))

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> Any:
        """The same matrix in this form."""
        raise NotImplementedError

    def to_bcoo(self) -> BCOO:
        """The same matrix as a BCOO."""
        raise NotImplementedError

    def todense(self) -> Array:
        """The dense matrix."""
        return self.to_bcoo().todense()

    T = property(lambda self: self.transpose())

    def transpose(self, axes: Sequence[int] | None = None) -> Any:
        """With its axes exchanged; ShapeError for another order of them."""
        if axes is not None and tuple(axes) != (1, 0):
            raise ShapeError(
                f"transpose of a {type(self).__name__} with axes {axes}; expected (1, 0)"
            )
        return self._transposed()

    def _transposed(self) -> Any:
        raise NotImplementedError

    def __matmul__(self, other: Any) -> Array:
        return self.to_bcoo() @ other

    def __rmatmul__(self, other: Any) -> Array:
        return other @ self.to_bcoo()


@operations.register_pytree_node_class
class COO(Matrix):
    """A sparse matrix: `data[k]` is added at row `row[k]` and column `col[k]`.

    >>> m = fnx.experimental.sparse.COO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> m.row, m.T @ jnp.array([1.0, 0.0])
    (Array([0, 1], dtype=int32), Array([0., 2.], dtype=float64))
    """

    def __init__(
        self,
        args: Sequence[Any],
        *,
        shape: Sequence[int],
        rows_sorted: bool = False,
        cols_sorted: bool = False,
    ):
        super().__init__(args, shape=shape)
        self._sorted = rows_sorted, cols_sorted

    row = property(lambda self: self._arrays[1])
    col = property(lambda self: self._arrays[2])
    _info = property(lambda self: COOInfo(self.shape, *self._sorted))

    def tree_flatten(self) -> tuple:
        return self._arrays, self._info

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Sequence) -> Any:
        self = super().tree_unflatten(aux.shape, children)
        self._sorted = aux[1:]
        return self

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> "COO":
        row, col = mat.indices.T
        return cls((mat.data, row, col), shape=mat.shape, rows_sorted=mat.indices_sorted)

    def to_bcoo(self) -> BCOO:
        return BCOO((self.data, jnp.stack([self.row, self.col], -1)), shape=self.shape)

    def _transposed(self) -> "COO":
        rows, cols = self._sorted
        arrays = self.data, self.col, self.row
        return COO(arrays, shape=self.shape[::-1], rows_sorted=cols, cols_sorted=rows)


coo_fromdense = COO.fromdense


def coo_todense(mat: COO) -> Array:
    """The dense matrix.

    >>> from fnx.experimental import sparse
    >>> sparse.coo_todense(sparse.COO.fromdense(jnp.array([[0.0, 2.0]])))
    Array([[0., 2.]], dtype=float64)
    """
    return mat.todense()


def coo_matvec(mat: COO, v: Any, transpose: bool = False) -> Array:
    """The product of a matrix, or of its transpose, and a vector.

    >>> from fnx.experimental import sparse
    >>> sparse.coo_matvec(sparse.COO.fromdense(jnp.array([[0.0, 2.0]])), jnp.ones(2))
    Array([2.], dtype=float64)
    """
    return (mat.T if transpose else mat) @ v


def coo_matmat(mat: COO, B: Any, *, transpose: bool = False) -> Array:
    """The product of a matrix, or of its transpose, and a dense matrix.

    >>> from fnx.experimental import sparse
    >>> sparse.coo_matmat(sparse.COO.fromdense(jnp.array([[0.0, 2.0]])), jnp.eye(2))
    Array([[0., 2.]], dtype=float64)
    """
    return (mat.T if transpose else mat) @ B
