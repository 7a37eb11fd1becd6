"""Reductions over axes: sums, products, extrema, means, and their cumulative and nan-ignoring kin."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy import ufuncs
from fnx.numpy.util import (
    INT,
    PYTHON,
    canonical_axes,
    canonical_axis,
    convert,
    eager,
    fit,
    named,
    no_out,
    promote_inexact,
    reshape_to,
    select,
    to_array,
)
from fnx.ops import elementwise as ops
from fnx.ops import reduction
from fnx.ops.broadcast import Sum, scalar
from fnx.ops.broadcast import broadcast_to as _broadcast_to
from fnx.ops.broadcast import full as _full
from fnx.ops.cumulative import Cumulative
from fnx.ops.permute import Reshape, Transpose


def _keep(out: Array, x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    """The result with reduced axes of size 1, if they are to be kept."""
    if not keepdims:
        return out
    return reshape_to(out, tuple([1 if k in axes else n for k, n in enumerate(x.shape)]))


def _mask(name: str, where: Any) -> Array:
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
    mask, x = fit(name, [_mask(name, where), x])
    if not x.shape and mask.shape:
        x = _broadcast_to(x, mask.shape)
    return select(mask, x, scalar(value, x.dtype))


def _sum_dtype(dtype: np.dtype, promote_integers: bool) -> np.dtype:
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
    wanted = dtypes.canonical(dtype) if dtype is not None else _sum_dtype(x.dtype, promote_integers)
    x = convert(x, wanted)
    if where is not None:
        x = _masked(name, x, where, neutral)
    out = prim(axes)(x) if axes else x
    out = _keep(_strong(out), x, axes, keepdims)
    return _with_initial(name, combine, out, initial)


def _strong(x: Array) -> Array:
    """The same without a weak type."""
    if not x.weak_type:
        return x
    if type(x) is ConcreteArray:
        return ConcreteArray(x._value)
    return ops.ConvertElementType(x.dtype)(x)


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
    """The sum over axes, by default all.

    >>> import fnx.numpy as jnp
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
    """The product over axes, by default all."""
    no_out("prod", out)
    args = (a, axis, dtype, keepdims, initial, where, promote_integers)
    return _fold("prod", reduction.Prod, 1, ufuncs.multiply, *args)


def _extremum(name: str, prim: Callable, combine: Callable, bound: Callable, doc: str) -> Callable:
    @named(name, doc)
    def fn(a, axis=None, out=None, keepdims=False, initial=None, where=None):
        no_out(name, out)
        x = to_array(a, name)
        axes = canonical_axes(axis, x.ndim)
        if where is not None:
            if initial is None:
                raise InvalidValue(
                    f"{name} with where= needs initial=, the result where nothing is left"
                )
            x = _masked(name, x, where, bound(x.dtype))
        if initial is None and 0 in [x.shape[k] for k in axes]:
            raise InvalidValue(
                f"{name} over axes {axes}, of which one is empty, of shape {x.shape}: there is no "
                f"{name}imum; pass initial="
            )
        if dtypes.is_complex(x.dtype):
            result = _complex_extremum(x, axes, name)
        else:
            result = prim(axes)(x) if axes else x
        result = _keep(_strong(result), x, axes, keepdims)
        return _with_initial(name, combine, result, initial)

    return fn


def _complex_extremum(x: Array, axes: tuple[int, ...], name: str) -> Array:
    """By the real part, then the imaginary one."""
    prim, worst = (reduction.Max, -math.inf) if name == "max" else (reduction.Min, math.inf)
    re, im = ops.real(x), ops.imag(x)
    best = prim(axes)(re)
    shape = tuple([1 if k in axes else n for k, n in enumerate(x.shape)])
    here = ops.eq(re, _broadcast_to(reshape_to(best, shape), x.shape))
    return ops.complex_(best, prim(axes)(select(here, im, scalar(worst, im.dtype))))


max = _extremum("max", reduction.Max, ufuncs.maximum, reduction.lowest, "The largest element.")
min = _extremum("min", reduction.Min, ufuncs.minimum, reduction.highest, "The smallest element.")
amax, amin = max, min


def _test(name: str, prim: Callable, neutral: bool, doc: str) -> Callable:
    @named(name, doc)
    def fn(a, axis=None, out=None, keepdims=False, *, where=None):
        no_out(name, out)
        x = ufuncs.truth(a, name)
        axes = canonical_axes(axis, x.ndim)
        if where is not None:
            x = _masked(name, x, where, neutral)
        return _keep(prim(axes)(x) if axes else x, x, axes, keepdims)

    return fn


any = _test("any", reduction.ReduceOr, False, "Whether one element is true (not 0).")
all = _test("all", reduction.ReduceAnd, True, "Whether all elements are true (not 0).")


def count_nonzero(a, axis=None, keepdims=False):
    """The number of elements that are not 0."""
    return sum(ufuncs.truth(a, "count_nonzero"), axis, INT, keepdims=keepdims)


def ptp(a, axis=None, out=None, keepdims=False):
    """The largest less the smallest element."""
    no_out("ptp", out)
    return ufuncs.subtract(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


# --- means -------------------------------------------------------------------------------------


_WIDE = frozenset(np.dtype(d) for d in ("f4", "f8", "c8", "c16"))


def _size(x: Array, axes: tuple[int, ...], dtype: np.dtype) -> Array:
    """How many elements lie along axes."""
    return scalar(math.prod([x.shape[k] for k in axes]), dtype)


def _count(x: Array, axes: tuple[int, ...], where: Any, keepdims: bool, dtype: np.dtype) -> Array:
    if where is None:
        return _size(x, axes, dtype)
    mask = _broadcast_to(_mask("mean", where), x.shape)
    return sum(mask, axes, dtype, keepdims=keepdims)


def mean(a, axis=None, dtype=None, out=None, keepdims=False, *, where=None):
    """The mean over axes, by default all.

    >>> import fnx.numpy as jnp
    >>> jnp.mean(jnp.arange(4))
    Array(1.5, dtype=float64)
    """
    no_out("mean", out)
    x = to_array(a, "mean")
    axes = canonical_axes(axis, x.ndim)
    if dtype is None and where is None and x.dtype in _WIDE:
        total = _keep(_strong(Sum(axes)(x) if axes else x), x, axes, keepdims)
        return ops.div(total, _size(x, axes, x.dtype))
    final = dtypes.canonical(dtype) if dtype is not None else dtypes.to_inexact(x.dtype)
    wide = dtypes.float32 if dtypes.is_float(final) and final.itemsize < 4 else final
    if dtype is not None and not dtypes.is_inexact(final):
        wide = dtypes.default_for("f")
    total = sum(x, axes, wide, keepdims=keepdims, where=where)
    count = _count(x, axes, where, keepdims, wide)
    return convert(ufuncs.true_divide(total, count), final)


def average(a, axis=None, weights=None, returned=False, keepdims=False):
    """The mean over axes, weighted."""
    if weights is None:
        out = mean(a, axis, keepdims=keepdims)
        x = to_array(a, "average")
        total = _count(x, canonical_axes(axis, x.ndim), None, keepdims, out.dtype)
    else:
        x, w = promote_inexact("average", a, weights)
        axes = canonical_axes(axis, x.ndim)
        if w.shape != x.shape:
            if axis is None or w.shape != tuple([x.shape[k] for k in axes]):
                raise InvalidValue(
                    f"average of shape {x.shape} over axis {axis} with weights of shape {w.shape}; "
                    "expected the array's shape, or that of the axes"
                )
            w = Transpose(tuple(np.argsort(axes).tolist()))(w)
            w = reshape_to(w, tuple([n if k in axes else 1 for k, n in enumerate(x.shape)]))
            w = _broadcast_to(w, x.shape)
        total = sum(w, axes, keepdims=keepdims)
        out = ufuncs.true_divide(sum(ops.mul(x, w), axes, keepdims=keepdims), total)
    return (out, _broadcast_to(total, out.shape)) if returned else out


def var(
    a,
    axis=None,
    dtype=None,
    out=None,
    ddof=0,
    keepdims=False,
    *,
    where=None,
    mean=None,
    correction=None,
):
    """The mean square of the distance to the mean; divided by the count less `ddof`."""
    no_out("var", out)
    if correction is not None:
        if type(ddof) in PYTHON and ddof:
            raise InvalidValue("variance with both ddof= and correction=; expected one of the two")
        ddof = correction
    (x,) = promote_inexact("var", a)
    final = None if dtype is None else dtypes.canonical(dtype)
    if final is not None and not dtypes.is_inexact(final):
        raise InvalidValue(f"variance with dtype={final}; expected a floating-point dtype")
    if final is not None and dtypes.is_complex(x.dtype) and not dtypes.is_complex(final):
        raise InvalidValue(
            f"variance of dtype {x.dtype} with dtype={final}; expected a complex dtype"
        )
    axes = canonical_axes(axis, x.ndim)
    result_dtype = dtypes.real_of(x.dtype) if final is None else final
    x = convert(x, dtypes.float32) if dtypes.is_float(x.dtype) and x.dtype.itemsize < 4 else x
    if final is not None and dtypes.is_inexact(final):
        pair = ((x.dtype, False), (final, False))
        x = convert(x, dtypes.promote_cached(pair, False)[0])
    given = x.dtype if mean is None else to_array(mean, "var").dtype
    center = _mean(x, axes, where) if mean is None else to_array(mean, "var")
    if given.itemsize < x.dtype.itemsize:
        center = convert(center, x.dtype)
    delta = ufuncs.subtract(x, center)
    if dtypes.is_complex(x.dtype):
        delta = ops.real(ops.mul(delta, ops.conj(delta)))
    else:
        delta = ops.square(delta)
    total = sum(delta, axes, keepdims=keepdims, where=where)
    if where is None and type(ddof) in PYTHON:
        left = math.prod([x.shape[k] for k in axes]) - ddof
        divisor = scalar(float(left) if left > 0 else math.nan, total.dtype)
        return convert(ops.div(total, divisor), result_dtype)
    count = ufuncs.subtract(_count(x, axes, where, keepdims, delta.dtype), ddof)
    out = ufuncs.true_divide(total, count)
    # Without degrees of freedom there is no estimate.
    out = ufuncs.where3(ufuncs.greater(count, 0), out, math.nan)
    return convert(out, result_dtype)


def _mean(x: Array, axes: tuple[int, ...], where: Any) -> Array:
    return mean(x, axes, keepdims=True, where=where)


def std(
    a,
    axis=None,
    dtype=None,
    out=None,
    ddof=0,
    keepdims=False,
    *,
    where=None,
    mean=None,
    correction=None,
):
    """The square root of the variance."""
    no_out("std", out)
    return ufuncs.sqrt(
        var(a, axis, dtype, None, ddof, keepdims, where=where, mean=mean, correction=correction)
    )


# --- places ------------------------------------------------------------------------------------


def _arg(name: str, prim: Callable, doc: str) -> Callable:
    @named(name, doc)
    def fn(a, axis=None, out=None, keepdims=None):
        no_out(name, out)
        x = to_array(a, name)
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
        return _keep(place, x, tuple(range(rank)) if axis is None else (k,), True)

    return fn


argmax = _arg("argmax", reduction.ArgMax, "The first index of the largest element.")
argmin = _arg("argmin", reduction.ArgMin, "The first index of the smallest element.")


# --- cumulative --------------------------------------------------------------------------------


def _cumulative(name: str, kind: str, doc: str, fill: float | None = None) -> Callable:
    @named(name, doc)
    def fn(a, axis=None, dtype=None, out=None):
        no_out(name, out)
        x = to_array(a, name)
        if axis is None or x.ndim == 0:
            x, axis = reshape_to(x, (x.aval.size,)), 0
        k = canonical_axis(axis, x.ndim)
        if fill is not None and dtypes.is_inexact(x.dtype):
            x = select(ops.ne(x, x), scalar(fill, x.dtype), x)
        wanted = dtypes.canonical(dtype) if dtype is not None else x.dtype
        x = convert(x, wanted)
        if wanted != dtypes.bool_:
            return Cumulative(kind, k)(_strong(x))
        out = Cumulative(kind, k)(convert(x, dtypes.default_for("i")))
        return out if dtype is None else convert(out, dtypes.bool_)

    return fn


cumsum = _cumulative("cumsum", "cumsum", "The sums of all elements up to each one.")
cumprod = _cumulative("cumprod", "cumprod", "The products of all elements up to each one.")
nancumsum = _cumulative("nancumsum", "cumsum", "`cumsum`, with nan taken for 0.", 0.0)
nancumprod = _cumulative("nancumprod", "cumprod", "`cumprod`, with nan taken for 1.", 1.0)


def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """The sums of all elements up to each one, along one axis."""
    return _array_api_cumulative("cumulative_sum", cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """The products of all elements up to each one, along one axis."""
    return _array_api_cumulative("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


def _array_api_cumulative(
    name: str, fn: Callable, first: int, x: Any, axis: Any, dtype: Any, include_initial: bool
) -> Array:
    from fnx.ops.join import Concatenate

    x = to_array(x, name)
    if x.ndim == 0 or (axis is None and x.ndim != 1):
        raise InvalidValue(f"{name} of shape {x.shape} needs an axis")
    k = canonical_axis(0 if axis is None else axis, x.ndim)
    out = fn(x, k, dtype)
    if not include_initial:
        return out
    shape = tuple([1 if j == k else n for j, n in enumerate(out.shape)])
    return Concatenate(k)(_full(shape, first, out.dtype), out)


# --- ignoring nan ------------------------------------------------------------------------------


def _without_nan(x: Array, value: Any) -> tuple[Array, Array | None]:
    """x with a value for nan, and where it is not nan."""
    if not dtypes.is_inexact(x.dtype):
        return x, None
    bad = ops.ne(x, x)
    return select(bad, scalar(value, x.dtype), x), ops.not_(bad)


def nansum(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
    """The sum of what is not nan."""
    x, _ = _without_nan(to_array(a, "nansum"), 0)
    return sum(x, axis, dtype, out, keepdims, initial, where)


def nanprod(a, axis=None, dtype=None, out=None, keepdims=False, initial=None, where=None):
    """The product of what is not nan."""
    x, _ = _without_nan(to_array(a, "nanprod"), 1)
    return prod(x, axis, dtype, out, keepdims, initial, where)


def _nan_extremum(name: str, fn: Callable, worst: float) -> Callable:
    @named("nan" + name, f"`{name}` of what is not nan; nan where nothing is left.")
    def nan_fn(a, axis=None, out=None, keepdims=False, initial=None, where=None):
        x, good = _without_nan(to_array(a, name), worst)
        result = fn(x, axis, out, keepdims, initial, where)
        if good is None or initial is not None:
            return result
        some = any(good, axis, keepdims=keepdims)
        return (
            select(some, result, scalar(math.nan, result.dtype))
            if some.shape == result.shape
            else result
        )

    return nan_fn


nanmax = _nan_extremum("max", max, -math.inf)
nanmin = _nan_extremum("min", min, math.inf)


def _nan_arg(name: str, fn: Callable, worst: float) -> Callable:
    @named("nan" + name, f"`{name}` of what is not nan; -1 where nothing is left.")
    def nan_fn(a, axis=None, out=None, keepdims=None):
        x, good = _without_nan(to_array(a, name), worst)
        place = fn(x, axis, out, keepdims)
        if good is None:
            return place
        return select(any(good, axis, keepdims=bool(keepdims)), place, scalar(-1, place.dtype))

    return nan_fn


nanargmax = _nan_arg("argmax", argmax, -math.inf)
nanargmin = _nan_arg("argmin", argmin, math.inf)


def nanmean(a, axis=None, dtype=None, out=None, keepdims=False, where=None):
    """The mean of what is not nan."""
    x = to_array(a, "nanmean")
    good = ufuncs.logical_not(ufuncs.isnan(x))
    if where is not None:
        good = ufuncs.logical_and(good, where)
    return mean(_without_nan(x, 0)[0], axis, dtype, out, keepdims, where=good)


def nanvar(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, where=None, mean=None):
    """The variance of what is not nan."""
    (x,) = promote_inexact("nanvar", a)
    good = ufuncs.logical_not(ufuncs.isnan(x))
    if where is not None:
        good = ufuncs.logical_and(good, where)
    clean = _without_nan(x, 0)[0]
    return var(clean, axis, dtype, out, ddof, keepdims, where=good, mean=mean)


def nanstd(a, axis=None, dtype=None, out=None, ddof=0, keepdims=False, where=None, mean=None):
    """The standard deviation of what is not nan."""
    return ufuncs.sqrt(nanvar(a, axis, dtype, out, ddof, keepdims, where, mean))


# --- comparing ---------------------------------------------------------------------------------


def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether all elements are close."""
    return all(ufuncs.isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1, a2, equal_nan=False):
    """Whether shapes and elements are equal."""
    from fnx.numpy.creation import asarray

    x, y = asarray(a1), asarray(a2)
    if x.shape != y.shape:
        return _full((), False, dtypes.bool_)
    same = ufuncs.equal(x, y)
    if equal_nan:
        same = ufuncs.logical_or(same, ufuncs.logical_and(ufuncs.isnan(x), ufuncs.isnan(y)))
    return all(same)


def array_equiv(a1, a2):
    """Whether shapes broadcast and elements are equal."""
    from fnx.numpy.creation import asarray

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
    "average",
    "count_nonzero",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "max",
    "mean",
    "min",
    "nanargmax",
    "nanargmin",
    "nancumprod",
    "nancumsum",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "prod",
    "ptp",
    "std",
    "sum",
    "var",
]
del Reshape, TypeMismatch, eager
