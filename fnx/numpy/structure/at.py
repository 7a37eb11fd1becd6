"""x.at[index].set(y) and its kin: a new array in which some elements are changed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray, unless_placed, when_placed
from fnx.core.errors import InvalidValue, TypeMismatch, entrance
from fnx.core.interpreter import Tracer, evaluate, use
from fnx.core.source import brief, indexing_by, warn_user
from fnx.interpreters.variation import like
from fnx.numpy.arrays import indexing
from fnx.numpy.arrays.creation import asarray
from fnx.numpy.arrays.index_plan import Plan, before_the_first, inside, plan
from fnx.numpy.arrays.indexing import box_of, index_vectors, windows
from fnx.numpy.arrays.util import (
    PYTHON,
    Shape,
    common_shape,
    constant,
    convert,
    eager,
    quiet,
    select,
    to_array,
    transformation,
)
from fnx.numpy.elementwise import ufuncs
from fnx.ops.base.broadcast import broadcast_to, full, scalar, scalar_like
from fnx.ops.base.permute import Reshape, Rev
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.structure.dynamic_slice import dynamic_slice_add, dynamic_update_slice
from fnx.ops.structure.gather import ScatterAdd
from fnx.ops.structure.gather_dimension_numbers import FILL, GatherScatterMode, as_scatter
from fnx.ops.structure.scatter import Scatter, ScatterMax, ScatterMin, ScatterMul
from fnx.ops.structure.slice import Slice, SliceAdd
from fnx.ops.structure.slice_set import SliceSet

_SCATTERS = {
    "set": Scatter,
    "add": ScatterAdd,
    "mul": ScatterMul,
    "min": ScatterMin,
    "max": ScatterMax,
}
_COMBINE: dict[str, Callable] = {
    "set": lambda old, new: new,
    "add": ufuncs.add,
    "mul": ufuncs.multiply,
    "min": ufuncs.minimum,
    "max": ufuncs.maximum,
}


class At:
    """x.at: index it, then call what is to be done with the elements."""

    __slots__ = ("array",)

    def __init__(self, array: Array):
        self.array = array

    def __getitem__(self, index: Any) -> "AtIndex":
        return AtIndex(self.array, index)

    def __repr__(self) -> str:
        return f"At({self.array!r})"


class AtIndex:
    """x.at[index]: `set`, `add`, `multiply`, ... return a copy with these elements changed.

    Elements named twice are changed twice, except by `set`, where any one value stays. Indices out
    of bounds change nothing (mode "drop", the default) or are moved inside ("clip").

    >>> jnp.zeros(3).at[1].set(5.0)
    Array([0., 5., 0.], dtype=float64)
    """

    __slots__ = ("array", "index")

    @entrance
    def __init__(self, array: Array, index: Any):
        indexing.refuse_lists(index)
        self.array, self.index = array, index

    def __repr__(self) -> str:
        return f"AtIndex({self.array!r}, {self.index!r})"

    def _place(self, options: dict) -> tuple[Array, Any]:
        """The array and the index, whose negative numbers are out of bounds where the options say so."""
        if options.pop("wrap_negative_indices", True):
            return self.array, self.index
        return self.array, before_the_first(self.array.shape, self.index)

    def _update(self, kind: str, values: Any, options: dict) -> Array:
        return update(kind, *self._place(options), values, **options)

    @entrance
    def get(
        self,
        *,
        indices_are_sorted=False,
        unique_indices=False,
        mode=None,
        fill_value=None,
        out_sharding=None,
        wrap_negative_indices=True,
    ):
        """x[index], with a mode for indices out of bounds: "clip" (default), "fill".

        `fill_value` says what "fill" reads there; without that mode it means nothing.
        """
        del out_sharding
        x, index = self._place({"wrap_negative_indices": wrap_negative_indices})
        if mode is None:
            return indexing.getitem(x, index)
        flags = (indices_are_sorted, unique_indices)
        made, how = plan(x.shape, index), GatherScatterMode.from_any(mode)
        made = inside(made) if how == GatherScatterMode.PROMISE_IN_BOUNDS else made
        with indexing_by(mode):
            return indexing.read(x, made, how, fill_value, flags)

    @entrance
    def set(self, values, **options):
        """x with x[index] = values."""
        return self._update("set", values, options)

    @entrance
    def add(self, values, **options):
        """x with x[index] += values; repeated indices add up."""
        return self._update("add", values, options)

    @entrance
    def subtract(self, values, **options):
        """x with x[index] -= values; repeated indices add up."""
        return self._update("add", ufuncs.negative(_values(self.array, values, True)), options)

    sub = subtract

    @entrance
    def multiply(self, values, **options):
        """x with x[index] *= values; repeated indices multiply."""
        return self._update("mul", values, options)

    mul = multiply

    @entrance
    def divide(self, values, **options):
        """x with x[index] /= values."""
        return self._by_product(ufuncs.divide, values, options)

    @entrance
    def power(self, values, **options):
        """x with x[index] **= values."""
        return self._by_product(ufuncs.power, values, options)

    def _by_product(self, op: Callable, values: Any, options: dict) -> Array:
        """`op` of the array and the product of all values that an element gets."""
        x, index = self._place(options)
        inexact = x.dtype.kind in "fc"
        if inexact and (options.get("unique_indices") or _named_once(x, index)):
            old = indexing.getitem(x, index)
            return update("set", x, index, op(old, _values(x, values)), **options)
        ones = full(x.shape, scalar_like(1, x), x.dtype)
        return op(x, update("mul", ones, index, values, **options))

    @entrance
    def min(self, values, **options):
        """x with x[index] = minimum(x[index], values)."""
        return self._update("min", values, options)

    @entrance
    def max(self, values, **options):
        """x with x[index] = maximum(x[index], values)."""
        return self._update("max", values, options)

    @entrance
    def apply(self, func, **options):
        """x with x[index] = func(x[index]), as often as an element is named."""
        if not callable(func):
            raise TypeMismatch(f"at[...].apply needs a function, not {brief(func)}")
        return self.apply_at(func, (), options)

    def apply_at(self, func: Callable, others: tuple, options: dict) -> Array:
        """The same of a function that gets elements of other arrays too."""
        x, index = self._place(options)
        if not x.size:  # any index is out of bounds
            return x
        once = options.get("unique_indices")
        places = None if once else _flat_places(x, index, options.get("mode"))
        if places is None:
            return update("set", x, index, func(indexing.getitem(x, index), *others), **options)
        size, shape = places.size, places.shape
        rows = [Reshape((size,))(broadcast_to(to_array(y, "at"), shape)) for y in others]
        one = lambda total, row: (
            AtIndex(total, row[0]).set(func(total[row[0]], *row[1:]), mode="drop"),
            None,
        )
        flat = Reshape((x.size,))(x)
        flat, _ = transformation("scan")(one, flat, (Reshape((size,))(places), *rows))
        return Reshape(x.shape)(flat)


def _named_once(x: Array, index: Any) -> bool:
    """Whether it is plain that an index names no element twice."""
    entries = plan(x.shape, index).entries
    return not any([isinstance(e, (Array, np.ndarray)) and e.size != 1 for e in entries])


def _flat_places(x: Array, index: Any, mode: Any) -> Array | None:
    """The flat positions that an index names, beyond the end if there are none; None if it repeats none."""
    p, how = plan(x.shape, index), GatherScatterMode.from_any(mode)
    if not p.has_arrays:
        return None
    flat = ConcreteArray(np.arange(x.size).reshape(x.shape))
    if any([isinstance(e, Array) for e in p.entries]):
        places = indexing.read(flat, p, how, x.size)
    else:
        with use(evaluate):
            places = indexing.read(flat, p, how, x.size)
            known = np.asarray(places)
        if np.unique(known).size == known.size:
            return None
    return places


def _values(x: Array, values: Any, combined: bool = False) -> Array:
    """Values in the dtype of the array that they go into, or of both, where they are combined before."""
    if type(values) in PYTHON:
        given = dtypes.scalar_dtype(values)
        if dtypes.is_complex(given) and not dtypes.is_complex(x.dtype):
            raise TypeMismatch(f"a complex number cannot go into an array of dtype {x.dtype}")
        wide = _check_cast(x, given, given.kind != "b")
        return constant(values, wide if combined else x.dtype, weak=x.weak_type)
    # Unlike operands of other functions they may be lists, as JAX's may.
    y = asarray(values) if isinstance(values, (list, tuple)) else to_array(values, "at")
    if dtypes.is_complex(y.dtype) and not dtypes.is_complex(x.dtype):
        raise TypeMismatch(
            f"values of dtype {y.dtype} cannot go into an array of dtype {x.dtype}; take their real part"
        )
    wide = _check_cast(x, y.dtype, y.weak_type)
    return convert(y, wide if combined else x.dtype)


def _check_cast(x: Array, dtype: np.dtype, weak: bool) -> np.dtype:
    """The dtype of both; warn, as JAX, of values that may not be what they were in the array."""
    truth = dtype.kind == "b" and x.dtype.kind in "iub"  # which JAX takes even so
    if config.numpy_dtype_promotion.value == "strict" and not truth:
        dtypes.check_strict(((x.dtype, x.weak_type), (dtype, weak)))
    if dtype == x.dtype:
        return dtype
    wide = dtypes.promote_cached(((x.dtype, False), (dtype, weak)), False)[0]
    if wide != x.dtype:
        warn_user(
            f"values of dtype {dtype} go into an array of dtype {x.dtype}, which may not hold them; "
            "expected its dtype: convert them with .astype. JAX will refuse such in a later version",
            FutureWarning,
        )
    return wide


def update(
    kind: str,
    x: Array,
    index: Any,
    values: Any,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
    out_sharding: Any = None,
) -> Array:
    """x with values combined into x[index]; it is weak if x is."""
    del out_sharding
    flags = (indices_are_sorted, unique_indices)
    weak, dtype, y = x.weak_type, x.dtype, _values(x, values, kind in ("add", "mul"))
    if y.dtype != dtype:  # sums and products are rounded once
        x = convert(x, y.dtype)
    if y.weak_type != weak:  # one is converted, and so its cotangent back
        x, y = [ops.ConvertElementType(x.dtype)(v) if v.weak_type else v for v in (x, y)]
    how = GatherScatterMode.from_any(mode)
    if mode is None:  # nearly always, and the context would be a tenth of the time
        out = _updated(kind, x, index, y, how, flags)
    else:
        with indexing_by(mode):
            out = _updated(kind, x, index, y, how, flags)
    kept = out.weak_type == weak and out.dtype == dtype
    return out if kept else ops.ConvertElementType(dtype, weak)(out)


def _updated(
    kind: str, x: Array, index: Any, y: Array, how: GatherScatterMode, flags: tuple
) -> Array:
    if type(x) is ConcreteArray and type(y) is ConcreteArray and eager():
        found = _eager(kind, x, index, y)
        if found is not None:
            return found
    mask = _mask_of(x, index)
    if mask is not None and not y.shape:
        return select(mask, _COMBINE[kind](x, broadcast_to(y, x.shape)), x)
    p = plan(x.shape, index)
    if all(
        [
            isinstance(e, slice) or (type(e) is int and 0 <= e < n)
            for e, n in zip(p.entries, p.shape)
        ]
    ):
        return _box_update(kind, x, p, y)
    return _scatter(kind, x, p, y, how, flags)


_AT = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _eager(kind: str, x: ConcreteArray, index: Any, y: ConcreteArray) -> ConcreteArray | None:
    """NumPy's own assignment, where it means the same: indices are known and inside."""
    parts = []
    for p in index if type(index) is tuple else (index,):
        if type(p) is ConcreteArray:
            p = p._value
        if type(p) is np.ndarray:
            if p.dtype.kind not in "iub":
                return None
        elif type(p) not in indexing.BASIC:
            return None
        parts.append(p)
    out, at = x._value.copy(), tuple(parts)
    try:
        if kind == "set":
            out[at] = y._value
        else:
            quiet.run(_AT[kind].at, out, at, y._value)
    except (IndexError, ValueError, TypeError):
        return None  # out of bounds, or an error that the plan explains better
    return ConcreteArray(out, x.weak_type)


def _see_placed() -> None:
    global _eager  # noqa: PLW0603
    _eager = unless_placed(_eager)


when_placed(_see_placed)


def _mask_of(x: Array, index: Any) -> Array | None:
    """A mask for all of x whose values need not be known."""
    if isinstance(index, tuple) and len(index) == 1:
        (index,) = index
    is_mask = isinstance(index, Tracer) and index.dtype == dtypes.bool_ and index.shape == x.shape
    return index if is_mask else None


def _fit(y: Array, shape: Shape) -> Array:
    """Values broadcast to the shape of what they replace; more axes of size 1 are allowed."""
    extra = len(y.shape) - len(shape)
    if extra > 0 and all(n == 1 for n in y.shape[:extra]):
        y = Reshape(y.shape[extra:])(y)
    if common_shape("values and the indexed elements: at[...]", [y.shape, shape]) != shape:
        raise InvalidValue(
            f"values of shape {y.shape} do not broadcast to the indexed elements of shape {shape}"
        )
    return broadcast_to(y, shape)


def _box_update(kind: str, x: Array, p: Plan, y: Array) -> Array:
    """A static box: no indices are needed."""
    lo, hi, steps, rev, kept = box_of(p)
    count = [-((a - b) // s) for a, b, s in zip(lo, hi, steps)]
    y = _fit(y, tuple([count[k] for k in kept]))
    own = [k for k in range(len(p.shape)) if k not in p.new_axes]
    if 0 in count:
        return x
    y = _reshaped(y, tuple([count[k] for k in own]))
    if rev:
        y = Rev(tuple([own.index(k) for k in rev]))(y)
    lo, hi, steps = (tuple([v[k] for k in own]) for v in (lo, hi, steps))
    box = (lo, hi, None if all(s == 1 for s in steps) else steps)
    whole = hi == x.shape and not any(lo) and box[2] is None
    if kind == "set":
        return like(y, x.aval) if whole and y.weak_type == x.weak_type else SliceSet(*box)(x, y)
    if kind == "add" and x.dtype != dtypes.bool_:
        return ops.add(x, y) if whole else SliceAdd(*box)(x, y)
    old = x if whole else Slice(*box)(x)
    new = _COMBINE[kind](old, y)
    return new if whole else SliceSet(*box)(x, new)


def _reshaped(y: Array, shape: Shape) -> Array:
    return y if y.shape == shape else Reshape(shape)(y)


def _scatter(
    kind: str, x: Array, p: Plan, y: Array, mode: GatherScatterMode, flags: tuple
) -> Array:
    if any(
        [
            isinstance(e, slice) and e.step != 1 and len(range(e.start, e.stop, e.step)) > 0
            for e in p.entries
        ]
    ):
        return _flat_scatter(kind, x, p, y, mode, flags)
    shape = x.shape
    inner = Reshape(p.shape)(x) if p.new_axes else x
    w, columns = windows(Plan((), p.shape, p.entries, (), p.apart), keep_offsets=True)
    y = _fit(y, w.shape())
    if not y.aval.size:
        return x
    if not w.batch and kind in ("mul", "min", "max"):
        # One window: where it is out of bounds, what is read is not written.
        return _scatter("set", x, p, _COMBINE[kind](indexing.read(x, p), y), mode, flags)
    if not w.batch and mode is not FILL and kind in ("set", "add") and x.dtype != dtypes.bool_:
        out = _window_update(kind, inner, w, columns, y)
    else:
        sort, unique = flags
        scatter = _SCATTERS[kind](as_scatter(w.dims()), sort, mode, unique or not w.batch)
        out = scatter(inner, index_vectors(columns, w.batch), y)
    return _reshaped(out, shape)


def _window_update(kind: str, x: Array, w: Any, columns: list, y: Array) -> Array:
    """One window that is moved inside where it sticks out."""
    starts: list[Any] = [scalar(0, indexing.INT)] * len(w.sizes)
    for k, c in zip(w.mapped, columns):
        starts[k] = scalar(c, indexing.INT) if isinstance(c, int) else c
    write = dynamic_update_slice if kind == "set" else dynamic_slice_add
    return write(x, _reshaped(y, w.sizes), *starts)


def _flat_scatter(
    kind: str, x: Array, p: Plan, y: Array, mode: GatherScatterMode, flags: tuple
) -> Array:
    """By positions in the flat array, for slices with strides beside indices."""
    total = x.aval.size
    positions: Array = ConcreteArray(np.arange(total).reshape(x.shape))
    how = "fill" if mode is FILL else "clip"
    positions = indexing.read(positions, p, how, total)
    y = _fit(y, positions.shape)
    flat = Plan((), (total,), (Reshape((positions.aval.size,))(positions),))
    out = _scatter(kind, _reshaped(x, (total,)), flat, _reshaped(y, (y.aval.size,)), mode, flags)
    return _reshaped(out, x.shape)


__all__ = ["At", "AtIndex", "update"]
