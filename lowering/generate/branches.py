"""Branches: cond and switch become Ifs, or both sides are computed and one is chosen."""

from collections.abc import Sequence
from typing import Any

from fnx.core import recipe, scalar
from fnx.core.jaxpr import Jaxpr, Var
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import If, Stmt

from .generation import Generation
from .loops import inside
from .values import Materialized, Scalars, Value


def branch(builder: Generation, r: recipe.Branch, inputs: list[Value], outs: list[Value]) -> None:
    """cond and switch: a chain of Ifs."""
    inputs = builder.settled_region(inputs)
    index = builder.settle(inputs[0]).state
    assert isinstance(index, Scalars)
    if builder.chooses:
        _choose(builder, index.elements[0], r.jaxprs, inputs[1:], outs)
        return
    places: list[Any] = []
    for out in outs:
        if builder.target.is_small(out.shape):
            places.append([scalar.var(out.dtype, "r") for _ in range(out.size)])
        else:
            places.append(out.destination or builder.new_stored(out))
    _chain(builder, index.elements[0], list(r.jaxprs), 0, inputs[1:], places)
    for out, place in zip(outs, places, strict=True):
        out.state = Scalars(place) if isinstance(place, list) else place


def _choose(
    builder: Generation,
    index: Expr,
    jaxprs: Sequence[Jaxpr],
    inputs: list[Value],
    outs: list[Value],
) -> None:
    """All branches, and a choice between their results; of large ones the last is as good as any,
    since whoever asks for this has no use for them.
    """
    cases = [[builder.settle(h) for h in builder.jaxpr(j, inputs)] for j in jaxprs]
    for out, column in zip(outs, zip(*cases, strict=True), strict=True):
        out.state = column[-1].state
        if not builder.target.is_small(out.shape):
            continue
        found = column[-1].state.elements
        for number in range(len(column) - 2, -1, -1):
            test = scalar.compare("le", index, scalar.const(number, index.dtype))
            case = column[number].state.elements
            found = [scalar.select(test, a, b) for a, b in zip(case, found, strict=True)]
        out.state = Scalars(found)


def _arm(
    builder: Generation, jaxpr: Jaxpr, inputs: list[Value], places: list[Any]
) -> tuple[list[Stmt], list[Expr]]:
    """One branch: its statements, and its small results."""

    def make() -> list[Expr]:
        destinations: dict[Var, Materialized] = {}
        for atom, place in zip(jaxpr.outs, places, strict=True):
            if isinstance(place, Materialized) and type(atom) is Var:
                destinations.setdefault(atom, place)
        found: list[Expr] = []
        for made, place in zip(builder.jaxpr(jaxpr, inputs, destinations), places, strict=True):
            if isinstance(place, Materialized):
                builder.store_into(made, place)
            else:
                state = builder.settle(made).state
                assert isinstance(state, Scalars)
                found += state.elements
        return found

    return inside(builder, make, repeated=False)


def _chain(
    builder: Generation,
    index: Expr,
    jaxprs: list[Jaxpr],
    number: int,
    inputs: list[Value],
    places: list[Any],
) -> None:
    """if index <= number: this arm, else the next ones; `places` get the results."""
    results = [v for p in places if isinstance(p, list) for v in p]
    first, *rest = jaxprs
    then, on_true = _arm(builder, first, inputs, places)
    if not rest:  # only one branch
        builder.block += then
        _assign(builder, results, on_true)
        return
    if len(rest) == 1:
        orelse, on_false = _arm(builder, rest[0], inputs, places)
    else:
        inner = [
            [scalar.var(v.dtype, "r") for v in p] if isinstance(p, list) else p for p in places
        ]
        more = lambda: _chain(builder, index, rest, number + 1, inputs, inner)
        orelse, _ = inside(builder, more, repeated=False)
        on_false = [v for p in inner if isinstance(p, list) for v in p]
    test = scalar.compare("le", index, scalar.const(number, index.dtype))
    builder.emit(If(test, then, orelse, results, on_true, on_false))


def _assign(builder: Generation, results: list[Expr], values: list[Expr]) -> None:
    always = scalar.const(True, "bool")
    builder.emit(If(always, [], [], results, values, values))
