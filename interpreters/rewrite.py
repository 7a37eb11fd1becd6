"""Making jaxprs of jaxprs: splicing one into another, dropping, reordering."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.core.primitive import Primitive
from fnx.ops.structure.basic import zeros
from fnx.ops.structure.join import Iota

from .trace import StageTracer, trace_closed


class Renaming(dict[Var, Atom]):
    """What stands for each variable; those that are absent stand for themselves."""

    def __call__(self, atom: Atom) -> Atom:
        return self.get(atom, atom) if type(atom) is Var else atom

    def outs(self, eqn: Eqn) -> list[Var]:
        """Fresh variables for an equation's results."""
        fresh = [Var(v.aval) for v in eqn.outs]
        self.update(zip(eqn.outs, fresh))
        return fresh


def splice(jaxpr: Jaxpr, atoms: Sequence[Atom], eqns: list[Eqn]) -> list[Atom]:
    """Append a jaxpr's equations, applied to `atoms`, to `eqns`; the atoms of its results."""
    name = Renaming(zip(jaxpr.inputs, atoms, strict=True))
    for e in jaxpr.eqns:
        eqns.append(Eqn(e.prim, [name(a) for a in e.inputs], name.outs(e), e.source))
    return [name(o) for o in jaxpr.outs]


def bind_into(eqns: list[Eqn], prim: Primitive, atoms: Sequence[Atom]) -> list[Var]:
    """Append one equation."""
    outs = [Var(a) for a in prim.abstract(*[a.aval for a in atoms])]
    eqns.append(Eqn(prim, atoms, outs))
    return outs


@lru_cache(maxsize=1024)
def _zeros(aval: ShapedArray) -> Jaxpr:
    return trace_closed(lambda: [zeros(aval)], [])


def zeros_into(eqns: list[Eqn], aval: ShapedArray) -> Atom:
    """An atom that is zero, made by an equation unless it is a number."""
    if aval.shape == ():
        return Literal(ConcreteArray(np.zeros((), aval.dtype)))
    return splice(_zeros(aval.strong()), [], eqns)[0]


def with_zeros(
    eqns: list[Eqn], outs: Sequence[Atom | None], avals: Sequence[ShapedArray]
) -> list[Atom]:
    """`outs`, with zeros made for those that are None."""
    return [zeros_into(eqns, a) if o is None else o for o, a in zip(outs, avals)]


def counted(jaxpr: Jaxpr, consts: Sequence[Array]) -> tuple[Jaxpr, list[Array]]:
    """The jaxpr with those of its constants computed that only count: 0, 1, 2, ..."""
    counts = [_counting(x) for x in consts]
    if not any(counts):
        return jaxpr, list(consts)
    eqns, inputs = [], []
    for v, made in zip(jaxpr.inputs, counts):
        if made is None:
            inputs.append(v)
        else:
            eqns.append(Eqn(made, [], [v]))
    rest = jaxpr.inputs[jaxpr.consts :]
    new = Jaxpr([*inputs, *rest], [*eqns, *jaxpr.eqns], jaxpr.outs, len(inputs), jaxpr.name)
    return new, [x for x, c in zip(consts, counts) if c is None]


def _counting(x: Array) -> Iota | None:
    """What makes an array that counts along one axis, and has no others but of size 1."""
    if x.aval.dtype.kind not in "iu" or max(x.shape, default=1) != x.size or x.size < 2:
        return None
    axis = x.shape.index(x.size)
    if type(x) is StageTracer:
        maker = next((e for e in x.owner.eqns if x._var in e.outs), None)
        same = maker is not None and isinstance(maker.prim, Iota)
        return Iota(axis, x.dtype, x.shape) if same else None
    if type(x) is not ConcreteArray:
        return None
    line = x._value.reshape(-1)
    counts = line[-1] == x.size - 1 and bool(np.all(np.diff(line) == 1))
    return Iota(axis, x.dtype, x.shape) if counts else None


def live(
    eqns: Sequence[Eqn], outs: Iterable[Atom], known: Iterable[Var] = (), effects: bool = True
) -> list[Eqn]:
    """The equations that `outs` need, and those with effects, unless these run elsewhere.

    `known` variables need none.
    """
    stop = set(known)
    needed = {o for o in outs if type(o) is Var and o not in stop}
    kept = []
    for eqn in reversed(eqns):
        if (effects and eqn.prim.effects) or any(v in needed for v in eqn.outs):
            kept.append(eqn)
            needed.update(a for a in eqn.inputs if type(a) is Var and a not in stop)
    return kept[::-1]


def reads(eqns: Iterable[Eqn], outs: Iterable[Atom]) -> set[Var]:
    """All variables that equations or outputs read."""
    found = {a for e in eqns for a in e.inputs if type(a) is Var}
    found.update(o for o in outs if type(o) is Var)
    return found


def dependent(eqns: Sequence[Eqn], sources: Iterable[Var]) -> set[Var]:
    """The variables whose values depend on `sources`, these included."""
    found = set(sources)
    for e in eqns:
        if any(type(a) is Var and a in found for a in e.inputs):
            found.update(e.outs)
    return found


def reaching(eqns: Sequence[Eqn], targets: Iterable[Atom]) -> set[Var]:
    """The variables on whose values `targets` depend, these included."""
    found = {t for t in targets if type(t) is Var}
    for e in reversed(eqns):
        if any(v in found for v in e.outs):
            found.update(a for a in e.inputs if type(a) is Var)
    return found


def with_jaxprs(prim: Primitive, change: Callable[[Jaxpr], Jaxpr]) -> Primitive:
    """The primitive, with the jaxprs that it carries changed."""
    changes: dict[str, Any] = {}
    for name in jaxpr_fields(type(prim)):
        value = getattr(prim, name)
        if isinstance(value, Jaxpr):
            new: Any = change(value)
            same = new is value
        else:
            new = tuple([change(j) for j in value])
            same = all(a is b for a, b in zip(new, value))
        if not same:
            changes[name] = new
    return replace(prim, **changes) if changes else prim  # type: ignore[type-var]


_fields: dict[type, tuple[str, ...]] = {}  # a cache


def jaxpr_fields(kind: type) -> tuple[str, ...]:
    if kind not in _fields:
        names = getattr(kind, "jaxpr_fields", ())
        assert all(n in {f.name for f in fields(kind)} for n in names), kind  # type: ignore
        _fields[kind] = tuple(names)
    return _fields[kind]
