"""Pytrees of arrays as one vector, and back."""

import math
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np

from fnx import numpy as jnp
from fnx.core.array import Array
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays


def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Any], Any]]:
    """All elements of a pytree of arrays in one vector, and the function that makes the tree of it.

    The vector has the dtype to which the leaves promote; the tree gets each leaf's own shape and dtype.
    Where all leaves have one dtype, a tree can be made of a vector of any. ValueError for a vector of
    another length, TypeError for one of another dtype where leaves differ.

    >>> flat, unravel = ravel_pytree({"a": 1.0, "b": jnp.arange(2.0)})
    >>> flat
    Array([1., 0., 1.], dtype=float64)
    >>> unravel(flat)["b"]
    Array([0., 1.], dtype=float64)
    """
    leaves, treedef = flatten_arrays(pytree, "leaves of ravel_pytree")
    shapes, dtypes = tuple(x.shape for x in leaves), tuple(x.dtype for x in leaves)
    dtype = jnp.result_type(*dtypes) if leaves else np.dtype(np.float32)
    parts = [jnp.ravel(x).astype(dtype) for x in leaves]
    flat = jnp.concatenate(parts) if parts else jnp.zeros(0, dtype)
    return flat, _Unravel(treedef, shapes, dtypes if len(set(dtypes)) > 1 else None)


@dataclass(frozen=True)
class _Unravel:
    """The way back; equal for trees of equal structure, so that it can be a static argument."""

    treedef: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...] | None  # None: all are one, and the tree gets that of the vector

    def __call__(self, vector: Any) -> Any:
        vector = jnp.asarray(vector)
        bounds = list(accumulate(map(math.prod, self.shapes), initial=0))
        if vector.shape != (bounds[-1],):
            raise ShapeError(
                f"unravel got a vector of shape {vector.shape}; expected ({bounds[-1]},)"
            )
        cut = [
            vector[lo:hi].reshape(shape)
            for lo, hi, shape in zip(bounds, bounds[1:], self.shapes, strict=False)
        ]
        if self.dtypes:
            expected = jnp.result_type(*self.dtypes)
            if vector.dtype != expected:
                raise TypeMismatch(
                    f"unravel got a vector of dtype {vector.dtype}; expected {expected}"
                )
            real = [not np.issubdtype(kind, np.complexfloating) for kind in self.dtypes]
            cut = [x.real if r else x for x, r in zip(cut, real, strict=True)]
            cut = [x.astype(kind) for x, kind in zip(cut, self.dtypes, strict=True)]
        return operations.tree_unflatten(self.treedef, cut)
