"""Constant residuals: stacks of an array's known constant.

To restore an array, a loop stacks what it overwrites. Where each iteration writes at a place of its own
in an array that began as zeros, that is known without stacking.

Source: to-be-recorded analysis, Hascoet et al. 2005.
Input: a jaxpr with loops that stack residuals.
Output: the same, with a broadcast of the number in place of such a stack.
Legal when: the array began as one number, and the places written in all iterations are pairwise
distinct.
Pays when: always; nothing is stored.
Costs: nothing.
"""

from collections.abc import Iterator
from typing import Any

from fnx.core.def_use import definitions
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.interpreters.analysis.updates import chain, is_update
from fnx.interpreters.rewrite import live
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.structure.dynamic_slice import DynamicSlice
from fnx.ops.structure.gather import AnyScatter, Gather

Linear = tuple[int, Var, int]  # a times a row of the loop, plus b


def without_known_stacks(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with stacks of a number made by a broadcast."""
    if not any(e.prim.name == "scan" for e in jaxpr.eqns):
        return jaxpr
    maker = definitions(jaxpr.eqns)
    eqns: list[Eqn] = []
    changed = False
    for e in jaxpr.eqns:
        known = _known_stacks(e, maker) if e.prim.name == "scan" else {}
        eqns.append(_without(e, set(known)) if known else e)
        for k, value in known.items():
            out = e.outs[k]
            eqns.append(Eqn(Broadcast(out.aval.shape, ()), [value], [out]))
            changed = True
    return jaxpr.with_eqns(eqns) if changed else jaxpr


def _without(e: Eqn, results: set[int]) -> Eqn:
    """A loop without some of its stacks."""
    prim: Any = e.prim
    body = prim.jaxpr
    outs = [o for k, o in enumerate(body.outs) if k not in results]
    small = Jaxpr(body.inputs, live(body.eqns, outs), outs, name=body.name)
    loop = prim.with_jaxpr(small, prim.consts, prim.carry)
    return Eqn(loop, e.inputs, [v for k, v in enumerate(e.outs) if k not in results], e.source)


def _known_stacks(e: Eqn, outer: dict[Var, Eqn]) -> dict[int, Literal]:
    """Which results of a loop repeat a number, and the number."""
    prim: Any = e.prim
    body, n = prim.jaxpr, prim.consts
    maker = definitions(body.eqns)
    found: dict[int, Literal] = {}
    for k in range(prim.carry):
        value = _number(e.inputs[n + k], outer)
        array = body.inputs[n + k]
        if value is None:
            continue
        for result in range(prim.carry, len(body.outs)):
            reader = maker.get(body.outs[result])  # type: ignore[call-overload]
            if reader is None or not isinstance(reader.prim, (DynamicSlice, Gather)):
                continue
            if reader.inputs[0] is array and _apart(e, k, reader, maker, outer):
                found[result] = value
    return found


def _number(a: Atom, maker: dict[Var, Eqn]) -> Literal | None:
    """The number that an array repeats."""
    e = maker.get(a) if type(a) is Var else None
    if e is None or e.prim.name != "broadcast_in_dim" or type(e.inputs[0]) is not Literal:
        return None
    return e.inputs[0]


def _apart(
    e: Eqn, k: int, reader: Eqn, maker: dict[Var, Eqn], outer: dict[Var, Eqn]
) -> bool:  # fmt: skip
    """Whether an iteration reads where no iteration before it has written."""
    prim: Any = e.prim
    steps = chain(maker, prim.jaxpr.inputs[prim.consts + k], prim.jaxpr.outs[k])
    if steps is None or not all(is_update(s.eqn.prim) for s in steps):
        return False
    rows = dict(
        zip(prim.jaxpr.inputs[prim.consts + prim.carry :], e.inputs[prim.consts + prim.carry :])
    )
    first, *others = [
        {axis: _linear(a, maker, rows, outer) for axis, a in _points(x, maker)}
        for x in [reader, *(s.eqn for s in steps)]
    ]
    for axis, place in first.items():
        if place is not None and all(o.get(axis) == place for o in others):
            low, high = _bounds(place, rows, outer)
            if place[0] != 0 and 0 <= low <= high < reader.inputs[0].aval.shape[axis]:
                return True
    return False


def _points(e: Eqn, maker: dict[Var, Eqn]) -> Iterator[tuple[int, Atom]]:
    """The axes along which an equation touches one index only, and that index."""
    prim: Any = e.prim
    if isinstance(prim, (Gather, AnyScatter)):
        n = prim.dimension_numbers
        gather = isinstance(prim, Gather)
        axes = n.start_index_map if gather else n.scatter_dims_to_operand_dims
        single = n.collapsed_slice_dims if gather else n.inserted_window_dims
        if len(e.inputs[1].aval.shape) == 1:
            for axis, a in zip(axes, _parts(e.inputs[1], maker)):
                if axis in single:
                    yield axis, a
        return
    slices = isinstance(prim, DynamicSlice)
    sizes = e.outs[0].aval.shape if slices else e.inputs[1].aval.shape
    starts = e.inputs[1:] if slices else e.inputs[2:]  # none where the box does not move
    for axis, (size, a) in enumerate(zip(sizes, starts)):
        if size == 1:
            yield axis, a


def _parts(indices: Atom, maker: dict[Var, Eqn]) -> list[Atom]:
    """The numbers that an index vector is put together from."""
    e = maker.get(indices) if type(indices) is Var else None
    if e is not None and e.prim.name == "concatenate":
        return [p for a in e.inputs for p in _parts(a, maker)]
    return [indices] if indices.aval.size == 1 else []


def _linear(
    a: Atom, maker: dict[Var, Eqn], rows: dict[Var, Atom], outer: dict[Var, Eqn]
) -> Linear | None:
    """An index as a linear function of a row of the loop."""
    if type(a) is not Var:
        return None
    if a in rows:
        return 1, a, 0
    e = maker.get(a)
    if e is None:
        return None
    name = e.prim.name
    if name in ("reshape", "squeeze", "broadcast_in_dim", "convert_element_type"):
        whole = e.inputs[0].aval.dtype.kind == "i"
        return _linear(e.inputs[0], maker, rows, outer) if whole else None
    if name in ("add", "sub"):
        x, y = e.inputs
        if type(y) is Literal and (found := _linear(x, maker, rows, outer)):
            k = int(y.value._value)  # type: ignore[attr-defined]
            return found[0], found[1], found[2] + (k if name == "add" else -k)
        if type(x) is Literal and (found := _linear(y, maker, rows, outer)):
            k = int(x.value._value)  # type: ignore[attr-defined]
            sign = 1 if name == "add" else -1
            return sign * found[0], found[1], k + sign * found[2]
    if name == "clamp" and all(type(x) is Literal for x in e.inputs[::2]):
        found = _linear(e.inputs[1], maker, rows, outer)
        low, high = [int(x.value._value) for x in e.inputs[::2]]  # type: ignore
        if found is not None:
            ends = _bounds(found, rows, outer)
            return found if low <= ends[0] <= ends[1] <= high else None
    if name == "select_n" and len(e.inputs) == 3:
        test = maker.get(e.inputs[0])  # type: ignore[call-overload]
        found = _linear(e.inputs[1], maker, rows, outer)
        if test is not None and test.prim.name == "lt" and found is not None:
            zero = test.inputs[1]
            below = type(zero) is Literal and not zero.value._value.any()  # type: ignore
            if below and _linear(test.inputs[0], maker, rows, outer) == found:
                return found if _bounds(found, rows, outer)[0] >= 0 else None
    return None


def _bounds(place: Linear, rows: dict[Var, Atom], outer: dict[Var, Eqn]) -> tuple[float, float]:
    """The least and the largest index, over all iterations."""
    factor, row, shift = place
    a, begin = rows[row], 0
    e = outer.get(a) if type(a) is Var else None
    if e is not None and e.prim.name == "add" and type(e.inputs[1]) is Literal:
        begin = int(e.inputs[1].value._value)  # type: ignore[attr-defined]
        e = outer.get(e.inputs[0])  # type: ignore[call-overload]
    if e is None or e.prim.name != "iota":
        return -1, -2
    ends = [factor * (begin + k) + shift for k in (0, a.aval.shape[0] - 1)]
    return min(ends), max(ends)
