"""Residuals: which values a derivative keeps from the forward pass, and which it computes again.

A derivative reads values of the forward pass. Any set of values from which the others can be computed
again will do; the cheapest one is a minimum cut between what is at hand and what is read, where
storing costs bytes and computing again costs what `costs` says. What the results do not need
anyway costs nothing to compute later instead of earlier.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fnx.core.jaxpr import Eqn, Jaxpr, Var

from .costs import recompute_cost
from .linearize import linearize_jaxpr
from .maxflow import Graph
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

    @property
    def stored(self) -> int:
        """How many values are stored."""
        return len(self.linear.inputs) - len(self.inputs) - self.tangents


def choose(
    eqns: Sequence[Eqn], results: Sequence, residuals: Sequence, at_hand: set[Var],
    costly: set[Var], invariant: set[Var],
) -> list[Var]:  # fmt: skip
    """The variables to store, so that `residuals` can be computed from them and from `at_hand`.

    `costly` are inputs that must be stored to be known later. `invariant` variables depend on
    loop constants only: equations that make them are computed once, wherever they stand.
    """
    graph = Graph(2)
    source, sink = 0, 1
    nodes: dict[Var, int] = {}
    needed = reaching(eqns, residuals)
    anyway = reaching(eqns, results)
    for v in costly & needed:
        nodes[v] = graph.node()
        graph.edge(source, nodes[v], _bytes(v))
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
) -> Split:
    """The derivative of a jaxpr by the inputs marked `nonzero`.

    Inputs marked `costly` must be stored to be known later (a loop's carry); the others are at hand.
    What depends only on inputs marked `constant` is the same in all rounds of a loop.
    """
    forward, linear, count, mask = linearize_jaxpr(simplify(jaxpr), nonzero)
    forward = simplify(forward)
    n = len(jaxpr.outs)
    results, residuals = forward.outs[:n], forward.outs[n:]
    variable = [v for v, c in zip(forward.inputs, constant or [False] * len(costly)) if not c]
    changing = dependent(forward.eqns, variable)
    invariant = {v for e in forward.eqns for v in e.outs if v not in changing}
    at_hand = {v for v, c in zip(forward.inputs, costly) if not c}
    stored = choose(
        forward.eqns, results, residuals, at_hand, set(forward.inputs) - at_hand, invariant
    )
    return assemble(forward, linear, count, mask, stored, at_hand)


def split_saving(jaxpr: Jaxpr, nonzero: tuple[bool, ...], save: Callable[[Eqn], bool]) -> Split:
    """The derivative of a jaxpr that stores what `save` says, and computes all else again."""
    forward, linear, count, mask = linearize_jaxpr(jaxpr, nonzero)
    residuals = forward.outs[len(jaxpr.outs) :]
    needed = reaching(forward.eqns, residuals)
    stored = [v for e in forward.eqns if save(e) for v in e.outs if v in needed]
    read = reads(live(forward.eqns, residuals, stored), residuals)  # saved values may hide others
    stored = [v for v in stored if v in read]
    return assemble(forward, linear, count, mask, stored, set(forward.inputs))


def assemble(
    forward: Jaxpr, linear: Jaxpr, count: int, mask: tuple[bool, ...], stored: Sequence[Var],
    at_hand: set[Var],
) -> Split:  # fmt: skip
    """The two jaxprs, when it is known which values are stored."""
    n = len(mask)
    results, residuals = forward.outs[:n], forward.outs[n:]
    wanted = {r for r in residuals if type(r) is Var}
    again = live(forward.eqns, residuals, {*stored, *at_hand})
    again = [e for e in again if not e.prim.effects or any(v in wanted for v in e.outs)]
    eqns, tangents = list(again), [Var(v.aval) for v in linear.inputs[count:]]
    touts = splice(linear, [*residuals, *tangents], eqns)
    read = reads(eqns, touts)
    kept = [k for k, v in enumerate(forward.inputs) if v in at_hand and v in read]
    heads = [*(forward.inputs[k] for k in kept), *stored]
    name = Renaming((v, Var(v.aval)) for v in heads)
    body = [Eqn(e.prim, [name(a) for a in e.inputs], name.outs(e), e.source) for e in eqns]
    inputs = [*(name(v) for v in heads), *tangents]
    later = Jaxpr(inputs, body, [name(o) for o in touts], name=forward.name)  # type: ignore
    outs = [*results, *stored]
    earlier = Jaxpr(forward.inputs, live(forward.eqns, outs), outs, forward.consts, forward.name)
    return Split(earlier, simplify(later), tuple(kept), mask, len(tangents))
