"""Reductions over axes: sums, products, extrema and their places, tests; whether arrays are equal."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    canonical_axes,
    canonical_axis,
    convert,
    fit,
    named,
    no_out,
    reshape_to,
    select,
    shown,
    strong,
    to_array,
)
from fnx.numpy.elementwise import ufuncs
from fnx.ops.base.broadcast import Sum, scalar
from fnx.ops.base.broadcast import broadcast_to as _broadcast_to
from fnx.ops.base.broadcast import full as _full
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.reduction import reduction


def keep(out: Array, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """The result with reduced axes of size 1, if they are to be kept."""
    if not keepdims:
        return out
    return reshape_to(out, tuple([1 if k in axes else n for k, n in enumerate(x.shape)]))


def as_mask(name: str, where: Any) -> Array:
    mask = to_array(where, name)
    if mask.dtype != dtypes.bool_:
        raise InvalidValue(
            f"{name} with where= of dtype {mask.dtype}; expected None or a mask of bools"
        )
    return mask


def _with_initial(name: str, combine: Callable, out: Array, initial: Any) -> Array:
    """A result to which a first value is added."""
    if initial is None:
        return out
    first = to_array(initial, name)
    if first.shape:
        raise InvalidValue(f"{name} with initial= of shape {first.shape}; expected one number")
    return combine(out, convert(first, out.dtype))


def _masked(name: str, x: Array, where: Any, value: Any) -> Array:
    """x where a mask holds, else a value that the reduction ignores."""
    mask, x = fit(name, [as_mask(name, where), x])
    if not x.shape and mask.shape:
        x = _broadcast_to(x, mask.shape)
    return select(mask, x, scalar(value, x.dtype))


def sum_dtype(dtype: np.dtype, promote_integers: bool = True) -> np.dtype:
    """Narrow integers are summed in the default ones."""
    kind = dtypes.kind(dtype)
    if not promote_integers or kind in "fc":
        return dtypes.default_for("i") if kind == "b" else dtype
    wide = dtypes.default_for("u" if kind == "u" else "i")
    return wide if dtype.itemsize < wide.itemsize or kind == "b" else dtype


def _fold(
    name: str,
    prim: Callable,
    neutral: Any,
    combine: Callable,
    x: Any,
    axis: Any,
    dtype: Any,
    keepdims: bool,
    initial: Any,
    where: Any,
    promote_integers: bool,
) -> Array:
    x = to_array(x, name)
    axes = canonical_axes(axis, x.ndim)
    wanted = dtypes.canonical(dtype) if dtype is not None else sum_dtype(x.dtype, promote_integers)
    # Narrow floats are added up in float32, and `initial` is a part of that.
    narrow = initial is not None and dtypes.is_float(wanted) and wanted.itemsize < 4
    x = strong(convert(x, wanted))
    if narrow:
        x = convert(x, dtypes.float32)
    if where is not None:
        x = _masked(name, x, where, neutral)
    out = prim(axes)(x) if axes else x
    if keepdims:
        out = keep(out, x, axes, keepdims)
    if initial is None:
        return out
    return convert(_with_initial(name, combine, out, initial), wanted)


def sum(
    a,
    axis=None,
    dtype=None,
    out=None,
    keepdims=False,
    initial=None,
    where=None,
    promote_integers=True,
):
    """The sum over axes, by default all; of integers in the widest dtype of their kind, if
    `promote_integers`.

    Elements where `where` does not hold are left out. AxisError, a ValueError, for axes out of bounds.

    >>> jnp.sum(jnp.ones((2, 3)), axis=0)
    Array([2., 2., 2.], dtype=float64)
    """
    no_out("sum", out)
    args = (a, axis, dtype, keepdims, initial, where, promote_integers)
    return _fold("sum", Sum, 0, ufuncs.add, *args)


def prod(
    a,
    axis=None,
    dtype=None,
    out=None,
    keepdims=False,
    initial=None,
    where=None,
    promote_integers=True,
):
    """The product over axes, by default all; of integers in the widest dtype of their kind, if
    `promote_integers`.

    Elements where `where` does not hold are left out. AxisError, a ValueError, for axes out of bounds.

    >>> jnp.prod(jnp.array([2.0, 3.0]))
    Array(6., dtype=float64)
    """
    no_out("prod", out)
    args = (a, axis, dtype, keepdims, initial, where, promote_integers)
    return _fold("prod", reduction.Prod, 1, ufuncs.multiply, *args)


def _extremum(
    name: str, prim: Callable, combine: Callable, bound: Callable, what: str, gives: str
) -> Callable:
    @named(name, shown(what, f"jnp.{name}(jnp.array([1.0, 3.0]))", gives))
    def fn(a, axis=None, out=None, keepdims=False, initial=None, where=None):
        no_out(name, out)
        x = to_array(a, name)
        axes = canonical_axes(axis, x.ndim)
        if where is not None:
            if initial is None:
                raise InvalidValue(
                    f"{name} with where= needs initial=, the result where nothing is left"
                )
            x = _masked(name, strong(x), where, bound(x.dtype))
        if initial is None and 0 in [x.shape[k] for k in axes]:
            raise InvalidValue(
                f"{name} over axes {axes}, of which one is empty, of shape {x.shape}: there is no "
                f"{name}imum; pass initial="
            )
        if dtypes.is_complex(x.dtype):
            result = _complex_extremum(x, axes, name)
        else:
            result = prim(axes)(x) if axes else x
        result = keep(strong(result), x, axes, keepdims)
        return _with_initial(name, combine, result, initial)

    return fn


def _complex_extremum(x: Array, axes: tuple[int, ...], name: str) -> Array:
    """By the real part, then the imaginary one; nan where a part of any is, its imaginary part of those."""
    prim, worst = (reduction.Max, -math.inf) if name == "max" else (reduction.Min, math.inf)
    re, im, unordered = ops.real(x), ops.imag(x), ops.ne(x, x)
    best = prim(axes)(select(unordered, scalar(math.nan, re.dtype), re))
    shape = tuple([1 if k in axes else n for k, n in enumerate(x.shape)])
    here = ops.or_(ops.eq(re, _broadcast_to(reshape_to(best, shape), x.shape)), unordered)
    return ops.complex_(best, prim(axes)(select(here, im, scalar(worst, im.dtype))))


_OF_NONE = """ over axes, by default all.

    `where` needs `initial`. ValueError for axes that are empty, without `initial`."""
max = _extremum(
    "max", reduction.Max, ufuncs.maximum, reduction.lowest, "The largest element" + _OF_NONE, "3."
)
min = _extremum(
    "min", reduction.Min, ufuncs.minimum, reduction.highest, "The smallest element" + _OF_NONE, "1."
)
amax, amin = max, min


def _test(name: str, prim: Callable, neutral: bool, doc: str) -> Callable:
    @named(name, doc)
    def fn(a, axis=None, out=None, keepdims=False, *, where=None):
        no_out(name, out)
        x = ufuncs.truth(a, name)
        axes = canonical_axes(axis, x.ndim)
        if where is not None:
            x = _masked(name, x, where, neutral)
        return strong(keep(prim(axes)(x) if axes else x, x, axes, keepdims))

    return fn


any = _test(
    "any",
    reduction.ReduceOr,
    False,
    """Whether one element is true (not 0).

    >>> jnp.any(jnp.array([False, True]))
    Array(True, dtype=bool)
    """,
)
all = _test(
    "all",
    reduction.ReduceAnd,
    True,
    """Whether all elements are true (not 0).

    >>> jnp.all(jnp.array([False, True]))
    Array(False, dtype=bool)
    """,
)


def count_nonzero(a, axis=None, keepdims=False):
    """The number of elements that are not 0.

    >>> jnp.count_nonzero(jnp.array([[0, 1], [2, 3]]), axis=0)
    Array([1, 2], dtype=int64)
    """
    counts = dtypes.default_for("i")
    return sum(ufuncs.truth(a, "count_nonzero"), axis, counts, keepdims=keepdims)


def ptp(a, axis=None, out=None, keepdims=False):
    """The largest less the smallest element.

    >>> jnp.ptp(jnp.array([3.0, 1.0, 8.0]))
    Array(7., dtype=float64)
    """
    no_out("ptp", out)
    return ufuncs.subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


# --- places ------------------------------------------------------------------------------------


def _arg(name: str, prim: Callable, what: str, gives: str) -> Callable:
    @named(name, shown(what, f"jnp.{name}(jnp.array([1.0, 3.0]))", gives, "int64"))
    def fn(a, axis=None, out=None, keepdims=None):
        no_out(name, out)
        x = to_array(a, name)
        ufuncs.without_complex(name, x)
        rank = x.ndim
        if axis is None:
            flat, k = reshape_to(x, (x.aval.size,)), 0
        else:
            flat, k = x, canonical_axis(axis, rank)
        if flat.shape[k] == 0:
            raise InvalidValue(f"{name} along an axis that is empty, of shape {x.shape}")
        place = prim((k,), dtypes.default_for("i"))(flat)
        if not keepdims:
            return place
        return keep(place, x, tuple(range(rank)) if axis is None else (k,), True)

    return fn


_ALONG = """ along an axis, or of all.

    ValueError for an axis that is empty."""
argmax = _arg("argmax", reduction.ArgMax, "The first index of the largest element" + _ALONG, "1")
argmin = _arg("argmin", reduction.ArgMin, "The first index of the smallest element" + _ALONG, "0")


# --- comparing ---------------------------------------------------------------------------------


@replayed("a", "b", "rtol", "atol")
def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |a - b| <= atol + rtol * |b| everywhere; with `equal_nan` nan is close to nan.

    ShapeError, a ValueError, for shapes that do not broadcast.

    >>> jnp.allclose(jnp.ones(2), 1.0 + 1e-9)
    Array(True, dtype=bool)
    """
    return all(ufuncs.isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1, a2, equal_nan=False):
    """Whether shapes and elements are equal.

    >>> jnp.array_equal(jnp.array([1, 2]), jnp.array([1.0, 2.0]))
    Array(True, dtype=bool)
    """
    from fnx.numpy.arrays.creation import asarray

    x, y = asarray(a1), asarray(a2)
    if x.shape != y.shape:
        return _full((), False, dtypes.bool_)
    same = ufuncs.equal(x, y)
    if equal_nan:
        same = ufuncs.logical_or(same, ufuncs.logical_and(ufuncs.isnan(x), ufuncs.isnan(y)))
    return all(same)


def array_equiv(a1, a2):
    """Whether shapes broadcast and elements are equal.

    >>> jnp.array_equiv(jnp.array([[1, 2], [1, 2]]), jnp.array([1, 2]))
    Array(True, dtype=bool)
    """
    from fnx.numpy.arrays.creation import asarray

    try:
        return all(ufuncs.equal(asarray(a1), asarray(a2)))
    except ValueError:
        return _full((), False, dtypes.bool_)


__all__ = [
    "all",
    "allclose",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "array_equal",
    "array_equiv",
    "count_nonzero",
    "max",
    "min",
    "prod",
    "ptp",
    "sum",
]
