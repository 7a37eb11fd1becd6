"""Pytrees of arrays as one vector, and back."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx import numpy as jnp
from fnx import tree_util
from fnx.core.array import Array
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.flat import flatten_arrays


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Any], Any]]:
    """All elements of a pytree of arrays in one vector, and the function that makes the tree of it.

    The vector has the dtype to which the leaves promote; the tree gets each leaf's own shape and dtype.
    ValueError for a vector of another length, TypeError for one of another dtype.

    >>> flat, unravel = ravel_pytree({"a": 1.0, "b": jnp.arange(2.0)})
    >>> flat
    Array([1., 0., 1.], dtype=float64)
    >>> unravel(flat)["b"]
    Array([0., 1.], dtype=float64)
    """
    leaves, treedef = flatten_arrays(pytree, "leaves of ravel_pytree")
    shapes, dtypes = [x.shape for x in leaves], [x.dtype for x in leaves]
    bounds = np.cumsum([0, *(x.size for x in leaves)])
    dtype = jnp.result_type(*dtypes) if leaves else np.dtype(np.float32)
    parts = [jnp.ravel(x).astype(dtype) for x in leaves]
    flat = jnp.concatenate(parts) if parts else jnp.zeros(0, dtype)
    total = int(bounds[-1])

    def unravel(vector: Any) -> Any:
        vector = jnp.asarray(vector)
        if vector.shape != (total,):
            raise ShapeError(f"unravel got a vector of shape {vector.shape}; expected {(total,)}")
        if vector.dtype != dtype:
            raise TypeMismatch(f"unravel got a vector of dtype {vector.dtype}; expected {dtype}")
        cut = [
            vector[lo:hi].reshape(shape).astype(kind)
            for lo, hi, shape, kind in zip(bounds, bounds[1:], shapes, dtypes)
        ]
        return tree_util.tree_unflatten(treedef, cut)

    return flat, unravel
