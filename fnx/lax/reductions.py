"""Reductions, cumulative functions, windows and sorting of fnx.lax."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.interpreters.primitives.reduce import Reduce
from fnx.interpreters.trace import trace
from fnx.lax import elementwise
from fnx.lax.elementwise import checked
from fnx.lax.shapes import concatenate
from fnx.lax.slices import slice_in_dim
from fnx.numpy.arrays.util import (
    PYTHON,
    canonical_axis,
    constant,
    integer,
    integers,
    named,
    pairs_of_integers,
    shown,
    strong,
    to_array,
)
from fnx.numpy.elementwise.arithmetic import add, maximum, minimum
from fnx.numpy.elementwise.elementary import logaddexp
from fnx.ops.base.broadcast import Sum, broadcast_to
from fnx.ops.linalg.conv_layout import dilated
from fnx.ops.reduction import pooling, sorting
from fnx.ops.reduction import reduction as ops
from fnx.ops.reduction.cumulative import Cumulative
from fnx.pytree import operations


def _axes(axes: Any, ndim: int) -> tuple[int, ...]:
    return tuple(sorted(canonical_axis(k, ndim) for k in axes))


def _reduction(name: str, prim: Callable, what: str, gives: str) -> Callable:
    call = f"lax.{name}(jnp.array([[6, 3], [1, 1]]), (1,))"

    @named(name, shown(f"{what} over axes.", call, gives, "int64"))
    def fn(operand: Any, axes: Sequence[int], *, out_sharding: Any = None) -> Array:
        del out_sharding
        x = to_array(operand, name)
        return checked(prim(_axes(axes, x.ndim)), x)

    return fn


reduce_sum = _reduction("reduce_sum", Sum, "The sum", "[9, 2]")
reduce_max = _reduction("reduce_max", ops.Max, "The largest element", "[6, 1]")
reduce_min = _reduction("reduce_min", ops.Min, "The smallest element", "[3, 1]")
reduce_prod = _reduction("reduce_prod", ops.Prod, "The product", "[18,  1]")
reduce_and = _reduction(
    "reduce_and", ops.ReduceAnd, "The bits set in all elements, or whether all hold,", "[2, 1]"
)
reduce_or = _reduction(
    "reduce_or", ops.ReduceOr, "The bits set in an element, or whether one holds,", "[7, 1]"
)
reduce_xor = _reduction(
    "reduce_xor", ops.ReduceXor, "The bits set in an odd number of elements", "[5, 0]"
)


def _index_dtype(dtype: Any) -> np.dtype:
    found = dtypes.canonical(dtype)
    if not dtypes.is_integer(found):
        raise TypeMismatch(f"index_dtype is {dtypes.NAME[found]}; expected an integer dtype")
    return found


def argmax(operand: Any, axis: int, index_dtype: Any) -> Array:
    """The index of the first largest element along an axis.

    >>> lax.argmax(jnp.array([[1, 5, 2]]), 1, jnp.int32)
    Array([1], dtype=int32)
    """
    x = to_array(operand, "argmax")
    return checked(ops.ArgMax((canonical_axis(axis, x.ndim),), _index_dtype(index_dtype)), x)


def argmin(operand: Any, axis: int, index_dtype: Any) -> Array:
    """The index of the first smallest element along an axis.

    >>> lax.argmin(jnp.array([[3, 5, 2]]), 1, jnp.int32)
    Array([2], dtype=int32)
    """
    x = to_array(operand, "argmin")
    return checked(ops.ArgMin((canonical_axis(axis, x.ndim),), _index_dtype(index_dtype)), x)


def _cumulative(name: str, what: str, gives: str) -> Callable:
    says = f"{what} up to each element of an axis, from its end if `reverse`."

    @named(name, shown(says, f"lax.{name}(jnp.array([2.0, 3.0, 1.0]))", gives))
    def fn(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
        x = to_array(operand, name)
        k = canonical_axis(axis, x.ndim)
        if dtypes.is_complex(x.dtype) and name in _PAIRS:
            return _doubled(_PAIRS[name], x, k, bool(reverse))
        return checked(Cumulative(name, k, bool(reverse)), x)

    return fn


# Complex numbers have these by pairs: the primitive's loop knows no order of them, and no logarithm.
_PAIRS = {"cummax": maximum, "cummin": minimum, "cumlogsumexp": logaddexp}


def _doubled(op: Callable, x: Array, axis: int, reverse: bool) -> Array:
    """A fold of all elements up to each, over twice as many with every step."""
    n, done = x.shape[axis], 1
    part = lambda start, stop: slice_in_dim(x, start, stop, axis=axis)
    while done < n:
        if reverse:
            parts = [op(part(0, n - done), part(done, n)), part(n - done, n)]
        else:
            parts = [part(0, done), op(part(0, n - done), part(done, n))]
        x = concatenate(parts, axis)
        done *= 2
    return x


cumsum = _cumulative("cumsum", "The sums", "[2., 5., 6.]")
cumprod = _cumulative("cumprod", "The products", "[2., 6., 6.]")
cummax = _cumulative("cummax", "The largest elements", "[2., 3., 3.]")
cummin = _cumulative("cummin", "The smallest elements", "[2., 2., 1.]")
cumlogsumexp = _cumulative(
    "cumlogsumexp", "log(sum(exp(x)))", "[2.        , 3.31326169, 3.40760596]"
)


# --- general folds -----------------------------------------------------------------------------


def _scalar_jaxpr(computation: Callable, avals: list[ShapedArray], structure: Any) -> Any:
    """The jaxpr of an operation on two pytrees of scalars."""
    n = len(avals)

    def flat(*xs: Array) -> list[Array]:
        a = operations.tree_unflatten(structure, xs[:n])
        b = operations.tree_unflatten(structure, xs[n:])
        return [as_array(o) for o in operations.tree_leaves(computation(a, b))]

    if not callable(computation):
        raise TypeMismatch(
            f"the operation of a reduction must be a function, not {computation!r:.60}"
        )
    jaxpr, consts = trace(flat, [*avals, *avals], what="reduce")
    if consts:
        raise InvalidValue("the operation of a reduction may not close over arrays")
    given, made = ([a.str_short() for a in types] for types in (avals, jaxpr.out_avals))
    if [a.shape for a in jaxpr.out_avals] != [()] * n:
        raise TypeMismatch(
            f"the operation of a reduction returned {made}; expected the types that it combines, {given}"
        )
    return jaxpr


def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable,
    dimensions: Sequence[int],
    out_sharding: Any = None,
) -> Any:
    """Folds pytrees of arrays over axes with an associative operation on pytrees of scalars.

    >>> lax.reduce(jnp.array([[1.0, 2.0], [3.0, 4.0]]), 1.0, lax.mul, (1,))
    Array([ 2., 12.], dtype=float64)
    """
    del out_sharding
    xs, inits, structure = _with_inits("reduce", operands, init_values)
    jaxpr = _scalar_jaxpr(computation, [ShapedArray((), x.dtype) for x in xs], structure)
    outs = Reduce(_axes(dimensions, xs[0].ndim), jaxpr)(*map(strong, xs), *inits)
    return operations.tree_unflatten(structure, outs)


def _with_inits(name: str, operands: Any, init_values: Any) -> tuple[list, list, Any]:
    """Operands and their first values as flat lists, and the structure that both have."""
    leaves, structure = operations.tree_flatten(operands)
    firsts, other = operations.tree_flatten(init_values)
    if structure != other:
        raise InvalidValue(
            f"{name} of operands {operations.shown(structure)} with init_values "
            f"{operations.shown(other)}; expected one structure"
        )
    xs = [to_array(x, name) for x in leaves]
    inits = [
        constant(i, x.dtype, x.weak_type) if type(i) in PYTHON else to_array(i, name)
        for i, x in zip(firsts, xs, strict=True)
    ]
    if any(i.dtype != x.dtype and not i.aval.weak_type for i, x in zip(inits, xs)):
        raise TypeMismatch(
            f"{name} of operands of dtypes {[str(x.dtype) for x in xs]} with init_values of dtypes "
            f"{[str(i.dtype) for i in inits]}; expected equal ones: convert one with .astype"
        )
    if any(i.shape for i in inits):
        raise ShapeError(
            f"{name} with init_values of shapes {[i.shape for i in inits]}; expected rank 0"
        )
    return xs, inits, structure


# --- windows -----------------------------------------------------------------------------------


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Any,
) -> list[tuple[int, int]]:
    """The numbers that "SAME", "SAME_LOWER" or "VALID" stand for.

    ValueError for other words.

    >>> lax.padtype_to_pads((8,), (3,), (2,), "SAME")
    [(0, 1)]
    """
    if not isinstance(padding, str):
        return list(pairs_of_integers(padding, "padding"))
    kind = padding.upper()
    if kind == "VALID":
        return [(0, 0)] * len(in_shape)
    if kind not in ("SAME", "SAME_LOWER"):
        raise InvalidValue(f"unknown padding {padding!r}; expected 'SAME', 'SAME_LOWER' or 'VALID'")
    pads = []
    for n, w, s in zip(map(int, in_shape), map(int, window_shape), map(int, window_strides)):
        total = max((-(-n // s) - 1) * s + w - n, 0)
        less, more = total // 2, total - total // 2
        pads.append((more, less) if kind == "SAME_LOWER" else (less, more))
    return pads


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Folds of windows; `computation` is lax.add, lax.max, lax.min, or any operation on scalars.

    Pytrees of arrays, with first values alike, are folded together by an operation on two such trees.

    ShapeError for sizes that are not positive.

    >>> lax.reduce_window(jnp.array([1, 5, 2, 4]), 0, lax.max, (2,))
    Array([5, 5, 4], dtype=int64)
    """
    xs, inits, structure = _with_inits("reduce_window", operand, init_value)
    x = xs[0]
    ones = (1,) * x.ndim
    window = integers(window_dimensions, "window_dimensions")
    strides = ones if window_strides is None else tuple(window_strides)
    for what, sizes in (("window_dimensions", window), ("window_strides", strides)):
        if min(sizes, default=1) < 1:
            raise ShapeError(f"reduce_window with {what} {sizes}; expected positive numbers")
    base = ones if base_dilation is None else tuple(base_dilation)
    inner = ones if window_dilation is None else tuple(window_dilation)
    spread = [dilated(n, d) for n, d in zip(window, inner)]
    pads = tuple(padtype_to_pads(x.shape, spread, strides, padding))  # "SAME" as before dilation
    maker = next((made for op, made in _WINDOWS if op is computation), None)
    if operations.treedef_is_leaf(structure) and maker is not None and x.dtype in maker.accepts:
        fold = maker(window, strides, pads, base, inner)
        folded, first = fold(x), inits[0]
        known = isinstance(first, ConcreteArray) and first._value == fold.identity(x.dtype)
        return folded if known else computation(folded, broadcast_to(first, folded.shape))
    pairwise = _on_trees(computation, structure)
    outs = _general_window(xs, inits, pairwise, window, strides, pads, base, inner)
    return operations.tree_unflatten(structure, outs)


# Operations that have a primitive of their own: found by what they are, since users' may share a name.
_WINDOWS = [
    (op, maker)
    for ops_, maker in (
        ((elementwise.add, operator.add, add, np.add), pooling.ReduceWindowSum),
        ((elementwise.max, maximum, np.maximum), pooling.ReduceWindowMax),
        ((elementwise.min, minimum, np.minimum), pooling.ReduceWindowMin),
    )
    for op in ops_
]


def _on_trees(computation: Callable, structure: Any) -> Callable:
    def fold(a: list, b: list) -> list:
        made = computation(*(operations.tree_unflatten(structure, v) for v in (a, b)))
        leaves, found = operations.tree_flatten(made)
        if found != structure:
            raise InvalidValue(
                f"the operation of reduce_window returned {operations.shown(found)}; expected "
                f"{operations.shown(structure)}"
            )
        return leaves

    return fold


def _general_window(
    xs: list[Array],
    inits: list[Array],
    fold: Callable,
    window: tuple,
    strides: tuple,
    pads: tuple,
    base: tuple,
    inner: tuple,
) -> list[Array]:
    """Each position of the window is a strided slice of the padded operand; they are combined.

    What lies outside of the operand, or between its elements, takes no part.
    """
    from fnx.lax import shapes, slices
    from fnx.lax.parameterized import full, select

    config = [(lo, hi, d - 1) for (lo, hi), d in zip(pads, base)]
    padded = [shapes.pad(x, first, config) for x, first in zip(xs, inits)]
    out = [
        max((n - dilated(w, d)) // s + 1, 0)
        for n, w, d, s in zip(padded[0].shape, window, inner, strides)
    ]
    total = [broadcast_to(first, tuple(out)) for first in inits]
    if 0 in out:
        return total
    holes = any(lo > 0 or hi > 0 or between for lo, hi, between in config)
    inside = shapes.pad(full(xs[0].shape, True), False, config) if holes else None
    for position in np.ndindex(*window):
        lo = [p * d for p, d in zip(position, inner)]
        hi = [a + (n - 1) * s + 1 for a, n, s in zip(lo, out, strides)]
        new = fold(total, [slices.slice(x, lo, hi, strides) for x in padded])
        if inside is not None:
            here = slices.slice(inside, lo, hi, strides)
            new = [select(here, a, b) for a, b in zip(new, total)]
        total = new
    return total


# --- sorting -----------------------------------------------------------------------------------


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """An array, or several together by the first `num_keys` of them, sorted along an axis.

    >>> lax.sort((jnp.array([3, 1, 2]), jnp.array([30, 10, 20])))
    (Array([1, 2, 3], dtype=int64), Array([10, 20, 30], dtype=int64))
    """
    many = isinstance(operand, (tuple, list))
    xs = [to_array(x, "sort", k) for k, x in enumerate(operand if many else [operand])]
    axis = canonical_axis(dimension, xs[0].ndim)
    if not 1 <= integer(num_keys, "num_keys") <= len(xs):
        raise InvalidValue(f"sort of {len(xs)} operands cannot have {num_keys} keys")
    outs = sorting.Sort(axis, bool(is_stable), integer(num_keys, "num_keys"))(*xs)
    return tuple(outs) if many else outs[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple:
    """Keys sorted along an axis, and values in the same order.

    >>> lax.sort_key_val(jnp.array([3, 1, 2]), jnp.array([30, 10, 20]))
    (Array([1, 2, 3], dtype=int64), Array([10, 20, 30], dtype=int64))
    """
    return sort((keys, values), dimension, is_stable, 1)


def top_k(operand: Any, k: int, *, axis: int = -1, is_stable: bool = True) -> list[Array]:
    """The k largest elements along an axis, largest first, and their indices (int32).

    >>> lax.top_k(jnp.array([3, 9, 5]), 2)
    [Array([9, 5], dtype=int64), Array([1, 2], dtype=int32)]
    """
    del is_stable  # equal elements come in the order of their indices
    x = to_array(operand, "top_k")
    return list(checked(sorting.TopK(integer(k, "k"), canonical_axis(axis, x.ndim)), x))


def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, *_: Any, **__: Any) -> tuple:
    """The k largest elements and their indices; exact here.

    >>> lax.approx_max_k(jnp.array([3.0, 9.0, 5.0]), 2)[0]
    Array([9., 5.], dtype=float64)
    """
    return tuple(top_k(operand, k, axis=reduction_dimension))


def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, *_: Any, **__: Any) -> tuple:
    """The k smallest elements and their indices; exact here.

    >>> lax.approx_min_k(jnp.array([3.0, 9.0, 5.0]), 2)[0]
    Array([3., 5.], dtype=float64)
    """
    from fnx.ops.elementwise.arithmetic import neg

    values, indices = top_k(neg(to_array(operand)), k, axis=reduction_dimension)
    return neg(values), indices


__all__ = [
    "approx_max_k",
    "approx_min_k",
    "argmax",
    "argmin",
    "cumlogsumexp",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "padtype_to_pads",
    "reduce",
    "reduce_and",
    "reduce_max",
    "reduce_min",
    "reduce_or",
    "reduce_prod",
    "reduce_sum",
    "reduce_window",
    "reduce_xor",
    "sort",
    "sort_key_val",
    "top_k",
]
