"""associative_scan: all partial combinations of an associative function, in logarithmic depth."""

from collections.abc import Callable
from typing import Any

from fnx.core.array import Array
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.numpy.arrays.util import canonical_axis
from fnx.ops.base.permute import Reshape, Rev
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays

Tree = Any


def associative_scan(fn: Callable, elems: Tree, reverse: bool = False, axis: int = 0) -> Tree:
    """All partial results of an associative function along an axis, in a number of steps that
    grows with the logarithm of its length.

    `fn(a, b)` works on pytrees like `elems`, on any number of rows at once. The recursion combines
    neighbours, scans these, and fills in every other element (G. E. Blelloch, "Prefix sums and their
    applications", 1990).

    ShapeError for axes of different lengths; TypeError for an `fn` that returns another
    structure than it gets.

    >>> lax.associative_scan(lambda a, b: a + b, np.arange(4.0))
    Array([0., 1., 3., 6.], dtype=float64)
    """
    if not callable(fn):
        raise TypeMismatch(f"associative_scan needs a function, got {type(fn).__name__}")
    arrays, treedef = flatten_arrays(elems, "elements of associative_scan")
    if not arrays:
        return elems
    axis = _common_axis(arrays, axis)
    flip = Rev((axis,))

    def combine(a: list, b: list) -> list:
        x, y = (operations.tree_unflatten(treedef, v) for v in (a, b))
        leaves, structure = flatten_arrays(fn(x, y), "results")
        if structure != treedef:
            raise TypeMismatch(
                f"the function of associative_scan returned {operations.shown(structure)}; expected "
                f"{operations.shown(treedef)}"
            )
        for leaf, given in zip(leaves, a):
            if leaf.shape != given.shape:
                raise ShapeError(
                    f"the function of associative_scan returned shape {leaf.shape} for rows of shape "
                    f"{given.shape}; expected the same shape, for any number of rows"
                )
        return leaves

    def run(arrays: list) -> list:
        n = arrays[0].shape[axis]
        if n < 2:
            return arrays
        odd = run(combine(_rows(arrays, axis, 0, n - 1, 2), _rows(arrays, axis, 1, n, 2)))
        even = _rows(arrays, axis, 0, 1)
        if n > 2:
            before = _rows(odd, axis, 0, (n - 1) // 2)
            rest = combine(before, _rows(arrays, axis, 2, n, 2))
            even = [Concatenate(axis)(a, b) for a, b in zip(even, rest)]
        return [_interleave(a, b, axis) for a, b in zip(even, odd)]

    arrays = [flip(x) for x in arrays] if reverse else arrays
    outs = run(list(arrays))
    outs = [flip(x) for x in outs] if reverse else outs
    if arrays[0].shape[axis] > 1:  # as in JAX, which weaves with zeros that have a dtype
        outs = [ConvertElementType(x.dtype)(x) if x.weak_type else x for x in outs]
    return operations.tree_unflatten(treedef, outs)


def _common_axis(arrays: list[Array], axis: int) -> int:
    """The number of an axis that all arrays have, of one length."""
    axis = canonical_axis(axis, arrays[0].ndim, "axis of associative_scan")
    for x in arrays:
        canonical_axis(axis, x.ndim, "axis of associative_scan")
    sizes = {x.shape[axis] for x in arrays}
    if len(sizes) > 1:
        raise ShapeError(f"associative_scan over axes of different lengths: {sorted(sizes)}")
    return axis


def _rows(arrays: list, axis: int, start: int, stop: int, step: int = 1) -> list:
    """Rows of each array along an axis."""
    outs = []
    for x in arrays:
        low, high, stride = [0] * x.ndim, list(x.shape), [1] * x.ndim
        low[axis], high[axis], stride[axis] = start, stop, step
        outs.append(Slice(tuple(low), tuple(high), tuple(stride))(x))
    return outs


def _interleave(a: Array, b: Array, axis: int) -> Array:
    """a0 b0 a1 b1 ..., where `a` may have one element more."""
    n, m = a.shape[axis], b.shape[axis]
    front, back = a.shape[:axis], a.shape[axis + 1 :]
    low, high = (0,) * a.ndim, (*front, m, *back)
    pairs = [Reshape((*front, m, 1, *back))(x) for x in (Slice(low, high)(a), b)]
    woven = Reshape((*front, 2 * m, *back))(Concatenate(axis + 1)(*pairs))
    if n == m:
        return woven
    start = (*(0,) * axis, m, *(0,) * len(back))
    return Concatenate(axis)(woven, Slice(start, a.shape)(a))
