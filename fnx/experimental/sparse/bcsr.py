"""Sparse matrices by compressed rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import numpy
from fnx.core.array import Array
from fnx.core.errors import ShapeError
from fnx.experimental.sparse.bcoo import BCOO, JAXSparse
from fnx.pytree import operations

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see


@operations.register_pytree_node_class
class BCSR(JAXSparse):
    """A sparse matrix by rows: `data` and columns `indices` of row r at `indptr[r]` to `indptr[r + 1]`.

    >>> m = fnx.experimental.sparse.BCSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> m.indptr
    Array([0, 1, 2], dtype=int32)
    """

    def __init__(
        self,
        args: tuple[Any, Any, Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ):
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        self.shape = tuple([int(n) for n in shape])
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        if len(self.shape) != 2 or self.indptr.shape != (self.shape[0] + 1,):
            raise ShapeError(
                f"BCSR of shape {self.shape} with indptr of shape {self.indptr.shape}; expected a matrix, "
                "and one more than it has rows"
            )

    def tree_flatten(self) -> tuple:
        aux = self.shape, self.indices_sorted, self.unique_indices
        return (self.data, self.indices, self.indptr), aux

    @classmethod
    def tree_unflatten(cls, aux: tuple, children: Sequence) -> "BCSR":
        self = object.__new__(cls)
        self.data, self.indices, self.indptr = children
        self.shape, self.indices_sorted, self.unique_indices = aux
        return self

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> "BCSR":
        """The elements of a dense matrix that are not zero; under jit their number `nse` must be given."""
        return cls.from_bcoo(BCOO.fromdense(mat, nse=nse, index_dtype=index_dtype))

    @classmethod
    def from_bcoo(cls, mat: BCOO) -> "BCSR":
        """The same matrix by rows."""
        if mat.ndim != 2:
            raise ShapeError(f"BCSR needs a matrix, got a sparse array of shape {mat.shape}")
        m = mat if mat.indices_sorted else mat.sort_indices()
        rows = jnp.arange(m.shape[0] + 1, dtype=m.indices.dtype)
        indptr = jnp.searchsorted(m.indices[:, 0], rows).astype(m.indices.dtype)
        return cls(
            (m.data, m.indices[:, 1], indptr),
            shape=m.shape,
            indices_sorted=True,
            unique_indices=m.unique_indices,
        )

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, **_: Any) -> "BCSR":
        """The same matrix as a SciPy one."""
        csr = mat.tocsr()
        kind = index_dtype or np.int32
        return cls((csr.data, csr.indices.astype(kind), csr.indptr.astype(kind)), shape=csr.shape)

    def to_bcoo(self) -> BCOO:
        """The same matrix by coordinates."""
        at = jnp.arange(self.nse, dtype=self.indptr.dtype)
        row = jnp.searchsorted(self.indptr, at, side="right") - 1
        # What is stored behind the last row does not count.
        row = jnp.where(at < self.indptr[-1], row, self.shape[0])
        indices = jnp.stack([row.astype(self.indices.dtype), self.indices], -1)
        return BCOO((self.data, indices), shape=self.shape, indices_sorted=self.indices_sorted)

    def todense(self) -> Array:
        """The dense matrix."""
        return self.to_bcoo().todense()

    def __matmul__(self, other: Any) -> Array:
        return self.to_bcoo() @ other

    def __rmatmul__(self, other: Any) -> Array:
        return other @ self.to_bcoo()
