"""Loops that are known to end soon are written out, iteration by iteration.

A while loop whose condition depends on numbers alone, as that over the stages of a Runge-Kutta method, is
run while the program is compiled: its condition folds to a number, and its body becomes straight code
in which counters are numbers, so that places in small tables are known.

Source: Muchnick 1997, ch. 17 (loop unrolling); online partial evaluation (Jones, Gomard & Sestoft 1993).
Input: a jaxpr that is final: functions with rules are replaced with what they do.
Output: the same without those loops.
Legal when: the condition folds in each iteration.
Pays when: what is around the loop is straight code, and would run side by side for many batch elements.
Costs: code; `WRITTEN_OUT` equations, of `WRITTEN_ITERATIONS` iterations, at most.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import policy
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, made_once
from fnx.core.primitive import Primitive
from fnx.interpreters.passes.value_numbering import ValueNumbering
from fnx.interpreters.rewrite import splice
from fnx.ops.base.permute import Reshape
from fnx.ops.structure.dynamic_slice import DynamicSlice, DynamicUpdateSlice
from fnx.ops.structure.scatter import Scatter
from fnx.ops.structure.slice import Slice
from fnx.ops.structure.slice_set import SliceSet

Box = tuple[tuple[int, ...], tuple[int, ...]]


def _box(start: Sequence[int], sizes: Sequence[int]) -> Box:
    return tuple(start), tuple([a + n for a, n in zip(start, sizes)])


@made_once
def written_out(jaxpr: Jaxpr) -> Jaxpr:
    """An equivalent jaxpr in which loops of few iterations are straight code."""
    return WritingOut(written_out).run(jaxpr)


class WritingOut(ValueNumbering):
    """Value numbering that runs loops whose conditions it knows."""

    def __init__(self, simplified: Callable[[Jaxpr], Jaxpr]):
        super().__init__(True, simplified)

    def add(self, eqns: Sequence[Eqn]) -> None:
        for e in eqns:
            outs = self.iterations(e) if e.prim.name == "while" else None
            if outs is None:
                super().add([e])
            else:
                self.name.update(zip(e.outs, outs))

    def iterations(self, e: Eqn) -> Sequence[Atom] | None:
        """The results of a loop whose iterations are written out; None, and nothing, if it goes on."""
        before = list(self.eqns), dict(self.maker), dict(self.known)
        prim: Any = e.prim
        c, b, carry = prim.parts([self.name(a) for a in e.inputs])
        for _ in range(policy.WRITTEN_ITERATIONS):
            if len(self.eqns) - len(before[0]) > policy.WRITTEN_OUT:
                break
            (test,) = self.outs(prim.cond_jaxpr, [*c, *carry])
            if type(test) is not Literal:
                break
            if not test.value._value:  # type: ignore[attr-defined]
                return carry
            carry = self.outs(prim.body_jaxpr, [*b, *carry])
        self.eqns, self.maker, self.known = before
        return None

    def rewritten(self, prim: Primitive, atoms: tuple) -> tuple[Primitive, tuple]:
        """Elements at places that are known are boxes of known bounds."""
        if isinstance(prim, DynamicSlice):
            starts = self._starts_known(prim.slice_sizes, atoms[0].aval.shape, atoms[1:])
            if starts is not None:
                return Slice(*_box(starts, prim.slice_sizes)), atoms[:1]
        elif isinstance(prim, DynamicUpdateSlice):
            sizes = atoms[1].aval.shape
            starts = self._starts_known(sizes, atoms[0].aval.shape, atoms[2:])
            if starts is not None:
                return SliceSet(*_box(starts, sizes)), atoms[:2]
        elif isinstance(prim, Scatter):
            box = self._window(prim, *atoms)
            if box is not None:
                sizes = tuple([b - a for a, b in zip(*box)])
                return SliceSet(*box), (atoms[0], self.value(Reshape(sizes), atoms[2]))
        return super().rewritten(prim, atoms)

    def value(self, prim: Primitive, *atoms: Atom) -> Atom:
        """The result of another equation."""
        (aval,) = prim.abstract(*[a.aval for a in atoms])
        return self.equation(Eqn(prim, atoms, [Var(aval)]), atoms)[0]

    def _starts_known(
        self, sizes: Sequence[int], shape: Sequence[int], starts: Sequence[Atom]
    ) -> list[int] | None:
        """Where a slice begins, moved inside, if it is known."""
        found = [self.numbers(s) for s in starts]
        if None in found:
            return None
        pairs = zip(found, shape, sizes, strict=True)
        return [min(max(x[0], 0), n - m) for x, n, m in pairs]  # type: ignore[index]

    def _window(self, prim: Scatter, x: Atom, indices: Atom, updates: Atom) -> Box | None:
        """The bounds of the only window that is written, if these are known."""
        dims, places = prim.dimension_numbers, self.numbers(indices)
        if places is None or len(places) != len(dims.scatter_dims_to_operand_dims):
            return None
        shape = x.aval.shape
        gone = (*dims.inserted_window_dims, *dims.operand_batching_dims)
        if any(shape[d] != 1 for d in dims.operand_batching_dims):
            return None
        sizes = iter([updates.aval.shape[d] for d in dims.update_window_dims])
        size = [1 if d in gone else next(sizes) for d in range(len(shape))]
        start = [0] * len(shape)
        for d, place in zip(dims.scatter_dims_to_operand_dims, places, strict=True):
            start[d] = place
        inside = all(0 <= a <= n - m for a, n, m in zip(start, shape, size))
        return _box(start, size) if inside else None

    def numbers(self, atom: Atom) -> list[int] | None:
        """The elements of a small array of integers, if they are known."""
        if type(atom) is Literal:
            value = atom.value._value  # type: ignore[attr-defined]
            return [int(value)] if value.dtype.kind in "iu" and not value.shape else None
        e = self.maker.get(atom)  # type: ignore[arg-type]
        if e is None or atom.aval.size > policy.WRITTEN_INDEX:
            return None
        if e.prim.name in ("reshape", "squeeze"):
            return self.numbers(e.inputs[0])
        if e.prim.name == "broadcast_in_dim" and e.inputs[0].aval.size == 1:
            one = self.numbers(e.inputs[0])
            return None if one is None else one * atom.aval.size
        if e.prim.name == "concatenate" and max(atom.aval.shape) == atom.aval.size:
            parts = [self.numbers(a) for a in e.inputs]
            return None if None in parts else [x for part in parts for x in part]  # type: ignore
        return None

    def outs(self, jaxpr: Jaxpr, atoms: Sequence[Atom]) -> list[Atom]:
        """The results of a jaxpr of these operands."""
        eqns: list[Eqn] = []
        outs = splice(jaxpr, atoms, eqns)
        self.add(eqns)
        return [self.name(o) for o in outs]
