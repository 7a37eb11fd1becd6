"""Predication: `where(p, x.at[i].set(v), x)` becomes an update with chosen values.

Written so, an iteration of a loop would go through the whole array, and reverse mode keep all of it.
The update writes back what was there, or adds nothing, where the choice falls on the other array.

Source: Allen & Kennedy 2001, ch. 7.
Input: the body of a loop.
Output: the same, where a choice between an array and its update is an update.
Legal when: nobody else reads the update that is chosen from.
Pays when: the array is larger than `SELECTED_ELEMENTS`, and the update at most one part in
`PREDICATED_PART` of it.
Costs: reading what is written back.
"""

from collections.abc import Sequence

from fnx.core import policy
from fnx.core.array import Array
from fnx.core.def_use import definitions
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var, made_once
from fnx.interpreters.analysis.updates import nothing_added, places
from fnx.interpreters.rewrite import live, splice
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.elementwise.select import SelectN
from fnx.ops.structure.basic import scalar


@made_once
def updates_chosen(body: Jaxpr) -> Jaxpr:
    """The jaxpr with updates in place of choices between an array and its updates."""
    maker = definitions(body.eqns)
    eqns: list[Eqn] = []
    for e in body.eqns:
        found = _paths(maker, e)
        if found is None:
            eqns.append(e)
            continue
        mask, base, paths = found
        start = len(eqns)
        _update(eqns, e.outs[0], mask, base, paths)
        maker.update(definitions(eqns[start:]))
    if len(eqns) == len(body.eqns):
        return body
    return body.with_eqns(live(eqns, body.outs))


def _paths(maker: dict[Var, Eqn], e: Eqn) -> tuple[Atom, Atom, list[list[Eqn]]] | None:
    """Of a choice between updates of one array: the mask, the array, the updates of either case."""
    out = e.outs[0].aval if e.outs else None
    if (
        e.prim.name != "select_n"
        or len(e.inputs) != 3
        or out is None
        or out.size <= policy.SELECTED_ELEMENTS
    ):
        return None
    which = _repeated(maker, e.inputs[0])
    chains = [_updates(maker, case) for case in e.inputs[1:]]
    states = [[*(u.inputs[0] for u in chain), case] for chain, case in zip(chains, e.inputs[1:])]
    common = [x for x in states[0] if x in states[1] and type(x) is Var]
    if which is None or not common or not any(chains) or common[-1].aval != out:
        return None
    base = common[-1]
    paths = [chain[at.index(base) :] for chain, at in zip(chains, states)]
    written = sum(places(u).box.size for path in paths for u in path)
    return (
        None if policy.PREDICATED_PART * written > out.size or not written else (which, base, paths)
    )


def _updates(maker: dict[Var, Eqn], end: Atom) -> list[Eqn]:
    """The updates that end in an array, the first one first."""
    found: list[Eqn] = []
    while type(end) is Var and end in maker and maker[end].prim.update_kind in ("set", "add"):
        found.append(maker[end])
        end = found[-1].inputs[0]
    return found[::-1]


def _repeated(maker: dict[Var, Eqn], mask: Atom) -> Atom | None:
    """A mask that repeats fewer values, or the number of which it consists; None for others."""
    if not mask.aval.shape:
        return mask
    e = maker.get(mask) if type(mask) is Var else None
    if e is None or not isinstance(e.prim, Broadcast):
        return None
    few = e.inputs[0].aval
    if not few.shape:
        return e.inputs[0]
    return mask if policy.PREDICATED_PART * few.size <= mask.aval.size else None


def _update(eqns: list[Eqn], out: Var, mask: Atom, base: Atom, paths: Sequence[list[Eqn]]) -> None:
    """Append updates of `base` that give `out`: those of either case where the mask chooses it."""
    current = base
    for case, path in enumerate(paths):
        for u in path:
            current = _chosen(eqns, u, current, mask, case)
    eqns[-1] = Eqn(eqns[-1].prim, eqns[-1].inputs, [out], eqns[-1].source)


def _chosen(eqns: list[Eqn], update: Eqn, x: Atom, mask: Atom, case: int) -> Var:
    """Append an update of `x` where the mask chooses this case; its result."""
    p, value = places(update), update.prim.update_operand

    def values(x: Array, mask: Array, new: Array, *where: Array) -> list[Array]:
        here = p.reader(mask, *where) if mask.shape else mask
        if update.prim.update_kind == "add":
            old: Array = scalar(nothing_added(new.dtype), new.dtype)
        else:
            old = p.reader(x, *where)
        return [SelectN()(here, *((new, old) if case == 0 else (old, new)))]

    atoms = [x, mask, update.inputs[value], *p.where]
    (chosen,) = splice(trace_closed(values, [a.aval for a in atoms]), atoms, eqns)
    inputs = [x, *update.inputs[1:]]
    inputs[value] = chosen
    after = Var(x.aval)
    eqns.append(Eqn(update.prim, inputs, [after], update.source))
    return after
