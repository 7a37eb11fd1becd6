"""Loops: jaxprs that become loops of the native function around them.

Small carries are variables of the loop (scalar replacement). A large carry that the body updates lives
in one buffer, which is overwritten in place. One that the body computes anew is double-buffered: two
halves of a buffer, old and new, change roles after each iteration, and a variable holds where the old
one begins. One that is stacked anyway lives in the rows of the stack.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from fnx.core import config, recipe, scalar
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Jaxpr, Var
from fnx.core.scalar import Expr
from fnx.core.source import LoopSite
from fnx.lowering.ir.kernel import Let, Loop, Progress, Stmt, While
from fnx.lowering.planning import equation_order, fusion_policy

from .generation import Generation
from .values import OWN, Inlined, Materialized, Scalars, Value


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
            if not places or id(eqn) in anew:
                return False
            if len(places) > 1:
                return old in places or any(p in maker for p in places)
            atom = places[0]
        return atom is old

    return [
        type(o) is Var and o in maker and not updates(o, old)
        for old, o in zip(inputs, outs, strict=True)
    ]


@dataclass(frozen=True)
class Rows:
    """A carry that is stacked before each iteration: its next value goes to the next row at once."""

    stack: Materialized
    first: Materialized
    now: Materialized
    next: Materialized
    last: Materialized


def _stacked_carries(
    builder: Generation, r: recipe.Loop, outs: Sequence[Value], t: Expr, trips: Expr
) -> dict[int, tuple[int, Rows]]:
    """Carries whose values the loop stacks, by number: which result that is, and the rows."""
    found: dict[int, tuple[int, Rows]] = {}
    for y, (atom, out) in enumerate(zip(r.jaxpr.outs[r.carry :], outs[r.carry :])):
        carried = r.jaxpr.inputs[r.consts : r.consts + r.carry]
        k = carried.index(atom) if atom in carried else -1  # type: ignore[arg-type]
        if k < 0 or k in found or out.destination is not None or out.preferred_buffer is not None:
            continue
        size = atom.aval.size
        if builder.target.is_small(atom.aval.shape) or not r.length:
            continue
        buffer = builder.new_buffer(out.dtype, size * (r.length + 1))
        ends = [scalar.size(0), scalar.mul(scalar.size(size), trips)]
        first, last = ends[::-1] if r.reverse else ends
        stack = Materialized(buffer, scalar.size(size if r.reverse else 0))
        other = Materialized(buffer, scalar.size(0 if r.reverse else size))
        following = _step_of(other, size, t).base
        found[k] = (
            y,
            Rows(
                stack,
                Materialized(buffer, first),
                _step_of(stack, size, t),
                Materialized(buffer, following, row=True),
                Materialized(buffer, last, row=True),
            ),
        )
    return found


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
    ):
        self.builder = builder
        self.rows = rows or {}
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
                self.places.append(self._halves(given, at))
            else:
                place = self._place(given, out, taken)
                taken.append(place.buffer)
                self.places.append(place)
        self.variables += halves
        self.init += [scalar.size(0)] * len(halves)

    def _halves(self, given: Value, at: Expr) -> Materialized:
        """Two halves of one buffer; the first holds the initial value."""
        n = scalar.size(given.size)
        buffer = self.builder.new_buffer(given.dtype, 2 * given.size)
        self.builder.store_into(given.twin(), Materialized(buffer))
        other = scalar.sub(n, at)
        self.nexts[-1] = Materialized(buffer, other)
        self.flips.append(other)
        return Materialized(buffer, at)

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
        for place, out in zip(places, self.outs, strict=True):
            if isinstance(place, list):
                out.state = Scalars(list(place))
                continue
            out.state = place
            if out.destination is not None and not out.destination.is_at(place):
                self.builder.copy(out.destination, place, out.size)
                out.state = out.destination


def inside(builder: Generation, make: Any, told: Progress | None = None) -> tuple[list[Stmt], Any]:
    """Build statements into a block of their own; `told`: what a loop tells of how far it is."""
    outer, builder.block = builder.block, []
    showing, builder.showing = builder.showing, builder.showing or told is not None
    builder.depth += 1
    try:
        made = make()
    finally:
        block, builder.block = builder.block, outer
        builder.showing = showing
        builder.depth -= 1
    return block, made


def loop(builder: Generation, r: recipe.Loop, inputs: list[Value], outs: list[Value]) -> None:
    """A scan."""
    if builder.chooses and not r.counted and fusion_policy.is_unrolled_loop(r.length, r.jaxpr):
        _unrolled(builder, r, inputs, outs)
        return
    inputs = builder.settled_region(inputs, keep=range(r.consts, r.consts + r.carry))
    consts = inputs[: r.consts]
    init = inputs[r.consts : r.consts + r.carry]
    xs = inputs[r.consts + r.carry :]
    old = r.jaxpr.inputs[r.consts : r.consts + r.carry]
    anew = computed_anew(r.jaxpr, old, r.jaxpr.outs[: r.carry])
    t = scalar.counter("t", r.length)
    extent = _extent(builder, r, consts)
    kept = _stacked_carries(builder, r, outs, t, extent)
    rows = {k: own for k, (_, own) in kept.items()}
    carries = Carries(builder, init, outs[: r.carry], [*consts, *xs], anew, rows)
    places = {y: own.stack for y, own in kept.values()}
    stacks = [
        places.get(y) or out.destination or builder.new_stored(out)
        for y, out in enumerate(outs[r.carry :])
    ]
    for out, stack in zip(outs[r.carry :], stacks, strict=True):
        out.state = stack
    if not r.counted and builder.target.divergent_loops(builder, r, consts, xs, stacks, _at_step):
        pass
    elif r.length:
        told = shown(builder, r)
        body = _loop_body(builder, r, consts, carries, init, xs, stacks, t, OWN, told)
        builder.emit(
            Loop(
                t,
                extent,
                body[0],
                carries.variables,
                carries.init,
                body[1],
                polled=r.counted or builder.depth == 0 or told is not None,
                reverse=r.reverse,
                shown=told,
            )
        )
    else:
        carries.skip()
    carries.finish()
    for out in outs[r.carry :]:
        if builder.target.is_small(out.shape):
            builder.load_registers(out)


def shown(builder: Generation, r: recipe.Loop | recipe.While) -> Progress | None:
    """What a loop tells of how far it is: one that is asked to, or any outermost one."""
    asked = r.progress or config.progress.value and builder.depth == 0 and not builder.showing
    return Progress(r.site or LoopSite("loop", None)) if asked else None


def _extent(builder: Generation, r: recipe.Loop, consts: Sequence[Value]) -> Expr:
    """The trip count."""
    length = scalar.size(r.length)
    if not r.counted:
        return length
    (wanted,) = builder.settle(consts[0]).state.elements  # type: ignore[union-attr]
    extent = scalar.var("int64", "n")
    builder.emit(Let([extent], [scalar.clamp(scalar.size(0), wanted, length)]))
    return extent


def _unrolled(builder: Generation, r: recipe.Loop, inputs: list[Value], outs: list[Value]) -> None:
    """A short scan over small values, iteration by iteration."""
    inputs = builder.settled(inputs)
    consts, state = inputs[: r.consts], inputs[r.consts : r.consts + r.carry]
    xs = inputs[r.consts + r.carry :]
    rows: list[list[Value]] = [[] for _ in range(r.length)]
    for t in reversed(range(r.length)) if r.reverse else range(r.length):
        step = [_at_step(x, scalar.size(t)) for x in xs]
        made = [builder.settle(h) for h in builder.jaxpr(r.jaxpr, [*consts, *state, *step])]
        state, rows[t] = made[: r.carry], made[r.carry :]
    for out, h in zip(outs, state, strict=False):
        out.state = h.state
    for out, column in zip(outs[r.carry :], zip(*rows, strict=True), strict=True):
        out.state = Scalars([e for h in column for e in h.state.elements])  # type: ignore


def _loop_body(
    builder: Generation,
    r: recipe.Loop,
    consts: list[Value],
    carries: Carries,
    init: list[Value],
    xs: list[Value],
    stacks: list[Materialized],
    t: Expr,
    own: object,
    told: Progress | None,
) -> tuple[list[Stmt], list[Expr]]:
    def make() -> list[Expr]:
        given = [*consts, *carries.values(own, init), *(_at_step(x, t) for x in xs)]
        ys = r.jaxpr.outs[r.carry :]
        destinations = carries.destinations(r.jaxpr.outs[: r.carry])
        for atom, stack in zip(ys, stacks, strict=True):
            step = _step_of(stack, atom.aval.size, t)
            if type(atom) is Var and atom not in r.jaxpr.outs[: r.carry]:
                destinations.setdefault(atom, step)
        carry_buffers = carries.carry_buffers(r.jaxpr.outs[: r.carry])
        results = builder.jaxpr(r.jaxpr, given, destinations, carry_buffers)
        for made, stack in zip(results[r.carry :], stacks, strict=True):
            builder.store_into(made, _step_of(stack, made.size, t))
        return carries.close(results[: r.carry])

    if r.carry:
        return inside(builder, make, told)
    builder.depth -= (
        1  # a loop of one of many batch elements may be as long as one that stands alone
    )
    try:
        return inside(builder, make, told)
    finally:
        builder.depth += 1


def _step_of(stack: Materialized, size: int, t: Expr) -> Materialized:
    offset = scalar.mul(t, scalar.size(size))
    return Materialized(stack.buffer, scalar.add(stack.base, offset), owned=False)


def _at_step(x: Value, t: Expr) -> Value:
    """Element `t` of a stacked value."""
    shape = x.shape[1:]
    state: Any
    if isinstance(x.state, Materialized):
        size = prod(shape)
        state = _step_of(x.state, size, t)
    elif 0 in shape:
        state = Scalars([])  # there is no element that anybody could read
    else:
        state = Inlined(lambda *index: x(t, *index), 0)
    h = Value(shape, x.dtype, state)
    h.scope = None
    return h


def while_loop(
    builder: Generation, r: recipe.While, inputs: list[Value], outs: list[Value]
) -> None:
    """A while loop: the condition is a block that runs before each iteration."""
    n = r.cond_consts + r.body_consts
    inputs = builder.settled_region(inputs, keep=range(n, len(inputs)))
    cond_consts, body_consts = inputs[: r.cond_consts], inputs[r.cond_consts : n]
    init = inputs[n:]
    anew = computed_anew(r.body, r.body.inputs[r.body_consts :], r.body.outs)
    carries = Carries(builder, init, outs, inputs[:n], anew)

    def test() -> Expr:
        (made,) = builder.jaxpr(r.cond, [*cond_consts, *carries.values(None, init)])
        assert isinstance(made.state, Scalars)
        return made.state.elements[0]

    def step() -> list[Expr]:
        given = [*body_consts, *carries.values(OWN, init)]
        destinations, carry_buffers = (
            carries.destinations(r.body.outs),
            carries.carry_buffers(r.body.outs),
        )
        results = builder.jaxpr(r.body, given, destinations, carry_buffers)
        return carries.close(results)

    told = shown(builder, r)
    before, cond = inside(builder, test)
    body, yields = inside(builder, step, told)
    # However many loops are around it: nobody knows how long it runs.
    variables, init = carries.variables, carries.init
    builder.emit(While(before, cond, body, variables, init, yields, polled=True, shown=told))
    carries.finish()
