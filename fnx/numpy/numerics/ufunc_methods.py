"""The methods of NumPy's ufuncs: add.reduce, maximum.accumulate, multiply.outer, add.at, add.reduceat."""

import math
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.core.fast_dataclasses import dataclass
from fnx.core.source import name_of
from fnx.numpy.arrays.creation import array, asarray
from fnx.numpy.arrays.util import (
    INT,
    canonical_axes,
    canonical_axis,
    convert,
    integer,
    no_out,
    promote_inexact,
    reshape_to,
    strong,
    to_array,
    transformation,
)
from fnx.numpy.elementwise import arithmetic, elementary, logic, ufuncs
from fnx.numpy.numerics import vectorize
from fnx.numpy.reductions import reduce
from fnx.numpy.structure.at import At
from fnx.numpy.structure.joining import concatenate, stack
from fnx.numpy.structure.ranges import arange
from fnx.numpy.structure.selection import take
from fnx.numpy.structure.shapes import expand_dims, moveaxis, ravel
from fnx.ops.base.broadcast import broadcast_to
from fnx.ops.base.broadcast import full as _full
from fnx.ops.reduction.cumulative import Cumulative
from fnx.ops.reduction.reduction import highest, lowest

_REDUCE: dict[Callable, Callable] = {
    arithmetic.add: reduce.sum,
    arithmetic.multiply: reduce.prod,
    arithmetic.maximum: reduce.max,
    arithmetic.minimum: reduce.min,
    logic.logical_and: reduce.all,
    logic.logical_or: reduce.any,
}
_BOUNDED: dict[Callable, Callable] = {arithmetic.maximum: lowest, arithmetic.minimum: highest}
_CUMULATIVE = {
    arithmetic.add: "cumsum",
    arithmetic.multiply: "cumprod",
    arithmetic.maximum: "cummax",
    arithmetic.minimum: "cummin",
    elementary.logaddexp: "cumlogsumexp",
}
_AT = {
    arithmetic.add: "add",
    arithmetic.multiply: "multiply",
    arithmetic.maximum: "max",
    arithmetic.minimum: "min",
    arithmetic.subtract: "subtract",
}
_UNROLLED = 16  # elements of an axis over which a fold of Python's is unrolled, not a loop


@runtime_checkable
class ufunc(Protocol):  # NumPy's name
    """An elementwise function with NumPy's methods: of two arguments, or `at` of one.

    Made by `frompyfunc`; `jnp.add` and its like are plain functions with these methods.

    >>> larger = jnp.frompyfunc(jnp.maximum, 2, 1, identity=-jnp.inf)
    >>> larger.accumulate(jnp.array([1.0, 3.0, 2.0]))
    Array([1., 3., 3.], dtype=float64)
    """

    nin: int
    nout: int
    nargs: int
    identity: Any

    def __call__(self, *args: Any) -> Any: ...

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any: ...


def _fold(fn: Callable, x: Array, start: Any, mask: Array | None, keep: bool) -> Array:
    """A fold of any function along the first axis, or all its steps."""
    n = x.shape[0]
    if start is None:
        if not n or mask is not None:
            raise InvalidValue(
                f"{name_of(fn)}.reduce of shape {x.shape} has nothing to start with; pass initial="
            )
        start, x, n = x[0], x[1:], n - 1
    rest = x.shape[1:]
    if isinstance(start, int):  # -1 is all bits, of bools too
        start = array(np.asarray(start).astype(x.dtype))
    start = broadcast_to(to_array(start, name_of(fn)), rest)
    made = fn(start, _full(rest, 0, x.dtype)).dtype
    step = lambda total, row: convert(fn(total, row), made)
    if mask is not None:
        plain = step
        step = lambda total, pair: ufuncs.where3(pair[1], plain(total, pair[0]), total)
    rows = x if mask is None else (x, mask)
    total = convert(start, made)
    if n <= _UNROLLED:
        steps = [total]
        for k in range(n):
            steps.append(step(steps[-1], x[k] if mask is None else (x[k], mask[k])))
        return stack(steps) if keep else steps[-1]
    last, seen = transformation("scan")(
        lambda total, row: (step(total, row),) * 2 if keep else (step(total, row), None),
        total,
        rows,
    )
    return concatenate([total[None], seen]) if keep else last


@dataclass(frozen=True)
class _Methods:
    """The methods that NumPy's universal functions have, for a function of `nin` arrays."""

    fn: Any
    nin: int
    identity: Any

    @property
    def name(self) -> str:
        return name_of(self.fn)

    def _operand(self, method: str, a: Any, dtype: Any, out: Any) -> Array:
        no_out(f"{self.name}.{method}", out)
        x = to_array(a, self.name)
        if self.fn is elementary.logaddexp:
            (x,) = promote_inexact(self.name, x)
        return x if dtype is None else x.astype(dtype)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True):
        if inplace:
            raise InvalidValue(
                f"{self.name}.at cannot change an array in place; pass inplace=False"
            )
        place = At(asarray(a))[indices]
        if self.fn in _AT:
            return getattr(place, _AT[self.fn])(b)
        return place.apply_at(self.fn, () if self.nin == 1 else (asarray(b),), {})

    def reduce(self, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False,
               initial: Any = None, where: Any = None):  # fmt: skip
        x = strong(self._operand("reduce", a, dtype, out))
        axes = canonical_axes(axis, x.ndim)
        if self.fn in (logic.logical_and, logic.logical_or):
            result = _REDUCE[self.fn](x, axes, keepdims=keepdims, where=where)
            return result if initial is None else self.fn(result, initial)
        if self.fn in _REDUCE:
            return _REDUCE[self.fn](x, axes, keepdims=keepdims, initial=initial, where=where)
        rest = [n for k, n in enumerate(x.shape) if k not in axes]
        shape = (math.prod([x.shape[k] for k in axes]), *rest)
        rows = lambda z: reshape_to(moveaxis(z, axes, range(len(axes))), shape)
        mask = None if where is None else rows(broadcast_to(to_array(where, self.name), x.shape))
        total = _fold(self.fn, rows(x), self.identity if initial is None else initial, mask, False)
        kept = tuple([1 if k in axes else n for k, n in enumerate(x.shape)])
        return reshape_to(total, kept) if keepdims else total

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: Any = None):
        x = strong(self._operand("accumulate", a, dtype, out))
        k = canonical_axis(axis, x.ndim)
        if self.fn in _CUMULATIVE:
            if x.dtype == dtypes.bool_ and self.fn in (arithmetic.add, arithmetic.multiply):
                x = convert(x, INT)
            if x.dtype != dtypes.bool_:
                return Cumulative(_CUMULATIVE[self.fn], k)(x)
        if not x.shape[k]:
            return x
        return moveaxis(_fold(self.fn, moveaxis(x, k, 0), None, None, True), 0, k)

    def outer(self, a: Any, b: Any, /):
        x, y = asarray(a), asarray(b)
        return self.fn(x.reshape((*x.shape, *(1,) * y.ndim)), y.reshape((*(1,) * x.ndim, *y.shape)))

    def reduceat(self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None):
        x = self._operand("reduceat", a, dtype, out)
        k = canonical_axis(axis, x.ndim)
        first = convert(ravel(array(indices)), INT)
        n, x = x.shape[k], moveaxis(x, k, -1)
        end = concatenate([first[1:], array([n], dtype=first.dtype)])
        # Of an empty span the result is the element that begins it.
        end = ufuncs.where3(end > first, end, first + 1)
        places = arange(n)
        inside = (places >= first[:, None]) & (places < end[:, None])
        if self.fn not in _REDUCE:
            shape = *x.shape[:-1], *inside.shape
            rows = moveaxis(broadcast_to(expand_dims(x, -2), shape), -1, 0)
            after = inside & (places > first[:, None])
            mask = moveaxis(broadcast_to(after, shape), -1, 0)
            start = take(x, first, -1, mode="clip")
            return moveaxis(_fold(self.fn, rows, start, mask, False), -1, k)
        options = {"initial": _BOUNDED[self.fn](x.dtype)} if self.fn in _BOUNDED else {}
        return moveaxis(_REDUCE[self.fn](expand_dims(x, -2), -1, where=inside, **options), -1, k)


def _give_methods(fn: Any, nin: int, nout: int, identity: Any) -> None:
    """Make a function a ufunc: its numbers of arguments, and the methods that these allow."""
    fn.nin, fn.nout, fn.nargs, fn.identity = nin, nout, nin, identity
    methods = _Methods(fn, nin, identity)
    fn.at = methods.at
    if (nin, nout) == (2, 1):
        fn.reduce, fn.accumulate = methods.reduce, methods.accumulate
        fn.outer, fn.reduceat = methods.outer, methods.reduceat


for _name, _fn in sorted(vars(ufuncs).items()):
    _model = getattr(np, _name, None)
    if isinstance(_model, np.ufunc):
        _give_methods(_fn, _model.nin, _model.nout, _model.identity)
del _name, _fn, _model


def frompyfunc(func, /, nin, nout, *, identity=None):
    """A function of `nin` numbers as a function of arrays, with the methods of ufuncs.

    >>> jnp.frompyfunc(lambda x, y: x + y, 2, 1, identity=0).reduce(jnp.array([1, 2, 3]))
    Array(6, dtype=int64)
    """
    made = vectorize.vectorize(func)
    _give_methods(made, integer(nin, "nin"), integer(nout, "nout"), identity)
    return made


__all__ = ["frompyfunc", "ufunc"]
