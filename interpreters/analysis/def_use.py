"""Def-use chains of jaxprs (Muchnick 1997, ch. 8): which equation defines a variable, who uses it."""

from collections.abc import Iterable

from fnx.core.jaxpr import Eqn, Var


def definitions(eqns: Iterable[Eqn]) -> dict[Var, Eqn]:
    """The equation that makes each variable."""
    return {v: e for e in eqns for v in e.outs}
