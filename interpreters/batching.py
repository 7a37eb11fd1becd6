"""Batching (vmap): every value carries its batch axis; one without is the same for all elements.

Vectorising map by program transformation (NESL's flattening: Blelloch 1990; JAX's vmap): each primitive's
`batch` rule computes all batch elements by one operation.

Input: a function of arrays, or a jaxpr, of one batch element; the size of the axis, and where it lies.
Output: the results of all elements, and their batch axes.
Legal when: all primitives have a `batch` rule; loops and branches that elements take differently are
the matter of primitives/divergent.py.
Costs: values that are the same for all elements are computed once.
"""

from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.axis_size import are_devices, axis_name_of
from fnx.core.config import checked_axes
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import Interpreter, Tracer, current, is_recorded, set_current
from fnx.core.jaxpr import Jaxpr, eval_jaxpr, made_once, subjaxprs
from fnx.core.primitive import Primitive
from fnx.core.source import Mapped, origin, set_origin, user_source
from fnx.interpreters.trace import trace_closed
from fnx.interpreters.vmappable import is_vmappable, vmappables
from fnx.interpreters.vmappable import register_vmappable as register_vmappable
from fnx.interpreters.vmappable import unregister_vmappable as unregister_vmappable
from fnx.ops.structure.basic import broadcast_axis, move_axis


class BatchTracer(Tracer):
    """One element of the batch `value`, whose batch axis is `axis`."""

    __slots__ = ("_aval", "axis", "value")

    def __init__(self, owner: "Batch", value: Array, axis: int):
        self.owner = owner
        self.value = value
        self.axis = axis
        full = value.aval
        shape = full.shape[:axis] + full.shape[axis + 1 :]
        self._aval = ShapedArray(shape, full.dtype, full.weak_type)
        if full.vma or owner.checked:
            self._aval = self._aval.varying(full.vma | owner.checked)

    @property
    def aval(self) -> ShapedArray:  # type: ignore[override]
        return self._aval


class Batch(Interpreter):
    """Applies `batch` rules to values that have a batch axis, and to collectives over its named axis."""

    what = "vmap"

    def __init__(self, parent: Interpreter, size: int):
        self.parent: Interpreter = parent
        self.size = size
        self.axis_name = axis_name_of(size)
        # What is mapped over members of a mesh says so in its type.
        self.checked = checked_axes.get().intersection((self.axis_name,))
        self.devices = (self.axis_name or "<devices>") if are_devices(size) else None
        # A rule that makes one goes on for the vmap that asked it.
        asked = origin.get()
        self.source = asked.mapped[0].source if asked and asked.mapped else user_source()
        self.records = is_recorded(parent)  # which members an operation is for

    def process(self, prim: Primitive, args: tuple) -> tuple:
        values, axes, touched = [], [], False
        for a in args:
            if type(a) is BatchTracer and a.owner is self:
                values.append(a.value)
                axes.append(a.axis)
                touched = True
            else:
                values.append(a)
                axes.append(None)
        if not touched and (self.axis_name is None or self.axis_name not in axis_names(prim)):
            return self.parent.process(prim, args)
        token = set_current[self.parent]
        mapped = before = None
        if touched and (self.records or getattr(prim, "jaxpr_fields", ())):
            source = user_source()
            if source is not None:
                at = [(v.aval.shape, k) for v, k in zip(values, axes) if k is not None]
                mapped = Mapped(self.source, at, self.devices)
                before = set_origin[source.within(mapped)]
        try:
            outs, out_axes = prim.batch(self.size, tuple(values), tuple(axes))
            if mapped is not None:
                mapped.axes += [(o.aval.shape, k) for o, k in zip(outs, out_axes) if k is not None]
        except (TypeError, ValueError, IndexError, AssertionError):
            if not prim.multiple_results:
                prim.abstract(*[a.aval for a in args])  # speaks of batch elements, as the user does
            raise
        finally:
            if before is not None:
                origin.reset(before)
            current.reset(token)
        return tuple(
            [
                o if k is None else BatchTracer(self, o, k)
                for o, k in zip(outs, out_axes, strict=True)
            ]
        )

    def split(self, value: Array) -> tuple[Array, int | None]:
        """Value and batch axis of any value."""
        if type(value) is BatchTracer and value.owner is self:
            return value.value, value.axis
        return value, None


def batch(
    fn: Callable[..., Sequence[Array]],
    size: int,
    args: Sequence[Array],
    axes: Sequence[int | None],
    again: Batch | None = None,
) -> tuple[list[Array], list[int | None]]:
    """Results of a function of arrays for all batch elements at once, and their batch axes.

    The batch is a new one, or `again` an old one, above another interpreter: a rule may know its values.
    """
    me = Batch(current.get(), size) if again is None else again
    before = me.parent, again is None or me.ended
    me.parent, me.ended = current.get(), False
    token = set_current[me]
    try:
        outs = fn(*[x if k is None else BatchTracer(me, x, k) for x, k in zip(args, axes)])
    finally:
        current.reset(token)
        me.parent, me.ended = before
    pairs = [me.split(o) for o in outs]
    return [x for x, _ in pairs], [k for _, k in pairs]


def axis_names(prim: Primitive) -> Collection[Hashable]:
    """The named axes that a primitive, or a jaxpr that it carries, speaks of."""
    own = getattr(prim, "axis_names", None)
    if own is not None:
        return own
    return [name for jaxpr in subjaxprs(prim) for name in _names(jaxpr)]


@made_once
def _names(jaxpr: Jaxpr) -> frozenset[Hashable]:
    return frozenset([name for e in jaxpr.eqns for name in axis_names(e.prim)])


def place_axis(size: int, x: Array, axis: int | None, to: int | None) -> Array:
    """Batch elements along axis `to`, made by repetition if there were none."""
    if to is None:
        assert axis is None
        return x
    return broadcast_axis(x, int(size), to) if axis is None else move_axis(x, axis, to)


def to_elt(me: Batch, x: Any, axis: int | None) -> Any:
    """The element, while `me` batches, of an array, or of a value of a registered type."""
    if is_vmappable(x):
        return vmappables[type(x)].to_elt(lambda x, k: to_elt(me, x, k), None, x, axis)
    return x if axis is None else BatchTracer(me, as_array(x), range(np.ndim(x))[axis])


def from_elt(me: Batch, place: Callable, x: Any, axis: int | None) -> Any:
    """What `me` computed an element of, with its batch axis where it is wanted."""
    if is_vmappable(x):
        each = lambda size, x, k: from_elt(me, place, x, k)
        return vmappables[type(x)].from_elt(each, int(me.size), x, axis)
    return place(me.size, *me.split(as_array(x)), axis)


def batch_jaxpr(
    jaxpr: Jaxpr, size: int, batched: tuple[bool, ...], force: tuple[bool, ...] | bool = False
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """The jaxpr for all elements, along axis 0 of the inputs marked; and which results have that axis.

    Results marked in `force` (True: all) get a batch axis even where all would be equal.
    """
    forced = (force,) * len(jaxpr.outs) if isinstance(force, bool) else force
    # A size with a name is equal to its number, but the jaxpr for it is another one.
    kind = axis_name_of(size), are_devices(size)
    return _batched(jaxpr, size, kind, batched, forced)


@made_once
def _batched(
    jaxpr: Jaxpr, size: int, kind: tuple, batched: tuple[bool, ...], forced: tuple[bool, ...]
) -> tuple[Jaxpr, tuple[bool, ...]]:
    mask: list[bool] = []

    def run(*args: Array) -> list[Array]:
        axes = [0 if b else None for b in batched]
        outs, out_axes = batch(lambda *xs: eval_jaxpr(jaxpr, xs), size, args, axes)
        mask.extend(k is not None or f for k, f in zip(out_axes, forced, strict=True))
        return [
            place_axis(size, x, k, 0 if m else None)
            for x, k, m in zip(outs, out_axes, mask, strict=True)
        ]

    avals = [
        a.update(shape=(int(size), *a.shape)) if b else a
        for a, b in zip(jaxpr.in_avals, batched, strict=True)
    ]
    new = trace_closed(run, avals, what="vmap", name=jaxpr.name)
    return new, tuple(mask)


# --- rules of users' primitives, under JAX's names ---------------------------------------------

not_mapped = None
BatchTrace = Batch
fancy_primitive_batchers: dict[Any, Callable] = {}  # (axis data, values, axes, **params)


@dataclass(frozen=True)
class AxisData:
    """Name and size of the axis that vmap adds."""

    name: Hashable
    size: int
    spmd_name: Hashable = None
    explicit_mesh_axis: Any = None


class _Registry:
    """Rules with fewer arguments, kept among the others."""

    def __init__(self, wrap: Callable[[Any, Callable], Callable]):
        self.wrap = wrap

    def __setitem__(self, prim: Any, rule: Callable) -> None:
        fancy_primitive_batchers[prim] = self.wrap(prim, rule)

    def __getitem__(self, prim: Any) -> Callable:
        return getattr(fancy_primitive_batchers[prim], "given", fancy_primitive_batchers[prim])

    def __delitem__(self, prim: Any) -> None:
        del fancy_primitive_batchers[prim]

    def __contains__(self, prim: Any) -> bool:
        return prim in fancy_primitive_batchers


def _plain(prim: Any, given: Callable) -> Callable:
    def rule(data: AxisData, values: Sequence, axes: Sequence, **params: Any) -> tuple:
        if all(k is None for k in axes):
            outs = prim.bind(*values, **params)
            return (outs, [None] * len(outs)) if prim.multiple_results else (outs, None)
        return given(values, axes, **params)

    rule.given = given  # type: ignore[attr-defined]
    return rule


def _sized(prim: Any, given: Callable) -> Callable:
    def rule(data: AxisData, values: Sequence, axes: Sequence, **params: Any) -> tuple:
        return given(data.size, data.name, None, values, axes, **params)

    rule.given = given  # type: ignore[attr-defined]
    return rule


primitive_batchers = _Registry(_plain)  # (values, axes, **params) -> (results, axes)
axis_primitive_batchers = _Registry(_sized)  # (size, name, None, values, axes, **params)


def bdim_at_front(x: Array, axis: int | None, size: int) -> Array:
    """The value with its batch axis as axis 0, made by repetition if there were none."""
    return broadcast_axis(x, size, 0) if axis is None else move_axis(x, axis, 0)


def broadcast(x: Array, size: int, axis: int) -> Array:
    """The value, repeated along a new axis."""
    return broadcast_axis(x, size, axis)


def _in_front(values: Sequence[Array], axes: Sequence[int | None]) -> list[Array]:
    size = next(x.shape[k] for x, k in zip(values, axes) if k is not None)
    return [bdim_at_front(x, k, size) for x, k in zip(values, axes)]


def defvectorized(prim: Any) -> None:
    """Register the rule of a primitive of one operand, or of several with the same axis."""

    def rule(values: Sequence, axes: Sequence, **params: Any) -> tuple:
        if any(k != axes[0] for k in axes):
            values, axes = _in_front(values, axes), [0]
        return prim.bind(*values, **params), axes[0]

    primitive_batchers[prim] = rule


def defbroadcasting(prim: Any) -> None:
    """Register the rule of a primitive whose operands have one shape, or rank 0."""

    def rule(values: Sequence, axes: Sequence, **params: Any) -> tuple:
        outs = prim.bind(*_in_front(values, axes), **params)
        return (outs, [0] * len(outs)) if prim.multiple_results else (outs, 0)

    primitive_batchers[prim] = rule
