"""Programs in pieces: what members run at once stands between native programs that run alone.

Input: a jaxpr with equations that had better be run apart (`runs_apart`).
Output: the runs of equations between them, each compiled, and these equations, in the order of the jaxpr.
Legal when: always.
Pays when: the equations say so.
Costs: what one piece hands to the next is stored.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var, made_once, subjaxprs
from fnx.interpreters.rewrite import reads

Compile = Callable[[Jaxpr], Any]


@made_once
def may_run_apart(jaxpr: Jaxpr) -> bool:
    """Whether there are equations that members could run at once, in the jaxpr or in calls in it."""
    for e in jaxpr.eqns:
        if e.prim.on_devices == "members":
            return True
        if e.prim.transparent == "always" and any(map(may_run_apart, subjaxprs(e.prim))):
            return True
    return False


def in_pieces(
    jaxpr: Jaxpr, compile: Compile, whole: Callable[[], Any], donated: Sequence[int]
) -> "Pieces | None":
    """The program of a simplified jaxpr in pieces; None if no equation is run apart.

    `whole` makes the program that computes all of it alone. Inputs that are `donated` are deleted after
    a call, if nobody saw them.
    """
    if not any(e.prim.runs_apart for e in jaxpr.eqns):
        return None
    return Pieces(jaxpr, compile, whole, donated)


class Pieces:
    """Calls of native programs and of teams, one after the other."""

    def __init__(
        self, jaxpr: Jaxpr, compile: Compile, whole: Callable[[], Any], donated: Sequence[int]
    ):
        self.jaxpr, self._whole, self._donated = jaxpr, whole, tuple(donated)
        self._avals = jaxpr.in_avals
        self._weak = [a.weak_type for a in jaxpr.out_avals]
        self._steps: list[tuple[Callable, list[Atom], list[Var]]] = []
        eqns: list[Eqn] = []
        for k, e in enumerate(jaxpr.eqns):
            if e.prim.runs_apart:
                self._native(eqns, jaxpr.eqns[k:], compile)
                eqns = []
                self._steps.append((_apart(e.prim), list(e.inputs), list(e.outs)))
            else:
                eqns.append(e)
        self._native(eqns, (), compile)

    def _native(self, eqns: list[Eqn], later: Sequence[Eqn], compile: Compile) -> None:
        """A run of equations as a program of its own."""
        if not eqns:
            return
        own = {v for e in eqns for v in e.outs}
        wanted = reads(later, self.jaxpr.outs)
        outs = [v for e in eqns for v in e.outs if v in wanted]
        inputs = [v for v in dict.fromkeys(a for e in eqns for a in e.inputs) if type(v) is Var]
        inputs = [v for v in inputs if v not in own]
        if outs or any(e.prim.effects for e in eqns):
            program = compile(Jaxpr(inputs, eqns, outs, name=self.jaxpr.name))
            self._steps.append((program, list(inputs), outs))

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        env: dict[Any, Array] = dict(zip(self.jaxpr.inputs, args, strict=True))

        def value(atom: Atom) -> Array:
            return env[atom] if type(atom) is Var else atom.value

        for run, inputs, outs in self._steps:
            env.update(zip(outs, run([value(a) for a in inputs]), strict=True))
        found: list[Any] = [value(o) for o in self.jaxpr.outs]
        made = [ConcreteArray(x._value, w) for x, w in zip(found, self._weak)]
        given: list[Any] = [args[k] for k in self._donated]
        for x in given:
            if sum([x is y for y in args]) == 1 and x._value.flags.writeable:
                x.delete()
        return made

    def fast(self, leaves: Sequence[Any]) -> Any:
        """The same, or NotImplemented for arguments that do not fit exactly."""
        for x, a in zip(leaves, self._avals, strict=True):
            if type(x) is not ConcreteArray or not _fits(x, a):
                return NotImplemented
        return self(leaves)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._whole(), name)


def _fits(x: ConcreteArray, aval: ShapedArray) -> bool:
    value = x._value
    return value.shape == aval.shape and value.dtype == aval.dtype and x.weak_type == aval.weak_type


def _apart(prim: Any) -> Callable:
    def run(args: Sequence[Array]) -> Sequence[Array]:
        return prim.impl(*[x._value for x in args])  # type: ignore[attr-defined]

    return run
