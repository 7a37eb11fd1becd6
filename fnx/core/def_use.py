"""Def-use chains of jaxprs (Muchnick 1997, ch. 8): which equation defines a variable, who uses it."""

from collections import Counter
from collections.abc import Iterable, Sequence

from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var


def definitions(eqns: Iterable[Eqn]) -> dict[Var, Eqn]:
    """The equation that makes each variable."""
    return {v: e for e in eqns for v in e.outs}


def use_counts(jaxpr: Jaxpr) -> Counter[Atom]:
    """How often each atom is read, by equations and as a result; of what is not read, 0."""
    return Counter([a for e in jaxpr.eqns for a in e.inputs] + list(jaxpr.outs))


def users(eqns: Sequence[Eqn]) -> dict[Var, list[Eqn]]:
    """The equations that read each variable, in order, each once."""
    found: dict[Var, list[Eqn]] = {}
    for e in eqns:
        for a in dict.fromkeys(e.inputs):
            if type(a) is Var:
                found.setdefault(a, []).append(e)
    return found
