"""What an index of an array means: a plan of its axes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray, any_placed, as_array
from fnx.core.buffer import on_host
from fnx.core.errors import (
    FnxError,
    InvalidValue,
    NonConcreteBooleanIndexError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
    TypeMismatch,
)
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import Tracer
from fnx.core.source import brief
from fnx.numpy.arrays.util import INT, Shape, select
from fnx.ops.base.broadcast import scalar
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.join import Concatenate


class BadIndex(FnxError, IndexError):
    """An index that does not fit the array: too many entries, or a mask of another shape."""


class BadIndexType(TypeMismatch, IndexError):
    """An index of a type or dtype that cannot index."""


@dataclass(frozen=True)
class Plan:
    """An index in terms of the axes of the operand, after new axes of size 1 were put in.

    `entries` has one of: a slice with ints, an int, an Array (an integer of rank 0 whose value is
    not known, or indices of any rank).
    """

    new_axes: Shape  # axes of size 1 to insert into the operand first
    shape: Shape  # of the operand with them
    entries: tuple[Any, ...]
    none_axes: Shape = ()  # those of `new_axes` that the result keeps
    apart: bool = False  # an ellipsis that stands for no axis separates arrays

    @property
    def has_arrays(self) -> bool:
        return any([isinstance(e, (Array, np.ndarray)) and e.ndim > 0 for e in self.entries])


def plan(shape: Shape, index: Any) -> Plan:
    """What an index means for an array of a shape; raises for one that does not fit."""
    parts = list(index) if isinstance(index, tuple) else [index]
    parts = [_part(p, k) for k, p in enumerate(parts)]
    used = sum([_consumes(p) for p in parts])
    if used > len(shape):
        raise BadIndex(
            f"too many indices: the array has rank {len(shape)}, shape {shape}, but {used} axes were "
            "indexed"
        )
    dots = [k for k, p in enumerate(parts) if p is Ellipsis]
    if len(dots) > 1:
        raise BadIndex("an index can have a single ellipsis (...)")
    whole = [slice(None)] * (len(shape) - used)
    at = dots[0] if dots else len(parts)
    before, after = parts[:at], parts[at + 1 :]
    apart = bool(dots) and not whole and _picks(before) and _picks(after)
    return _place(shape, [*before, *whole, *after], apart)


def inside(p: Plan) -> Plan:
    """The plan; raises for an integer out of bounds, with the setting `check_static_indices`."""
    if config.check_static_indices.value:
        for k, (e, n) in enumerate(zip(p.entries, p.shape)):
            if type(e) is int and not 0 <= e < n:
                axis = k - sum([a < k for a in p.new_axes])
                raise BadIndex(
                    f"the index {e if e >= n else e - n} is out of bounds for axis {axis} of size {n}; "
                    f"expected {-n} to {n - 1}. Without the setting check_static_indices the nearest "
                    "element is read"
                )
    return p


def before_the_first(shape: Shape, index: Any) -> Any:
    """The index with its negative numbers so far down that they name no element from the end either."""
    far = max(shape, default=0)

    def moved(p: Any) -> Any:
        if isinstance(p, (int, np.integer)) and not isinstance(p, bool):
            return int(p) - far if p < 0 else p
        if not isinstance(p, (Array, np.ndarray)) or dtypes.kind(p.dtype) != "i":
            return p
        i = ConvertElementType(INT)(as_array(p))
        return select(ops.lt(i, scalar(0, INT)), ops.sub(i, scalar(far, INT)), i)

    return tuple([moved(p) for p in index]) if isinstance(index, tuple) else moved(index)


def _picks(parts: list) -> bool:
    """Whether integers or arrays are among entries of an index."""
    return any([type(p) is not slice and p is not None for p in parts])


def _part(p: Any, position: int) -> Any:
    """One entry of an index in canonical form."""
    kind = type(p)
    if kind is slice and type(p.step) is int and p.step == 0:
        raise InvalidValue(f"a slice with step 0 at position {position}; expected another step")
    if kind is slice or p is None or p is Ellipsis or kind is int:
        return p
    if kind is bool or isinstance(p, np.bool_):
        return np.asarray(p)
    if isinstance(p, (int, np.integer)):
        return int(p)
    if isinstance(p, (list, tuple, np.ndarray)):
        p = np.asarray(p) if not _has_tracers(p) else _stacked(p)
        if isinstance(p, np.ndarray) and p.size == 0 and p.dtype.kind == "f":
            p = p.astype(INT)
    elif not issubclass(type(p), Array) and hasattr(p, "__jax_array__"):
        p = as_array(p)
    if isinstance(p, ConcreteArray) and not (p.ndim and p.dtype.kind != "b" and any_placed((p,))):
        p = on_host(p._value)
    if not issubclass(type(p), (Array, np.ndarray)):
        raise BadIndexType(
            f"an index of type {type(p).__name__} at position {position}: {brief(p)}; expected "
            "integers, slices, None, ..., or arrays of integers or bools"
        )
    if dtypes.kind(p.dtype) not in "biu":
        raise BadIndexType(
            f"an index array of dtype {p.dtype} at position {position}; expected integers or bools: "
            "convert it with .astype(int)"
        )
    if isinstance(p, np.ndarray) and p.ndim == 0 and p.dtype.kind != "b":
        return int(p)
    if isinstance(p, Array) and p.dtype.kind == "b":
        return _known_mask(p)
    return p


def _has_tracers(p: Any) -> bool:
    return isinstance(p, (list, tuple)) and any(isinstance(q, Tracer) or _has_tracers(q) for q in p)


def _stacked(p: Sequence) -> Array:
    columns = [
        _stacked(q) if isinstance(q, (list, tuple)) else ops.convert(as_array(q), INT) for q in p
    ]
    return Concatenate(0)(*[Reshape((1, *c.shape))(c) for c in columns])


def _known_mask(mask: Array) -> np.ndarray:
    try:
        return np.asarray(mask)
    except TracerArrayConversionError:
        raise NonConcreteBooleanIndexError(
            f"a traced mask of type {mask.aval.str_short()} as an index: the shape of the result would "
            "depend on its values. Use fnx.numpy.where(mask, a, b), or nonzero(mask, size=...)."
        ) from None


def _consumes(p: Any) -> int:
    """How many axes of the operand an entry stands for."""
    if p is None or p is Ellipsis:
        return 0
    if isinstance(p, np.ndarray) and p.dtype.kind == "b":
        return p.ndim
    return 1


def _place(shape: Shape, parts: list, apart: bool) -> Plan:
    new_axes, none_axes, full, entries = [], [], [], []
    sizes = iter(shape)
    for p in parts:
        if p is None:
            new_axes.append(len(full))
            none_axes.append(len(full))
            full.append(1)
            entries.append(slice(0, 1, 1))
        elif isinstance(p, np.ndarray) and p.dtype.kind == "b":
            if p.ndim == 0:
                new_axes.append(len(full))
                full.append(1)
                entries.append(np.zeros(int(p), INT))
                continue
            mine = tuple([next(sizes) for _ in range(p.ndim)])
            if mine != p.shape:
                raise BadIndex(
                    f"a mask of shape {p.shape} does not fit axes of shape {mine} of an array of shape "
                    f"{shape}; expected equal shapes"
                )
            full += mine
            entries += np.nonzero(p)
        else:
            n = next(sizes)
            full.append(n)
            entries.append(_canonical(p, n))
    return Plan(tuple(new_axes), tuple(full), tuple(entries), tuple(none_axes), apart)


def _canonical(p: Any, n: int) -> Any:
    if type(p) is int:
        return p + n if p < 0 else p
    if type(p) is slice:
        try:
            return slice(*p.indices(n))
        except (TracerIntegerConversionError, TypeError) as error:
            raise BadIndexType(
                f"a slice with an entry that is not a known integer: {brief(p, 100)}; expected Python "
                "integers. For a start that is traced use lax.dynamic_slice_in_dim, whose length is "
                "static; for a choice of elements fnx.numpy.where."
            ) from error
    if isinstance(p, np.ndarray):
        p = p.astype(INT, copy=False)
        return np.where(p < 0, p + n, p) if p.size else p
    return wrap(p, n)


def wrap(i: Array, n: int) -> Array:
    """Indices with negative ones counted from the end."""
    if dtypes.kind(i.dtype) == "u":
        return i
    if n > dtypes.iinfo(i.dtype).max:
        i = ConvertElementType(INT)(i)
    return select(ops.lt(i, scalar(0, i.dtype)), ops.add(i, scalar(n, i.dtype)), i)
