"""Sparse arrays by coordinates, and their products with dense arrays."""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fnx import numpy
from fnx.core.array import Array
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.pytree import operations

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see
installed: dict[str, Callable] = {}  # what operators do that is written with this class, by name


class JAXSparse:
    """Base of sparse arrays: a shape, and arrays of data and indices.

    >>> from fnx.experimental import sparse
    >>> isinstance(sparse.eye(3), sparse.JAXSparse)
    True
    """

    shape: tuple[int, ...]
    data: Any
    indices: Any

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: int(np.prod(self.shape, dtype=int)))
    dtype = property(lambda self: self.data.dtype)
    nse = property(lambda self: self.data.shape[0])
    n_batch = n_dense = 0
    __array_ufunc__ = None  # NumPy's arrays leave operators to this one
    n_sparse = property(lambda self: len(self.shape))
    __hash__ = None  # type: ignore[assignment]  # as arrays, which it holds

    def block_until_ready(self) -> Any:
        """The array itself, once its numbers are there."""
        for x in operations.tree_leaves(self):
            x.block_until_ready()
        return self

    def todense(self) -> Array:
        """The dense array."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.data.aval.dtype}{list(self.shape)}, nse={self.nse})"


@operations.register_pytree_node_class
class BCOO(JAXSparse):
    """A sparse array: `data[k]` is added at `indices[k]`, one row of indices for each element.

    `nse`, the number of elements that are stored, is part of its type; elements at indices outside of the
    shape count as zero. Products with dense arrays are dense and have derivatives with respect to data.

    >>> m = fnx.experimental.sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> m @ jnp.ones(2)
    Array([2., 3.], dtype=float64)
    """

    def __init__(
        self,
        args: tuple[Any, Any],
        *,
        shape: Sequence[int],
        indices_sorted: bool = False,
        unique_indices: bool = False,
    ):
        self.data, self.indices = map(jnp.asarray, args)
        self.shape = tuple([int(n) for n in shape])
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        if self.indices.ndim != 2 or self.indices.shape[1] != len(self.shape):
            raise ShapeError(
                f"BCOO of shape {self.shape} with indices of shape {self.indices.shape}; expected "
                f"(elements, {len(self.shape)}). Batch and dense axes are not supported."
            )
        if self.data.shape != self.indices.shape[:1]:
            raise ShapeError(
                f"BCOO with data of shape {self.data.shape} and indices of shape {self.indices.shape}; "
                "expected as many elements as rows of indices"
            )

    # --- as a pytree: flat leaves, whatever they are

    def tree_flatten(self) -> tuple:
        return (self.data, self.indices), (self.shape, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux: tuple, children: Sequence) -> "BCOO":
        self = object.__new__(cls)
        self.data, self.indices = children
        self.shape, self.indices_sorted, self.unique_indices = aux
        return self

    # --- from and to other forms

    @classmethod
    def fromdense(cls, mat: Any, *, nse: int | None = None, index_dtype: Any = np.int32) -> "BCOO":
        """The elements of a dense array that are not zero; under jit their number `nse` must be given.

        >>> from fnx.experimental import sparse
        >>> sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 0.0])).data
        Array([2.], dtype=float64)
        """
        mat = jnp.asarray(mat)
        if nse is None:
            nse = int(jnp.count_nonzero(mat))
        if not mat.ndim:  # one element, which has no index
            data = jnp.zeros(nse, mat.dtype).at[:1].set(mat)
            return cls((data, jnp.zeros((nse, 0), index_dtype)), shape=())
        # Elements that are lacking lie outside.
        found = jnp.nonzero(mat, size=nse, fill_value=mat.shape)
        indices = jnp.stack(found, -1).astype(index_dtype)
        data = mat.at[tuple(found)].get(mode="fill", fill_value=0)
        return cls((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)

    @classmethod
    def from_scipy_sparse(cls, mat: Any, *, index_dtype: Any = None, **_: Any) -> "BCOO":
        """The same matrix as a SciPy one."""
        coo = mat.tocoo()
        indices = np.stack([coo.row, coo.col], -1).astype(index_dtype or np.int32)
        return cls((coo.data, indices), shape=coo.shape)

    def todense(self) -> Array:
        """The dense array."""
        if not self.shape:
            return jnp.sum(self.data, dtype=self.dtype)
        out = jnp.zeros(self.shape, self.dtype)
        return out.at[self._places()].add(self.data, mode="drop")

    def _places(self) -> tuple:
        return tuple([self.indices[:, k] for k in range(self.ndim)])

    def _with(self, data: Any, shape: Sequence[int] | None = None) -> "BCOO":
        return BCOO(
            (data, self.indices),
            shape=self.shape if shape is None else shape,
            indices_sorted=self.indices_sorted,
            unique_indices=self.unique_indices,
        )

    def astype(self, dtype: Any) -> "BCOO":
        """The same with data of another dtype."""
        return self._with(self.data.astype(dtype))

    def transpose(self, axes: Sequence[int] | None = None) -> "BCOO":
        """With its axes in another order, reversed by default."""
        order = tuple(range(self.ndim))[::-1] if axes is None else tuple(axes)
        indices = self.indices[:, np.asarray(order, int)]
        shape = [self.shape[k] for k in order]
        return BCOO((self.data, indices), shape=shape, unique_indices=self.unique_indices)

    T = property(lambda self: self.transpose())

    def reshape(self, *shape: Any, new_sizes: Any = None) -> "BCOO":
        """The elements in row-major order in another shape."""
        wanted = new_sizes or (
            shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        )
        flat = jnp.ravel_multi_index(self._places(), self.shape, mode="clip")
        inside = jnp.all(self.indices < np.asarray(self.shape, self.indices.dtype), axis=1)
        wanted = np.empty(self.shape, bool).reshape(wanted).shape
        places = jnp.stack(jnp.unravel_index(flat, wanted), -1)
        places = jnp.where(inside[:, None], places, np.asarray(wanted, places.dtype))
        return BCOO((self.data, places.astype(self.indices.dtype)), shape=wanted)

    def sort_indices(self) -> "BCOO":
        """With its elements in row-major order."""
        order = jnp.lexsort(self._places()[::-1])
        return BCOO(
            (self.data[order], self.indices[order]),
            shape=self.shape,
            indices_sorted=True,
            unique_indices=self.unique_indices,
        )

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> "BCOO":
        """With one element for each index; under jit their number `nse` must be given."""
        del remove_zeros
        inside = jnp.all(self.indices < np.asarray(self.shape, self.indices.dtype), axis=1)
        indices = jnp.where(
            inside[:, None], self.indices, np.asarray(self.shape, self.indices.dtype)
        )
        size = self.nse if nse is None and self.unique_indices else nse
        places, which = jnp.unique(
            indices,
            axis=0,
            return_inverse=True,
            size=size,
            fill_value=np.asarray(self.shape, self.indices.dtype),
        )
        data = jnp.zeros(places.shape[:1], self.dtype).at[which.reshape(-1)].add(self.data)
        return BCOO(
            (data, places.astype(self.indices.dtype)),
            shape=self.shape,
            indices_sorted=True,
            unique_indices=True,
        )

    def sum(self, axis: Any = None) -> Any:
        """The sum over axes; of all of them a dense number."""
        axes = range(self.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        axes = tuple([k % self.ndim for k in axes])
        if len(axes) == self.ndim:
            return jnp.sum(_inside(self))
        return bcoo_reduce_sum(self, axes=axes)

    def __getitem__(self, index: Any) -> "BCOO":
        return installed["part"](self, index)

    def __iter__(self) -> Iterator["BCOO"]:
        return (self[k] for k in range(len(self)))

    # --- arithmetic

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, BCOO):
            axes = [self.ndim - 1], [max(other.ndim - 2, 0)]
            return installed["product"](self, other, dimension_numbers=(axes, ((), ())))
        if isinstance(other, JAXSparse):
            raise TypeMismatch(
                "the product of two sparse arrays; expected .todense() of one of them"
            )
        other = jnp.asarray(other)
        if self.ndim not in (1, 2) or not other.ndim or self.shape[-1] != _rows(other):
            raise ShapeError(
                f"a sparse array of shape {self.shape} @ a dense one of shape {other.shape}; expected a "
                "sparse vector or matrix, and as many columns as the other has rows"
            )
        return _product(self, other)

    def __rmatmul__(self, other: Any) -> Array:
        other = jnp.asarray(other)
        if other.ndim == 1:
            return self.T @ other
        out = self.T @ jnp.swapaxes(other, -1, -2)
        return jnp.swapaxes(out, -1, -2) if self.ndim == 2 else out

    def __mul__(self, other: Any) -> "BCOO":
        if isinstance(other, BCOO):
            return installed["times"](self, other)
        if isinstance(other, JAXSparse):
            raise TypeMismatch(
                "the product of two sparse arrays; expected .todense() of one of them"
            )
        other = jnp.asarray(other)
        if not other.ndim:
            return self._with(self.data * other)
        full = jnp.broadcast_to(other, self.shape)
        return self._with(self.data * full.at[self._places()].get(mode="fill", fill_value=0))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "BCOO":
        return self * (1 / jnp.asarray(other))

    def __neg__(self) -> "BCOO":
        return self._with(-self.data)

    def __pos__(self) -> "BCOO":
        return self

    def __abs__(self) -> "BCOO":
        return self.sum_duplicates(self.nse)._map(abs)

    def _map(self, fn: Callable) -> "BCOO":
        return self._with(fn(self.data))

    def __add__(self, other: Any) -> Any:
        return self._plus(other, operator.pos)

    def __sub__(self, other: Any) -> Any:
        return self._plus(other, operator.neg)

    def __radd__(self, other: Any) -> Array:
        return other + self.todense()

    def __rsub__(self, other: Any) -> Array:
        return other - self.todense()

    def _plus(self, other: Any, sign: Callable) -> Any:
        if not isinstance(other, BCOO):
            return self.todense() + sign(jnp.asarray(other))
        if other.shape != self.shape:
            raise ShapeError(
                f"sparse arrays of shapes {self.shape} and {other.shape}; expected equal"
            )
        data = jnp.concatenate([self.data, sign(other.data)])
        return BCOO((data, jnp.concatenate([self.indices, other.indices])), shape=self.shape)


def _rows(x: Any) -> int:
    return x.shape[0] if x.ndim == 1 else x.shape[-2]


def _product(m: BCOO, x: Any) -> Array:
    """A sparse matrix (or vector) times a dense vector, matrix, or stack of matrices."""
    if x.ndim > 2:
        from fnx.transforms.vmap import vmap

        return vmap(lambda y: m @ y)(x)
    rows = x.at[m.indices[:, -1]].get(mode="fill", fill_value=0)
    terms = (m.data if x.ndim == 1 else m.data[:, None]) * rows
    if m.ndim == 1:
        return jnp.sum(terms, axis=0)
    out = jnp.zeros((m.shape[0], *x.shape[1:]), terms.dtype)
    return out.at[m.indices[:, 0]].add(terms, mode="drop")


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """The sum over axes, sparse.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 4.0]]))
    >>> sparse.bcoo_reduce_sum(m, axes=(1,)).todense()
    Array([2., 7.], dtype=float64)
    """
    gone = {k % mat.ndim for k in axes}
    left = [k for k in range(mat.ndim) if k not in gone]
    indices = mat.indices[:, np.asarray(left, int)]
    return BCOO((_inside(mat), indices), shape=[mat.shape[k] for k in left])


def _inside(mat: BCOO) -> Array:
    """The elements, zero where their indices lie outside: these must not come into sums."""
    inside = jnp.all(mat.indices < np.asarray(mat.shape, mat.indices.dtype), axis=1)
    return jnp.where(inside, mat.data, jnp.zeros((), mat.dtype))


bcoo_fromdense = BCOO.fromdense


def bcoo_todense(mat: BCOO) -> Array:
    """The dense array.

    >>> from fnx.experimental import sparse
    >>> sparse.bcoo_todense(sparse.BCOO.fromdense(jnp.array([0.0, 2.0])))
    Array([0., 2.], dtype=float64)
    """
    return mat.todense()


def todense(arr: Any) -> Array:
    """A sparse array as a dense one; others as they are.

    >>> from fnx.experimental import sparse
    >>> sparse.todense(sparse.eye(2))
    Array([[1., 0.],
           [0., 1.]], dtype=float64)
    """
    return arr.todense() if isinstance(arr, JAXSparse) else jnp.asarray(arr)
