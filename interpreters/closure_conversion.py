"""Closure conversion: what jaxprs captured become operands of the primitive that carries them.

A function that is traced has what it closed over as inputs of its jaxpr. Rules of users are traced when a
transformation asks, and what they close over no input was made for: it is `Captured`.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from fnx.core.array import Array
from fnx.core.interpreter import Tracer, current
from fnx.core.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Var, made_once, subjaxprs
from fnx.core.primitive import Primitive

from .rewrite import Renaming
from .trace import Captured, closed_over

_PRIM = attrgetter("prim")


class HigherOrder(Primitive):
    """A primitive that carries jaxprs. Binding it makes operands of what they captured."""

    def apply(self, *args: Array) -> tuple[Array, ...]:
        values = captured(self)
        prim, args = self.converted(values, values, args) if values else (self, args)
        return current.get().process(prim, args)

    def __call__(self, *args: Array) -> Any:
        return self.apply(*args)

    multiple_results = True
    says_what_varies = True  # as its jaxprs do

    @classmethod
    def opened(cls, param: Any) -> Any:
        if type(param) is tuple:
            return tuple([cls.opened(x) for x in param])
        return closed_over(param.jaxpr, param.consts) if isinstance(param, ClosedJaxpr) else param

    def converted(self, values: tuple, more: Sequence, operands: tuple) -> tuple[Primitive, tuple]:
        """The primitive whose jaxprs have inputs for `values`, and its operands, `more` being theirs."""
        raise self._missing("converted", "a rule that closed over a traced value")


def captured(prim: Primitive) -> tuple[Tracer, ...]:
    """The traced values that the jaxprs of a primitive captured."""
    if not isinstance(prim, HigherOrder):
        return ()
    found = [value for jaxpr in subjaxprs(prim) for value in _captured(jaxpr)]
    return tuple({id(x): x for x in found}.values()) if found else ()


@made_once
def carriers(jaxpr: Jaxpr) -> Sequence[Primitive]:
    """The primitives in a jaxpr that carry jaxprs or traced values, or are of devices: few, if any."""
    kinds = [
        k
        for k in set(map(type, map(_PRIM, jaxpr.eqns)))  # without a step of Python an equation
        if k.on_devices or issubclass(k, (HigherOrder, Captured))
    ]
    return [e.prim for e in jaxpr.eqns if type(e.prim) in kinds] if kinds else ()


@made_once
def _captured(jaxpr: Jaxpr) -> tuple[Tracer, ...]:
    found: list[Tracer] = []
    for prim in carriers(jaxpr):
        found += (prim.value,) if isinstance(prim, Captured) else captured(prim)
    return tuple(found)


def with_inputs(jaxpr: Jaxpr, values: Sequence[Tracer], at: int) -> Jaxpr:
    """The jaxpr with inputs for `values`, from input number `at` on."""
    own = {id(x): Var(x.aval) for x in values}
    name = Renaming()
    eqns = []
    for e in jaxpr.eqns:
        prim, atoms = e.prim, tuple([name(a) for a in e.inputs])
        if isinstance(prim, Captured):
            name[e.outs[0]] = own[id(prim.value)]
            continue
        if inner := captured(prim):
            prim, atoms = prim.converted(inner, [own[id(x)] for x in inner], atoms)  # type: ignore
        eqns.append(Eqn(prim, atoms, e.outs, e.source))
    inputs = [*jaxpr.inputs[:at], *own.values(), *jaxpr.inputs[at:]]
    consts = jaxpr.consts + len(own)
    return Jaxpr(inputs, eqns, [name(o) for o in jaxpr.outs], consts, jaxpr.name)
