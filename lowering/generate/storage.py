"""What changes the states of values while a program is generated: storing, inlining, joining, flushing."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.fusion_groups import Scope
from fnx.lowering.generate.nests import Nests
from fnx.lowering.ir.expressions import buffers_read, depth, reads_memory
from fnx.lowering.ir.kernel import Buffer, Copy, Eval, Let, Ref, Stmt
from fnx.lowering.transform.statements import Statements

from . import consumer_fusion as readers
from . import slice_update_fusion, small_problems
from .boundary_reductions import BoundaryReductions
from .fusion_groups import Group, Member, Reduction, squeezed
from .reductions import ReductionNests
from .target import Target
from .values import (
    Fused,
    Inlined,
    Materialized,
    NeedsFlush,
    Reducing,
    Scalars,
    Shape,
    Value,
    memoised,
    static_indices,
)

Made = TypeVar("Made")
_OF_INDICES = ("int64", "int32", "bool")


class Storage(Statements):
    """Values and open groups of one program."""

    unrolled = 0  # points of reductions that were written out
    chooses = 0  # whether branches are both computed, and their results selected

    def __init__(self, target: Target) -> None:
        super().__init__(target.machine)
        self.target = target
        self.scope = Scope()
        self.depths: dict[Expr, int] = {}  # and how many operations follow one another in them
        # Copies of operands, as a library reads them: by axes and dtype, and where they were made.
        self.copies: dict[Value, dict[tuple, tuple[list[Stmt], Materialized]]] = {}
        self.lent: set[Buffer] = set()  # of two halves, the second of which is for loops inside

    def mark(self) -> tuple:
        """What `back_to` needs to forget all that was made since."""
        counts = self.kernels, self.stacks
        return (len(self.buffers), len(self.block), len(self.notes), counts, self.scope)

    def back_to(self, mark: tuple) -> None:
        buffers, block, notes, (self.kernels, self.stacks), self.scope = mark
        del self.buffers[buffers:], self.block[block:], self.notes[notes:]

    def new_stored(self, value: Value) -> Materialized:
        return value.preferred_buffer or Materialized(self.new_buffer(value.dtype, value.size))

    # --- registers ---

    def put_all(self, destination: Materialized, elements: Sequence[Expr]) -> None:
        """Store a small array."""
        for k, e in enumerate(elements):
            self.put(destination.buffer, scalar.add(destination.base, scalar.size(k)), e)

    def registers(self, out: Value, fn: Callable[..., Expr]) -> None:
        """Compute a small array now, element by element."""
        self.settle_registers(
            out, self.evaluated(lambda: [fn(*ix) for ix in static_indices(out.shape)])
        )

    def evaluated(self, make: Callable[[], Any]) -> Any:
        """What `make` builds, after closing the groups that stand in its way."""
        while True:
            try:
                return make()
            except NeedsFlush as stop:
                self.flush(stop.group)

    def settle_registers(self, out: Value, elements: list[Expr]) -> None:
        elements = self.kept(elements)
        out.state = Scalars(elements)
        if len(out.consumers) > 1 or -1 in out.consumers:
            self.emit(Eval(list(elements)))

    def kept(self, elements: list[Expr]) -> list[Expr]:
        """The elements as they are now: those that are read from memory, or deep, get names."""
        read = [e for e in elements if reads_memory(e) or self._is_deep(e)]
        if not read:
            return elements
        names = {id(e): scalar.var(e.dtype, "r") for e in read}
        values = {id(e): e for e in read}
        self.emit(Let([names[k] for k in values], list(values.values())))
        return [names.get(id(e), e) for e in elements]

    def _is_deep(self, e: Expr) -> bool:
        """Whether so much is below a number that whoever reads it should not walk through it.

        Integers that may be indices stay as they are: what is known of them is found there.
        """
        if depth(e, self.depths) < policy.DEEP or e.dtype in _OF_INDICES or not e.args:
            return False
        self.depths[e] = 0  # from now on it is a name
        return True

    # --- open groups ---

    def join(self, out: Value, fn: Callable[..., Expr], name: str, regional: bool = False) -> None:
        """Make a value a member of the open group of its shape, or of its problems."""
        if out.lanewise:
            small_problems.join(self, out, fn, name)
            return
        self.member(out.shape, fn, out, name, regional=regional)

    def member(
        self,
        shape: Shape,
        fn: Callable[..., Expr],
        value: Value | None,
        name: str,
        destination: Callable | None = None,
        regional: bool = False,
    ) -> None:
        member = Member(shape, fn, value, self.scope.position, name, destination)

        def fits(g: Group) -> bool:
            # Loops of most reductions are not cut; and one cannot read its group's values elsewhere.
            inlined = value is not None and isinstance(value.state, Inlined)
            if g.reductions and regional and not g.totals():
                return False
            return not (g.reductions and inlined and self._read_elsewhere(value, g))

        group, member.expr = self.in_group(shape, lambda g: fn(*g.index(shape)), fits)
        group.members.append(member)
        group.note([member.expr])
        group.regional |= regional
        if value is not None:
            value.state = Fused(group, memoised(fn))

    def _read_elsewhere(self, value: Value | None, group: Group) -> bool:
        """Whether a reduction of a group inlines a value, or one made of it, at another point."""
        assert value is not None
        state = value.state
        value.state = Fused(group, value.state.fn)  # type: ignore[attr-defined]
        try:
            for f in group.reductions:
                f.recipe.fn(*group.index(f.recipe.shape))
        except NeedsFlush as stop:
            return stop.group is group
        finally:
            value.state = state
        return False

    def join_reduction(
        self, joined: Reduction, axes: tuple[int, ...], regional: bool = False
    ) -> None:
        """Reduce over axes of the open group of a shape, which has no other reductions than over these."""
        recipe = joined.recipe
        group, terms = self.in_group(
            recipe.shape,
            lambda g: recipe.fn(*g.index(recipe.shape)),
            lambda g: (
                (not g.reductions or g.axes == axes)
                and (not g.regional or len(axes) == len(g.shape))
            ),
        )
        group.regional |= regional
        group.note(terms)
        group.axes = axes
        group.reductions.append(joined)
        for h in joined.results:
            h.state = Reducing(group)

    def in_group(
        self,
        shape: Shape,
        make: Callable[[Group], Made],
        fits: Callable[[Group], bool] = lambda group: True,
    ) -> tuple[Group, Made]:
        """The open group of a shape, and what `make` builds in it.

        Groups that stand in the way, and one that is full or does not fit, are closed before.
        """
        while True:
            group = self.group_of(shape)
            if group.is_full() or not fits(group):
                self.flush(group)
                continue
            try:
                return group, make(group)
            except NeedsFlush as stop:
                self.flush(stop.group)

    def group_of(self, shape: Shape) -> Group:
        key = squeezed(shape)
        for group in self.scope.groups:
            if group.shape == key:
                return group
        group = Group(shape)
        self.scope.groups.append(group)
        return group

    def flush_all(self) -> None:
        while self.scope.groups:
            self.flush(self.scope.groups[0])

    def flush(self, group: Group, wanted: Value | None = None) -> None:
        """Close a group and emit its nest; `wanted` is stored in any case."""
        scope: Scope | None = self.scope
        while scope is not None and group not in scope.groups:
            scope = scope.outer
        assert scope is self.scope, "a group of an outer scope was left open"
        for f in group.reductions:  # what they inline may have joined another group since
            self.evaluated(lambda f=f: f.recipe.fn(*group.index(f.recipe.shape)))
        scope.groups.remove(group)
        stores = self.stores_of(group, wanted)
        if len(stores) > 1:
            stores = readers.with_readers(self, group, stores, wanted)
        kind = (
            (BoundaryReductions if group.regional else ReductionNests)
            if group.reductions
            else Nests
        )
        kind(self, group, stores).emit()

    def stores_of(self, group: Group, wanted: Value | None) -> list[Member]:
        """The members that somebody outside the group reads."""
        absorbed = self._absorbed_by(group)
        return [
            m
            for m in group.members
            if m.value is None
            or m.value is wanted
            or m.value.destination is not None
            or not absorbed(m.value)
        ]

    def flush_writers(self) -> None:
        for group in list(self.scope.groups):
            if any(m.value is None for m in group.members):
                self.flush(group)

    def _absorbed_by(self, group: Group) -> Callable[[Value], bool]:
        """Whether all who read a value are computed inside a group: its memory is not needed."""
        inside = {id(m.value) for m in group.members if m.value is not None}
        inside |= {id(h) for f in group.reductions for h in f.results}
        known: dict[int, bool] = {}

        def absorbed(value: Value) -> bool:
            if id(value) not in known:
                known[id(value)] = all(map(reader, value.consumers))
            return known[id(value)]

        def reader(k: int) -> bool:
            if k == -1 or k > self.scope.position:
                return False
            outs = self._outs_of(k)
            if k == self.scope.position:
                # The equation at work may be the reader that asked for this flush.
                return bool(outs) and all(id(h) in inside for h in outs)  # a callback has none
            return all(
                id(h) in inside or isinstance(h.state, Inlined) and absorbed(h) for h in outs
            )

        return absorbed

    def _outs_of(self, number: int) -> list[Value]:
        eqn = self.scope.eqns[number]
        return [self.scope.values[v] for v in eqn.outs if v in self.scope.values]

    # --- memory ---

    def store(self, value: Value) -> Materialized:
        """Make sure that a value is in memory."""
        state = value.state
        if isinstance(state, slice_update_fusion.Boxes):
            slice_update_fusion.store(self, value)
        elif isinstance(state, Inlined):
            if self.target.is_small(value.shape):
                self.registers(value, state.fn)
            else:
                if value.destination is None:
                    value.destination = self.new_stored(value)
                self.join(value, state.fn, "store", state.regional)
        if isinstance(value.state, (Fused, Reducing)):
            if value.destination is None:
                value.destination = self.new_stored(value)
            self.flush(value.state.group)
        if isinstance(value.state, Scalars):
            stored = value.destination or self.new_stored(value)
            self.put_all(stored, value.state.elements)
            return stored  # the registers stay: they are the better copy
        assert isinstance(value.state, Materialized), value
        return value.state

    def store_reusing(self, value: Value) -> None:
        """As `store`, in the memory of a dead array if the value reads one at its own index only."""
        if isinstance(value.state, Inlined) and not self.target.is_small(value.shape):
            self.join(value, value.state.fn, "store", value.state.regional)
        if isinstance(value.state, Fused) and value.destination is None:
            group = value.state.group
            for other in list(self.scope.groups):
                if other is not group:
                    self.flush(other)
            if group.open:
                self.flush(group, value)
        self.store(value)

    def settle(self, value: Value) -> Value:
        """Give a value a form that outlives its scope: registers or memory."""
        if self.target.is_small(value.shape):
            if not isinstance(value.state, Scalars):
                self.load_registers(value)
        elif not isinstance(value.state, Materialized):
            self.store(value)
        return value

    def load_registers(self, value: Value) -> None:
        """Bring a small array into registers."""
        elements = self.evaluated(lambda: [value(*ix) for ix in static_indices(value.shape)])
        value.state = Scalars(self.kept(elements))

    def store_into(self, value: Value, destination: Materialized) -> None:
        """Write a value to a place, wherever it is now."""
        if isinstance(value.state, Inlined) and not self.target.is_small(value.shape):
            value.destination = destination
            self.store(value)
            return
        if isinstance(value.state, (Fused, Reducing)):
            if value.destination is None:
                value.destination = destination
            self.flush(value.state.group)
        if isinstance(value.state, Inlined):
            self.load_registers(value)
        if isinstance(value.state, Scalars):
            self.put_all(destination, value.state.elements)
            return
        source = value.state
        assert isinstance(source, Materialized)
        if not source.is_at(destination):
            self.copy(destination, source, value.size)

    def copy(self, destination: Materialized, source: Materialized, size: int) -> None:
        if size:
            self.emit(
                Copy(
                    Ref(destination.buffer, destination.base),
                    Ref(source.buffer, source.base),
                    scalar.size(size),
                )
            )

    # --- operands and results of regions ---

    def settled_region(self, inputs: Sequence[Value], keep: Sequence[int] = ()) -> list[Value]:
        """As `settled`; operands in `keep`, initial carries, may wait to be stored in their place."""
        for k, h in enumerate(inputs):
            if k not in keep or self.target.is_small(h.shape):
                self.settled([h])
            elif isinstance(h.state, (Fused, Reducing)):
                self.store(h)
        self.flush_all()
        return list(inputs)

    def settled(self, inputs: Sequence[Value]) -> list[Value]:
        """The operands of a region: in registers, in memory, or trivial to compute again."""
        for h in inputs:
            if isinstance(h.state, Inlined) and not self.target.is_small(h.shape):
                counts = "int" in h.dtype and len(h.shape) == 1  # an index of iterations
                if h.state.cost <= policy.CHEAP * counts and not self.sources(h):
                    continue
            self.settle(h)
        self.flush_all()
        return list(inputs)

    def element(self, h: Value) -> Expr:
        """An element of a value, as what reads it finds it."""
        index = tuple(scalar.var("int64") for _ in h.shape)
        return self.evaluated(lambda: h(*index))

    def sources(self, h: Value) -> frozenset[Buffer]:
        """The buffers that are read where an element of a value is."""
        return buffers_read([self.element(h)])

    def adopt(self, out: Value, made: Value) -> None:
        """Take the result of a region as the value of an equation's output."""
        out.state = made.state
        if out.destination is not None and not isinstance(made.state, Scalars):
            self.store_into(out, out.destination)
            out.state = out.destination

    # --- overwriting ---

    def dies(self, value: Value) -> bool:
        """Whether the memory of an operand of the equation at work may be overwritten by it."""
        state = value.state
        if not isinstance(state, Materialized) or not state.owned or value.scope is not self.scope:
            return False
        scope: Scope | None = self.scope
        while scope is not None:
            for other in scope.waiting():
                held = other.state
                if not isinstance(held, Materialized) or held.buffer is not state.buffer:
                    continue
                apart = state.row and held.base is not state.base
                if other.last_use > scope.position and not apart:
                    return False
            scope = scope.outer
        return True

    def save_readers(self, buffer: Buffer, now: bool = False) -> None:
        """Before a buffer is overwritten: compute whatever still means to read its old elements.

        `now`: what the equation at work reads, too.
        """
        self.flush_all()
        for value in self.readers(buffer, now):
            self.store(value)
        self.flush_all()

    def readers(self, buffer: Buffer, now: bool) -> Iterator[Value]:
        """The values that are still to be computed from elements of a buffer."""
        scope: Scope | None = self.scope
        while scope is not None:
            for value in list(scope.waiting()):
                waits = value.last_use > scope.position or now and scope is self.scope
                if waits and isinstance(value.state, Inlined) and buffer in self.sources(value):
                    yield value
            scope = scope.outer
