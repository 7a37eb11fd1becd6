"""Residuals: what a derivative keeps of the forward pass, by a minimum cut.

A derivative reads values of the forward pass. Any set of values from which the others can be computed
again will do; the cheapest one is a minimum cut between what is at hand and what is read, where storing
costs bytes and computing again costs what `analysis/cost_model.py` says. What the results do not need
anyway costs nothing to compute later instead of earlier (Griewank & Walther 2008, ch. 12).

Source: min-cut rematerialization, AOTAutograd.
Input: a jaxpr, which inputs have tangents, what is dear to keep.
Output: the forward part with its residuals, and the linear part.
Legal when: always; effects stay in the forward part.
Pays when: always.
Costs: a maximum flow on the graph of the body (`analysis/min_cut.py`), once a body.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from fnx.core import dtypes, policy
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.interpreters.analysis.cost_model import recompute_cost
from fnx.interpreters.analysis.min_cut import Graph
from fnx.interpreters.analysis.updates import chain, is_update, needed, overwritten
from fnx.interpreters.linearize import linearize_jaxpr
from fnx.interpreters.passes.choice_factoring import factored_choices
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.rewrite import Renaming, dependent, live, reaching, reads, splice

from .undo_log import Rewind, go_back_over, record


@dataclass(frozen=True)
class Split:
    """A jaxpr and its derivative.

    forward: inputs -> (results, stored values). linear: (inputs that are read again, versions of
    restored arrays, stored values, nonzero tangents) -> nonzero tangents of results.
    undo: (inputs that are read again, restored arrays after it all, stored values) -> their versions.
    """

    forward: Jaxpr
    linear: Jaxpr
    inputs: tuple[int, ...]  # which inputs are read again
    mask: tuple[bool, ...]  # which results have tangents
    tangents: int  # how many tangents the linear jaxpr gets
    restored: tuple[int, ...] = ()  # inputs, carried by a loop, that are restored on the way back
    versions: tuple[int, ...] = ()  # how many of each, from the first to the last
    undo: Jaxpr | None = None

    @property
    def stored(self) -> int:
        """How many values are stored."""
        return len(self.forward.outs) - len(self.mask)


class _Network(Graph):
    """Values and the equations that make them; a cut parts what is stored from what is not.

    `wanted` are the values that may be read later, of which those `at_hand` cost nothing.
    """

    def __init__(self, wanted: set[Var], at_hand: set[Var], rewinds: Sequence[Rewind]):
        super().__init__(2)
        self.source, self.sink = 0, 1
        self.wanted, self.at_hand, self.rewinds = wanted, at_hand, rewinds
        self.restored = {v: r for r in rewinds for v in r.versions}
        self.nodes: dict[Var, int] = {}
        self.makes: dict[Var, int] = {}  # the node of the equation that makes a variable
        self.groups = {r.start: self.node() for r in rewinds}
        for v, r in self.restored.items():
            self.nodes[v] = self.node()
            self.edge(self.groups[r.start], self.nodes[v])

    def put(self, v: Var, price: float) -> None:
        """An input that is known later if it is stored."""
        self.nodes[v] = self.node()
        self.edge(self.source, self.nodes[v], price)

    def equation(self, e: Eqn, outs: Sequence[Var], again: float, dear: float) -> None:
        """What makes values: the price of computing them again, and how dear their bytes are."""
        maker = self.node()  # on the sink's side: computed again
        if again > 0:
            self.edge(self.source, maker, again)
        for a in set(e.inputs):
            if type(a) is Var and a not in self.at_hand:
                self.edge(self.nodes[a], maker)
        for v in outs:
            self.nodes[v], self.makes[v] = self.node(), maker
            self.edge(maker, self.nodes[v], _bytes(v) * dear)

    def comparison(self, e: Eqn, made: dict[Var, Eqn]) -> None:
        """Let both sides of a comparison for equality be of one computation, whose roundings are the same.

        A product and a sum may be rounded once, or each: `eq(x, max(x))` may hold nowhere where one of both
        was stored and the other is computed again. What rounds so is computed again only if all else is
        that the comparison reads and is made of it.
        """
        chain: dict[int, None] = {}
        rounded: dict[int, None] = {}
        todo, seen = [a for a in e.inputs if type(a) is Var], set[Var]()
        while todo:
            v = todo.pop()
            if v in seen or v not in self.makes:
                continue
            seen.add(v)
            chain[self.makes[v]] = None
            if _may_round_otherwise(made[v]):
                rounded[self.makes[v]] = None
            else:
                todo += [a for a in made[v].inputs if type(a) is Var]
        for root in rounded:
            for node in chain:
                if node != root:
                    self.edge(node, root)

    def chosen(self, residuals: Sequence) -> tuple[set[Var], list[Rewind]]:
        """What is to be stored so that `residuals` can be computed: variables, arrays to restore."""
        for r in self.rewinds:
            self.edge(self.source, self.groups[r.start], r.price)
            for v in needed(r.steps):
                if v not in self.at_hand:
                    self.edge(self.nodes[v], self.groups[r.start])
        for v in {r for r in residuals if type(r) is Var and r not in self.at_hand}:
            self.edge(self.nodes[v], self.sink)
        _, late = self.cut(self.source, self.sink)
        plain = {v for v in self.nodes if self.nodes[v] in late and v not in self.restored}
        stored = {v for v in plain if self.makes.get(v, self.source) not in late}
        return stored, [r for r in self.rewinds if self.groups[r.start] in late]


def choose(
    eqns: Sequence[Eqn], results: Sequence, residuals: Sequence, at_hand: set[Var],
    costly: dict[Var, float], invariant: set[Var], rewinds: Sequence[Rewind] = (),
    loops: bool = False, press: float = 1,
) -> tuple[list[Var], list[Rewind]]:  # fmt: skip
    """What to store, so that `residuals` can be computed from it and from `at_hand`: variables, arrays.

    `costly` are inputs that must be stored to be known later, and the price. `invariant` variables
    depend on loop constants only: equations that make them are computed once, wherever they stand.
    With `loops`, loops may be run again; what they stack is `press` times as dear as other bytes.
    """
    needs = [v for r in rewinds for v in needed(r.steps)]
    network = _Network(reaching(eqns, [*residuals, *needs]), at_hand, rewinds)
    anyway = reaching(eqns, results)
    behind = dependent(
        eqns, network.restored
    )  # where these say what to restore, they must be there before
    costly = costly | {v: _bytes(v) for v in needs if v in behind}
    for v, price in costly.items():
        if v in network.wanted and v not in network.restored:
            network.put(v, price)
    for e in eqns:
        outs = [v for v in e.outs if v in network.wanted and v not in network.restored]
        outs = [v for v in outs if v not in costly]
        if outs:
            again = inf if e.prim.effects else 0.0  # side effects happen once
            if (
                not again
                and any(v in anyway for v in e.outs)
                and not all(v in invariant for v in e.outs)
            ):
                again = recompute_cost(_for(e, outs) if loops else e, loops)
            network.equation(e, outs, again, press if e.prim.name == "scan" else 1)
    made = definitions(eqns)
    for e in eqns:
        if e.prim.name == "eq" and dtypes.is_inexact(e.inputs[0].aval.dtype):
            network.comparison(e, made)
    stored, restored = network.chosen(residuals)
    order = [*costly, *(v for e in eqns for v in e.outs if v not in costly)]
    return [v for v in order if v in stored], restored


def _for(e: Eqn, outs: Sequence[Var]) -> Eqn:
    """The equation, as far as these results need it."""
    if e.prim.name != "scan" or len(outs) == len(e.outs):
        return e
    prim: Any = e.prim
    small, ins, left = prim.prune(tuple([v in outs for v in e.outs]))
    kept, made = zip(e.inputs, ins), zip(e.outs, left)
    return Eqn(small, [a for a, k in kept if k], [v for v, k in made if k], e.source)


_SUMS = frozenset(("add", "sub", "add_any"))
_CHOICES = frozenset(("reduce_max", "reduce_min", "pmax", "pmin"))


def _may_round_otherwise(e: Eqn) -> bool:
    """Whether another program may make another number of the same operands: where there are sums."""
    prim: Any = e.prim
    if prim.elementwise:
        return prim.name in _SUMS
    return not (prim.moves or prim.cost.operations == 0 or prim.name in _CHOICES)


def _bytes(v: Var) -> float:
    return v.aval.nbytes + 0.5  # a little more for each array, so that few are better than many


def split(
    jaxpr: Jaxpr,
    nonzero: tuple[bool, ...],
    costly: Sequence[bool],
    constant: Sequence[bool] | None = None,
    carry: Sequence[int] = (),
    room: float = inf,
) -> Split:
    """The derivative of a jaxpr by the inputs marked `nonzero`.

    Inputs marked `costly` must be stored to be known later (a loop's carry); the others are at hand.
    What depends only on inputs marked `constant` is the same in all iterations of a loop. `carry` says
    of each result which costly input it is in the next iteration, -1 for none. Loops inside are rather
    run again than that they stack more than `room` bytes.
    """
    factored = factored_choices(simplify(jaxpr))
    forward, linear, count, mask = linearize_jaxpr(factored, nonzero)
    forward = simplify(forward)
    n = len(jaxpr.outs)
    results, residuals = forward.outs[:n], forward.outs[n:]
    variable = [v for v, c in zip(forward.inputs, constant or [False] * len(costly)) if not c]
    changing = dependent(forward.eqns, variable)
    invariant = {v for e in forward.eqns for v in e.outs if v not in changing}
    at_hand = {v for v, c in zip(forward.inputs, costly) if not c}
    prices = {v: _bytes(v) for v, c in zip(forward.inputs, costly) if c}
    rewinds = _rewinds(forward, carry, prices)
    prices = _as_rows(forward, carry, prices)
    given = (forward.eqns, results, residuals, at_hand, prices, invariant, rewinds, bool(carry))
    stored, chosen = choose(*given)
    stacks = {v for e in forward.eqns if e.prim.name == "scan" for v in e.outs}
    if sum(v.aval.nbytes for v in stored if v in stacks) > room:
        stored, chosen = choose(*given, press=policy.RESIDUAL_PRICE)
    return assemble(forward, linear, count, mask, stored, at_hand, chosen)


def _as_rows(forward: Jaxpr, carry: Sequence[int], prices: dict[Var, float]) -> dict[Var, float]:
    """The prices, less of what is written in any case: large carries that an iteration makes anew."""
    found = dict(prices)
    maker = definitions(forward.eqns)
    for k, out in zip(carry, forward.outs):
        v = forward.inputs[k]
        if k < 0 or v.aval.size <= policy.RESIDUAL_REGISTERS:
            continue
        steps, made = chain(maker, v, out), maker.get(out)  # type: ignore[arg-type]
        while made is not None and is_update(made.prim):
            made = maker.get(made.inputs[0])  # type: ignore[arg-type]
        anew = made is not None and (made.prim.elementwise or made.prim.name == "concatenate")
        if anew or steps is not None and 2 * overwritten(steps) >= prices[v]:
            found[v] = policy.CARRY_ROW_PRICE * prices[v]
    return found


def _rewinds(forward: Jaxpr, carry: Sequence[int], prices: dict[Var, float]) -> list[Rewind]:
    """Carries of which it is cheaper to store what is overwritten."""
    found = []
    maker = definitions(forward.eqns)
    for k, out in zip(carry, forward.outs):
        steps = chain(maker, forward.inputs[k], out) if k >= 0 else None
        if steps is not None and 2 * overwritten(steps) < prices.get(forward.inputs[k], 0):
            found.append(Rewind(forward.inputs[k], tuple(steps)))
    return found


def split_saving(jaxpr: Jaxpr, nonzero: tuple[bool, ...], save: Callable[[Eqn], bool]) -> Split:
    """The derivative of a jaxpr that stores what `save` says, and computes all else again."""
    forward, linear, count, mask = linearize_jaxpr(simplify(jaxpr), nonzero)
    residuals = forward.outs[len(jaxpr.outs) :]
    wanted = reaching(forward.eqns, residuals)
    stored = [v for e in forward.eqns if save(e) for v in e.outs if v in wanted]
    read = reads(live(forward.eqns, residuals, stored), residuals)  # saved values may hide others
    stored = [v for v in stored if v in read]
    return assemble(forward, linear, count, mask, stored, set(forward.inputs))


def assemble(
    forward: Jaxpr, linear: Jaxpr, count: int, mask: tuple[bool, ...], stored: Sequence[Var],
    at_hand: set[Var], rewinds: Sequence[Rewind] = (),
) -> Split:  # fmt: skip
    """The jaxprs, when it is known which values are stored, and which arrays are restored."""
    n = len(mask)
    results, residuals = forward.outs[:n], forward.outs[n:]
    versions = [v for r in rewinds for v in r.versions]
    wanted = {r for r in residuals if type(r) is Var}
    again = live(forward.eqns, wanted, {*stored, *at_hand, *versions}, effects=False)
    eqns, tangents = _without(again, set(versions)), [Var(v.aval) for v in linear.inputs[count:]]
    touts = splice(linear, [*residuals, *tangents], eqns)
    eqns_of_all = list(forward.eqns)
    olds = [[record(eqns_of_all, s, s.items()) for s in r.steps] for r in rewinds]
    kept_olds = [v for own in olds for found in own for v in found]
    back, lasts, values = go_back_over(forward, rewinds, olds, {*stored, *at_hand})
    before = [values[v] for v in versions]
    read = {*reads(eqns, touts), *reads(back, before)}
    kept = [k for k, v in enumerate(forward.inputs) if v in at_hand and v in read]
    heads, rows = [forward.inputs[k] for k in kept], [*stored, *kept_olds]
    rows = list(dict.fromkeys(rows))
    later = _renamed([*heads, *versions, *rows, *tangents], eqns, touts, forward.name)
    undo = _renamed([*heads, *lasts, *rows], back, before, forward.name) if rewinds else None
    outs = [*results, *rows]
    earlier = forward.with_eqns(live(eqns_of_all, outs), outs)
    return Split(
        earlier,
        simplify(later),
        tuple(kept),
        mask,
        len(tangents),
        tuple([forward.inputs.index(r.start) for r in rewinds]),
        tuple([len(r.versions) for r in rewinds]),
        undo and simplify(undo),
    )


def _without(eqns: Sequence[Eqn], known: set[Var]) -> list[Eqn]:
    """The equations, of whose results some are known."""
    return [
        Eqn(e.prim, e.inputs, [Var(v.aval) if v in known else v for v in e.outs], e.source)
        for e in eqns
    ]


def _renamed(inputs: Sequence[Var], eqns: Sequence[Eqn], outs: Sequence, name: str) -> Jaxpr:
    """A jaxpr in variables of its own."""
    new = Renaming((v, Var(v.aval)) for v in inputs)
    body = [Eqn(e.prim, [new(a) for a in e.inputs], new.outs(e), e.source) for e in eqns]
    return Jaxpr([new(v) for v in inputs], body, [new(o) for o in outs], name=name)  # type: ignore
