"""Lane refill: batch elements that run loops of their own side by side, in slots that take the next ones.

A scan without carries whose body is one while loop over small values (vmap makes that of a loop with
a condition per batch element) becomes sweeps over a block of slots. In a sweep every slot takes a step, in
a loop that LLVM vectorises; a slot whose element has ended stands still. When slots have stood for as long
as it takes, results are written and free slots take new elements, so that the work is the sum of what the
elements need, and not as many sweeps for all as the longest one needs.

Source: dynamic refill of SIMD lanes; persistent threads (Aila & Laine 2009).
Input: such a scan.
Output: loops over pieces of the batch, which threads share; inside them sweeps over slots.
Legal when: all that a step computes is small and straight-line code, or parts of arrays that it replaces,
and a loop inside it, if there is one, is of this kind, too (`lane_steps.py`).
Pays when: there are `LEAST_ELEMENTS` batch elements.
Costs: results of elements that go on are written too, and written again.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import dtypes, recipe, scalar
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.generate import loops
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Scalars, Value
from fnx.lowering.ir.kernel import Eval, Let, Loop, LoopKind, Stmt, Store, While
from fnx.lowering.planning import fusion_policy

from .lane_iteration import Iteration, later, writes
from .lane_steps import NotStraight, needed, step_of

Row = Callable[[Value, Expr], Value]
_ZERO, _ONE = scalar.size(0), scalar.size(1)
_YES, _NO = scalar.const(True, "bool"), scalar.const(False, "bool")


def side_by_side(
    builder: Generation,
    r: recipe.Loop,
    consts: list[Value],
    xs: list[Value],
    stacks: list[Materialized],
    row: Row,
) -> bool:
    """Emit a scan as batch elements side by side; False, and nothing, if it is not of this kind."""
    whiles = [e for e in r.jaxpr.eqns if e.prim.name == "while"]
    if r.carry or r.length < thresholds.LEAST_ELEMENTS or len(whiles) != 1:
        return False
    if not _fits(builder, r.jaxpr, whiles[0]):
        return False
    mark = builder.mark()
    try:
        slots = _Slots(builder, r, whiles[0], consts, xs, stacks, row)
        body = slots.build()
    except NotStraight:
        builder.back_to(mark)
        return False
    slots.begin_arrays()
    note = f"{r.length} lanes, {slots.width} at a time"
    builder.emit_nest(["lanes"], body, [], note=note)
    return True


def _fits(builder: Generation, body: Jaxpr, loop: Eqn) -> bool:
    """Whether all that is computed, or handed on, is small, but for arrays that the loop carries."""
    made = {*(v for e in body.eqns if e is not loop for v in e.outs), *body.outs} - {*loop.outs}
    small = all([builder.target.is_small(v.aval.shape) for v in made])
    return small and not any(e.prim.effects for e in body.eqns)


class _Slots:
    """The statements of one such loop while they are made."""

    def __init__(
        self,
        builder: Generation,
        r: recipe.Loop,
        eqn: Eqn,
        consts: list[Value],
        xs: list[Value],
        stacks: list[Materialized],
        row: Row,
    ):
        self.builder, self.consts, self.xs, self.stacks, self.row = builder, consts, xs, stacks, row
        self.eqn, self.loop = eqn, eqn.prim.lower(*eqn.inputs)  # type: ignore[arg-type]
        self.length = r.length
        self.told = loops.shown(builder, r)
        self.width = _slots(r.length, fusion_policy.work(self.loop.body))
        self.jaxpr = r.jaxpr
        self.element = builder.new_stack("int64", self.width)  # which batch element a slot has
        self.fresh = builder.new_stack("bool", self.width)  # whether it has it since now
        self.going = builder.new_stack("bool", self.width)  # whether that element goes on
        own = set(r.jaxpr.inputs[len(consts) :])  # what differs between batch elements
        for e in r.jaxpr.eqns:
            if not own.isdisjoint(e.inputs):
                own.update(e.outs)
        self.own = own
        self.places: list[Any] = []
        self.plan = step_of(self.loop, builder.target.is_small)
        self.iteration = Iteration(builder, self.loop, self.plan, self.results)
        self.begun = builder.new_stack("bool", self.width)  # whether the loop inside has begun
        self.state: list[list[Any]] = []  # its small carries

    def _place(self, number: int, atom: Any) -> Any:
        """Where an operand of the loop is: slots for each element, the xs with it, or (None) the same
        for all batch elements.
        """
        carried = number >= self.loop.cond_consts + self.loop.body_consts
        if not carried and atom not in self.own:
            return None
        if self.builder.target.is_small(atom.aval.shape):
            dtype = dtypes.NAME[atom.aval.dtype]
            return [self.builder.new_stack(dtype, self.width) for _ in range(atom.aval.size)]
        if carried:
            return self._rows(number, atom)
        return self.xs[self.jaxpr.inputs.index(atom) - len(self.consts)]

    def _rows(self, number: int, atom: Any) -> Any:
        """Where an array that is carried is for all batch elements: where the results are, if it is one."""
        out = self.eqn.outs[number - len(self.eqn.inputs)]
        first = dict(zip(self.jaxpr.inputs[len(self.consts) :], self.xs, strict=True)).get(atom)
        if first is None or self.jaxpr.outs.count(out) > 1:
            raise NotStraight
        if out in self.jaxpr.outs:
            return _Rows(self.stacks[self.jaxpr.outs.index(out)], first)
        return _Rows(Materialized(self.builder.new_buffer(first.dtype, first.size)), first)

    def begin_arrays(self) -> None:
        """Put the arrays that are carried where they will be updated."""
        for place in self.places:
            if isinstance(place, _Rows):
                self.builder.store_into(place.first.twin(), place.stack)

    # --- values ---

    def straight(self, make: Callable[[], Any]) -> tuple[list[Stmt], Any]:
        """Statements that compute values, and these."""
        builder = self.builder
        outer, builder.block, target = builder.block, [], builder.target
        builder.depth += 1
        builder.chooses += 1
        builder.target = target.wide()
        try:
            made = make()
        finally:
            block, builder.block, builder.target = builder.block, outer, target
            builder.depth -= 1
            builder.chooses -= 1
        if not all(isinstance(s, Eval | Let) for s in block):
            raise NotStraight
        return block, made

    def results(self, jaxpr: Jaxpr, inputs: Sequence[Value]) -> list[Value]:
        """Handles of a jaxpr's results: small ones in registers."""
        return [self.builder.settle(h) for h in self.builder.jaxpr(jaxpr, inputs)]

    def body_inputs(self, element: Expr) -> list[Value]:
        return [*self.consts, *[self.row(x, element) for x in self.xs]]

    def shared(self) -> list[Value | None]:
        """The operands that all batch elements share."""
        atoms = [a for a, p in zip(self.eqn.inputs, self.places, strict=True) if p is None]
        inputs = self.jaxpr.inputs[: len(self.consts)]
        made = iter(self.results(Jaxpr(inputs, needed(self.jaxpr.eqns, atoms), atoms), self.consts))
        return [next(made) if p is None else None for p in self.places]

    def operands(self, shared: Sequence[Value | None], slot: Expr) -> list[Value]:
        """The operands of the loop, as a slot has them."""
        found = []
        for atom, place, same in zip(self.eqn.inputs, self.places, shared, strict=True):
            if same is not None:
                found.append(same)
            elif isinstance(place, list):
                found.append(_registers(atom.aval, [_at(b, slot) for b in place]))
            elif isinstance(place, _Rows):
                found.append(place.row(atom.aval, _at(self.element, slot)))
            else:
                found.append(self.row(place, _at(self.element, slot)))
        return found

    # --- loops over the slots ---

    def over(self, slot: Expr, body: list[Stmt], count: Expr | None = None) -> tuple[Loop, Expr]:
        """A vector loop over the slots, and how many of them have `count`."""
        total = scalar.var("int64", "n")
        loop = Loop(slot, scalar.const(self.width, "int64"), body, kind=LoopKind.VECTORIZED)
        if count is not None:
            loop.carries, loop.init, loop.reassociate = [total], [_ZERO], True
            loop.yields = [scalar.add(total, scalar.cast(count, "int64"))]
        return loop, total

    def begin(self, high: Expr) -> Stmt:
        slot = scalar.var("int64", "l")
        last = Store(self.element, slot, scalar.sub(high, _ONE))
        return self.over(slot, [last, Store(self.going, slot, _NO)])[0]

    def take(self, first: Expr, start: Expr, high: Expr) -> tuple[Stmt, Expr]:
        """Free slots take the elements from `start` on; the first one that is left.

        At first all slots get one, the last one if there are no more, which they all run then.
        """
        slot, following = scalar.var("int64", "l"), scalar.var("int64", "next")
        free = scalar.apply("not", _at(self.going, slot))
        takes = scalar.logical_and(free, scalar.compare("lt", following, high))
        body: list[Stmt] = [
            Eval([takes]),
            Store(self.element, slot, scalar.select(takes, following, _at(self.element, slot))),
            Store(self.fresh, slot, scalar.apply("or", takes, first)),
        ]
        more = scalar.add(following, scalar.cast(takes, "int64"))
        extent = scalar.const(self.width, "int64")
        return Loop(slot, extent, body, [following], [start], [more]), following

    def fill(self) -> tuple[Stmt, Expr]:
        """The first values of fresh elements; how many slots have one that goes on."""
        slot = scalar.var("int64", "l")
        n, carry = self.loop.cond_consts, self.loop.cond_consts + self.loop.body_consts
        atoms = self.eqn.inputs
        before = needed(self.jaxpr.eqns, [a for a in atoms if type(a) is Var])

        def make() -> tuple[list[Value], Expr]:
            inputs = self.body_inputs(_at(self.element, slot))
            made = self.results(Jaxpr(self.jaxpr.inputs, before, atoms), inputs)
            return made, self.iteration.test(self.loop.cond, [*made[:n], *made[carry:]])

        body, (made, cond) = self.straight(make)
        fresh = _at(self.fresh, slot)
        goes = scalar.select(fresh, cond, _at(self.going, slot))
        body.append(Eval([goes]))
        for place, h in zip(self.places, made, strict=True):
            if isinstance(place, list):
                for b, e in zip(place, h.state.elements, strict=True):  # type: ignore[attr-defined]
                    body.append(Store(b, slot, scalar.select(fresh, e, _at(b, slot))))
        body.append(Store(self.going, slot, goes))
        if self.plan.inside is not None:
            begun = scalar.select(fresh, _NO, _at(self.begun, slot))
            body.append(Store(self.begun, slot, begun))
        return self.over(slot, body, goes)

    def step(self, shared: Sequence[Value | None]) -> tuple[list[Stmt], Expr]:
        """One iteration; how many slots go on."""
        slot = scalar.var("int64", "l")
        m = self.loop.cond_consts + self.loop.body_consts
        operands, state = self.operands(shared, slot), self.within()
        carry = [k for k, place in enumerate(self.places) if k >= m and isinstance(place, list)]
        places = [*(self.places[k] for k in carry), *self.state]
        buffers = [b for place in places for b in place]
        old = [scalar.var(b.dtype, "c") for b in buffers]
        names = iter(old)
        for h in (*(operands[k] for k in carry), *state):
            h.state = Scalars([next(names) for _ in range(h.size)])
        goes, began = _at(self.going, slot), _at(self.begun, slot)
        body, made = self.straight(lambda: self.iteration.made(operands, began, state))
        body.insert(0, Let(old, [_at(b, slot) for b in buffers]))
        on = scalar.logical_and(goes, made.goes_on)
        body.append(Eval([on]))
        found = writes(made, goes, operands[m:], body)
        aside, write = later(self.builder, found, slot, self.width)
        body += aside
        elements = [e for h in (*made.carry, *made.state) for e in h.state.elements]  # type: ignore
        for b, e, o in zip(buffers, elements, old, strict=True):
            body.append(Store(b, slot, scalar.select(goes, e, o)))
        if state:
            body.append(Store(self.begun, slot, made.inside))
        body.append(Store(self.going, slot, on))
        sweep, total = self.over(slot, body, on)
        if not found:
            return [sweep], total
        slot = scalar.var("int64", "l")
        return [sweep, Loop(slot, scalar.const(self.width, "int64"), write(slot))], total

    def within(self) -> list[Value]:
        """The small carries of the loop inside, if there is one."""
        if self.plan.inside is None:
            return []
        loop = self.plan.inside.loop
        carry = zip(loop.body.inputs[loop.body_consts :], self.plan.inside.arrays, strict=True)
        small = [v.aval for v, number in carry if number is None]
        for a in small:
            dtype = dtypes.NAME[a.dtype]
            self.state.append([self.builder.new_stack(dtype, self.width) for _ in range(a.size)])
        return [_registers(a, []) for a in small]

    def harvest(self) -> Stmt:
        """The results of every slot, of elements that go on too: they will be written again."""
        slot = scalar.var("int64", "l")
        element = _at(self.element, slot)
        places = zip(self.eqn.outs, self.places[-len(self.eqn.outs) :], strict=True)
        carried = {v: place for v, place in places if isinstance(place, list)}
        last = [_registers(v.aval, [_at(b, slot) for b in place]) for v, place in carried.items()]
        eqns = [e for e in self.jaxpr.eqns if e is not self.eqn]
        arrays = {*self.eqn.outs} - {*carried}
        stacks = [b for b, v in zip(self.stacks, self.jaxpr.outs, strict=True) if v not in arrays]
        outs = [v for v in self.jaxpr.outs if v not in arrays]
        jaxpr = Jaxpr([*self.jaxpr.inputs, *carried], needed(eqns, outs), outs)
        body, made = self.straight(lambda: self.results(jaxpr, [*self.body_inputs(element), *last]))
        for stack, h in zip(stacks, made, strict=True):
            base = scalar.add(stack.base, scalar.mul(element, scalar.size(h.size)))
            for k, e in enumerate(h.state.elements):  # type: ignore[attr-defined]
                body.append(Store(stack.buffer, scalar.add(base, scalar.size(k)), e))
        return self.over(slot, body)[0]

    # --- the whole ---

    def patience(self) -> Expr:
        """Steps that slots may have stood idle, all together, before free ones take new elements.

        As many as that takes the time of: no more than twice what is lost where one knows which elements
        end when (ski rental, Karlin et al. 1988).
        """
        step = fusion_policy.work(self.loop.body) + fusion_policy.work(self.loop.cond)
        others = [e for e in self.jaxpr.eqns if e is not self.eqn]
        refill = thresholds.REFILL + sum(v.aval.size for e in others for v in e.outs)
        return scalar.const(max(1, self.width * refill // max(step, 1)), "int64")

    def build(self) -> list[Stmt]:
        self.places = [self._place(k, a) for k, a in enumerate(self.eqn.inputs)]
        before = len(self.builder.block)
        shared = self.shared()
        if not all(isinstance(s, Eval | Let) for s in self.builder.block[before:]):
            raise NotStraight
        part, low, high = (scalar.var("int64", name) for name in ("part", "lo", "hi"))
        start, busy, going = (
            scalar.var(dtype, name)
            for dtype, name in (("int64", "next"), ("bool", "busy"), ("int64", "going"))
        )
        share, parts = _shares(self.length, self.width)
        first = scalar.mul(part, scalar.size(share))
        end = scalar.apply("min", scalar.add(first, scalar.size(share)), scalar.size(self.length))
        take, following = self.take(scalar.compare("eq", start, low), start, high)
        fill, filled = self.fill()
        step, on = self.step(shared)
        more = scalar.compare("lt", following, high)
        idle, waited = scalar.var("int64", "idle"), self.patience()
        stays = scalar.apply("or", scalar.apply("not", more), scalar.compare("lt", idle, waited))
        iterations = While(
            [],
            scalar.logical_and(scalar.compare("gt", going, _ZERO), stays),
            step,
            [going, idle],
            [filled, _ZERO],
            [on, scalar.add(idle, scalar.sub(scalar.const(self.width, "int64"), on))],
            polled=True,
        )
        again = scalar.apply("or", scalar.compare("gt", going, _ZERO), more)
        body = [take, fill, iterations, self.harvest()]
        blocks = While([], busy, body, [start, busy], [low, _YES], [following, again], polled=True)
        if self.told is not None:
            self.told.total, self.told.tally = scalar.size(self.length), start
            iterations.shown = blocks.shown = self.told
        inside = [Let([low, high], [first, end]), self.begin(high), blocks]
        kind = LoopKind.of(parallel=parts > 1)
        return [Loop(part, scalar.size(parts), inside, kind=kind, shown=self.told)]


class _Rows:
    """An array that is carried: the place of all batch elements' rows, and what is there at first."""

    def __init__(self, stack: Materialized, first: Value):
        self.stack, self.first = stack, first

    def row(self, aval: Any, element: Expr) -> Value:
        base = scalar.add(self.stack.base, scalar.mul(element, scalar.size(aval.size)))
        place = Materialized(self.stack.buffer, base, row=True)
        return Value(aval.shape, dtypes.NAME[aval.dtype], place)


def _at(buffer: Any, slot: Expr) -> Expr:
    return scalar.load(buffer, slot, buffer.dtype)


def _registers(aval: Any, elements: list[Expr]) -> Value:
    return Value(aval.shape, dtypes.NAME[aval.dtype], Scalars(elements))


def _slots(elements: int, step: int) -> int:
    """How many batch elements run side by side, if a step takes so many operations: a power of two."""
    most = thresholds.SLOTS[step > thresholds.HEAVY_STEP]
    return min(most, 1 << (elements - 1).bit_length())


def _shares(elements: int, slots: int) -> tuple[int, int]:
    """Batch elements in a piece of work, and pieces: a power of two, which threads share evenly."""
    pieces = max(1, elements // (slots * thresholds.ELEMENTS_PER_SLOT))
    pieces = min(thresholds.CPU.strip_parts, 1 << (pieces - 1).bit_length())
    share = -(-elements // pieces)
    return share, -(-elements // share)
