"""One-hot selects as updates: `where(iota == i, new, x)` becomes a dynamic-update-slice.

Written so, an iteration would go through the whole array, and reverse mode keep all of it. The update
takes the same choice within the row, column or element that the index names, so that nothing changes
where the index is out of bounds; and of the new values only that part is computed.

Source: strength reduction.
Input: the body of a loop.
Output: the same, where an array is updated at an index rather than chosen anew.
Legal when: the mask is a comparison of an iota with one index.
Pays when: the array is larger than `SELECTED_ELEMENTS`.
Costs: nothing that the select did not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import policy
from fnx.core.array import ConcreteArray
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, made_once
from fnx.core.primitive import Primitive
from fnx.interpreters.analysis.updates import is_update
from fnx.interpreters.rewrite import bind_into, live
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.pointwise import Pointwise
from fnx.ops.elementwise.select import SelectN, and_, clamp, eq
from fnx.ops.structure.dynamic_slice import DynamicSlice, DynamicUpdateSlice
from fnx.ops.structure.join import Iota

Spot = dict[int, Atom]  # of some axes the one index


@made_once
def spotted(body: Jaxpr, consts: int, carry: int) -> Jaxpr:
    """The body of a loop with updates for choices at one index between a carry and anything else."""
    if not any(e.prim.name == "select_n" for e in body.eqns):
        return body
    maker = definitions(body.eqns)
    found: dict[Var, tuple[Var, Atom, Spot]] = {}
    for k in range(carry):
        _along(maker, body.inputs[consts + k], body.outs[k], found)
    if not found:
        return body
    eqns: list[Eqn] = []
    for e in body.eqns:
        old = found.get(e.outs[0]) if e.outs else None
        if old is None:
            eqns.append(e)
        else:
            _update(maker, eqns, e.outs[0], *old)
    return body.with_eqns(live(eqns, body.outs))


def _along(maker: dict[Var, Eqn], start: Var, end: Atom, found: dict) -> None:
    """Note the choices on the way from an array to what it is in the next iteration."""
    noted = {}
    while end is not start:
        e = maker.get(end) if type(end) is Var else None  # type: ignore[arg-type]
        if e is None or end.aval.size <= policy.SELECTED_ELEMENTS:
            return
        if is_update(e.prim):
            end = e.inputs[0]
            continue
        if e.prim.name != "select_n" or len(e.inputs) != 3:
            return
        mask, other, new = e.inputs
        spot = _spot(maker, mask)
        if spot is None:
            spot, other, new = _spot(maker, mask, "ne"), new, other
        if spot is None or type(other) is not Var or other.aval != e.outs[0].aval:
            return
        noted[e.outs[0]] = (other, new, spot)
        end = other
    found.update(noted)


def _spot(maker: dict[Var, Eqn], mask: Atom, test: str = "eq") -> Spot | None:
    """The axes along which a mask is true (or, by "ne", false) at one index at most, and that index."""
    e = maker.get(mask) if type(mask) is Var else None
    if e is None or not mask.aval.shape:
        return None
    if e.prim.name == test:
        for x, y in (e.inputs, e.inputs[::-1]):
            axis, number = _counts_along(maker, x), _scalar(maker, y)
            if axis is not None and number is not None and number.aval.dtype.kind in "iu":
                return {axis: number}
    if e.prim.name == "and" and test == "eq":
        pair = [_spot(maker, a) for a in e.inputs]
        if pair[0] is None or pair[1] is None or pair[0].keys() & pair[1].keys():
            return None
        return pair[0] | pair[1]
    moved = _moved_axes(e)
    found = _spot(maker, e.inputs[0], test) if moved is not None else None
    if found is None or moved is None or any(k not in moved for k in found):
        return None
    return {moved[k]: a for k, a in found.items()}


def _counts_along(maker: dict[Var, Eqn], x: Atom) -> int | None:
    """The axis along which an array is 0, 1, 2, ..."""
    e = maker.get(x) if type(x) is Var else None
    if e is None:
        return None
    if isinstance(e.prim, Iota):
        return e.prim.dimension
    moved = _moved_axes(e)
    axis = _counts_along(maker, e.inputs[0]) if moved is not None else None
    return moved.get(axis) if moved is not None and axis is not None else None


def _moved_axes(e: Eqn) -> dict[int, int] | None:
    """Of an equation that repeats or renames axes: where each axis of its operand went, if it is whole."""
    x, shape = e.inputs[0].aval.shape if e.inputs else (), e.outs[0].aval.shape
    prim: Any = e.prim
    if isinstance(prim, Broadcast):
        return {k: d for k, d in enumerate(prim.broadcast_dimensions) if x[k] == shape[d]}
    if prim.name in ("reshape", "squeeze", "expand_dims"):
        long = [k for k, n in enumerate(x) if n != 1]
        new = [k for k, n in enumerate(shape) if n != 1]
        return dict(zip(long, new)) if [x[k] for k in long] == [shape[k] for k in new] else None
    return None


def _scalar(maker: dict[Var, Eqn], x: Atom) -> Atom | None:
    """The number that an atom repeats."""
    if not x.aval.shape:
        return x
    e = maker.get(x) if type(x) is Var else None
    return _scalar(maker, e.inputs[0]) if e is not None and isinstance(e.prim, Broadcast) else None


def _update(
    maker: dict[Var, Eqn], eqns: list[Eqn], out: Var, x: Var, new: Atom, spot: Spot
) -> None:
    """Append an update of `x` that gives `out`."""
    places: Spot = {}
    here: Atom | None = None
    for axis, index in spot.items():
        ends = [
            Literal(ConcreteArray(np.asarray(k, index.aval.dtype)))
            for k in (0, out.aval.shape[axis] - 1)
        ]
        (places[axis],) = bind_into(eqns, clamp, [ends[0], index, ends[1]])
        (inside,) = bind_into(eqns, eq, [places[axis], index])
        here = inside if here is None else bind_into(eqns, and_, [here, inside])[0]
    part = _Part(maker, eqns)
    box = part.slice(x, places)
    values = part.of(new, places)
    assert here is not None
    (box,) = bind_into(eqns, SelectN(), [here, box, values])
    eqns.append(Eqn(DynamicUpdateSlice(), [x, box, *_starts(out, places)], [out]))


@dataclass
class _Part:
    """Equations for parts of arrays: of what is elementwise, no more than that is computed."""

    maker: dict[Var, Eqn]
    eqns: list[Eqn]

    def slice(self, a: Atom, places: Spot) -> Var:
        return bind_into(self.eqns, DynamicSlice(_box(a, places)), [a, *_starts(a, places)])[0]

    def of(self, a: Atom, places: Spot) -> Atom:
        """An array where it has these indices along these axes, which stay, of size 1."""
        if not a.aval.shape or not places:
            return a
        e = self.maker.get(a) if type(a) is Var else None
        prim: Any = None if e is None else e.prim
        if e is not None and isinstance(prim, Pointwise):
            return self._bind(prim, [self.of(x, places) for x in e.inputs])
        if e is not None and isinstance(prim, Broadcast):
            shape = e.inputs[0].aval.shape
            dims = prim.broadcast_dimensions
            inner = {k: places[d] for k, d in enumerate(dims) if d in places and shape[k] != 1}
            return self._bind(Broadcast(_box(a, places), dims), [self.of(e.inputs[0], inner)])
        moved = _moved_axes(e) if e is not None else None
        if e is not None and moved is not None and places.keys() <= set(moved.values()):
            inner = {k: places[d] for k, d in moved.items() if d in places}
            return self._bind(Reshape(_box(a, places)), [self.of(e.inputs[0], inner)])
        return self.slice(a, places)

    def _bind(self, prim: Primitive, atoms: Sequence[Atom]) -> Var:
        return bind_into(self.eqns, prim, atoms)[0]


def _box(a: Atom, places: Spot) -> tuple[int, ...]:
    return tuple([1 if k in places else n for k, n in enumerate(a.aval.shape)])


def _starts(a: Atom, places: Spot) -> list[Atom]:
    zero = Literal(ConcreteArray(np.zeros((), np.int64)))
    return [places.get(k, zero) for k in range(len(a.aval.shape))]
