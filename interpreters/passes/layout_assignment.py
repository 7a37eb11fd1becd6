"""Layout assignment: matrices that loops go through by columns lie there transposed.

A column of a row-major matrix is one number of each cache line that it touches. One transposition
before the loops, or after them, makes it contiguous in all iterations.

Source: XLA.
Input: a jaxpr with loops of loops.
Output: the same, whose loops get, and give, such matrices transposed.
Legal when: all that is done to the matrix in the loop has a counterpart on its transpose.
Pays when: each column is touched `COLUMN_TOUCHES` times on average, and rows and columns are
`COLUMN_LENGTH`.
Costs: a transposition before the loop, or after it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import policy
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from fnx.interpreters.rewrite import bind_into, splice
from fnx.ops.base.permute import Reshape, Transpose
from fnx.ops.structure.dynamic_slice import DynamicSlice, DynamicSliceAdd


def transposed_columns(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with loops that get, and give, matrices transposed."""
    if not any(e.prim.name == "scan" for e in jaxpr.eqns):
        return jaxpr
    eqns: list[Eqn] = []
    for e in jaxpr.eqns:
        _add(eqns, e)
    if len(eqns) == len(jaxpr.eqns):
        return jaxpr
    return jaxpr.with_eqns(eqns)


def _add(eqns: list[Eqn], e: Eqn) -> None:
    """Append an equation, or a loop with transpositions around it."""
    if e.prim.name != "scan":
        eqns.append(e)
        return
    prim: Any = e.prim
    read, added = [], []
    for k, a in enumerate(e.inputs[: prim.consts]):
        if _matrix(a) and _often(a, _columns_read(prim.jaxpr, prim.jaxpr.inputs[k]), prim.length):
            read.append(k)
    for k, a in enumerate(e.inputs[prim.consts : prim.consts + prim.carry]):
        if _matrix(a):
            count = _columns_added(prim.jaxpr, prim.consts + k, k)
            if count is not None and _often(a, count, prim.length):
                added.append(k)
    if not read and not added:
        eqns.append(e)
        return
    extra = [bind_into(eqns, _SWAP, [e.inputs[k]])[0] for k in read]
    inputs = list(e.inputs)
    for k in added:
        (inputs[prim.consts + k],) = bind_into(eqns, _SWAP, [inputs[prim.consts + k]])
    outs = list(e.outs)
    for k in added:
        outs[k] = Var(_SWAP.abstract(e.outs[k].aval)[0])
    operands = [*inputs[: prim.counted], *extra, *inputs[prim.counted :]]
    eqns.append(Eqn(_rebuilt(prim, read, added), operands, outs, e.source))
    eqns.extend(Eqn(_SWAP, [outs[k]], [e.outs[k]]) for k in added)


_SWAP = Transpose((1, 0))


def _matrix(a: Atom) -> bool:
    return type(a) is Var and len(a.aval.shape) == 2 and min(a.aval.shape) >= policy.COLUMN_LENGTH


def _often(a: Atom, count: int, length: int) -> bool:
    return count * length >= policy.COLUMN_TOUCHES * a.aval.shape[1]


def _is_column(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] == 1 and shape[0] > 1


def _columns_read(body: Jaxpr, v: Var) -> int:
    """How many columns of an input an iteration reads."""
    count = 0
    for e in body.eqns:
        prim: Any = e.prim
        if isinstance(prim, DynamicSlice) and e.inputs[0] is v:
            count += _is_column(prim.slice_sizes)
        elif prim.name == "scan" and v in e.inputs[: prim.consts]:
            inner = prim.jaxpr.inputs[e.inputs.index(v)]
            count += prim.length * _columns_read(prim.jaxpr, inner)
    return count


def _columns_added(body: Jaxpr, operand: int, result: int) -> int | None:
    """To how many columns of a carry an iteration adds; None if it does anything else with it."""
    count, at = 0, body.inputs[operand]
    while at is not body.outs[result]:
        readers = [e for e in body.eqns if at in e.inputs]
        if len(readers) != 1 or at in body.outs or readers[0].inputs.count(at) != 1:
            return None
        (e,) = readers
        prim: Any = e.prim
        k = e.inputs.index(at)
        if isinstance(prim, DynamicSliceAdd) and k == 0:
            shape = e.inputs[1].aval.shape
            if not _is_column(shape) and shape != (1, 1):
                return None
            count += _is_column(shape)
            at = e.outs[0]
        elif prim.name == "scan" and 0 <= k - prim.consts < prim.carry:
            inner = _columns_added(prim.jaxpr, k, k - prim.consts)
            if inner is None:
                return None
            count += prim.length * inner
            at = e.outs[k - prim.consts]
        else:
            return None
    return None if any(at in e.inputs for e in body.eqns) or body.outs.count(at) > 1 else count


@dataclass
class _Body:
    """A loop's body while it is rebuilt: what stands for which variable, transposed."""

    eqns: list[Eqn]
    read: dict[Var, Var]
    added: dict[Var, Var]

    def add(self, e: Eqn) -> None:
        prim: Any = e.prim
        first: Any = e.inputs[0] if e.inputs else None
        if isinstance(prim, DynamicSlice) and first in self.read and _is_column(prim.slice_sizes):
            flat = DynamicSlice(prim.slice_sizes[::-1])
            (row,) = bind_into(self.eqns, flat, [self.read[first], *e.inputs[:0:-1]])
            self.eqns.append(Eqn(Reshape(prim.slice_sizes), [row], e.outs, e.source))
        elif isinstance(prim, DynamicSliceAdd) and first in self.added:
            _, update, i, j = e.inputs
            (row,) = bind_into(self.eqns, Reshape(update.aval.shape[::-1]), [update])
            (new,) = bind_into(self.eqns, prim, [self.added[first], row, j, i])
            self.added[e.outs[0]] = new
        elif prim.name == "scan":
            self.loop(e)
        else:
            self.eqns.append(e)

    def loop(self, e: Eqn) -> None:
        prim: Any = e.prim
        m = prim.consts
        read = [k for k, a in enumerate(e.inputs[:m]) if a in self.read]
        read = [k for k in read if _columns_read(prim.jaxpr, prim.jaxpr.inputs[k])]
        added = [k for k, a in enumerate(e.inputs[m : m + prim.carry]) if a in self.added]
        if not read and not added:
            self.eqns.append(e)
            return
        inputs = [self.added.get(a, a) for a in e.inputs]  # type: ignore[call-overload]
        extra = [self.read[e.inputs[k]] for k in read]  # type: ignore[index]
        new = _rebuilt(prim, read, added)
        outs = list(e.outs)
        for k in added:
            outs[k] = self.added[e.outs[k]] = Var(_SWAP.abstract(e.outs[k].aval)[0])
        operands = [*inputs[: prim.counted], *extra, *inputs[prim.counted :]]
        self.eqns.append(Eqn(new, operands, outs, e.source))


def _rebuilt(prim: Any, read: Sequence[int], added: Sequence[int]) -> Any:
    """The loop with the constants `read` also transposed, before all of the body's own, and the
    carries `added` transposed.
    """
    body = prim.jaxpr
    swapped: Callable[[Var], Var] = lambda v: Var(_SWAP.abstract(v.aval)[0])
    extra = {body.inputs[k]: swapped(body.inputs[k]) for k in read}
    carries = {body.inputs[prim.consts + k]: swapped(body.inputs[prim.consts + k]) for k in added}
    made = _Body([], extra, dict(carries))
    for e in body.eqns:
        made.add(e)
    n = int(prim.counted)
    inputs = [*body.inputs[:n], *extra.values(), *(carries.get(v, v) for v in body.inputs[n:])]
    outs = [
        made.added[o] if k in added else o  # type: ignore[index]
        for k, o in enumerate(body.outs)
    ]
    jaxpr = _fresh(Jaxpr(inputs, made.eqns, outs, name=body.name))
    return prim.with_jaxpr(jaxpr, prim.consts + len(extra), prim.carry)


def _fresh(jaxpr: Jaxpr) -> Jaxpr:
    """The same in variables of its own."""
    inputs, eqns = [Var(v.aval) for v in jaxpr.inputs], []
    outs = splice(jaxpr, inputs, eqns)
    return Jaxpr(inputs, eqns, outs, name=jaxpr.name)
