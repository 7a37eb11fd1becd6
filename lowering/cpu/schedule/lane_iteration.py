"""The statements of a step of lane refill (`lane_steps.py`), for one slot: values, and what is written."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import recipe, scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Jaxpr
from fnx.core.scalar import Expr
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Scalars, Value, static_indices
from fnx.lowering.ir.kernel import Buffer, Eval, If, Let, Stmt, Store

from .lane_steps import Inside, NotStraight, Piece, Step

_YES = scalar.const(True, "bool")
Results = Callable[[Jaxpr, Sequence[Value]], list[Value]]
Written = list[tuple[Expr, Piece, list[Value]]]  # when, and operands of what is written


@dataclass(frozen=True)
class Outcome:
    """Of a step: small carries, whether the loop goes on, what is written, and of a loop inside whether
    it goes on, and its small carries.
    """

    carry: list[Value]
    goes_on: Expr
    written: Written
    inside: Expr
    state: list[Value]


class Iteration:
    """A step; `results` evaluates straight code."""

    def __init__(self, builder: Generation, loop: recipe.While, step: Step, results: Results):
        self.builder, self.loop, self.step, self.results = builder, loop, step, results

    def test(self, cond: Jaxpr, inputs: Sequence[Value]) -> Expr:
        """What a condition says."""
        (made,) = self.results(cond, inputs)
        return made.state.elements[0]  # type: ignore[union-attr]

    def made(self, operands: list[Value], began: Expr, state: list[Value]) -> Outcome:
        """A step from the operands of the loop, where the loop inside has begun from its state."""
        n = self.loop.cond_consts
        after, inputs = self.step.after, operands[n:]
        given = [inputs[k] for k in self.step.given]
        old = inputs[self.loop.body_consts :]
        if self.step.inside is None:
            made = self.results(after.jaxpr, given)
            carry = made[: after.results]
            on = self.test(self.loop.cond, [*operands[:n], *self.whole(old, carry)])
            return Outcome(carry, on, [(_YES, after, made[after.results :])], _YES, [])
        more, state, read, written = self.within(self.step.inside, given, old, began, state)
        made = self.results(after.jaxpr, [*given, *state, *read])
        small = [v for v in old if isinstance(v.state, Scalars)]
        carry = [self.chosen(more, v, w) for v, w in zip(small, made[: after.results], strict=True)]
        on = self.test(self.loop.cond, [*operands[:n], *self.whole(old, carry)])
        ended = scalar.apply("not", more)
        written.append((ended, after, made[after.results :]))
        return Outcome(carry, scalar.apply("or", more, on), written, more, state)

    def within(
        self,
        inside: Inside,
        given: list[Value],
        arrays: list[Value],
        began: Expr,
        state: list[Value],
    ) -> tuple[Expr, list[Value], list[Value], Written]:
        """An iteration of the loop inside: whether another one follows, small carries, what is read after
        it, and what is written.
        """
        made = self.results(inside.before, given)
        n, m = inside.loop.cond_consts, inside.loop.cond_consts + inside.loop.body_consts
        own = [None if k is None else arrays[k] for k in inside.arrays]
        end = m + own.count(None)
        first, read = made[m:end], made[end:]
        start = (
            [self.chosen(began, v, w) for v, w in zip(state, first, strict=True)]
            if state
            else first
        )
        carry = _filled(own, start)
        goes = self.test(inside.loop.cond, [*made[:n], *carry])
        body = self.results(inside.body.jaxpr, [*made[n:m], *carry])
        new = [
            self.chosen(goes, v, w) for v, w in zip(body[: inside.body.results], start, strict=True)
        ]
        again = self.test(inside.loop.cond, [*made[:n], *_filled(own, new)])
        written = [(goes, inside.body, body[inside.body.results :])]
        return scalar.logical_and(goes, again), new, read, written

    def whole(self, old: Sequence[Value], small: Sequence[Value]) -> list[Value]:
        """All carries: small ones as they are now, and arrays."""
        return _filled([None if isinstance(v.state, Scalars) else v for v in old], small)

    def chosen(self, which: Expr, a: Value, b: Value) -> Value:
        """One of two small values."""
        pairs = zip(a.state.elements, b.state.elements, strict=True)  # type: ignore[union-attr]
        elements = self.builder.kept([scalar.select(which, x, y) for x, y in pairs])
        self.builder.emit(Eval(list(elements)))
        return Value(a.shape, a.dtype, Scalars(elements))


def _filled(own: Sequence[Value | None], small: Sequence[Value]) -> list[Value]:
    rest = iter(small)
    return [next(rest) if v is None else v for v in own]


def writes(
    outcome: Outcome, goes: Expr, arrays: Sequence[Value], block: Sequence[Stmt]
) -> list[tuple[Expr, Buffer, Expr, Expr]]:
    """Elements that are written where a slot goes on, in order: when, where, at which position, and what.

    What is chosen there from the element itself and another one is written where it is the other.
    """
    names = {v: e for s in block if isinstance(s, Let) for v, e in zip(s.variables, s.values)}
    found: list[tuple[Expr, Buffer, Expr, Expr]] = []
    for when, piece, operands in outcome.written:
        rest = iter(operands)
        for eqn, number in piece.writes:
            array = arrays[number]
            place: Any = array.state
            r = eqn.prim.lower(array, *[next(rest) for _ in eqn.inputs[1:]])  # type: ignore[arg-type]
            if not isinstance(r, recipe.Update) or r.combine is not None:
                raise NotStraight
            first = r.unique and all(to is not place.buffer for _, to, _, _ in found)
            for index in static_indices(r.shape):
                here, where = r.target(*index)
                position, value = place.position(array.shape, where), r.value(*index)
                on = scalar.logical_and(scalar.logical_and(goes, when), here)
                if first:
                    old = scalar.load(place.buffer, position, array.dtype)
                    on, value = _changed(on, value, (old, here), names)
                found.append((on, place.buffer, position, value))
    return found


def _changed(
    on: Expr, value: Expr, element: tuple[Expr, Expr], names: dict[Expr, Expr]
) -> tuple[Expr, Expr]:
    """When an element gets another value, and which; `element`: the old one, and whether it is there."""
    old, here = element

    def is_old(e: Expr) -> bool:
        e = names.get(e, e)
        return e is old or e.op == "select" and e.args[0] is here and e.args[1] is old

    chosen = names.get(value, value)
    if chosen.op == "select":
        which, a, b = chosen.args
        if is_old(a):
            return scalar.logical_and(on, scalar.apply("not", which)), b
        if is_old(b):
            return scalar.logical_and(on, which), a
    return on, value


def later(
    builder: Generation, found: list[tuple[Expr, Buffer, Expr, Expr]], slot: Expr, width: int
) -> tuple[list[Stmt], Callable[[Expr], list[Stmt]]]:
    """Statements that put aside what a slot writes, and those that write it, of any slot."""
    kept: dict[Expr, Buffer] = {}
    aside: list[Stmt] = []

    def put(e: Expr) -> Buffer:
        if e not in kept:
            kept[e] = builder.new_stack(e.dtype, width)
            aside.append(Store(kept[e], slot, e))
        return kept[e]

    places = [(put(on), to, put(at), put(value)) for on, to, at, value in found]

    def write(slot: Expr) -> list[Stmt]:
        def read(b: Buffer) -> Expr:
            return scalar.load(b, slot, b.dtype)

        body: list[Stmt] = []
        before = None
        for on, to, at, value in places:
            store = Store(to, read(at), read(value))
            if on is before:
                body[-1].then.append(store)  # type: ignore[attr-defined]
            else:
                body.append(If(read(on), [store], []))
            before = on
        return body

    return aside, write
