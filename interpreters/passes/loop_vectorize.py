"""Loop vectorisation: a loop whose iterations are independent becomes array operations.

An iteration of such a loop reads its own row (or column, or element along an axis), and of other rows
but one, which is the same in all iterations: that of a pivot. Iterations before that row's see it as it
was, those after it as its own iteration left it. So its iteration is peeled and comes first, and then
all rows are changed together. Those operations keep for a derivative what the loop around needs of
them, vectors often, where the loop would keep a row or more for each of its iterations.

Source: Allen & Kennedy 2001, ch. 2.
Input: the body of a loop with inner loops.
Output: the body with inner loops as operations on whole arrays; None if there is none to change.
Legal when: the dependence test of `row_dependence.py` finds rows apart, but for a pivot
(`pivot_row.py`).
Pays when: reverse mode would otherwise stack much; whoever derives asks for it.
Costs: masks for iterations that the inner loop would not have run.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.def_use import definitions
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var, eval_jaxpr, made_once, subjaxprs
from fnx.interpreters.analysis.value_ranges import Intervals
from fnx.interpreters.batching import batch, place_axis
from fnx.interpreters.rewrite import Renaming, splice
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.base.permute import Reshape, Rev
from fnx.ops.elementwise.arithmetic import sub
from fnx.ops.elementwise.select import and_, clamp, ge, le, not_, or_
from fnx.ops.structure.basic import scalar, zeros
from fnx.ops.structure.dynamic_slice import DynamicSlice
from fnx.ops.structure.join import Iota
from fnx.ops.structure.slice import Slice
from fnx.ops.structure.slice_set import SliceSet

from .row_dependence import OwnRows, row_aval
from .simplify import simplify
from .transpose_sinking import without_turns

Ranges = Sequence[tuple[int, int] | None]


@made_once
def rows_at_once(body: Jaxpr, ranges: Ranges) -> Jaxpr | None:
    """The body of a loop, without inner loops whose iterations change rows of their own; None: none."""
    body = settled(body, ranges)
    maker = definitions(body.eqns)
    eqns: list[Eqn] = []
    name = Renaming()
    for e in body.eqns:
        made = _at_once(maker, e) if e.prim.name == "scan" else None
        inputs = [name(a) for a in e.inputs]
        if made is None:
            eqns.append(Eqn(e.prim, inputs, e.outs, e.source))
        else:
            name.update(zip(e.outs, splice(made, inputs, eqns)))
    if not name:
        return None
    outs = [name(o) for o in body.outs]
    return simplify(body.with_eqns(eqns, outs))


def settled(jaxpr: Jaxpr, ranges: Ranges) -> Jaxpr:
    """The jaxpr without the choices that make of a negative index one from the end, where none is."""
    known = Intervals(zip(jaxpr.inputs, ranges))
    eqns: list[Eqn] = []
    name = Renaming()
    changed = False
    for e in jaxpr.eqns:
        if e.prim.name == "lt" and not e.outs[0].aval.shape:
            x, y = (known.of(a) for a in e.inputs)
            if x is not None and y is not None and x[0] >= y[1]:
                name[e.outs[0]] = Literal(ConcreteArray(np.zeros((), bool)))
                continue
        prim: Any = e.prim
        if prim.name == "scan":
            consts, carry, xs = prim.parts([known.of(a) for a in e.inputs])
            inner = settled(prim.jaxpr, [*consts, *(None for _ in carry), *xs])
            changed = changed or inner is not prim.jaxpr
            prim = prim.with_jaxpr(inner, prim.consts, prim.carry)
        known.add(e)
        eqns.append(Eqn(prim, [name(a) for a in e.inputs], e.outs, e.source))
    if not name and not changed:
        return jaxpr
    outs = [name(o) for o in jaxpr.outs]
    return simplify(jaxpr.with_eqns(eqns, outs))


def _at_once(maker: dict[Var, Eqn], e: Eqn) -> Jaxpr | None:
    """A jaxpr of the loop's operands that does what the loop does, without a loop; None if it cannot."""
    prim: Any = e.prim
    body = prim.jaxpr
    plain = not (prim.counted or prim.divergent or prim.effects) and prim.length > 1 and prim.carry
    if not plain or any(True for f in body.eqns for _ in subjaxprs(f.prim)):
        return None
    iterations = OwnRows.of(maker, e)
    return None if iterations is None else _whole(prim, iterations)


def _whole(prim: Any, iterations: OwnRows) -> Jaxpr:
    """(constants, carry, xs) -> (carry, ys), by operations on all rows."""
    n, m = prim.consts, prim.carry
    avals = prim.abstract_operands()

    def run(*operands: Array) -> list[Array]:
        consts, carry, xs = prim.parts(operands)
        pivot = _Pivot(prim, iterations, consts, carry, xs)
        rows = [_rows(x, d, prim.length, iterations) for x, d in zip(carry, iterations.axes)]
        args = [*consts, *rows, *pivot.before, *pivot.after, pivot.early, *xs]
        axes: list[int | None] = [None] * len(args)
        axes[n : n + m] = iterations.axes
        axes[n + 3 * m :] = [0] * (1 + len(xs))
        made, found = batch(lambda *a: eval_jaxpr(iterations.iteration, a), prim.length, args, axes)
        placed = [place_axis(prim.length, x, k, d) for x, k, d in zip(made, found, iterations.axes)]
        ys = [place_axis(prim.length, x, k, 0) for x, k in zip(made[m:], found[m:])]
        back = [_put(x, r, d, iterations) for x, r, d in zip(carry, placed, iterations.axes)]
        return [*back, *ys]

    made = trace_closed(run, avals, what="grad", name=prim.jaxpr.name)
    return without_turns(simplify(made))


class _Pivot:
    """The row that others read: before its own iteration, and after; and which iterations come before."""

    def __init__(self, prim: Any, r: OwnRows, consts: Sequence, carry: Sequence, xs: Sequence):
        lines = [row_aval(x.aval, d) for x, d in zip(carry, r.axes)]
        true = scalar(True, np.dtype(bool))
        self.early: Array = Broadcast((prim.length,), ())(true)
        self.before = self.after = [zeros(a) for a in lines]
        if r.pivot is None:
            return
        q = Reshape(())(consts[r.pivot]) if isinstance(r.pivot, int) else r.pivot.value
        self.before = [_row(x, d, q) for x, d in zip(carry, r.axes)]
        self.after = self.before
        if all(r.still):
            return
        kind = q.aval.dtype
        q = clamp(scalar(0, kind), q, scalar(carry[0].shape[r.axes[0]] - 1, kind))
        q = sub(q, scalar(r.first, kind)) if r.step > 0 else sub(scalar(r.first, kind), q)
        last = scalar(prim.length - 1, kind)
        inside = and_(ge(q, scalar(0, kind)), le(q, last))
        at = clamp(scalar(0, kind), q, last)
        row = [_row(x, 0, at) for x in xs]
        done = eval_jaxpr(
            r.iteration, [*consts, *self.before, *self.before, *self.before, true, *row]
        )
        self.after = done[: prim.carry]
        iterations = Iota(0, kind, (prim.length,))()
        early = (ge if prim.reverse else le)(iterations, Broadcast(iterations.shape, ())(at))
        self.early = or_(early, Broadcast(iterations.shape, ())(not_(inside)))


def _row(x: Array, axis: int, at: Array) -> Array:
    """One row along an axis, which is left out."""
    zero = scalar(0, at.aval.dtype)
    sizes = tuple([1 if k == axis else n for k, n in enumerate(x.shape)])
    box = DynamicSlice(sizes)(x, *[at if k == axis else zero for k in range(x.ndim)])
    return Reshape(row_aval(x.aval, axis).shape)(box)


def _box(x: Array, axis: int, length: int, r: OwnRows) -> tuple[tuple[int, ...], tuple[int, ...]]:
    low = r.first if r.step > 0 else r.first - length + 1
    start, end = [0] * x.ndim, list(x.shape)
    start[axis], end[axis] = low, low + length
    return tuple(start), tuple(end)


def _rows(x: Array, axis: int, length: int, r: OwnRows) -> Array:
    """The rows of all iterations, in their order."""
    x = Slice(*_box(x, axis, length, r))(x) if length < x.shape[axis] else x
    return x if r.step > 0 else Rev((axis,))(x)


def _put(x: Array, rows: Array, axis: int, r: OwnRows) -> Array:
    """The array with the rows of all iterations."""
    rows = rows if r.step > 0 else Rev((axis,))(rows)
    length = rows.shape[axis]
    return SliceSet(*_box(x, axis, length, r))(x, rows) if length < x.shape[axis] else rows
