"""Which equations of a jaxpr the CPU computes in one pass over their elements: fused kernels, to be drawn.

The jaxpr is built as it stands, without the passes that come before and after, which may fuse more.
"""

from collections.abc import Collection
from typing import Any

from fnx.core import policy
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.lowering import pipeline
from fnx.lowering.cpu.target import CpuTarget
from fnx.lowering.generate.builder import Builder
from fnx.lowering.generate.values import Inlined, Value
from fnx.observe.displays.jaxprs import count

INLINED = "inlined"  # computed where it is read


class _Builder(Builder):
    """Remembers in which nest the members of each fusion group, and what equations make at once, are."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.variables: dict[int, tuple[Value, Var]] = {}  # by the identity of the value
        self.kernel_of: dict[Var, str] = {}
        self._members: list[Var] = []  # what a nest that is emitted now computes
        self.own = False  # whether they are those of a group that is being closed

    def _eqn(self, eqn: Eqn) -> None:
        for var in eqn.outs:
            if var not in self.scope.values:
                self.scope.add(var, self._new_value(var))
            value = self.scope.values[var]
            self.variables[id(value)] = value, var
        values, scope = self.scope.values, self.scope
        before, self._members = self._members, [a for a in eqn.inputs if isinstance(a, Var)]
        super()._eqn(eqn)
        self._members = before
        for var in eqn.outs:
            if isinstance(values[var].state, Inlined) and scope is self.scope:
                self.kernel_of[var] = INLINED

    def flush(self, group: Any, wanted: Value | None = None) -> None:
        values = [m.value for m in group.members if m.value is not None]
        values += [v for r in group.reductions for v in r.results]
        before = self._members
        found = [self.variables[id(v)][1] for v in values if id(v) in self.variables]
        own, self.own = self.own, bool(found)
        self._members = found or before  # an operand of an equation, which stores it
        try:
            super().flush(group, wanted)
        finally:
            self._members, self.own = before, own

    def emit_nest(self, *given: Any, **options: Any) -> None:
        super().emit_nest(*given, **options)
        name = f"kernel {self.kernels}"
        if self.own:
            new = [v for v in self._members if self.kernel_of.get(v, INLINED) == INLINED]
        else:  # operands that an equation stores, one after the other
            new = [v for v in self._members if self.kernel_of.get(v) == INLINED][:1]
        self.kernel_of.update(dict.fromkeys(new, name))


def kernels(jaxpr: Jaxpr) -> dict[Var, str]:
    """The kernel in which each variable is computed; {} for what is large, or not compiled."""
    if not jaxpr.eqns or count(jaxpr) > policy.DRAWN_EQUATIONS:
        return {}
    made: list[_Builder] = []

    def make(*given: Any) -> _Builder:
        made.append(_Builder(*given))
        return made[-1]

    try:
        pipeline.build(jaxpr, (), CpuTarget(), make)
    except Exception:  # what cannot be compiled can be drawn all the same
        return {}
    return made[-1].kernel_of


def clusters(jaxpr: Jaxpr, found: dict[Var, str], adjoint: Collection[int]) -> list[list[int]]:
    """The equations that are drawn together, by number; none comes before its operands.

    A value that is computed where it is read belongs to its reader, if that is one kernel. What is in
    the adjoint part is apart from the rest.
    """
    of: dict[int, str] = {}
    readers: dict[Var, set[str]] = {a: {""} for a in jaxpr.outs if isinstance(a, Var)}
    for k in reversed(range(len(jaxpr.eqns))):
        e = jaxpr.eqns[k]
        own = {found.get(v) for v in e.outs}
        read = set().union(*[readers.get(v, set()) for v in e.outs])
        name = own.pop() if len(own) == 1 else None
        if name == INLINED:
            name = read.pop().rpartition(" ")[0] if len(read) == 1 else None
            name = None if name in ("", "alone") else name
        of[k] = f"{name} {k in adjoint}" if name else f"alone {k}"
        for a in e.inputs:
            if isinstance(a, Var):
                readers.setdefault(a, set()).add(of[k])
    return _ordered(jaxpr, of)


def _ordered(jaxpr: Jaxpr, of: dict[int, str]) -> list[list[int]]:
    """The clusters in order; one that would have to be before itself is apart again."""
    members: dict[str, list[int]] = {}
    for k in range(len(jaxpr.eqns)):
        members.setdefault(of[k], []).append(k)
    maker = {v: k for k, e in enumerate(jaxpr.eqns) for v in e.outs}
    needs = {
        name: {of[maker[a]] for k in ks for a in jaxpr.eqns[k].inputs if a in maker} - {name}
        for name, ks in members.items()
    }
    readers: dict[str, list[str]] = {name: [] for name in members}
    for name, wanted in needs.items():
        for n in wanted:
            readers[n].append(name)
    missing = {name: len(wanted) for name, wanted in needs.items()}
    order: list[str] = []
    ready = [n for n in members if not missing[n]]
    while ready:
        order += ready
        following = []
        for name in [r for n in ready for r in readers[n]]:
            missing[name] -= 1
            if not missing[name]:
                following.append(name)
        ready = sorted(following, key=lambda n: members[n][0])
    circle = [n for n in members if missing[n] and len(members[n]) > 1]
    if len(order) < len(members):
        return _ordered(jaxpr, of | {k: f"alone {k}" for k in members[circle[0]]})
    return [members[n] for n in order]


__all__ = ["clusters", "kernels"]
