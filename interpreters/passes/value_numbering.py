"""Value numbering: equal equations are one; with inlining, constant folding and algebraic identities.

Results keep their bits: only identities that are exact for floats, signed zeros included, are used.

Source: Muchnick 1997, ch. 12 (value numbering, constant folding, identities), 13, 15 (inlining).
Input: a jaxpr; whether it is final, so that rules which users gave may be dropped.
Output: a jaxpr of the same inputs in which no two equations compute the same.
Legal when: the identity is exact; equations with effects stay as they are.
Pays when: always.
Costs: one walk over the equations; what is called is copied to each call.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.core.interpreter import evaluate
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.core.primitive import Primitive
from fnx.interpreters.control_flow import CondRecord
from fnx.interpreters.rewrite import Renaming, splice, with_jaxprs
from fnx.ops.base.broadcast import Broadcast, Sum
from fnx.ops.base.permute import Reshape, Transpose
from fnx.ops.elementwise.arithmetic import add, max_, min_, mul, sub
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.pointwise import Pointwise, add_weak
from fnx.ops.linalg.contraction import DotGeneral
from fnx.ops.reduction.reduction import Reduction
from fnx.ops.structure.dynamic_slice import DynamicSlice
from fnx.ops.structure.slice import Slice

from .reduce_of_dot import outer_product


def called(prim: Primitive, final: bool, atoms: Sequence[Atom] = ()) -> Jaxpr | None:
    """The jaxpr of a call, where this is no more than that; of these operands, if it matters which."""
    when = prim.transparent
    if when == "always" or (final and when == "final"):
        applied = getattr(prim, "applied", None)
        return prim.jaxpr if applied is None else applied(atoms)  # type: ignore[attr-defined]
    return None


def expanded(prim: Primitive) -> Jaxpr | None:
    """The jaxpr that an equation with this primitive can be replaced with."""
    expand = getattr(prim, "expand", None)
    return None if expand is None else expand()


class ValueNumbering:
    """One walk over the equations in order. `simplified`: what is done to the jaxprs that they carry."""

    def __init__(self, final: bool, simplified: Callable[[Jaxpr], Jaxpr]):
        self.final, self.simplified = final, simplified
        self.name = Renaming()
        self.eqns: list[Eqn] = []
        self.maker: dict[Var, Eqn] = {}
        self.known: dict[Any, tuple[Atom, ...]] = {}
        self.returned: set[Atom] = set()  # results keep their weak types

    def run(self, jaxpr: Jaxpr) -> Jaxpr:
        self.returned = set(jaxpr.outs)
        self.add(jaxpr.eqns)
        outs = [self.name(o) for o in jaxpr.outs]
        return jaxpr.with_eqns(self.eqns, outs)

    def add(self, eqns: Sequence[Eqn]) -> None:
        for e in eqns:
            atoms = tuple([self.name(a) for a in e.inputs])
            # What is called is not simplified first, or equations would be at each call around them.
            inner = called(e.prim, self.final, atoms)
            if self.final and isinstance(e.prim, CondRecord) and (known := _taken(e, atoms)):
                inner, atoms = known, atoms[1:]
            if inner is None:
                e = Eqn(with_jaxprs(e.prim, self.simplified), e.inputs, e.outs, e.source)
                inner = expanded(e.prim)
            if inner is None and self.final and isinstance(e.prim, DotGeneral):
                inner = outer_product(e.prim, *[a.aval for a in atoms])
            if inner is not None:
                # Fresh names: a jaxpr may be called twice.
                body: list[Eqn] = []
                outs = splice(inner, atoms, body)
                self.add(body)
                self.name.update(zip(e.outs, [self.name(o) for o in outs]))
            else:
                self.name.update(zip(e.outs, self.equation(e, atoms)))

    def equation(self, e: Eqn, atoms: tuple[Atom, ...]) -> Sequence[Atom]:
        prim = add if self.final and e.prim is add_weak else e.prim
        if isinstance(prim, Pointwise):
            if all([type(a) is Literal for a in atoms]):
                return _fold(prim, atoms)
            if (numbers := self._numbers(atoms)) is not None:
                return self._of_numbers(e, numbers)
        elif isinstance(prim, Sum) and (scaled := self._of_doubles(e, atoms[0])) is not None:
            return scaled
        prim, atoms = self.rewritten(prim, atoms)
        same = self.identity(prim, atoms)
        if same is not None and same.aval.like(e.outs[0].aval):
            if same.aval == e.outs[0].aval or not self._tells(e):
                return (same,)
        key = None if prim.effects else (prim, *map(atom_key, atoms))
        found = self.known.get(key) if key is not None else None
        if found is None:
            outs = tuple([Var(v.aval) for v in e.outs])
            new = Eqn(prim, atoms, outs, e.source)
            self.eqns.append(new)
            self.maker.update((v, new) for v in outs)
            found = outs
            if key is not None:
                self.known[key] = found
        return found

    def _tells(self, e: Eqn) -> bool:
        """Whether its weak type may be seen: in results, and by derivatives in how weak they are."""
        differentiable = dtypes.is_inexact(e.outs[0].aval.dtype) and not self.final
        return e.outs[0] in self.returned or differentiable

    def rewritten(self, prim: Primitive, atoms: tuple) -> tuple[Primitive, tuple]:
        """The same value by another equation: rank-0 operands for broadcasts, composed moves."""
        if isinstance(prim, Pointwise):
            if len(atoms) > 1 and any([a.aval.shape for a in atoms]):
                atoms = self._unbroadcast(atoms)
        if len(atoms) == 2 and prim.name in ("add", "sub"):
            prim, atoms = self._unnegated(prim, atoms)
        elif isinstance(prim, (Transpose, Reshape)) and (
            inner := self._made_by(atoms[0], type(prim))
        ):
            if isinstance(prim, Transpose):
                prim = Transpose(tuple([inner.prim.permutation[k] for k in prim.permutation]))
            atoms = inner.inputs
        elif isinstance(prim, DynamicSlice) and (inner := self._made_by(atoms[0], Slice)):
            if inner.prim.strides is None:
                atoms = (inner.inputs[0], *self._starts(prim, inner.prim, atoms))
        elif isinstance(prim, Broadcast) and (inner := self._made_by(atoms[0], Broadcast)):
            dims = tuple([prim.broadcast_dimensions[d] for d in inner.prim.broadcast_dimensions])
            prim, atoms = Broadcast(prim.shape, dims), inner.inputs
        return prim, atoms

    def _starts(self, prim: DynamicSlice, inner: Slice, atoms: tuple) -> list[Atom]:
        """Where a slice of a slice begins in the whole; it may not leave the outer slice."""

        def value(op: Primitive, x: Atom, number: int) -> Atom:
            other = Literal(ConcreteArray(np.asarray(number, x.aval.dtype)))
            (aval,) = op.abstract(x.aval, other.aval)
            return self.equation(Eqn(op, [x, other], [Var(aval)]), (x, other))[0]

        found = []
        whole = self.maker[atoms[0]].inputs[0].aval.shape
        bounds = zip(whole, inner.start_indices, inner.limit_indices, prim.slice_sizes)
        for start, (m, low, high, n) in zip(atoms[1:], bounds):
            if n == high - low:  # there is only one place
                start = Literal(ConcreteArray(np.asarray(low, start.aval.dtype)))
            elif (low, high) != (0, m):
                start = value(min_, value(max_, start, 0), high - low - n)
                start = value(add, start, low)
            found.append(start)
        return found

    def _unnegated(self, prim: Primitive, atoms: tuple) -> tuple[Primitive, tuple]:
        """x + -y is x - y, and x - -y is x + y, bit by bit."""
        x, y = atoms
        if (other := self._negative(y)) is not None:
            return (sub if prim.name == "add" else add), (x, other)
        if prim.name == "add" and (other := self._negative(x)) is not None:
            return sub, (y, other)
        return prim, atoms

    def _negative(self, atom: Atom) -> Atom | None:
        """-x if that is known without its being computed: x * -y is the negative of x * y, bit by bit."""
        made = self.maker.get(atom) if type(atom) is Var else None
        if made is None or made.prim.name not in ("neg", "mul", "div"):
            return None
        if made.prim.name == "neg":
            return made.inputs[0] if made.inputs[0].aval.shape == atom.aval.shape else None
        dtype = atom.aval.dtype
        # Quotients of integers wrap around; zeros of complex numbers are differences.
        if not dtypes.is_inexact(dtype) or dtypes.is_complex(dtype):
            return None
        for k, inner in enumerate([self._maker_named(a, "neg") for a in made.inputs]):
            if inner is not None:
                factors = (*made.inputs[:k], inner.inputs[0], *made.inputs[k + 1 :])
                product = Eqn(made.prim, factors, [Var(atom.aval)], made.source)
                return self.equation(product, factors)[0]
        return None

    def _unbroadcast(self, atoms: tuple) -> tuple:
        shape = next((a.aval.shape for a in atoms if a.aval.shape), ())
        made = [self._made_by(a, Broadcast) if a.aval.shape else None for a in atoms]
        thin = [m is not None and m.inputs[0].aval.shape == () for m in made]
        wide = [a.aval.shape == shape and not t for a, t in zip(atoms, thin)]
        if not shape or not any(wide):
            return atoms
        return tuple([m.inputs[0] if t else a for a, m, t in zip(atoms, made, thin)])

    def _numbers(self, atoms: tuple) -> tuple | None:
        """The numbers that operands repeat, if all do, and one is an array."""
        found, arrays = [], 0
        for a in atoms:
            if a.aval.shape:
                made = self._made_by(a, Broadcast)
                if made is None or made.inputs[0].aval.shape:
                    return None
                a, arrays = made.inputs[0], arrays + 1
            found.append(a)
        return tuple(found) if arrays else None

    def _of_numbers(self, e: Eqn, numbers: tuple) -> Sequence[Atom]:
        """What is computed alike for all elements is computed once."""
        avals = e.prim.abstract(*[a.aval for a in numbers])
        once = self.equation(Eqn(e.prim, numbers, [Var(a) for a in avals], e.source), numbers)
        found = []
        for number, out in zip(once, e.outs, strict=True):
            spread = Eqn(Broadcast(out.aval.shape, ()), (number,), [out], e.source)
            found += self.equation(spread, (number,))
        return found

    def _of_doubles(self, e: Eqn, x: Atom) -> Sequence[Atom] | None:
        """A sum of numbers that are all multiplied with a power of two is that times their sum.

        No bit differs, unless a sum of the multiples is too large for a number on the way.
        """
        inner = self._maker_named(x, "mul")
        if inner is None or dtypes.NAME[x.aval.dtype] not in ("float32", "float64"):
            return None
        terms, factor = sorted(inner.inputs, key=_is_known)
        if not _is_known(factor) or terms.aval.shape != x.aval.shape:
            return None
        number = abs(factor.value._value.item())
        if not 1.0 < number < math.inf or math.frexp(number)[0] != 0.5:
            return None
        (aval,) = e.prim.abstract(terms.aval)
        (total,) = self.equation(Eqn(e.prim, [terms], [Var(aval)], e.source), (terms,))
        return self.equation(Eqn(mul, [total, factor], e.outs, inner.source), (total, factor))

    def _made_by(self, atom: Atom, kind: type) -> Any:
        eqn = self.maker.get(atom) if type(atom) is Var else None
        return eqn if eqn is not None and isinstance(eqn.prim, kind) else None

    def identity(self, prim: Primitive, atoms: tuple) -> Atom | None:
        """The operand that the result equals, if it is one."""
        name = prim.name
        if name in _NEUTRAL and len(atoms) == 2:
            value, sides = _NEUTRAL[name]
            for k in sides:
                if _is_number(atoms[k], value, name):
                    return atoms[1 - k]
        elif isinstance(prim, ConvertElementType):
            return atoms[0] if prim.new_dtype == atoms[0].aval.dtype else None
        elif isinstance(prim, Transpose):
            straight = prim.permutation == tuple(range(len(prim.permutation)))
            return atoms[0] if straight else None
        elif isinstance(prim, (Reshape, Broadcast)):
            return atoms[0]  # if the type is the same, as the caller checks
        elif isinstance(prim, (Sum, Reduction)) and (inner := self._made_by(atoms[0], Broadcast)):
            # Nothing is summed, and nothing is repeated: axes of size 1 come and go.
            return inner.inputs[0] if inner.inputs[0].aval.size == atoms[0].aval.size else None
        elif name == "neg":
            return self._negative(atoms[0])
        elif name == "integer_pow" and getattr(prim, "y", 0) == 1:
            return atoms[0]
        elif name == "select_n" and all(a is atoms[1] for a in atoms[2:]):
            return atoms[1]
        elif name == "select_n" and _is_known(atoms[0]):
            which = int(atoms[0].value._value)  # type: ignore[union-attr]
            return atoms[1 + min(max(which, 0), len(atoms) - 2)]
        elif name == "copy" or (name in _MARKS and self.final):
            return atoms[0]
        return None

    def _maker_named(self, atom: Atom, name: str) -> Any:
        eqn = self.maker.get(atom) if type(atom) is Var else None
        return eqn if eqn is not None and eqn.prim.name == name else None


_MARKS = ("stop_gradient", "name", "pcast")  # mean something to transformations alone
_NEUTRAL: dict[str, tuple[float, tuple[int, ...]]] = {
    "mul": (1, (0, 1)),
    "div": (1, (1,)),
    "sub": (0, (1,)),
    "add": (0, (0, 1)),
    "pow": (1, (1,)),
}


def _taken(e: Eqn, atoms: tuple) -> Jaxpr | None:
    """The branch that is taken, if it is known which."""
    if not _is_known(atoms[0]):
        return None
    branches = e.prim.branches  # type: ignore[attr-defined]
    taken = branches[min(max(int(atoms[0].value._value), 0), len(branches) - 1)]
    alike = all(a.aval == v.aval for a, v in zip(taken.outs, e.outs, strict=True))
    return taken if alike else None


def _is_known(atom: Atom) -> bool:
    return type(atom) is Literal and type(atom.value) is ConcreteArray and not atom.aval.shape


def _is_number(atom: Atom, value: float, name: str) -> bool:
    if not _is_known(atom):
        return False
    number = atom.value._value  # type: ignore[union-attr]
    if number != value:
        return False
    if value == 0 and number.dtype.kind not in "iub":
        # x + -0.0 and x - 0.0 are x; x + 0.0 turns -0.0 into 0.0.
        return number.dtype.kind != "c" and np.signbit(number) == (name == "add")
    return True


def _fold(prim: Primitive, atoms: tuple[Literal, ...]) -> list[Literal]:
    outs = evaluate.process(prim, tuple([a.value for a in atoms]))
    return [Literal(o) for o in outs]


def atom_key(atom: Atom) -> Any:
    """What is equal for atoms of the same value."""
    if type(atom) is Var:
        return atom
    value = atom.value
    if type(value) is ConcreteArray and value.ndim == 0:
        return value.dtype, value.weak_type, value._value.tobytes()
    return id(value)
