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
from fnx.core.jaxpr import Var
from fnx.core.scalar import Expr
from fnx.core.source import LoopSite
from fnx.lowering.ir.kernel import Let, Loop, Progress, Stmt, While
from fnx.lowering.planning import fusion_policy

from .carries import Carries, Rows, computed_anew, handed_on
from .generation import Generation
from .values import OWN, Inlined, Materialized, Scalars, Value


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


def _rows_of_operand(
    builder: Generation, number: int, inputs: Sequence[Value]
) -> Materialized | None:
    """The memory of an operand whose rows become those of a result, if nobody reads it any more."""
    eqn = builder.scope.eqns[builder.scope.position]
    k = eqn.prim.input_output_aliases().get(number)
    if k is None or not builder.dies(inputs[k]):
        return None
    place = inputs[k].state
    assert isinstance(place, Materialized)
    builder.save_readers(place.buffer)
    return place


def inside(
    builder: Generation, make: Any, told: Progress | None = None, repeated: bool = True
) -> tuple[list[Stmt], Any]:
    """Build statements into a block of their own, a loop's or else (not `repeated`) a branch's.

    `told`: what a loop tells of how far it is.
    """
    outer, builder.block = builder.block, []
    showing, builder.showing = builder.showing, builder.showing or told is not None
    builder.depth += 1
    builder.loops += repeated
    try:
        made = make()
    finally:
        block, builder.block = builder.block, outer
        builder.showing = showing
        builder.depth -= 1
        builder.loops -= repeated
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
    handed = handed_on(r.jaxpr, old, r.jaxpr.outs[: r.carry])
    even = not r.counted and r.length % 2 == 0
    rest = [*consts, *xs]
    carries = Carries(builder, init, outs[: r.carry], rest, anew, rows, handed, even)
    places = {y: own.stack for y, own in kept.values()}
    stacks = [
        places.get(y)
        or out.destination
        or _rows_of_operand(builder, r.carry + y, inputs)
        or builder.new_stored(out)
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
    asked = r.progress or config.progress.value and not builder.loops and not builder.showing
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
