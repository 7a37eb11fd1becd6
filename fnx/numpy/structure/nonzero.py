"""Where elements are not zero: nonzero, argwhere."""

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import ConcretizationTypeError, ShapeError
from fnx.core.interpreter import Tracer
from fnx.numpy.arrays.creation import array
from fnx.numpy.arrays.util import convert, integer, reshape_to, to_array
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.reductions.cumulative import cumsum
from fnx.numpy.structure.joining import stack
from fnx.numpy.structure.ranges import arange
from fnx.numpy.structure.shapes import ravel
from fnx.ops.base.broadcast import full as _full

# --- places -------------------------------------------------------------------------------------


def need_known(
    x: Array, name: str, hint: str = "pass size=, the static length of the result"
) -> np.ndarray:
    if isinstance(x, Tracer) and x.owner.concrete(x) is None:
        raise ConcretizationTypeError(
            f"what {name} does depends on the values of a traced array of type "
            f"{x.aval.str_short()}; {hint}"
        )
    return np.asarray(x)


def nonzero(a, *, size=None, fill_value=None):
    """The positions of elements that are not 0, one array per axis; `size` makes the length static.

    ShapeError for arrays of rank 0.

    >>> jnp.nonzero(jnp.array([[0, 1], [2, 0]]))
    (Array([0, 1], dtype=int64), Array([1, 0], dtype=int64))
    >>> jnp.nonzero(jnp.array([0, 5, 0, 7]), size=3, fill_value=-1)
    (Array([ 1,  3, -1], dtype=int64),)
    """
    x = to_array(a, "nonzero")
    if not x.ndim:
        raise ShapeError("nonzero of an array of rank 0; expected an axis: jnp.atleast_1d(x)")
    if size is None:
        known = need_known(x, "nonzero")
        return tuple([array(p) for p in np.nonzero(known)])
    mask = ravel(ufuncs.truth(x))
    size, index = integer(size, "size"), dtypes.default_for("i")
    fill_value = 0 if fill_value is None else fill_value  # may be traced
    fills = fill_value if isinstance(fill_value, (tuple, list)) else (fill_value,) * x.ndim
    total = mask.shape[0]
    if total == 0 or size == 0:
        return tuple([_full((size,), f, index) for f in fills])
    # Where the k-th True stands: count those before, and scatter positions there.
    count = cumsum(convert(mask, index))
    target = ufuncs.where3(mask, count - 1, size)
    flat = _full((size,), 0, index).at[target].set(arange(total), mode="drop", unique_indices=False)
    found = arange(size) < count[-1]
    outs = []
    for n in x.shape[::-1]:
        outs.append(ufuncs.remainder(flat, n))
        flat = ufuncs.floor_divide(flat, n)
    return tuple(
        [ufuncs.where3(found, p, convert(to_array(f), index)) for p, f in zip(outs[::-1], fills)]
    )


def flatnonzero(a, *, size=None, fill_value=None):
    """The flat positions of elements that are not 0.

    >>> jnp.flatnonzero(jnp.array([[0, 1], [2, 0]]))
    Array([1, 2], dtype=int64)
    """
    return nonzero(ravel(a), size=size, fill_value=fill_value)[0]


def argwhere(a, *, size=None, fill_value=None):
    """The positions of elements that are not 0, as rows.

    >>> jnp.argwhere(jnp.array([[0, 1], [2, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int64)
    """
    x = to_array(a, "argwhere")
    places = nonzero(reshape_to(x, x.shape or (1,)), size=size, fill_value=fill_value)
    if x.ndim == 0:
        return _full((places[0].shape[0], 0), 0, dtypes.default_for("i"))
    return stack(places, axis=1)


__all__ = ["argwhere", "flatnonzero", "nonzero"]
