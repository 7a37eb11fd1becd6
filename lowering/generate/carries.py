"""Where the carried values of loops are: in variables, in one place, or in halves of a buffer by turns.

Source: scalar replacement, Allen & Kennedy 2001, ch. 8; double buffering.
Input: initial values, and the body of a loop.
Output: places of carries, where their next values go, and the variables that the loop itself carries.
Legal when: an old value is read by nobody once its place is written.
Pays when: always; nothing is copied but what is handed from loop to loop at an odd distance.
Costs: a second half for each large carry that is computed anew.
"""

from collections.abc import Sequence
from typing import Any

from fnx.core import scalar
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Jaxpr, Var
from fnx.core.scalar import Expr
from fnx.lowering.planning import equation_order

from .generation import Generation
from .values import Materialized, Scalars, Value


def computed_anew(body: Jaxpr, inputs: Sequence[Var], outs: Sequence[Any]) -> list[bool]:
    """Which carried values a loop body makes from scratch, rather than by updating the old ones."""
    maker = definitions(body.eqns)
    _, anew = equation_order.box_chains(body)

    def updates(atom: Any, old: Var) -> bool:
        while type(atom) is Var and atom in maker:
            eqn = maker[atom]
            if eqn.prim.elementwise and atom.aval.shape == old.aval.shape:
                return equation_order.read_at_own_index(eqn, old, maker) and any(
                    a is old or updates(a, old)
                    for a in eqn.inputs
                    if a.aval.shape == old.aval.shape and a.aval.dtype == old.aval.dtype
                )
            places = equation_order.overwritten(eqn)
            if eqn.prim.name in ("reshape", "squeeze"):
                places = [eqn.inputs[0]]
            if not places or id(eqn) in anew or equation_order.waits_for_readers(eqn, old, maker):
                return False
            if len(places) > 1:
                return old in places or any(p in maker for p in places)
            atom = places[0]
        return atom is old

    return [
        type(o) is Var and o in maker and not updates(o, old)
        for old, o in zip(inputs, outs, strict=True)
    ]


def handed_on(body: Jaxpr, inputs: Sequence[Var], outs: Sequence[Any]) -> list[bool]:
    """Which carried values a body gives to a loop of its own that computes them anew, and has back from it.

    After an even number of iterations the inner loop's value is where it began, so both loops may have
    the same buffer of two halves, and copy nothing.
    """
    maker = definitions(body.eqns)
    uses = [a for e in body.eqns for a in e.inputs]
    found = []
    for old, out in zip(inputs, outs, strict=True):
        e = maker.get(out) if type(out) is Var else None
        loop: Any = None if e is None or e.prim.name != "scan" else e.prim
        if e is None or loop is None or loop.counted or not loop.length or loop.length % 2:
            found.append(False)
            continue
        inner = loop.jaxpr
        own = inner.inputs[loop.consts : loop.consts + loop.carry]
        k = e.outs.index(out)
        given = k < loop.carry and e.inputs[loop.consts + k] is old and uses.count(old) == 1
        stacked = given and own[k] in inner.outs[loop.carry :]
        found.append(
            given and not stacked and computed_anew(inner, own, inner.outs[: loop.carry])[k]
        )
    return found


@dataclass(frozen=True)
class Rows:
    """A carry that is stacked before each iteration: its next value goes to the next row at once."""

    stack: Materialized
    first: Materialized
    now: Materialized
    next: Materialized
    last: Materialized


class Carries:
    """The carried values of a loop: variables and initial values, or buffers."""

    def __init__(
        self,
        builder: Generation,
        init: Sequence[Value],
        outs: Sequence[Value],
        rest: Sequence[Value],
        anew: Sequence[bool],
        rows: "dict[int, Rows] | None" = None,
        handed: Sequence[bool] = (),
        even: bool = False,
    ):
        self.builder = builder
        self.rows = rows or {}
        self.even = even  # a known, even number of iterations
        self.back: set[int] = set()  # carries that are where they began when the loop ends
        self.outs = outs
        self.places: list[list[Expr] | Materialized] = []
        self.nexts: list[
            Materialized | None
        ] = []  # where the next value of a carry with two halves goes
        self.variables: list[Expr] = []
        self.init: list[Expr] = []
        self.flips: list[Expr] = []  # the next values of the last variables, which hold the halves
        halves = []
        taken = [h.state.buffer for h in rest if isinstance(h.state, Materialized)]
        for k, (given, out, fresh) in enumerate(zip(init, outs, anew, strict=True)):
            self.nexts.append(None)
            if k in self.rows:
                own = self.rows[k]
                builder.store_into(given.twin(), own.first)
                self.places.append(own.now)
                self.nexts[-1] = own.next
            elif builder.target.is_small(given.shape):
                builder.settle(given)
                assert isinstance(given.state, Scalars)
                names = [scalar.var(given.dtype, "c") for _ in given.state.elements]
                self.places.append(names)
                self.variables += names
                self.init += given.state.elements
            elif fresh:
                at = scalar.var("int64", "h")
                halves.append(at)
                self.places.append(self._halves(given, at, taken))
            elif any(handed[k : k + 1]):
                self.places.append(self._lent(given))
            else:
                place = self._place(given, out, taken)
                taken.append(place.buffer)
                self.places.append(place)
        self.variables += halves
        self.init += [scalar.size(0)] * len(halves)

    def _halves(self, given: Value, at: Expr, taken: list) -> Materialized:
        """Two halves of one buffer; the first holds the initial value."""
        n = scalar.size(given.size)
        state = given.state
        if self._is_lent(given, taken) and isinstance(state, Materialized):
            self.builder.save_readers(state.buffer)
            buffer = state.buffer
            self.back.add(len(self.places))
            taken.append(buffer)
        else:
            buffer = self.builder.new_buffer(given.dtype, 2 * given.size)
            self.builder.store_into(given.twin(), Materialized(buffer))
        other = scalar.sub(n, at)
        self.nexts[-1] = Materialized(buffer, other)
        self.flips.append(other)
        return Materialized(buffer, at)

    def _is_lent(self, given: Value, taken: list) -> bool:
        """Whether the loop around has a buffer of two halves for a carry, and is even in where it ends."""
        state = given.state
        if not self.even or not isinstance(state, Materialized) or state.buffer in taken:
            return False
        own = state.buffer in self.builder.lent and state.base is scalar.size(0)
        return own and self.builder.dies(given)

    def _lent(self, given: Value) -> Materialized:
        """The first half of a buffer whose second half a loop inside needs."""
        buffer = self.builder.new_buffer(given.dtype, 2 * given.size)
        self.builder.lent.add(buffer)
        place = Materialized(buffer)
        self.builder.store_into(given.twin(), place)
        return place

    def _place(self, given: Value, out: Value, taken: list) -> Materialized:
        """The buffer of a large carry, which holds its initial value."""
        builder = self.builder
        if isinstance(given.state, Materialized) and out.destination is None:
            if builder.dies(given) and given.state.buffer not in taken:
                builder.save_readers(given.state.buffer)
                return given.state
        place = (
            out.destination
            or out.preferred_buffer
            or Materialized(builder.new_buffer(given.dtype, given.size))
        )
        builder.store_into(given.twin(), place)
        return place if place.owned else Materialized(place.buffer, place.base, row=True)

    def values(self, own: object, like: Sequence[Value]) -> list[Value]:
        """The carried values as the body sees them."""
        found = []
        for place, given in zip(self.places, like, strict=True):
            state = Scalars(list(place)) if isinstance(place, list) else place
            h = Value(given.shape, given.dtype, state)
            h.scope = own
            found.append(h)
        return found

    def destinations(self, outs: Sequence[Any]) -> dict[Var, Materialized]:
        """Where the body should store the next values."""
        found: dict[Var, Materialized] = {}
        for atom, place in zip(outs, self.nexts, strict=True):
            if place is not None and type(atom) is Var:
                found.setdefault(atom, place)
        return found

    def carry_buffers(self, outs: Sequence[Any]) -> dict[Var, Materialized]:
        """Whose memory the next values would best take over."""
        return {
            atom: place
            for atom, place, new in zip(outs, self.places, self.nexts, strict=True)
            if type(atom) is Var and isinstance(place, Materialized) and new is None
        }

    def close(self, results: Sequence[Value]) -> list[Expr]:
        """Write the next values of the large carries; the next values of the variables."""
        builder = self.builder
        yields: list[Expr] = []
        moves = []
        mine = {p.buffer for p in self.places if isinstance(p, Materialized)}
        for place, new, made in zip(self.places, self.nexts, results, strict=True):
            builder.settle(made)
            if isinstance(place, list):
                assert isinstance(made.state, Scalars)
                yields += made.state.elements
                continue
            if new is not None:
                builder.store_into(made, new)
                continue
            source = builder.store(made)
            if source.is_at(place):
                continue
            if source.buffer in mine:  # carries that change places
                copy = Materialized(builder.new_buffer(made.dtype, made.size))
                builder.copy(copy, source, made.size)
                source = copy
            moves.append((place, source, made.size))
        for place, source, size in moves:
            builder.copy(place, source, size)
        return yields + self.flips

    def skip(self) -> None:
        """No iteration at all: the carries keep their initial values."""
        first = iter(self.init)
        for k, place in enumerate(self.places):
            if isinstance(place, list):
                self.places[k] = [next(first) for _ in place]
            elif self.nexts[k] is not None:
                self.places[k] = Materialized(place.buffer)

    def finish(self) -> None:
        """Hand the last values to the outputs of the equation."""
        places = [self.rows[k].last if k in self.rows else p for k, p in enumerate(self.places)]
        for k in self.back:
            places[k] = Materialized(places[k].buffer)  # type: ignore[union-attr]
        for place, out in zip(places, self.outs, strict=True):
            if isinstance(place, list):
                out.state = Scalars(list(place))
                continue
            out.state = place
            if out.destination is not None and not out.destination.is_at(place):
                self.builder.copy(out.destination, place, out.size)
                out.state = out.destination
