"""The methods of NumPy's ufuncs: add.reduce, maximum.accumulate, multiply.outer, add.at."""

from collections.abc import Callable
from typing import Any

from fnx.core.errors import InvalidValue
from fnx.numpy import arithmetic, elementary, logic, reduce
from fnx.numpy.at import At
from fnx.numpy.creation import asarray
from fnx.numpy.shapes import moveaxis, stack
from fnx.numpy.util import canonical_axis, convert, no_out, to_array
from fnx.ops.cumulative import Cumulative

_REDUCE: dict[Callable, Callable] = {
    arithmetic.add: reduce.sum,
    arithmetic.multiply: reduce.prod,
    arithmetic.maximum: reduce.max,
    arithmetic.minimum: reduce.min,
    logic.logical_and: reduce.all,
    logic.logical_or: reduce.any,
}
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
BINARY = (
    *_REDUCE, arithmetic.subtract, elementary.logaddexp, elementary.logaddexp2, logic.logical_xor,
    logic.bitwise_and, logic.bitwise_or, logic.bitwise_xor,
)  # fmt: skip


def _give_methods(fn: Callable) -> None:
    def reduce_(
        a: Any, /, *, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False
    ):
        no_out(f"{fn.__name__}.reduce", out)
        x = to_array(a, fn.__name__)
        x = x if dtype is None else x.astype(dtype)
        if fn in _REDUCE:
            return _REDUCE[fn](x, axis=axis, keepdims=keepdims)
        if not isinstance(axis, int):
            raise InvalidValue(f"{fn.__name__}.reduce over axis={axis!r}; expected one axis")
        k = canonical_axis(axis, x.ndim)
        parts = [moveaxis(x, k, 0)[j] for j in range(x.shape[k])]
        if not parts:
            raise InvalidValue(f"{fn.__name__}.reduce along axis {k}, which is empty")
        total = parts[0]
        for part in parts[1:]:
            total = fn(total, part)
        return stack([total], axis=k) if keepdims else total

    def accumulate(a: Any, /, *, axis: int = 0, dtype: Any = None, out: Any = None):
        no_out(f"{fn.__name__}.accumulate", out)
        x = to_array(a, fn.__name__)
        x = x if dtype is None else x.astype(dtype)
        k = canonical_axis(axis, x.ndim)
        if fn in _CUMULATIVE:
            return Cumulative(_CUMULATIVE[fn], k)(convert(x, x.dtype))
        parts, rows = [], moveaxis(x, k, 0)
        for j in range(x.shape[k]):
            parts.append(fn(parts[-1], rows[j]) if parts else rows[j])
        return stack(parts, axis=k)

    def outer(a: Any, b: Any, /):
        x, y = asarray(a), asarray(b)
        return fn(x.reshape((*x.shape, *(1,) * y.ndim)), y)

    def at(a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True):
        if inplace:
            raise InvalidValue(
                f"{fn.__name__}.at cannot change an array in place; pass inplace=False"
            )
        place = At(asarray(a))[indices]
        return getattr(place, _AT[fn])(b) if fn in _AT else place.apply(lambda x: fn(x, b))

    fn.reduce, fn.accumulate, fn.outer, fn.at = reduce_, accumulate, outer, at  # type: ignore


for _fn in BINARY:
    _give_methods(_fn)
del _fn
