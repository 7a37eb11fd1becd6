"""Horizontal fusion: reductions of one array follow one another, so that a nest makes them in one pass.

Between the mean of an array and its maximum may stand the mean of squares, which waits for the first:
then the array would be read three times, not twice. And where a product stands between an array and its
sum, the array would be stored for it.

Source: sibling fusion of XLA.
Input: a jaxpr.
Output: the same equations, reductions moved up to earlier ones of the same values over the same axes.
Legal when: what a reduction reads can be computed there, without anything that waits for the first.
Pays when: the array is not small: it goes through the caches once.
Costs: a search backwards from each pair of reductions.
"""

from fnx.core import policy
from fnx.core.def_use import definitions
from fnx.core.jaxpr import Eqn, Jaxpr, Var

from . import fusion_policy

_REDUCTIONS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor".split()
)
_SPREADS = frozenset("broadcast_in_dim reshape expand_dims squeeze".split())


def reductions(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with reductions moved up to earlier ones over the same axes of the same values.

    Those of values that were just computed come before a product that follows.
    """
    waiting = [e for e in jaxpr.eqns if _is_reduction(e)]
    if not waiting:
        return jaxpr
    maker = definitions(jaxpr.eqns)
    done: set[int] = set()
    order: list[Eqn] = []

    def place(eqn: Eqn) -> None:
        done.add(id(eqn))
        order.append(eqn)

    for eqn in jaxpr.eqns:
        if id(eqn) in done:
            continue
        if eqn.prim.name == "dot_general":  # which may be a call, before which all is stored
            fresh = {v for e in order[-policy.SIBLING_EQUATIONS :] for v in e.outs}
            for other in [e for e in waiting if id(e) not in done][: policy.SIBLING_EQUATIONS]:
                needed = _needed(other, maker, done, set(eqn.outs)) or []
                if not fresh.isdisjoint(a for e in needed for a in e.inputs if type(a) is Var):
                    for e in needed:
                        place(e)
        place(eqn)
        if not _is_reduction(eqn):
            continue
        results, sources = set(eqn.outs), _sources(eqn, maker)
        for other in waiting:
            if id(other) in done or _kind(other) != _kind(eqn):
                continue
            needed = _needed(other, maker, done, results)
            if needed is not None and not sources.isdisjoint(_sources(other, maker)):
                for e in needed:
                    place(e)
                results.update(other.outs)
    return jaxpr.with_eqns(order)


def totals_last(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with numbers that are made of totals where they are read by anything else.

    They wait for the end of a nest, which more that is computed of the same arrays may join before.
    """
    if not any(_is_reduction(e) for e in jaxpr.eqns):
        return jaxpr
    made: set[Var] = set()  # totals, and what is made of them
    waiting: dict[object, Eqn] = {}
    order: list[Eqn] = []

    def place(eqn: Eqn) -> None:
        for v in eqn.outs:
            waiting.pop(v, None)
        for a in eqn.inputs:
            if a in waiting:
                place(waiting[a])
        order.append(eqn)

    for eqn in jaxpr.eqns:
        small = all([fusion_policy.is_small_aval(v.aval) for v in eqn.outs])
        moves = eqn.prim.elementwise or eqn.prim.name in _SPREADS
        if small and moves and any(a in made for a in eqn.inputs):
            made.update(eqn.outs)
            waiting.update((v, eqn) for v in eqn.outs)
            continue
        if small and _is_reduction(eqn):
            made.update(eqn.outs)
        place(eqn)
    for eqn in jaxpr.eqns:
        if not waiting.keys().isdisjoint(eqn.outs):
            place(eqn)
    return jaxpr.with_eqns(order)


def _is_reduction(eqn: Eqn) -> bool:
    return eqn.prim.name in _REDUCTIONS and not fusion_policy.is_small_aval(eqn.inputs[0].aval)


def _kind(eqn: Eqn) -> tuple:
    return eqn.inputs[0].aval.shape, tuple(sorted(eqn.prim.axes))  # type: ignore[attr-defined]


def _sources(eqn: Eqn, maker: dict[Var, Eqn]) -> set[Var]:
    """The arrays that a reduction reads, through elementwise operations."""
    found: set[Var] = set()
    todo, seen = list(eqn.inputs), set()
    while todo:
        atom = todo.pop()
        if type(atom) is not Var or atom in seen or fusion_policy.is_small_aval(atom.aval):
            continue
        seen.add(atom)
        made = maker.get(atom)
        if made is not None and made.prim.elementwise:
            todo += made.inputs
        else:
            found.add(atom)
    return found


def _needed(eqn: Eqn, maker: dict[Var, Eqn], done: set[int], results: set[Var]) -> list[Eqn] | None:
    """An equation and the few that it waits for, in order; None if it waits for anything else."""
    found: list[Eqn] = []
    seen: set[int] = set()
    todo = [(eqn, False)]
    while todo:
        e, ready = todo.pop()
        if ready:
            found.append(e)
            continue
        if id(e) in seen:
            continue
        seen.add(id(e))
        moves = e is eqn or e.prim.elementwise or e.prim.name in _SPREADS
        if len(seen) > policy.SIBLING_EQUATIONS or not moves:
            return None
        todo.append((e, True))
        for atom in e.inputs:
            if type(atom) is not Var:
                continue
            if atom in results:
                return None
            made = maker.get(atom)
            if made is not None and id(made) not in done:
                todo.append((made, False))
    return found
