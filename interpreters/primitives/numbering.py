"""Questions that are asked of a whole batch, and value numbering of one member that knows them.

Where the batch axis was there is an axis of size 1, so that gathers of all members are slices of one: they
are written so, and what is written back where it was read from changes nothing.

Source: value numbering (Muchnick 1997, ch. 12); induction over iterations, optimistic as in Wegman &
Zadeck 1991.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import policy
from fnx.core.array import ConcreteArray
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, made_once, subjaxprs
from fnx.core.primitive import Primitive
from fnx.interpreters.batching import batch_jaxpr
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.rewrite import bind_into, live
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.pointwise import Pointwise
from fnx.ops.structure.dynamic_slice import DynamicSlice
from fnx.ops.structure.gather import Gather
from fnx.ops.structure.gather_dimension_numbers import FILL, Windows
from fnx.ops.structure.scatter import Scatter

from .custom_vmap import CustomVmap
from .user_primitives import Foreign
from .write_out import WritingOut

_BOOL = np.dtype(bool)
_INT = np.dtype(np.int64)
_RESHAPES = ("reshape", "squeeze")


@made_once
def _is_any(jaxpr: Jaxpr) -> bool:
    """Whether a jaxpr of bools gives whether any is true."""
    small = simplify(jaxpr, final=True)
    (x,), (out,) = small.inputs, small.outs
    name: dict[Atom, Atom] = {}
    eqns = []
    for e in small.eqns:
        if isinstance(e.prim, ConvertElementType) and e.inputs[0].aval.like(e.outs[0].aval):
            name[e.outs[0]] = name.get(e.inputs[0], e.inputs[0])  # of its weak type
        else:
            eqns.append(e)
    asked = name.get(out, out)
    if not eqns:
        return asked is x
    e = eqns[-1]
    axes = getattr(e.prim, "axes", None)
    return (
        len(eqns) == 1
        and e.prim.name == "reduce_or"
        and name.get(e.inputs[0], e.inputs[0]) is x
        and e.outs[0] is asked
        and len(axes or ()) == len(x.aval.shape)
    )


def asks_all(prim: Primitive) -> bool:
    """Whether a user's primitive gives the truth of any of its bools, as one for a whole batch does."""
    if not isinstance(prim, Foreign) or prim.transparent != "final" or len(prim.avals) != 1:
        return False
    outs = prim.abstract()
    return (
        len(outs) == 1
        and prim.avals[0].dtype == outs[0].dtype == _BOOL
        and outs[0].shape == ()
        and _is_any(prim.jaxpr)
    )


@made_once
def holds_question(jaxpr: Jaxpr) -> bool:
    """Whether a question is asked of all members, at any depth."""
    return any(
        asks_all(e.prim) or any(holds_question(j) for j in subjaxprs(e.prim)) for e in jaxpr.eqns
    )


@made_once
def keeps_apart(jaxpr: Jaxpr) -> bool:
    """Whether rules of users for vmap do not let members see each other, but for questions."""
    for e in jaxpr.eqns:
        if isinstance(e.prim, CustomVmap):
            return False
        if isinstance(e.prim, Foreign) and not asks_all(e.prim) and not _is_member_wise(e.prim):
            return False
        if not all(map(keeps_apart, subjaxprs(e.prim))):
            return False
    return True


def _is_member_wise(prim: Foreign) -> bool:
    if prim.transparent != "final":
        return False
    inputs = [Var(a) for a in prim.avals]
    eqns: list[Eqn] = []
    outs = bind_into(eqns, prim, inputs)
    try:
        batched, mask = batch_jaxpr(Jaxpr(inputs, eqns, outs), 2, (True,) * len(inputs))
    except Exception:  # a rule of a user's, which may forbid that
        return prim.jaxpr.outs == prim.jaxpr.inputs or not simplify(prim.jaxpr, final=True).eqns
    return all(mask) and all(moves(e.prim) for e in simplify(batched, final=True).eqns)


_MOVES = {
    "broadcast_in_dim", "concatenate", "dynamic_slice", "dynamic_update_slice", "gather", "iota", "reshape",
    "scatter", "slice", "slice_set", "squeeze", "transpose",
}  # fmt: skip


SUMS = {
    "argmax", "argmin", "dot_general", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
    "reduce_sum",
}  # fmt: skip


def moves(prim: Primitive) -> bool:
    return isinstance(prim, Pointwise) or prim.name in _MOVES


class Numbering(WritingOut):
    """Value numbering that knows questions, and the algebra of truth."""

    def __init__(self) -> None:
        super().__init__(_as_it_is)
        self.down: set[Atom] = set()  # flags that no member has
        self.keeps = False  # whether what loops inside do not change is looked for

    def add(self, eqns: Sequence[Eqn]) -> None:
        for e in eqns:
            if asks_all(e.prim) and e.inputs[0].aval.shape:
                x = self.name(e.inputs[0])
                known = self.truth(x)
                found = literal(False) if x in self.down else None
                found = found if known is None else literal(known)
                self.name[e.outs[0]] = found or self.equation(e, (x,))[0]
            else:
                super().add([e])
                if self.keeps and e.prim.name == "while" and _hands_on_arrays(e):
                    self.keep(e)

    def keep(self, e: Eqn) -> None:
        """What no iteration of a loop changes is what it was.

        All is taken to be so at first, and what turns out to change is not, until that settles.
        """
        prim: Any = e.prim
        _, consts, carry = prim.parts([self.name(a) for a in e.inputs])
        before = list(self.eqns), dict(self.maker), dict(self.known)
        some = [Var(a.aval) for a in carry]
        kept, last = [True] * len(carry), None
        while kept != last:
            given = [a if same else v for a, v, same in zip(carry, some, kept)]
            outs = self.outs(prim.body_jaxpr, [*consts, *given])
            last, kept = kept, [k and o is a for k, o, a in zip(kept, outs, carry)]
        self.eqns, self.maker, self.known = before
        self.name.update((v, a) for v, a, same in zip(e.outs, carry, kept) if same)

    # --- places in arrays

    def rewritten(self, prim: Primitive, atoms: tuple) -> tuple[Primitive, tuple]:
        if isinstance(prim, Gather) and prim.mode is not FILL:
            w = prim.windows(atoms[0].aval, atoms[1].aval)
            found = self.part(w, *atoms)
            if found is not None:
                return Reshape(w.shape), (self.value(found[0], *found[1]),)
        return super().rewritten(prim, atoms)

    def part(self, w: Windows, x: Atom, indices: Atom) -> tuple[DynamicSlice, list[Atom]] | None:
        """The only window as a slice of the array without axes of size 1; None if there are several."""
        starts: dict[int, Atom | None] = {}
        axes = [d for d, n in enumerate(x.aval.shape) if n != 1]
        for k, d in enumerate(w.dims.start_index_map):
            if w.sizes[d] != x.aval.shape[d]:
                starts[d] = self.entry(indices, k)
        if not w.single or not axes or None in starts.values():
            return None
        zero = Literal(ConcreteArray(np.zeros((), _INT)))
        sizes = tuple([w.sizes[d] for d in axes])
        return DynamicSlice(sizes), [self.squeezed(x), *(starts.get(d) or zero for d in axes)]

    def entry(self, indices: Atom, k: int) -> Atom | None:
        """Number `k` of the only index vector."""
        if indices.aval.size == 1:
            return self.value(Reshape(()), indices)
        e = self.made(indices, "concatenate")
        parts = e.inputs if e is not None else ()
        if all(a.aval.size == 1 for a in parts) and k < len(parts):
            return self.value(Reshape(()), parts[k])
        return None

    def squeezed(self, x: Atom) -> Atom:
        """An array without axes of size 1."""
        shape = tuple([n for n in x.aval.shape if n != 1])
        while (e := self.maker.get(x)) and e.prim.name in ("broadcast_in_dim", *_RESHAPES):  # type: ignore
            if tuple([n for n in e.inputs[0].aval.shape if n != 1]) != shape:
                break
            x = e.inputs[0]
        return x if x.aval.shape == shape else self.value(Reshape(shape), x)

    def written_back(self, prim: Scatter, x: Atom, indices: Atom, updates: Atom) -> bool:
        """Whether what is written is what was there."""
        found = self.part(prim.windows(x.aval, indices.aval, updates.aval), x, indices)
        while (e := self.maker.get(updates)) and e.prim.name in _RESHAPES:  # type: ignore[arg-type]
            updates = e.inputs[0]
        if found is None or e is None or e.prim != found[0]:
            return False
        return all(a is b or _same_number(a, b) for a, b in zip(e.inputs, found[1], strict=True))

    # --- truth

    def identity(self, prim: Primitive, atoms: tuple) -> Atom | None:
        if isinstance(prim, Scatter) and self.written_back(prim, *atoms):
            return atoms[0]
        if prim.name == "select_n" and len(atoms) == 3:
            which, x, y = atoms
            known = 0 if x is y or _same_number(x, y) else self.truth(which)
            if known is not None:
                return self.spread(atoms[1 + known], which.aval.shape)
        if prim.name in ("and", "or") and atoms[0].aval.dtype == _BOOL:
            shape = max([a.aval.shape for a in atoms], key=len)
            for x, y in (atoms, atoms[::-1]):
                known = self.truth(x)
                if x is y or known is (prim.name == "and"):
                    return y if y.aval.shape == shape else self.spread(y, shape)
                if known is not None:
                    return self.spread(literal(known), shape)
        return super().identity(prim, atoms)

    def truth(self, atom: Atom) -> bool | None:
        """What all elements of a bool are, if that is known."""
        if atom.aval.dtype != _BOOL:
            return None
        value = self.constant(atom)
        return None if value is None else bool(value)

    def constant(self, atom: Atom) -> Any:
        """The number that all elements are, if it is known."""
        while (e := self.maker.get(atom)) and e.prim.name in ("broadcast_in_dim", "reshape"):  # type: ignore
            atom = e.inputs[0]
        if type(atom) is Literal and type(atom.value) is ConcreteArray and not atom.aval.shape:
            return atom.value._value
        return None

    def spread(self, atom: Atom, shape: tuple[int, ...]) -> Atom:
        if atom.aval.shape or not shape:
            return atom
        out = Var(atom.aval.update(shape=shape))
        e = Eqn(Broadcast(shape, ()), [atom], [out])
        return self.equation(e, (atom,))[0]

    def made(self, atom: Atom, name: str) -> Eqn | None:
        e = self.maker.get(atom) if type(atom) is Var else None
        return e if e is not None and e.prim.name == name else None

    def later(self, x: Atom, inputs: Sequence[Var], carry: Sequence[Var], outs: list) -> Atom:
        """The same of what an iteration hands on."""
        fixed = [v for v in inputs if v not in carry]
        found = Jaxpr([*fixed, *carry], live(self.eqns, [x]), [x])
        return self.outs(found, [*fixed, *outs])[0]

    def flags(
        self, inputs: Sequence[Var], carry: Sequence[Var], outs: list[Atom]
    ) -> list[Atom] | None:
        """What an iteration asks of all members, if no member has it again once none has."""
        found = []
        for e in live(self.eqns, outs):
            if asks_all(e.prim):
                (x,) = e.inputs
                if not self.implies(self.later(x, inputs, carry, outs), x):
                    return None
                found.append(x)
        return found

    def implies(self, a: Atom, b: Atom) -> bool:
        """Whether `a` is never true where `b` is not."""
        if a is b or self.truth(a) is False:
            return True
        e = self.maker.get(a)  # type: ignore[arg-type]
        if e is None:
            return False
        if e.prim.name == "and":
            return any(self.implies(x, b) for x in e.inputs)
        if e.prim.name in ("or", "select_n"):
            return all(self.implies(x, b) for x in e.inputs[e.prim.name == "select_n" :])
        return False


def _hands_on_arrays(e: Eqn) -> bool:
    """Whether a loop of members carries what they keep in memory, which no mask may go through."""
    prim: Any = e.prim
    return any(v.aval.size > policy.SMALL for v in e.outs) and holds_question(prim.cond_jaxpr)


def _same_number(a: Atom, b: Atom) -> bool:
    if type(a) is not Literal or type(b) is not Literal:
        return False
    return a.value._value == b.value._value  # type: ignore[attr-defined]


def _as_it_is(jaxpr: Jaxpr) -> Jaxpr:
    return jaxpr


def literal(value: bool) -> Literal:
    return Literal(ConcreteArray(np.asarray(value)))


__all__ = ["SUMS", "Numbering", "asks_all", "holds_question", "keeps_apart", "literal", "moves"]
