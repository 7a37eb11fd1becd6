"""Sparse matrices by compressed rows or columns, under the names of `jax.experimental.sparse.csr`."""

from typing import Any

from fnx.core.array import Array
from fnx.experimental.sparse.bcoo import BCOO
from fnx.experimental.sparse.bcsr import BCSR
from fnx.experimental.sparse.coo import Matrix
from fnx.pytree import operations


class _Compressed(Matrix):
    indices = property(lambda self: self._arrays[1])  # type: ignore[assignment]
    indptr = property(lambda self: self._arrays[2])


@operations.register_pytree_node_class
class CSR(_Compressed):
    """A sparse matrix by rows: `data` and columns `indices` of row r at `indptr[r]` to `indptr[r + 1]`.

    >>> m = fnx.experimental.sparse.CSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> m.indices, m @ jnp.ones(2)
    (Array([1, 0], dtype=int32), Array([2., 3.], dtype=float64))
    """

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> "CSR":
        rows = BCSR.from_bcoo(mat)
        return cls((rows.data, rows.indices, rows.indptr), shape=rows.shape)

    def to_bcoo(self) -> BCOO:
        return BCSR(self._arrays, shape=self.shape).to_bcoo()

    def _transposed(self) -> "CSC":
        return CSC(self._arrays, shape=self.shape[::-1])


@operations.register_pytree_node_class
class CSC(_Compressed):
    """A sparse matrix by columns: `data` and rows `indices` of column c at `indptr[c]` to `indptr[c + 1]`.

    >>> m = fnx.experimental.sparse.CSC.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> m.data, m.todense()[0]
    (Array([3., 2.], dtype=float64), Array([0., 2.], dtype=float64))
    """

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> "CSC":
        return CSR.from_bcoo(mat.T).T

    def to_bcoo(self) -> BCOO:
        return self.T.to_bcoo().T

    def _transposed(self) -> CSR:
        return CSR(self._arrays, shape=self.shape[::-1])


csr_fromdense = CSR.fromdense


def csr_todense(mat: CSR) -> Array:
    """The dense matrix.

    >>> from fnx.experimental import sparse
    >>> sparse.csr_todense(sparse.CSR.fromdense(jnp.array([[0.0, 2.0]])))
    Array([[0., 2.]], dtype=float64)
    """
    return mat.todense()


def csr_matvec(mat: CSR, v: Any, transpose: bool = False) -> Array:
    """The product of a matrix, or of its transpose, and a vector.

    >>> from fnx.experimental import sparse
    >>> sparse.csr_matvec(sparse.CSR.fromdense(jnp.array([[0.0, 2.0]])), jnp.ones(1), transpose=True)
    Array([0., 2.], dtype=float64)
    """
    return (mat.T if transpose else mat) @ v


def csr_matmat(mat: CSR, B: Any, *, transpose: bool = False) -> Array:
    """The product of a matrix, or of its transpose, and a dense matrix.

    >>> from fnx.experimental import sparse
    >>> sparse.csr_matmat(sparse.CSR.fromdense(jnp.array([[0.0, 2.0]])), jnp.eye(2))
    Array([[0., 2.]], dtype=float64)
    """
    return (mat.T if transpose else mat) @ B
