"""Choice factoring: a choice between results of one operation is that operation of a choice.

Upwind schemes choose between differences to either side, and multiply and divide each alike:
`select(u > 0, u * a / dx, u * b / dx)` is `u * select(u > 0, a, b) / dx`, bit by bit, with half of the
operations, and so is its derivative.

Source: LLVM's InstCombine, select of operations with a common operand.
Input: a jaxpr with choices between results that nobody else reads.
Output: the same, with choices between operands.
Legal when: all cases are made by one operation, from the same operands but one. A product stays beside the
sums that it stands beside, and comes beside no others, as both may be rounded once.
Pays when: always.
Costs: nothing.
"""

from collections.abc import Sequence

from fnx.core.def_use import definitions, use_counts, users
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from fnx.interpreters.rewrite import live

from .value_numbering import atom_key

_SUMS = ("add", "sub", "add_any")
_COMMUTATIVE = ("add", "mul", "add_any")
_PRODUCTS = ("mul", "square", "integer_pow")
_FACTORED = (*_SUMS, *_PRODUCTS, "div", "neg", "abs")


def factored_choices(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with choices between operands for choices between what is made of them."""
    if not any([e.prim.name == "select_n" for e in jaxpr.eqns]):
        return jaxpr
    walk = _Walk(jaxpr)
    for e in jaxpr.eqns:
        if e.prim.name == "select_n":
            walk.choose(e, any([r.prim.name in _SUMS for r in walk.readers.get(e.outs[0], ())]))
        else:
            walk.eqns.append(e)
    return jaxpr.with_eqns(live(walk.eqns, jaxpr.outs)) if walk.changed else jaxpr


class _Walk:
    """One walk over the equations in order."""

    def __init__(self, jaxpr: Jaxpr):
        self.maker, self.uses = definitions(jaxpr.eqns), use_counts(jaxpr)
        self.readers = users(jaxpr.eqns)
        self.eqns: list[Eqn] = []
        self.changed = False

    def choose(self, e: Eqn, added: bool) -> None:
        """Append a choice, factored if it can be; `added`: whether somebody adds something to it."""
        makers = self.makers(e.inputs[1:])
        places = _places(makers) if makers else None
        if places is None or not self.is_exact(makers, places, added):
            self.eqns.append(e)
            return
        first, at = makers[0], places[0]
        inner = [m.inputs[k] for m, k in zip(makers, places)]
        chosen = Var(e.prim.abstract(e.inputs[0].aval, *[a.aval for a in inner])[0])
        operands = [*first.inputs[:at], chosen, *first.inputs[at + 1 :]]
        if first.prim.abstract(*[a.aval for a in operands]) != (e.outs[0].aval,):
            self.eqns.append(e)
            return
        sums = first.prim.name in _SUMS or first.prim.name == "neg" and added
        self.choose(Eqn(e.prim, [e.inputs[0], *inner], [chosen], e.source), sums)
        self.eqns.append(Eqn(first.prim, operands, e.outs, first.source))
        self.changed = True

    def makers(self, cases: Sequence[Atom]) -> list[Eqn]:
        """What makes the cases, if it is one operation that nobody else asks for; else nothing."""
        found = [
            self.maker[a] for a in cases if type(a) is Var and self.uses[a] == 1 and a in self.maker
        ]
        alike = len(found) == len(cases) and all([m.prim == found[0].prim for m in found])
        return found if alike and found[0].prim.name in _FACTORED else []

    def is_exact(self, makers: Sequence[Eqn], places: Sequence[int], added: bool) -> bool:
        """Whether products meet the same sums as before, and operands have one type."""
        inner = [m.inputs[k] for m, k in zip(makers, places)]
        if any(
            [a.aval != inner[0].aval or a.aval.shape != makers[0].outs[0].aval.shape for a in inner]
        ):
            return False
        if makers[0].prim.name in _SUMS:
            return not any([self.is_product(a) for a in inner])
        return not (added and makers[0].prim.name in _PRODUCTS)

    def is_product(self, a: Atom) -> bool:
        made = self.maker.get(a) if type(a) is Var else None
        while made is not None and made.prim.name == "neg":
            made = self.maker.get(made.inputs[0])  # type: ignore[call-overload]
        return made is not None and made.prim.name in _PRODUCTS


def _places(makers: Sequence[Eqn]) -> list[int] | None:
    """Where each operation has the operand that the others lack; None if they lack more than one."""
    if len(makers[0].inputs) == 1:
        return [0] * len(makers)
    keys = [[atom_key(a) for a in m.inputs] for m in makers]
    swaps = makers[0].prim.name in _COMMUTATIVE
    for common in (0, 1):
        key = keys[0][common]
        if all([k[common] == key for k in keys]):
            return [1 - common] * len(makers)
        if swaps and all([key in k for k in keys]):
            return [1 - k.index(key) for k in keys]
    return None
