"""Functions of sparse arrays: parts of them, several as one, products of two, under JAX's names."""

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx import lax, numpy
from fnx.core.array import Array
from fnx.core.errors import ShapeError
from fnx.experimental.sparse.bcoo import BCOO, JAXSparse, bcoo_reduce_sum, installed

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """With its axes in another order.

    >>> from fnx.experimental import sparse
    >>> sparse.bcoo_transpose(sparse.BCOO.fromdense(jnp.ones((2, 3))), permutation=(1, 0)).shape
    (3, 2)
    """
    return mat.transpose(permutation)


def bcoo_reshape(mat: BCOO, *, new_sizes: Sequence[int]) -> BCOO:
    """The elements in row-major order in another shape.

    >>> from fnx.experimental import sparse
    >>> sparse.bcoo_reshape(sparse.BCOO.fromdense(jnp.ones((2, 3))), new_sizes=(6,)).shape
    (6,)
    """
    return mat.reshape(new_sizes=tuple(new_sizes))


def bcoo_broadcast_in_dim(
    mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int], sharding: Any = None
) -> BCOO:
    """With axes more, along which elements repeat: axis k becomes `broadcast_dimensions[k]` of `shape`.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 2.0]))
    >>> sparse.bcoo_broadcast_in_dim(m, shape=(2, 2), broadcast_dimensions=(1,)).todense()
    Array([[0., 2.],
           [0., 2.]], dtype=float64)
    """
    del sharding
    shape, places = tuple(shape), tuple(broadcast_dimensions)
    lax.broadcast_in_dim(jnp.zeros(mat.shape, bool), shape, places)  # which says what does not fit
    kept = {d: k for k, d in enumerate(places) if mat.shape[k] == shape[d]}
    repeated = [d for d in range(len(shape)) if d not in kept]
    inside = jnp.all(mat.indices < np.asarray(mat.shape, mat.indices.dtype), axis=1)
    copies = np.indices([shape[d] for d in repeated]).reshape(len(repeated), -1)
    n = copies.shape[1]
    columns: list[Any] = [None] * len(shape)
    for d, k in kept.items():
        columns[d] = jnp.repeat(mat.indices[:, k], n)
    for d, places_of_copies in zip(repeated, copies, strict=True):  # elements outside stay outside
        every = jnp.tile(jnp.asarray(places_of_copies, mat.indices.dtype), mat.nse)
        columns[d] = jnp.where(jnp.repeat(inside, n), every, shape[d])
    indices = jnp.stack(columns, -1) if columns else jnp.zeros((mat.nse * n, 0), mat.indices.dtype)
    return BCOO((jnp.repeat(mat.data, n), indices), shape=shape, unique_indices=mat.unique_indices)


def bcoo_extract(sparr: BCOO, arr: Any, *, assume_unique: bool | None = None) -> BCOO:
    """The elements of a dense array where a sparse one has some.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 3.0]))
    >>> sparse.bcoo_extract(m, jnp.array([5.0, 6.0, 7.0])).data
    Array([6., 7.], dtype=float64)
    """
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    m = sparr if unique else sparr.sum_duplicates(sparr.nse)
    arr = jnp.asarray(arr)
    if arr.shape != m.shape:
        raise ShapeError(f"bcoo_extract of shapes {m.shape} and {arr.shape}; expected equal")
    return m._with(arr.at[m._places()].get(mode="fill", fill_value=0))


def bcoo_multiply_dense(sp_mat: BCOO, v: Any) -> BCOO:
    """The product, element by element, of a sparse and a dense array, sparse.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 3.0]))
    >>> sparse.bcoo_multiply_dense(m, jnp.array([5.0, 6.0, 7.0])).data
    Array([12., 21.], dtype=float64)
    """
    return sp_mat * v


def bcoo_update_layout(
    mat: BCOO,
    *,
    n_batch: int | None = None,
    n_dense: int | None = None,
    on_inefficient: str = "error",
) -> BCOO:
    """`mat` itself: fnx's sparse arrays have neither batch nor dense axes; ShapeError where some are asked.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 2.0]))
    >>> sparse.bcoo_update_layout(m, n_batch=0) is m
    True
    """
    del on_inefficient
    if n_batch or n_dense:
        raise ShapeError(
            f"bcoo_update_layout with n_batch={n_batch}, n_dense={n_dense}; expected 0: batch and dense "
            "axes are not supported"
        )
    return mat


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """With its elements in row-major order.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[3], [0]])), shape=(4,))
    >>> sparse.bcoo_sort_indices(m).data
    Array([2., 1.], dtype=float64)
    """
    return mat.sort_indices()


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """With one element for each index; under jit their number `nse` must be given.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO((jnp.array([1.0, 2.0]), jnp.array([[3], [3]])), shape=(4,))
    >>> sparse.bcoo_sum_duplicates(m).data
    Array([3.], dtype=float64)
    """
    return mat.sum_duplicates(nse)


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """Without axes of length 1.

    >>> from fnx.experimental import sparse
    >>> sparse.bcoo_squeeze(sparse.BCOO.fromdense(jnp.ones((1, 3))), dimensions=(0,)).shape
    (3,)
    """
    if any(arr.shape[k] != 1 for k in dimensions):
        raise ShapeError(
            f"bcoo_squeeze of axes {tuple(dimensions)} of shape {arr.shape}; expected 1"
        )
    return bcoo_reduce_sum(arr, axes=dimensions)


def _moved(mat: BCOO, indices: Any, inside: Any, shape: Sequence[int]) -> BCOO:
    """The elements at other indices of a shape; those that are not `inside` are zero, and lie outside."""
    outside = np.asarray(shape, mat.indices.dtype)
    inside = inside & jnp.all(mat.indices < np.asarray(mat.shape, mat.indices.dtype), axis=1)
    data = jnp.where(inside, mat.data, jnp.zeros((), mat.dtype))
    indices = jnp.where(inside[:, None], indices, outside).astype(mat.indices.dtype)
    return BCOO((data, indices), shape=shape, unique_indices=False)


def bcoo_slice(
    mat: BCOO,
    *,
    start_indices: Sequence[Any],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> BCOO:
    """The elements from start to limit along each axis; as many are stored as in the whole.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.arange(6.0))
    >>> sparse.bcoo_slice(m, start_indices=(1,), limit_indices=(6,), strides=(2,)).todense()
    Array([1., 3., 5.], dtype=float64)
    """
    strides = (1,) * mat.ndim if strides is None else tuple(strides)
    sizes = [
        max(0, -(-(stop - start) // step))
        for start, stop, step in zip(start_indices, limit_indices, strides, strict=True)
    ]
    return _sliced(mat, start_indices, strides, sizes)


def _sliced(mat: BCOO, starts: Sequence[Any], strides: Sequence[int], sizes: Sequence[int]) -> BCOO:
    """So many elements along each axis, from starts that may be traced."""
    dtype = mat.indices.dtype
    offsets = mat.indices - jnp.stack([jnp.asarray(s, dtype) for s in starts])
    steps = np.asarray(strides, dtype)
    places = offsets // steps
    inside = (offsets >= 0) & (offsets % steps == 0) & (places < np.asarray(sizes, dtype))
    return _moved(mat, places, jnp.all(inside, axis=1), sizes)


def element_or_slice(mat: BCOO, index: Any) -> BCOO:
    """`mat[index]`, of integers, which may be traced, slices and an Ellipsis."""
    given = index if isinstance(index, tuple) else (index,)
    dots = [i is Ellipsis for i in given]
    if any(dots):
        at = dots.index(True)
        rest = mat.ndim - len(given) + 1
        given = (*given[:at], *[slice(None)] * rest, *given[at + 1 :])
    if len(given) > mat.ndim:
        raise ShapeError(f"{len(given)} indices of a sparse array of shape {mat.shape}")
    given = (*given, *[slice(None)] * (mat.ndim - len(given)))
    starts, steps, sizes, single = [], [], [], []
    for k, (i, n) in enumerate(zip(given, mat.shape, strict=True)):
        if isinstance(i, slice):
            start, stop, step = i.indices(n)
            if step < 0:
                raise ShapeError(f"a slice of a sparse array with step {step}; expected a positive")
            starts.append(start)
            steps.append(step)
            sizes.append(len(range(start, stop, step)))
        else:
            starts.append(jnp.where(jnp.asarray(i) < 0, i + n, i))
            steps.append(1)
            sizes.append(1)
            single.append(k)
    part = _sliced(mat, starts, steps, sizes)
    return bcoo_squeeze(part, dimensions=single) if single else part


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Sparse arrays one after the other along an axis.

    >>> from fnx.experimental import sparse
    >>> sparse.bcoo_concatenate([sparse.eye(1), 2 * sparse.eye(1)], dimension=1).todense()
    Array([[1., 2.]], dtype=float64)
    """
    shapes = {tuple(np.delete(m.shape, dimension)) for m in operands}
    if len(shapes) != 1:
        raise ShapeError(
            f"bcoo_concatenate along {dimension} of shapes {[m.shape for m in operands]}; expected equal "
            "but for that axis"
        )
    shape = list(operands[0].shape)
    shape[dimension] = sum(m.shape[dimension] for m in operands)
    parts, before = [], 0
    for m in operands:
        shift = np.zeros(m.ndim, m.indices.dtype)
        shift[dimension] = before
        parts.append(_moved(m, m.indices + shift, True, shape))
        before += m.shape[dimension]
    data = jnp.concatenate([m.data for m in parts])
    return BCOO((data, jnp.concatenate([m.indices for m in parts])), shape=shape)


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The product of two sparse arrays of one shape, element by element.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([0.0, 2.0, 3.0]))
    >>> sparse.bcoo_multiply_sparse(m, sparse.BCOO.fromdense(jnp.array([5.0, 0.0, 7.0]))).todense()
    Array([ 0.,  0., 21.], dtype=float64)
    """
    if lhs.shape != rhs.shape:
        raise ShapeError(f"sparse arrays of shapes {lhs.shape} and {rhs.shape}; expected equal")
    few, many = (lhs, rhs) if lhs.nse <= rhs.nse else (rhs, lhs)
    same = jnp.all(few.indices[:, None, :] == many.indices[None, :, :], axis=-1)
    factors = jnp.where(same, many.data, jnp.zeros((), many.dtype)).sum(1)
    return BCOO((few.data * factors, few.indices), shape=few.shape)


def matrix_product(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The product of two sparse matrices; room is made for all pairs of their elements."""
    pairs = lhs.indices[:, None, 1] == rhs.indices[None, :, 0]
    inside = jnp.all(lhs.indices < np.asarray(lhs.shape, lhs.indices.dtype), axis=1)
    pairs = (pairs & inside[:, None]).reshape(-1)
    data = (lhs.data[:, None] * rhs.data[None, :]).reshape(-1)
    n, k = lhs.nse, rhs.nse
    rows = jnp.broadcast_to(lhs.indices[:, None, 0], (n, k)).reshape(-1)
    columns = jnp.broadcast_to(rhs.indices[None, :, 1], (n, k)).reshape(-1)
    shape = (lhs.shape[0], rhs.shape[1])
    outside = np.asarray(shape, lhs.indices.dtype)
    indices = jnp.where(pairs[:, None], jnp.stack([rows, columns], -1), outside)
    data = jnp.where(pairs, data, jnp.zeros((), data.dtype))
    out = BCOO((data, indices.astype(lhs.indices.dtype)), shape=shape)
    return out.sum_duplicates(math.prod(shape)) if out.nse > math.prod(shape) else out


def _matrix(x: Any, rows: Sequence[int], columns: Sequence[int]) -> Any:
    """An array as a matrix: some axes are its rows, the others its columns."""
    sizes = [math.prod([x.shape[k] for k in axes]) for axes in (rows, columns)]
    moved = x.transpose((*rows, *columns))
    return moved.reshape(tuple(sizes))


def bcoo_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> BCOO | Array:
    """`lax.dot_general` of arrays of which one or both are sparse; sparse if both are. No batch axes.

    >>> from fnx.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> sparse.bcoo_dot_general(m, jnp.ones((2, 2)), dimension_numbers=(([0], [0]), ([], [])))
    Array([[3., 3.],
           [3., 3.]], dtype=float64)
    """
    del precision, preferred_element_type, out_sharding
    (left, right), batch = dimension_numbers
    if any(map(len, batch)):
        raise ShapeError(f"bcoo_dot_general with batch axes {batch}; expected none")
    if not isinstance(lhs, JAXSparse) and not isinstance(rhs, JAXSparse):
        return lax.dot_general(lhs, rhs, dimension_numbers)
    left, right = ([operator.index(k) for k in axes] for axes in (left, right))
    rows, columns = (
        [k for k in range(x.ndim) if k not in a] for x, a in ((lhs, left), (rhs, right))
    )
    shape = [lhs.shape[k] for k in rows] + [rhs.shape[k] for k in columns]
    a, b = _matrix(lhs, rows, left), _matrix(rhs, right, columns)
    if a.shape[1] != b.shape[0]:
        raise ShapeError(
            f"sums over axes {left} of shape {lhs.shape} and {right} of {rhs.shape}; expected equal sizes"
        )
    both = isinstance(a, JAXSparse) and isinstance(b, JAXSparse)
    return (matrix_product(a, b) if both else a @ b).reshape(tuple(shape))


installed.update(part=element_or_slice, product=bcoo_dot_general, times=bcoo_multiply_sparse)
