"""Jaxprs written by hand, for rules that lower to other primitives."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.core.primitive import Primitive


class Program:
    """Collects equations: `p(prim, *atoms)` appends one and returns its result."""

    def __init__(self, avals: Sequence[ShapedArray]):
        self.inputs = tuple([Var(a) for a in avals])
        self.eqns: list[Eqn] = []

    def __call__(self, prim: Primitive, *atoms: Atom) -> Any:
        outs = [Var(aval) for aval in prim.abstract(*[a.aval for a in atoms])]
        self.eqns.append(Eqn(prim, atoms, outs))
        return tuple(outs) if prim.multiple_results else outs[0]

    def constant(self, value: Any, dtype: np.dtype) -> Literal:
        return Literal(ConcreteArray(np.asarray(value, dtype)))

    def jaxpr(self, name: str, *outs: Atom) -> Jaxpr:
        return Jaxpr(self.inputs, self.eqns, outs, name=name)
