"""Residuals: which values a derivative keeps from the forward pass, and which it computes again.

A derivative reads values of the forward pass. Any set of values from which the others can be computed
again will do; the cheapest one is a minimum cut between what is at hand and what is read, where
storing costs bytes and computing again costs what `costs` says. What the results do not need
anyway costs nothing to compute later instead of earlier.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var

from .costs import recompute_cost
from .linearize import linearize_jaxpr
from .maxflow import Graph
from .restore import chain, makers, overwritten, replay_needs
from .rewrite import Renaming, dependent, live, reaching, reads, splice
from .simplify import simplify


@dataclass(frozen=True)
class Split:
    """A jaxpr and its derivative.

    forward: inputs -> (results, stored values). linear: (inputs that are read again, stored values,
    nonzero tangents) -> nonzero tangents of results.
    """

    forward: Jaxpr
    linear: Jaxpr
    inputs: tuple[int, ...]  # which inputs the linear jaxpr reads
    mask: tuple[bool, ...]  # which results have tangents
    tangents: int  # how many tangents the linear jaxpr gets
    replayed: tuple[
        int, ...
    ] = ()  # carries that it makes again: their next values are its last results

    @property
    def stored(self) -> int:
        """How many values are stored."""
        return len(self.linear.inputs) - len(self.inputs) - self.tangents


def choose(
    eqns: Sequence[Eqn], results: Sequence, residuals: Sequence, at_hand: set[Var],
    costly: dict[Var, float], invariant: set[Var],
) -> list[Var]:  # fmt: skip
    """The variables to store, so that `residuals` can be computed from them and from `at_hand`.

    `costly` are inputs that must be stored to be known later, and the price. `invariant` variables
    depend on loop constants only: equations that make them are computed once, wherever they stand.
    """
    graph = Graph(2)
    source, sink = 0, 1
    nodes: dict[Var, int] = {}
    needed = reaching(eqns, residuals)
    anyway = reaching(eqns, results)
    for v, price in costly.items():
        if v in needed:
            nodes[v] = graph.node()
            graph.edge(source, nodes[v], price)
    for e in eqns:
        outs = [v for v in e.outs if v in needed]
        if not outs:
            continue
        again = graph.node()  # on the sink's side: computed again
        weight = 0.0
        if any(v in anyway for v in e.outs) and not all(v in invariant for v in e.outs):
            weight = recompute_cost(e)
        if weight > 0:
            graph.edge(source, again, weight)
        for a in set(e.inputs):
            if type(a) is Var and a not in at_hand:
                graph.edge(nodes[a], again)
        for v in outs:
            nodes[v] = graph.node()
            graph.edge(again, nodes[v], _bytes(v))
    for r in {r for r in residuals if type(r) is Var and r not in at_hand}:
        graph.edge(nodes[r], sink)
    _, late = graph.cut(source, sink)
    stored = [v for v in costly if v in nodes and nodes[v] in late]
    for e in eqns:
        for v in e.outs:
            # its equation's node is the tail of the edge into the variable's node
            if v in nodes and nodes[v] in late and graph.head[graph.out[nodes[v]][0]] not in late:
                stored.append(v)
    return stored


def _bytes(v: Var) -> float:
    return v.aval.nbytes + 0.5  # a little more for each array, so that few are better than many


def split(
    jaxpr: Jaxpr,
    nonzero: tuple[bool, ...],
    costly: Sequence[bool],
    constant: Sequence[bool] | None = None,
    carry: Sequence[int] = (),
) -> Split:
    """The derivative of a jaxpr by the inputs marked `nonzero`.

    Inputs marked `costly` must be stored to be known later (a loop's carry); the others are at hand.
    What depends only on inputs marked `constant` is the same in all rounds of a loop. `carry` says
    of each result which costly input it is in the next round, -1 for none.
    """
    forward, linear, count, mask = linearize_jaxpr(simplify(jaxpr), nonzero)
    forward = simplify(forward)
    n = len(jaxpr.outs)
    results, residuals = forward.outs[:n], forward.outs[n:]
    variable = [v for v, c in zip(forward.inputs, constant or [False] * len(costly)) if not c]
    changing = dependent(forward.eqns, variable)
    invariant = {v for e in forward.eqns for v in e.outs if v not in changing}
    at_hand = {v for v, c in zip(forward.inputs, costly) if not c}
    prices = {v: _bytes(v) for v, c in zip(forward.inputs, costly) if c}
    again = _replays(forward, carry, at_hand, prices)
    prices |= {v: price for v, (price, _) in again.items()}
    stored = choose(forward.eqns, results, residuals, at_hand, prices, invariant)
    made = [v for v in stored if v in again]
    stored += [v for m in made for v in again[m][1] if v not in at_hand]
    stored = [v for v in dict.fromkeys(stored) if v not in made]
    after = {forward.inputs[k]: out for k, out in zip(carry, forward.outs) if k >= 0}
    return assemble(forward, linear, count, mask, stored, at_hand, {v: after[v] for v in made})


def _replays(
    forward: Jaxpr, carry: Sequence[int], at_hand: set[Var], prices: dict[Var, float]
) -> dict[Var, tuple[float, list[Var]]]:
    """Carries that are cheaper to update again, in their second run, than to store; what that needs."""
    found = {}
    maker = makers(forward.eqns)
    for k, out in zip(carry, forward.outs):
        steps = chain(maker, forward.inputs[k], out) if k >= 0 else None
        if steps is not None:
            needs = replay_needs(steps)
            # On the way back, what was overwritten is stored, too.
            price = overwritten(steps) + sum(_bytes(v) for v in needs if v not in at_hand)
            if 2 * price < prices.get(forward.inputs[k], 0):
                found[forward.inputs[k]] = price, needs
    return found


def split_saving(jaxpr: Jaxpr, nonzero: tuple[bool, ...], save: Callable[[Eqn], bool]) -> Split:
    """The derivative of a jaxpr that stores what `save` says, and computes all else again."""
    forward, linear, count, mask = linearize_jaxpr(simplify(jaxpr), nonzero)
    residuals = forward.outs[len(jaxpr.outs) :]
    needed = reaching(forward.eqns, residuals)
    stored = [v for e in forward.eqns if save(e) for v in e.outs if v in needed]
    read = reads(live(forward.eqns, residuals, stored), residuals)  # saved values may hide others
    stored = [v for v in stored if v in read]
    return assemble(forward, linear, count, mask, stored, set(forward.inputs))


def assemble(
    forward: Jaxpr, linear: Jaxpr, count: int, mask: tuple[bool, ...], stored: Sequence[Var],
    at_hand: set[Var], replayed: dict[Var, Atom] | None = None,
) -> Split:  # fmt: skip
    """The two jaxprs, when it is known which values are stored, and which carries are made again."""
    n = len(mask)
    results, residuals = forward.outs[:n], forward.outs[n:]
    replayed = replayed or {}
    places = [k for k, v in enumerate(forward.inputs) if v in replayed]
    after = [replayed[forward.inputs[k]] for k in places]
    wanted = {r for r in (*residuals, *after) if type(r) is Var}
    known = {*at_hand, *replayed}
    again = live(forward.eqns, wanted, {*stored, *known})
    again = [e for e in again if not e.prim.effects or any(v in wanted for v in e.outs)]
    eqns, tangents = list(again), [Var(v.aval) for v in linear.inputs[count:]]
    touts = [*splice(linear, [*residuals, *tangents], eqns), *after]
    read = reads(eqns, touts)
    kept = [k for k, v in enumerate(forward.inputs) if v in known and (v in read or k in places)]
    heads = [*(forward.inputs[k] for k in kept), *stored]
    name = Renaming((v, Var(v.aval)) for v in heads)
    body = [Eqn(e.prim, [name(a) for a in e.inputs], name.outs(e), e.source) for e in eqns]
    inputs = [*(name(v) for v in heads), *tangents]
    later = Jaxpr(inputs, body, [name(o) for o in touts], name=forward.name)  # type: ignore
    outs = [*results, *stored]
    earlier = Jaxpr(forward.inputs, live(forward.eqns, outs), outs, forward.consts, forward.name)
    return Split(earlier, simplify(later), tuple(kept), mask, len(tangents), tuple(places))
