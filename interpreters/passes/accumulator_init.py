"""Accumulator initialisation: `a + loop(zeros)` becomes `loop(a)`.

Transposition makes such loops for the cotangents of constants. Starting from the sum so far saves an
array of zeros and a pass over the whole array. The gradient of a diagonal, an update of zeros in
another shape, is added where it belongs, too.

Source: incremental adjoints, Griewank & Walther 2008, ch. 3.
Input: a jaxpr whose loops and updates make terms of sums.
Output: the same, where loops and updates start from the sum.
Legal when: the loop only adds to that carry, which starts as zeros, and nobody else reads the term.
Pays when: always; it is one array and one pass less.
Costs: terms are added one by one, so sums are rounded differently.
"""

from typing import Any

from fnx.core.def_use import definitions, use_counts
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.interpreters.control_flow import ScanRecord, WhileRecord
from fnx.ops.base.permute import Reshape

_LOOPS = (ScanRecord, WhileRecord)


def accumulate(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with sums moved into the loops, and the updates, that make their terms."""
    return _into_loops(_into_updates(jaxpr))


def _into_updates(jaxpr: Jaxpr) -> Jaxpr:
    """`a + update(zeros, t)` as `update(a, t)`, through a change of shape, too."""
    if not any(e.prim.update_kind == "add" for e in jaxpr.eqns):
        return jaxpr
    uses = use_counts(jaxpr)
    maker = definitions(jaxpr.eqns)
    eqns: list[Eqn] = []
    for e in jaxpr.eqns:
        new = None
        if e.prim.name == "add" and e.outs[0].aval.shape:
            for total, term in (e.inputs, e.inputs[::-1]):
                new = new or _updated(e, total, term, maker, uses)
        eqns += new or [e]
    return jaxpr.with_eqns(eqns)


def _updated(
    e: Eqn, total: Atom, term: Atom, maker: dict[Var, Eqn], uses: dict[Atom, int]
) -> list[Eqn] | None:
    """Equations that update `total`, if the term is a reshaped update of zeros."""
    back = maker.get(term) if type(term) is Var else None
    if back is None or not isinstance(back.prim, Reshape) or total.aval != term.aval:
        return None
    update = maker.get(back.inputs[0])  # type: ignore[call-overload]
    if update is None or update.prim.update_kind != "add" or not _is_zeros(update.inputs[0], maker):
        return None
    if uses[term] != 1 or uses[update.outs[0]] != 1:
        return None
    flat, new = Var(back.inputs[0].aval), Var(back.inputs[0].aval)
    return [
        Eqn(Reshape(flat.aval.shape), [total], [flat]),
        Eqn(update.prim, [flat, *update.inputs[1:]], [new], update.source),
        Eqn(back.prim, [new], e.outs, e.source),
    ]


def _into_loops(jaxpr: Jaxpr) -> Jaxpr:
    if not any(isinstance(e.prim, _LOOPS) for e in jaxpr.eqns):
        return jaxpr
    uses = use_counts(jaxpr)
    maker = definitions(jaxpr.eqns)
    place = {id(e): k for k, e in enumerate(jaxpr.eqns)}
    starts: dict[int, dict[int, Atom]] = {}  # scan -> operand -> what it starts from instead
    renamed: dict[Atom, Var] = {}
    for e in jaxpr.eqns:
        if e.prim.name != "add" or not e.outs[0].aval.shape:
            continue
        for total, term in (e.inputs, e.inputs[::-1]):
            loop = maker.get(term) if type(term) is Var else None
            if loop is None or type(total) is not Var or uses[term] != 1:
                continue
            before = total not in maker or place[id(maker[total])] < place[id(loop)]
            k = _zero_accumulator(loop, term, maker)
            if before and k is not None and total.aval.like(term.aval):
                starts.setdefault(id(loop), {})[k] = renamed.get(total, total)
                renamed[e.outs[0]] = term  # type: ignore[assignment]
                break
    if not starts:
        return jaxpr
    return _rebuilt(jaxpr, starts, renamed)


def _rebuilt(jaxpr: Jaxpr, starts: dict[int, dict[int, Atom]], renamed: dict[Atom, Var]) -> Jaxpr:
    eqns = []
    for e in jaxpr.eqns:
        if e.outs and e.outs[0] in renamed:
            continue
        inputs = [renamed.get(a, a) for a in e.inputs]
        for k, start in starts.get(id(e), {}).items():
            inputs[k] = start
        eqns.append(Eqn(e.prim, inputs, e.outs, e.source))
    outs = [renamed.get(a, a) for a in jaxpr.outs]
    return jaxpr.with_eqns(eqns, outs)


def _zero_accumulator(loop: Eqn, term: Atom, maker: dict[Var, Eqn]) -> int | None:
    """The number of the operand that is zeros and only added to, whose last value is `term`."""
    k = loop.outs.index(term)  # type: ignore[arg-type]
    operand = loop.prim.input_output_aliases().get(k) if isinstance(loop.prim, _LOOPS) else None
    if operand is None or not _is_zeros(loop.inputs[operand], maker):
        return None
    return operand if _loop_adds(loop, operand, k) else None


def _loop_adds(loop: Eqn, operand: int, carry: int) -> bool:
    """Whether a loop does nothing with a carry but to add to it."""
    prim: Any = loop.prim
    if prim.name == "scan":
        return _only_added_to(prim.jaxpr, operand, carry)
    if use_counts(prim.cond_jaxpr).get(prim.cond_jaxpr.inputs[prim.cond_consts + carry]):
        return False
    return _only_added_to(prim.body_jaxpr, prim.body_consts + carry, carry)


def _is_zeros(atom: Atom, maker: dict[Var, Eqn]) -> bool:
    e = maker.get(atom) if type(atom) is Var else None
    if e is None or e.prim.name != "broadcast_in_dim" or type(e.inputs[0]) is not Literal:
        return False
    return not e.inputs[0].value._value.any()  # type: ignore[attr-defined]


def _only_added_to(body: Jaxpr, operand: int, result: int) -> bool:
    """Whether a carry goes through sums alone to its next value, and is read by nothing else."""
    uses = use_counts(body)
    at: Atom = body.inputs[operand]
    while uses.get(at) == 1:
        if at is body.outs[result]:
            return True
        e = next((e for e in body.eqns if at in e.inputs), None)
        if e is None:
            return False
        k = e.inputs.index(at)
        if e.prim.update_kind == "add" and k == 0 or e.prim.name == "add":
            if not e.outs[0].aval.like(at.aval):
                return False
            at = e.outs[0]
        elif isinstance(e.prim, _LOOPS):
            carries = e.prim.input_output_aliases().items()
            inner = next((j for j, operand in carries if operand == k), None)
            if inner is None or not _loop_adds(e, k, inner):
                return False
            at = e.outs[inner]
        else:
            return False
    return False
