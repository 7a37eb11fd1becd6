"""Linear systems with sparse matrices, and eigenvalues."""

from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import ShapeError
from fnx.experimental.sparse.eigen import lobpcg_standard as lobpcg_standard
from fnx.numpy import arange, diff, repeat, zeros_like
from fnx.numpy.arrays.util import promote_inexact, to_arrays
from fnx.transforms.callbacks import pure_callback
from fnx.transforms.implicit_diff import custom_linear_solve
from fnx.transforms.make_jaxpr import ShapeDtypeStruct


def spsolve(
    data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1
) -> Array:
    """The vector x with A x = b, A a square matrix of compressed rows, by SciPy's sparse LU.

    `data` and `b` may be differentiated, and mapped. `tol` and `reorder` are JAX's on a GPU, and mean
    nothing here. Where A is singular the result is nan.

    TypeError and ValueError for a `b` that is no vector with an element for each row.

    >>> from fnx.experimental.sparse.linalg import spsolve
    >>> data, columns, starts = jnp.array([2.0, 4.0]), jnp.array([0, 1]), jnp.array([0, 1, 2])
    >>> spsolve(data, columns, starts, jnp.ones(2))
    Array([0.5 , 0.25], dtype=float64)
    """
    del tol, reorder
    data, b = promote_inexact("spsolve", data, b)
    indices, indptr = to_arrays("spsolve", indices, indptr)
    n = indptr.shape[0] - 1
    if b.shape != (n,):
        raise ShapeError(f"spsolve of {n} rows with b of shape {b.shape}; expected a vector ({n},)")
    rows = repeat(arange(n), diff(indptr), total_repeat_length=data.shape[0])
    matvec = lambda x: zeros_like(b).at[rows].add(data * x[indices])

    def solve(transposed: bool) -> Any:
        host = lambda *parts: _solved(*parts, transposed=transposed)
        like = ShapeDtypeStruct(b.shape, b.dtype)
        return lambda _, y: pure_callback(
            host, like, data, indices, indptr, y, vmap_method="sequential"
        )

    return custom_linear_solve(matvec, b, solve(False), solve(True))


def _solved(data: Any, indices: Any, indptr: Any, b: Any, transposed: bool) -> np.ndarray:
    from scipy.sparse import csr_array, linalg

    n = len(b)
    matrix = csr_array(tuple(map(np.asarray, (data, indices, indptr))), (n, n)).tocsc()
    try:
        factors = linalg.splu(matrix)
    except RuntimeError:  # exactly singular
        return np.full_like(b, np.nan)
    return factors.solve(np.asarray(b), "T" if transposed else "N").astype(b.dtype)
