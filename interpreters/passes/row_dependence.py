"""Dependence testing of rows: what the iterations of a loop read and write.

A row is what has one index along an axis: a row or column of a matrix, an element of a vector.

Source: Allen & Kennedy 2001, ch. 3.
Input: a loop's body.
Output: for each array its axis, and the rows that an iteration reads and writes; None if they are not
rows.
Legal when: indices are the loop's own counter or loop-invariant; anything else answers None.
Pays when: `loop_vectorize.py` asks.
Costs: nothing at run time.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from fnx.core.aval import ShapedArray
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from fnx.interpreters.rewrite import bind_into
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.elementwise.pointwise import Pointwise
from fnx.ops.elementwise.select import SelectN
from fnx.ops.structure.dynamic_slice import DynamicSlice, DynamicSliceAdd, DynamicUpdateSlice
from fnx.ops.structure.gather import AnyScatter, ScatterAdd
from fnx.ops.structure.join import Concatenate, Iota
from fnx.ops.structure.scatter import Scatter

from .pivot_row import PivotRound
from .transpose_sinking import without_turns

_PLACED = (DynamicUpdateSlice, DynamicSliceAdd, Scatter, ScatterAdd)


@dataclass(frozen=True)
class OwnRows:
    """What is known of a loop whose iterations change rows of their own.

    `axes`: along which axis of each carried array. Iteration t has index `first + step * t` there.
    `pivot`: the index, the same in all iterations, of another row that is read; an operand's number or a
    value. `iteration`: (constants, rows, the pivot's rows before its own iteration, and after, whether it
    is still before, xs) -> (rows, ys). `still`: of each carried array, whether the pivot's own iteration
    leaves its row alone, provided that it is finite.
    """

    axes: tuple[int, ...]
    first: int
    step: int
    pivot: Any
    iteration: Jaxpr
    still: tuple[bool, ...]

    @staticmethod
    def of(maker: dict[Var, Eqn], e: Eqn) -> "OwnRows | None":
        """What is known, if the loop is such a one."""
        prim: Any = e.prim
        body = prim.jaxpr
        _, carry, xs = prim.parts(body.inputs)
        counts = [_line(maker, a) for a in prim.parts(e.inputs)[2]]
        values = _by_iteration(body, {v: x for v, x in zip(xs, counts) if x is not None})
        inner = definitions(body.eqns)
        version: dict[Atom, int] = {}
        steps: dict[Eqn, int] = {}
        for k, (start, end) in enumerate(zip(carry, body.outs)):
            version[end] = version[start] = k
            while end is not start:
                f = inner.get(end) if type(end) is Var else None  # type: ignore[arg-type]
                if f is None or not isinstance(f.prim, _PLACED):
                    return None
                steps[f] = k
                end = f.inputs[0]
                if type(end) is not Var or version.setdefault(end, k) != k:
                    return None
        places = {f: index_of(inner, f) for f in steps}
        axes, own = [], None
        for k in range(len(carry)):
            at = next((places[f] for f, j in steps.items() if j == k), None)
            axis = next((d for d, a in enumerate(at or ()) if a in values), None)
            if at is None or axis is None:
                return None
            found = values[at[axis]]
            if own is not None and not np.array_equal(own, found):
                return None
            own = found
            axes.append(axis)
        limit = min(v.aval.shape[d] for v, d in zip(carry, axes))
        if own is None or own[0] not in range(limit) or own[-1] not in range(limit):
            return None
        first, step = int(own[0]), int(own[1]) - int(own[0])
        if abs(step) != 1 or not np.array_equal(own, first + step * np.arange(prim.length)):
            return None
        rows = _Rows(e, _outer(maker, e), axes, values, own, version, steps, places)
        made = rows.jaxpr(inner)
        if made is None:
            return None
        pivot = rows.pivot
        if type(pivot) is Var:
            pivot = list(rows.outer.values()).index(pivot)
        return OwnRows(tuple(axes), first, step, pivot, made, rows.still)


def _outer(maker: dict[Var, Eqn], e: Eqn) -> dict[Atom, Atom]:
    """What the constants of a loop are: of an index in a vector of one, the number."""
    prim: Any = e.prim
    found: dict[Atom, Atom] = {}
    for v, a in zip(prim.jaxpr.inputs[: prim.consts], e.inputs):
        parts = _parts(maker, a) if a.aval.size == 1 and a.aval.dtype.kind in "iu" else []
        found[v] = parts[0] if parts else a
    return found


def _line(maker: dict[Var, Eqn], a: Atom) -> np.ndarray | None:
    """The numbers of a line of integers, if they are known."""
    if type(a) is not Var:
        return a.value._value if a.aval.ndim == 1 and a.aval.dtype.kind in "iu" else None  # type: ignore
    e = maker.get(a)
    if e is None or a.aval.ndim != 1 or a.aval.dtype.kind not in "iu":
        return None
    if isinstance(e.prim, Iota):
        return np.arange(a.aval.size, dtype=a.aval.dtype)
    if e.prim.name not in ("add", "sub", "rev", "mul"):
        return None
    found = [_number(x) if not x.aval.shape else _line(maker, x) for x in e.inputs]
    return None if any(x is None for x in found) else e.prim.impl(*found)


def _number(a: Atom) -> np.ndarray | None:
    return None if type(a) is Var else a.value._value  # type: ignore[union-attr]


def _by_iteration(body: Jaxpr, values: dict[Atom, np.ndarray]) -> dict[Atom, np.ndarray]:
    """The numbers that depend on the count of iterations alone, for all iterations."""
    for e in body.eqns:
        known = isinstance(e.prim, Pointwise) and e.outs[0].aval.dtype.kind in "biu"
        if (
            known
            and len(e.outs) == 1
            and not e.outs[0].aval.shape
            and any(a in values for a in e.inputs)
        ):
            args = [values.get(a) if type(a) is Var else _number(a) for a in e.inputs]
            if all(x is not None for x in args):
                values[e.outs[0]] = e.prim.impl(*args)  # type: ignore[attr-defined]
    return values


Index = tuple[Atom | None, ...]  # of each axis: where a box of size 1 lies; None: the whole axis


def index_of(maker: dict[Var, Eqn], e: Eqn) -> Index | None:
    """Where an equation reads or writes, if it is a box, of size 1 or whole along each axis."""
    prim: Any = e.prim
    shape = e.inputs[0].aval.shape
    if isinstance(prim, AnyScatter):
        names = prim.dimension_numbers
        d = names.scatter_dims_to_operand_dims
        parts = _parts(maker, e.inputs[1])
        single = len(e.inputs[1].aval.shape) == 1 and len(parts) == len(d)
        if not single or names.operand_batching_dims or set(d) != set(names.inserted_window_dims):
            return None
        at = dict(zip(d, parts))
        whole = e.inputs[2].aval.shape == tuple([n for k, n in enumerate(shape) if k not in at])
        return tuple([at.get(k) for k in range(len(shape))]) if whole else None
    reading = isinstance(prim, DynamicSlice)
    sizes = prim.slice_sizes if reading else e.inputs[1].aval.shape
    starts = e.inputs[1 if reading else 2 :]
    if any(n not in (1, m) for n, m in zip(sizes, shape)):
        return None
    return tuple([a if n == 1 else None for a, n in zip(starts, sizes)])


def _parts(maker: dict[Var, Eqn], a: Atom) -> list[Atom]:
    """The numbers that a vector of indices consists of."""
    e = maker.get(a) if type(a) is Var else None
    if e is not None and e.prim.name == "concatenate":
        return [p for x in e.inputs for p in _parts(maker, x)]
    if a.aval.size != 1:
        return []
    if e is not None and e.prim.name in ("reshape", "broadcast_in_dim", "expand_dims"):
        x = e.inputs[0]
        return [x] if not x.aval.shape else _parts(maker, x)
    return [a]


@dataclass
class _Rows:
    """Makes the jaxpr of one iteration of rows alone."""

    eqn: Eqn
    outer: dict[Atom, Atom]  # what the constants of the loop are
    axes: list[int]  # of each carried array
    values: dict[Atom, np.ndarray]  # in all iterations, of what their number alone determines
    own: np.ndarray  # the index of each iteration's row
    version: dict[Atom, int]  # which carried array a variable is
    steps: dict[Eqn, int]  # the updates, and of which array
    places: dict[Eqn, Index | None]  # where each of these writes, and each slice reads
    pivot: Any = None
    still: tuple[bool, ...] = ()

    def jaxpr(self, maker: dict[Var, Eqn]) -> Jaxpr | None:
        """None if an iteration reads or writes anything else."""
        prim: Any = self.eqn.prim
        body = prim.jaxpr
        consts, carry, xs = prim.parts(body.inputs)
        outer = self.outer
        for e in body.eqns:
            if not any(a in self.version for a in e.inputs):
                continue
            if any(a in self.version for a in e.inputs[1:]):
                return None
            if e not in self.steps and not isinstance(e.prim, DynamicSlice):
                return None
            if e in self.steps:
                at = self.places[e]
            else:
                at = self.places[e] = index_of(maker, e)
            k = self.version[e.inputs[0]]
            if at is None or at[self.axes[k]] is None:
                return None
            where = at[self.axes[k]]
            if where in self.values:
                if not np.array_equal(self.values[where], self.own):
                    return None
                continue
            pivot = outer.get(where) if type(where) is Var else where  # type: ignore[arg-type]
            if e in self.steps or pivot is None or e.inputs[0] is not carry[k]:
                return None
            if self.pivot is not None and not _same(pivot, self.pivot):
                return None
            self.pivot = pivot
        if any(v in self.version for v in body.outs[prim.carry :]):
            return None
        pivots = [v for v in outer if outer[v] is self.pivot] if self.pivot is not None else []
        known = PivotRound(
            self.values, self.own, pivots, outer, self.version, self.axes, self.places
        )
        self.still = known.still(body, carry) if self.pivot is not None else (True,) * len(carry)
        return self._made(body, consts, carry, xs)

    def _made(self, body: Jaxpr, consts: list, carry: list, xs: list) -> Jaxpr:
        rows = [Var(row_aval(v.aval, d)) for v, d in zip(carry, self.axes)]
        before, after = [Var(v.aval) for v in rows], [Var(v.aval) for v in rows]
        early = Var(ShapedArray((), np.dtype(bool)))
        name: dict[Atom, Atom] = dict(zip(carry, rows))
        eqns: list[Eqn] = []
        for e in body.eqns:
            k = self.version.get(e.inputs[0], -1) if e.inputs else -1
            if k < 0:
                ins = [name.get(a, a) for a in e.inputs]
                outs = [Var(v.aval) for v in e.outs]
                name.update(zip(e.outs, outs))
                eqns.append(Eqn(e.prim, ins, outs, e.source))
                continue
            at = self.places[e]
            assert at is not None
            axis = self.axes[k]
            if e in self.steps:
                name[e.outs[0]] = self._write(eqns, e, name, at, axis)
            elif at[axis] in self.values:
                name[e.outs[0]] = self._read(eqns, e, name[e.inputs[0]], name, at, axis)
            else:
                old = self._read(eqns, e, before[k], name, at, axis)
                if not self.still[k]:
                    new = self._read(eqns, e, after[k], name, at, axis)
                    (old,) = bind_into(eqns, SelectN(), [early, new, old])
                name[e.outs[0]] = old
        outs = [name.get(o, o) for o in body.outs]
        inputs = [*consts, *rows, *before, *after, early, *xs]
        return without_turns(Jaxpr(inputs, eqns, outs, name=body.name))  # type: ignore

    def _read(self, eqns: list[Eqn], e: Eqn, row: Atom, name: dict, at: Index, axis: int) -> Atom:
        prim: Any = e.prim
        sizes = prim.slice_sizes
        if any(a is not None for k, a in enumerate(at) if k != axis):
            starts = [name.get(a, a) for k, a in enumerate(e.inputs[1:]) if k != axis]
            rest = tuple([n for k, n in enumerate(sizes) if k != axis])
            (row,) = bind_into(eqns, DynamicSlice(rest), [row, *starts])
        return bind_into(eqns, Reshape(sizes), [row])[0]

    def _write(self, eqns: list[Eqn], e: Eqn, name: dict, at: Index, axis: int) -> Atom:
        """The row after an update of it."""
        prim: Any = e.prim
        row = name[e.inputs[0]]
        ins = [name.get(a, a) for a in e.inputs]
        others = [a for k, a in enumerate(at) if k != axis]
        scattered = isinstance(prim, AnyScatter)
        if scattered and any(a is not None for a in others):
            dims = [k for k, a in enumerate(at) if a is not None and k != axis]
            index = [bind_into(eqns, Reshape((1,)), [name.get(at[k], at[k])])[0] for k in dims]
            (index,) = index if len(index) == 1 else bind_into(eqns, Concatenate(0), index)
            low = tuple([k - (k > axis) for k in dims])
            names = prim.dimension_numbers._replace(
                inserted_window_dims=low, scatter_dims_to_operand_dims=low
            )
            new = replace(prim, dimension_numbers=names)
            return bind_into(eqns, new, [row, index, ins[2]])[0]
        update = ins[2] if scattered else ins[1]
        if not scattered:
            shape = tuple([n for k, n in enumerate(update.aval.shape) if k != axis])
            (update,) = bind_into(eqns, Reshape(shape), [update])
            if any(a is not None for a in others):
                starts = [a for k, a in enumerate(ins[2:]) if k != axis]
                return bind_into(eqns, prim, [row, update, *starts])[0]
        if isinstance(prim, (DynamicSliceAdd, ScatterAdd)):
            return bind_into(eqns, add, [row, update])[0]
        return update


def _same(a: Atom, b: Atom) -> bool:
    if type(a) is Var or type(b) is Var:
        return a is b
    return bool(a.value._value == b.value._value)  # type: ignore[union-attr]


def row_aval(aval: ShapedArray, axis: int) -> ShapedArray:
    """The type of one row of an array."""
    return aval.update(shape=aval.shape[:axis] + aval.shape[axis + 1 :])
