"""A scope: one jaxpr that is being generated, the whole program, a loop's body or a branch."""

from fnx.core.jaxpr import Eqn, Var
from fnx.lowering.generate.fusion_groups import Group
from fnx.lowering.generate.values import (
    Value,
)
from fnx.lowering.ir.kernel import Buffer


class Scope:
    """One jaxpr that is being built: its variables, and how far we are."""

    def __init__(self, outer: "Scope | None" = None):
        self.values: dict[Var, Value] = {}
        self.wished: set[Buffer] = set()  # places of carries that values are to take over
        self.position = 0
        self.outer = outer
        self.groups: list[Group] = []
        self.eqns: tuple[Eqn, ...] = ()
        self.chains: set[int] = set()  # box updates that wait for the next of their chain
        self.lanewise: set[int] = set()  # numbers of equations that are computed lanewise
        self.uses: dict[Var, list[int]] = {}  # numbers of reading equations; -1: an output
        self._waiting: list[Value] = []
        self._pruned = -1  # the position at which those that nobody reads any more were left out

    def add(self, var: Var, value: Value) -> Value:
        """Enter a variable with its value."""
        self.values[var] = value
        self._waiting.append(value)
        return value

    def waiting(self) -> list[Value]:
        """The values that the equation at work reads, or one after it."""
        if self._pruned != self.position:
            self._pruned = self.position
            self._waiting = [h for h in self._waiting if h.last_use >= self.position]
        return self._waiting
