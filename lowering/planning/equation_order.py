"""List scheduling under anti-dependences: who reads a value goes before the equation that overwrites it.

An update in place needs its operand to be dead. Equations come in the order in which the user wrote
them, or transposition made them, where a reader may follow the update although it does not depend
on it.

Source: list scheduling, Muchnick 1997, ch. 17; anti-dependences, Allen & Kennedy 2001, ch. 2.
Input: a jaxpr.
Output: the same equations in another order.
Legal when: each equation follows those that it reads.
Pays when: it saves the copy of an array; updates wait until their result is needed.
Costs: a walk over the readers of each operand that may be overwritten.
"""

from collections.abc import Mapping

from fnx.core.def_use import definitions, use_counts
from fnx.core.jaxpr import Eqn, Jaxpr, Var

from . import fusion_policy

_BOXES = ("slice_set", "slice_add")  # updates at places that are known


def overwritten(eqn: Eqn) -> list[Var]:
    """The operands that an equation may overwrite, if they are dead by then."""
    found = [eqn.inputs[k] for k in eqn.prim.input_output_aliases().values()]
    return [a for a in found if type(a) is Var and a.aval.shape]


def taken_over(eqn: Eqn, out: Var) -> Var | None:
    """The operand whose memory a certain result may take."""
    at = eqn.prim.input_output_aliases().get(eqn.outs.index(out))
    found = None if at is None else eqn.inputs[at]
    return found if type(found) is Var and found.aval.shape else None


def exchanged(jaxpr: Jaxpr, last: Var, uses: Mapping[Var, list[int]]) -> Var | None:
    """The result of an exchange of which nothing is made but, element by element, a value of its type.

    It may lie where that value will: the elementwise pass then reads and writes one array, not two.
    """
    maker = {v: k for k, e in enumerate(jaxpr.eqns) for v in e.outs}
    like = last.aval
    todo = [] if last not in maker or fusion_policy.is_small_aval(like) else [last]
    while todo:
        var = todo.pop()
        e = jaxpr.eqns[maker[var]]
        if e.prim.exchanges and var is not last and var.aval.dtype == like.dtype:
            return var
        if e.prim.elementwise:
            alone = lambda a, k=maker[var]: type(a) is Var and a in maker and uses.get(a) == [k]
            todo += [a for a in e.inputs if alone(a) and a.aval.shape == like.shape]
    return None


def saves_readers(eqn: Eqn) -> bool:
    """Whether an update is sure to let who reads its operand go first: loops and boxes may not."""
    return eqn.prim.update_operand is not None and eqn.prim.name not in _BOXES


def read_at_own_index(eqn: Eqn, old: Var, maker: dict[Var, Eqn]) -> bool:
    """Whether a result reads an array nowhere but at the index of its own element.

    What is stored before (sums, products, loops) may have read it anywhere.
    """
    todo, seen = list(eqn.inputs), set()
    while todo:
        atom = todo.pop()
        made = maker.get(atom) if type(atom) is Var else None
        if made is None or atom in seen or is_stored_first(made):
            continue
        seen.add(atom)
        if made.prim.elementwise:
            todo.extend(made.inputs)
        elif made.prim.moves and any(_pulls(a, old, maker) for a in made.inputs):
            return False
    return True


def _pulls(atom: object, old: Var, maker: dict[Var, Eqn]) -> bool:
    """Whether a value reads an array when its own elements are read: nothing between is stored."""
    todo, seen = [atom], set()
    while todo:
        a = todo.pop()
        if a is old:
            return True
        made = maker.get(a) if type(a) is Var else None
        if made is None or a in seen or is_stored_first(made):
            continue
        seen.add(a)
        if made.prim.elementwise or made.prim.moves:
            todo.extend(made.inputs)
        else:
            todo.extend(overwritten(made))  # what is updated in its place
    return False


def is_stored_first(eqn: Eqn) -> bool:
    """Whether a result, or what it spreads, is computed before it is read."""
    if any(fusion_policy.is_small_aval(v.aval) for v in eqn.outs):
        return True
    return eqn.prim.name == "broadcast_in_dim" and fusion_policy.spreads(
        eqn.inputs[0].aval.shape, eqn.outs[0].aval.shape
    )


def _changes_bulk(eqn: Eqn) -> bool:
    """Whether an equation replaces or adds to a box without gaps, of most of an array."""
    if eqn.prim.name not in _BOXES:
        return False
    whole, part = (a.aval.shape for a in eqn.inputs)
    return eqn.prim.dense_box() is not None and fusion_policy.is_bulk(part, whole)  # type: ignore[attr-defined]


def _pulls_elsewhere(eqn: Eqn, old: Var, maker: dict[Var, Eqn]) -> bool:
    """Whether the new elements of a box read an array anywhere but where they are written."""
    box = eqn.prim.dense_box()  # type: ignore[attr-defined]
    todo, seen = [(eqn.inputs[1], False)], set()
    while todo:
        atom, whole = todo.pop()  # whole: its indices are those of the array, not of the box
        if atom is old and not whole:
            return True
        made = maker.get(atom) if type(atom) is Var else None
        if made is None or (atom, whole) in seen or is_stored_first(made):
            continue
        seen.add((atom, whole))
        if made.prim.elementwise:
            todo.extend((a, whole) for a in made.inputs)
        elif made.prim.name == "slice" and not whole and made.prim.dense_box() == box:  # type: ignore[attr-defined]
            todo.append((made.inputs[0], True))
        elif made.prim.moves and any(_pulls(a, old, maker) for a in made.inputs):
            return True
    return False


def waits_for_readers(eqn: Eqn, old: Var, maker: dict[Var, Eqn]) -> bool:
    """Whether a box's new elements read an array anywhere but where they go: they cannot take its place."""
    return _changes_bulk(eqn) and _pulls_elsewhere(eqn, old, maker)


def box_chains(jaxpr: Jaxpr) -> tuple[set[int], set[int]]:
    """Ids of the equations of chains of box updates that are made in one pass; of which, elsewhere.

    Chains that read what they would overwrite are computed into other memory: in place they would
    need their new elements computed and stored before, but where one update reads only the elements
    that it replaces. Others of two or more are made in place.
    """
    eqns = [e for e in jaxpr.eqns if _changes_bulk(e)]
    if not eqns:
        return set(), set()
    maker, uses = definitions(jaxpr.eqns), use_counts(jaxpr)
    found: set[int] = set()
    anew: set[int] = set()
    for last in eqns:
        chain = [last]
        while uses[chain[-1].inputs[0]] == 1 and chain[-1].inputs[0] in maker:
            before = maker[chain[-1].inputs[0]]  # type: ignore[index]
            if not _changes_bulk(before):
                break
            chain.append(before)
        first = chain[-1].inputs[0]
        ids = {id(e) for e in chain}
        if type(first) is not Var:
            reads = False
        elif len(chain) == 1:
            reads = _pulls_elsewhere(last, first, maker)
        else:
            reads = any(_pulls(e.inputs[1], first, maker) for e in chain)
        if reads:
            anew |= ids
            found |= ids
        elif len(chain) > 1:
            found |= ids
    return found, anew


class _Scheduler:
    """Puts the equations of one jaxpr in order, each after what it waits for."""

    def __init__(self, jaxpr: Jaxpr):
        self.maker = definitions(jaxpr.eqns)
        self.place = {id(e): k for k, e in enumerate(jaxpr.eqns)}
        self.readers: dict[Var, list[Eqn]] = {}
        for e in jaxpr.eqns:
            for a in dict.fromkeys(a for a in e.inputs if type(a) is Var):
                self.readers.setdefault(a, []).append(e)
        self.done: set[int] = set()
        self.active: dict[int, Eqn] = {}
        self.order: list[Eqn] = []

    def readers_of(self, var: Var) -> list[Eqn]:
        """The equations that read a variable, directly or by way of values not stored before.

        A reader may be computed no earlier than where its own result is needed, so readers of
        readers go before an update too; but the result of an update is stored at once.
        """
        found: dict[int, Eqn] = {}
        todo = [var]
        while todo:
            for e in self.readers.get(todo.pop(), ()):
                if id(e) not in found:
                    found[id(e)] = e
                    if not overwritten(e):
                        todo.extend(e.outs)
        return sorted(found.values(), key=lambda e: self.place[id(e)])

    def waiting(self) -> set[int]:
        """The equations that need the result of one that is being scheduled, with these."""
        found, todo = set(self.active), list(self.active.values())
        while todo:
            for v in todo.pop().outs:
                for e in self.readers.get(v, ()):
                    if id(e) not in found:
                        found.add(id(e))
                        todo.append(e)
        return found

    def schedule(self, eqn: Eqn) -> None:
        if id(eqn) in self.done:
            return
        self.active[id(eqn)] = eqn
        for a in eqn.inputs:
            if type(a) is Var and a in self.maker:
                self.schedule(self.maker[a])
        waiting: set[int] = set()
        for var in overwritten(eqn):
            for reader in self.readers_of(var):
                if id(reader) not in self.done and var not in overwritten(reader):
                    waiting = waiting or self.waiting()
                    if id(reader) not in waiting:
                        self.schedule(reader)
        del self.active[id(eqn)]
        self.done.add(id(eqn))
        self.order.append(eqn)


def readers_first(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with its equations in an order that lets updates happen in place."""
    if not any(overwritten(e) for e in jaxpr.eqns):
        return jaxpr
    scheduler = _Scheduler(jaxpr)
    for eqn in jaxpr.eqns:
        if eqn.prim.update_operand is None:
            scheduler.schedule(eqn)
    for eqn in jaxpr.eqns:
        scheduler.schedule(eqn)
    return jaxpr.with_eqns(scheduler.order)
