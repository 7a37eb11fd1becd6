"""Linear scales: numbers that cotangents are multiplied with on their way are multiplied once.

What a derivative multiplies, divides and negates by numbers, moves, selects and adds is linear, so that the
numbers may wait: of `x / dx * dt`, of slices of it and of choices between it and zero the product of all of
them is left, beside the first product with an array, or where values of different scales are added, as one
operation with the sum. Several quotients by the same array are products with its reciprocal.

Source: XLA's algebraic simplifier; strength reduction (Muchnick 1997, ch. 14).
Input: a jaxpr, and which of its inputs are cotangents; what does not depend on them keeps its bits.
Output: the same results with fewer products and quotients of what depends on those.
Legal when: the numbers are real, and their products far from the ends of the range.
Pays when: what depends on the cotangents has more elements than stay in registers in any case.
Costs: products are rounded once instead of several times.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import copysign, isfinite, sqrt

import numpy as np

from fnx.core import dtypes, policy
from fnx.core.array import ConcreteArray
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.core.primitive import Primitive
from fnx.core.source import Source
from fnx.interpreters.rewrite import dependent, jaxpr_fields, live
from fnx.ops.elementwise.arithmetic import add, div, mul, neg, sub

_SUMS = ("add", "sub", "add_any")
_MOVES = ("slice", "squeeze", "reshape", "transpose", "broadcast_in_dim", "rev", "reduce_sum")
_REAL = ("float32", "float64")


def scaled_once(jaxpr: Jaxpr, cotangents: Iterable[Var]) -> Jaxpr:
    """The jaxpr, whose cotangents meet their scales once."""
    # Loops hand on restored arrays, too, whose values are to be those that they were.
    alone = [e for e in jaxpr.eqns if len(e.outs) == 1 and not jaxpr_fields(type(e.prim))]
    linear = dependent(alone, cotangents)
    if not any([v.aval.size >= policy.SCALED_ELEMENTS for v in linear]):
        return jaxpr
    walk = _Walk(jaxpr.eqns, linear)
    for e in jaxpr.eqns:
        walk.add(e)
    outs = [walk.whole(o) for o in jaxpr.outs]
    return jaxpr.with_eqns(live(walk.eqns, outs), outs)


def _number(a: Atom) -> float | None:
    """The value of a real number that is known, finite, and not zero."""
    if type(a) is not Literal or type(a.value) is not ConcreteArray or a.aval.shape:
        return None
    value = a.value._value.item() if dtypes.NAME[a.aval.dtype] in _REAL else 0.0
    return value if value and isfinite(value) else None


def _is_zero(a: Literal) -> bool:
    return type(a.value) is ConcreteArray and not a.value._value.any()


class _Walk:
    """One walk over the equations in order; `linear` are the variables that depend on cotangents."""

    def __init__(self, eqns: Sequence[Eqn], linear: set[Var]):
        self.linear = linear
        self.eqns: list[Eqn] = []
        self.scales: dict[Var, tuple[float, Atom, Source | None]] = {}
        self.products: dict[tuple[float, Atom], Var] = {}
        self.inverses: dict[Atom, Var] = {}
        self.zeros: set[Atom] = set()  # arrays of zeros
        self.quotients = Counter(e.inputs[1] for e in eqns if e.prim is div and e.outs[0] in linear)

    def add(self, e: Eqn) -> None:
        """One equation, or what its result is a number times."""
        if e.prim.name == "broadcast_in_dim" and self.is_zero(e.inputs[0]):
            self.zeros.update(e.outs)
        linear = len(e.outs) == 1 and e.outs[0] in self.linear
        if not (linear and self.begins(e) or any([a in self.scales for a in e.inputs])):
            self.eqns.append(e)
            return
        scaled = linear and self.scaled(e)
        if scaled and scaled[1].aval == e.outs[0].aval:
            self.scales[e.outs[0]] = (*scaled, e.source)
        else:
            self.eqns.append(Eqn(e.prim, [self.whole(a) for a in e.inputs], e.outs, e.source))

    def begins(self, e: Eqn) -> bool:
        """Whether an equation of values without scales may give one to its result."""
        if e.prim is div and self._many(*e.inputs):
            return True
        return e.prim is neg or (e.prim is mul or e.prim is div) and any(map(_number, e.inputs))

    def _many(self, of: Atom, by: Atom) -> bool:
        """Whether a quotient is one of several by the same number or array."""
        return self.quotients[by] > 1 or bool(of.aval.shape and not by.aval.shape)

    def scaled(self, e: Eqn) -> tuple[float, Atom] | None:
        """A number, and what an equation's result is that number times; None if it stays as it is."""
        name = e.prim.name
        if dtypes.NAME.get(e.outs[0].aval.dtype) not in _REAL:
            return None
        if name == "neg":
            number, base = self.parts(e.inputs[0])
            return -number, base
        if name in ("mul", "div"):
            return self.multiplied(e)
        if name in _SUMS:
            return self.summed(e)
        if name in _MOVES or name == "select_n":
            return self.moved(e)
        return None

    def multiplied(self, e: Eqn) -> tuple[float, Atom] | None:
        """A product or a quotient: with numbers later, with all else now."""
        at = 0 if e.prim is div or e.inputs[0] in self.linear else 1
        other = self.whole(e.inputs[1 - at])
        number, base = self.parts(e.inputs[at])
        if (known := _number(other)) is not None:
            scale = number * known if e.prim is mul else number / known
            return (scale, base) if self.is_safe(scale, other.aval.dtype) else None
        factor = self.product(abs(number), base, e.source)
        if e.prim is div and self._many(factor, other):
            return copysign(1, number), self.bind(mul, [factor, self.inverse(other, e)], e.source)
        atoms = [factor, other] if at == 0 else [other, factor]
        return copysign(1, number), self.bind(e.prim, atoms, e.source)

    def summed(self, e: Eqn) -> tuple[float, Atom] | None:
        """A sum: of values of one scale before it is multiplied, else of the products."""
        (a, x), (b, y) = self.alike(e.inputs)
        if e.prim is sub:
            b = -b
        if abs(a) != abs(b):
            x, y = self.product(abs(a), x, e.source), self.product(abs(b), y, e.source)
            a, b = copysign(1, a), copysign(1, b)
        if a == b:
            return a, self.bind(add if e.prim is sub else e.prim, [x, y], e.source)
        if a == -1:
            return b, self.bind(sub, [y, x], e.source)
        return a, self.bind(sub, [x, y], e.source)

    def moved(self, e: Eqn) -> tuple[float, Atom] | None:
        """Elements moved or chosen, if all have one scale."""
        parts = self.alike(e.inputs)
        which = [] if e.prim.name in _MOVES else [self.whole(e.inputs[0])]
        parts = self.alike(e.inputs[len(which) :])
        if len({number for number, _ in parts}) > 1:
            return None
        return parts[0][0], self.bind(e.prim, [*which, *(base for _, base in parts)], e.source)

    def alike(self, atoms: Sequence[Atom]) -> list[tuple[float, Atom]]:
        """Numbers and what they are to be multiplied with; zero is any number of times zero."""
        numbers = [self.parts(a)[0] for a in atoms if not self.is_zero(a)]
        return [(numbers[0], a) if numbers and self.is_zero(a) else self.parts(a) for a in atoms]

    def is_zero(self, a: Atom) -> bool:
        return a in self.zeros or type(a) is Literal and _is_zero(a)

    def parts(self, a: Atom) -> tuple[float, Atom]:
        return self.scales[a][:2] if a in self.scales else (1.0, a)  # type: ignore[index]

    def whole(self, a: Atom) -> Atom:
        """The value itself, for those who cannot do with a part of it."""
        return self.product(*self.scales[a]) if a in self.scales else a  # type: ignore[index]

    def product(self, number: float, base: Atom, source: Source | None) -> Atom:
        """The number times the base, made once."""
        if number == 1:
            return base
        if (number, base) not in self.products:
            literal = Literal(
                ConcreteArray(np.asarray(number, base.aval.dtype), base.aval.weak_type)
            )
            prim, atoms = (neg, [base]) if number == -1 else (mul, [literal, base])
            self.products[number, base] = self.bind(prim, atoms, source)
        return self.products[number, base]

    def inverse(self, by: Atom, e: Eqn) -> Var:
        if by not in self.inverses:
            one = Literal(ConcreteArray(np.ones((), by.aval.dtype), by.aval.weak_type))
            self.inverses[by] = self.bind(div, [one, by], e.source)
        return self.inverses[by]

    def is_safe(self, number: float, dtype: np.dtype) -> bool:
        """Whether a scale is so far from the ends of the range that values meet them with it alone."""
        info = np.finfo(dtype)
        return sqrt(info.tiny) < abs(number) < sqrt(info.max)

    def bind(self, prim: Primitive, atoms: Sequence[Atom], source: Source | None) -> Var:
        (aval,) = prim.abstract(*[a.aval for a in atoms])
        self.eqns.append(Eqn(prim, atoms, [Var(aval)], source))
        return self.eqns[-1].outs[0]
