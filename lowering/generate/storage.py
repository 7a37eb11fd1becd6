"""Where values are while a program is built: registers, memory, open groups; and how they move."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.nests import Nests
from fnx.lowering.generate.scope import Scope
from fnx.lowering.ir.expressions import buffers_read, depth, reads_memory
from fnx.lowering.ir.kernel import Buffer, Copy, Eval, Let, Ref, Stmt
from fnx.lowering.planning import fusion_policy
from fnx.lowering.transform.statements import Statements

from . import consumer_fusion as readers
from . import slice_update_fusion, small_problems
from .boundary_reductions import Totals
from .fusion_groups import FoldMember, Group, Member, squeezed
from .reductions import Folds
from .target import Target
from .values import (
    Folding,
    Handle,
    NeedsFlush,
    Pending,
    Pull,
    Registers,
    Shape,
    Stored,
    memoised,
    static_indices,
)

Made = TypeVar("Made")
_OF_INDICES = ("int64", "int32", "bool")


class Storage(Statements):
    """Values and open groups of one program."""

    unrolled = 0  # points of folds that were written out
    chooses = 0  # whether branches are both computed, and their results selected

    def __init__(self, target: Target) -> None:
        super().__init__(target.machine)
        self.target = target
        self.scope = Scope()
        self.loading: dict[Expr, bool] = {}  # which expressions read memory
        self.depths: dict[Expr, int] = {}  # and how many operations follow one another in them
        # Copies of operands, as a library reads them: by axes and dtype, and where they were made.
        self.copies: dict[Handle, dict[tuple, tuple[list[Stmt], Stored]]] = {}

    def mark(self) -> tuple:
        """What `back_to` needs to forget all that was made since."""
        counts = self.kernels, self.stacks
        return (len(self.buffers), len(self.block), len(self.notes), counts, self.scope)

    def back_to(self, mark: tuple) -> None:
        buffers, block, notes, (self.kernels, self.stacks), self.scope = mark
        del self.buffers[buffers:], self.block[block:], self.notes[notes:]

    def new_stored(self, handle: Handle) -> Stored:
        return handle.hint or Stored(self.new_buffer(handle.dtype, handle.size))

    # --- registers ---

    def put_all(self, target: Stored, elements: Sequence[Expr]) -> None:
        """Store a small array."""
        for k, e in enumerate(elements):
            self.put(target.buffer, scalar.add(target.base, scalar.size(k)), e)

    def registers(self, out: Handle, fn: Callable[..., Expr]) -> None:
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

    def settle_registers(self, out: Handle, elements: list[Expr]) -> None:
        elements = self.kept(elements)
        out.state = Registers(elements)
        if len(out.consumers) > 1 or -1 in out.consumers:
            self.emit(Eval(list(elements)))

    def kept(self, elements: list[Expr]) -> list[Expr]:
        """The elements as they are now: those that are read from memory, or deep, get names."""
        read = [e for e in elements if reads_memory(e, self.loading) or self._is_deep(e)]
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
        if depth(e, self.depths) < fusion_policy.DEEP or e.dtype in _OF_INDICES or not e.args:
            return False
        self.depths[e] = 0  # from now on it is a name
        return True

    # --- open groups ---

    def join(self, out: Handle, fn: Callable[..., Expr], name: str, regional: bool = False) -> None:
        """Make a value a member of the open group of its shape, or of its lanes."""
        if out.lanewise:
            small_problems.join(self, out, fn, name)
            return
        self.member(out.shape, fn, out, name, regional=regional)

    def member(
        self,
        shape: Shape,
        fn: Callable[..., Expr],
        handle: Handle | None,
        name: str,
        target: Callable | None = None,
        regional: bool = False,
    ) -> None:
        member = Member(shape, fn, handle, self.scope.position, name, target)

        def fits(g: Group) -> bool:
            # Loops of most folds are not cut; and a fold cannot read its group's values elsewhere.
            pulled = handle is not None and isinstance(handle.state, Pull)
            if g.folds and regional and not g.totals():
                return False
            return not (g.folds and pulled and self._read_elsewhere(handle, g))

        group, member.expr = self.in_group(shape, lambda g: fn(*g.index(shape)), fits)
        group.members.append(member)
        group.note([member.expr])
        group.regional |= regional
        if handle is not None:
            handle.state = Pending(group, memoised(fn))

    def _read_elsewhere(self, handle: Handle | None, group: Group) -> bool:
        """Whether a fold of a group pulls a value, or one made of it, at another point than its own."""
        assert handle is not None
        state = handle.state
        handle.state = Pending(group, handle.state.fn)  # type: ignore[attr-defined]
        try:
            for f in group.folds:
                f.fold.fn(*group.index(f.fold.shape))
        except NeedsFlush as stop:
            return stop.group is group
        finally:
            handle.state = state
        return False

    def join_folds(self, folds: FoldMember, axes: tuple[int, ...], regional: bool = False) -> None:
        """Reduce over axes of the open group of a shape, which has no other folds than over these."""
        fold = folds.fold
        group, terms = self.in_group(
            fold.shape,
            lambda g: fold.fn(*g.index(fold.shape)),
            lambda g: (
                (not g.folds or g.axes == axes) and (not g.regional or len(axes) == len(g.shape))
            ),
        )
        group.regional |= regional
        group.note(terms)
        group.axes = axes
        group.folds.append(folds)
        for h in folds.handles:
            h.state = Folding(group)

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

    def flush(self, group: Group, wanted: Handle | None = None) -> None:
        """Close a group and emit its nest; `wanted` is stored in any case."""
        scope: Scope | None = self.scope
        while scope is not None and group not in scope.groups:
            scope = scope.outer
        assert scope is self.scope, "a group of an outer scope was left open"
        for f in group.folds:  # what they pull may have joined another group since
            self.evaluated(lambda f=f: f.fold.fn(*group.index(f.fold.shape)))
        scope.groups.remove(group)
        stores = self.stores_of(group, wanted)
        if len(stores) > 1:
            stores = readers.with_readers(self, group, stores, wanted)
        kind = (Totals if group.regional else Folds) if group.folds else Nests
        kind(self, group, stores).emit()

    def stores_of(self, group: Group, wanted: Handle | None) -> list[Member]:
        """The members that somebody outside the group reads."""
        absorbed = self._absorbed_by(group)
        return [
            m
            for m in group.members
            if m.handle is None
            or m.handle is wanted
            or m.handle.target is not None
            or not absorbed(m.handle)
        ]

    def flush_writers(self) -> None:
        for group in list(self.scope.groups):
            if any(m.handle is None for m in group.members):
                self.flush(group)

    def _absorbed_by(self, group: Group) -> Callable[[Handle], bool]:
        """Whether all who read a value are computed inside a group: its memory is not needed."""
        inside = {id(m.handle) for m in group.members if m.handle is not None}
        inside |= {id(h) for f in group.folds for h in f.handles}
        known: dict[int, bool] = {}

        def absorbed(handle: Handle) -> bool:
            if id(handle) not in known:
                known[id(handle)] = all(map(reader, handle.consumers))
            return known[id(handle)]

        def reader(k: int) -> bool:
            if k == -1 or k > self.scope.position:
                return False
            outs = self._outs_of(k)
            if k == self.scope.position:
                # The equation at work may be the reader that asked for this flush.
                return bool(outs) and all(id(h) in inside for h in outs)  # a callback has none
            return all(id(h) in inside or isinstance(h.state, Pull) and absorbed(h) for h in outs)

        return absorbed

    def _outs_of(self, number: int) -> list[Handle]:
        eqn = self.scope.eqns[number]
        return [self.scope.handles[v] for v in eqn.outs if v in self.scope.handles]

    # --- memory ---

    def store(self, handle: Handle) -> Stored:
        """Make sure that a value is in memory."""
        state = handle.state
        if isinstance(state, slice_update_fusion.Boxes):
            slice_update_fusion.store(self, handle)
        elif isinstance(state, Pull):
            if self.target.is_small(handle.shape):
                self.registers(handle, state.fn)
            else:
                if handle.target is None:
                    handle.target = self.new_stored(handle)
                self.join(handle, state.fn, "store", state.regional)
        if isinstance(handle.state, (Pending, Folding)):
            if handle.target is None:
                handle.target = self.new_stored(handle)
            self.flush(handle.state.group)
        if isinstance(handle.state, Registers):
            stored = handle.target or self.new_stored(handle)
            self.put_all(stored, handle.state.elements)
            return stored  # the registers stay: they are the better copy
        assert isinstance(handle.state, Stored), handle
        return handle.state

    def store_reusing(self, handle: Handle) -> None:
        """As `store`, in the memory of a dead array if the value reads one at its own index only."""
        if isinstance(handle.state, Pull) and not self.target.is_small(handle.shape):
            self.join(handle, handle.state.fn, "store", handle.state.regional)
        if isinstance(handle.state, Pending) and handle.target is None:
            group = handle.state.group
            for other in list(self.scope.groups):
                if other is not group:
                    self.flush(other)
            if group.open:
                self.flush(group, handle)
        self.store(handle)

    def settle(self, handle: Handle) -> Handle:
        """Give a value a form that outlives its scope: registers or memory."""
        if self.target.is_small(handle.shape):
            if not isinstance(handle.state, Registers):
                self.load_registers(handle)
        elif not isinstance(handle.state, Stored):
            self.store(handle)
        return handle

    def load_registers(self, handle: Handle) -> None:
        """Bring a small array into registers."""
        elements = self.evaluated(lambda: [handle(*ix) for ix in static_indices(handle.shape)])
        handle.state = Registers(self.kept(elements))

    def store_into(self, handle: Handle, target: Stored) -> None:
        """Write a value to a place, wherever it is now."""
        if isinstance(handle.state, Pull) and not self.target.is_small(handle.shape):
            handle.target = target
            self.store(handle)
            return
        if isinstance(handle.state, (Pending, Folding)):
            if handle.target is None:
                handle.target = target
            self.flush(handle.state.group)
        if isinstance(handle.state, Pull):
            self.load_registers(handle)
        if isinstance(handle.state, Registers):
            self.put_all(target, handle.state.elements)
            return
        source = handle.state
        assert isinstance(source, Stored)
        if not source.is_at(target):
            self.copy(target, source, handle.size)

    def copy(self, target: Stored, source: Stored, size: int) -> None:
        if size:
            self.emit(
                Copy(
                    Ref(target.buffer, target.base),
                    Ref(source.buffer, source.base),
                    scalar.size(size),
                )
            )

    # --- operands and results of regions ---

    def settled_region(self, inputs: Sequence[Handle], keep: Sequence[int] = ()) -> list[Handle]:
        """As `settled`; operands in `keep`, initial carries, may wait to be stored in their place."""
        for k, h in enumerate(inputs):
            if k not in keep or self.target.is_small(h.shape):
                self.settled([h])
            elif isinstance(h.state, (Pending, Folding)):
                self.store(h)
        self.flush_all()
        return list(inputs)

    def settled(self, inputs: Sequence[Handle]) -> list[Handle]:
        """The operands of a region: in registers, in memory, or trivial to compute again."""
        for h in inputs:
            if isinstance(h.state, Pull) and not self.target.is_small(h.shape):
                counts = "int" in h.dtype and len(h.shape) == 1  # an index of rounds
                if h.state.cost <= fusion_policy.CHEAP * counts and not self.sources(h):
                    continue
            self.settle(h)
        self.flush_all()
        return list(inputs)

    def element(self, h: Handle) -> Expr:
        """An element of a value, as what reads it finds it."""
        index = tuple(scalar.var("int64") for _ in h.shape)
        return self.evaluated(lambda: h(*index))

    def sources(self, h: Handle) -> frozenset[Buffer]:
        """The buffers that are read where an element of a value is."""
        return buffers_read([self.element(h)])

    def adopt(self, out: Handle, made: Handle) -> None:
        """Take the result of a region as the value of an equation's output."""
        out.state = made.state
        if out.target is not None and not isinstance(made.state, Registers):
            self.store_into(out, out.target)
            out.state = out.target

    # --- overwriting ---

    def dies(self, handle: Handle) -> bool:
        """Whether the memory of an operand of the equation at work may be overwritten by it."""
        state = handle.state
        if not isinstance(state, Stored) or not state.owned or handle.scope is not self.scope:
            return False
        scope: Scope | None = self.scope
        while scope is not None:
            for other in scope.waiting():
                held = other.state
                if not isinstance(held, Stored) or held.buffer is not state.buffer:
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
        for handle in self.readers(buffer, now):
            self.store(handle)
        self.flush_all()

    def readers(self, buffer: Buffer, now: bool) -> Iterator[Handle]:
        """The values that are still to be computed from elements of a buffer."""
        scope: Scope | None = self.scope
        while scope is not None:
            for handle in list(scope.waiting()):
                waits = handle.last_use > scope.position or now and scope is self.scope
                if waits and isinstance(handle.state, Pull) and buffer in self.sources(handle):
                    yield handle
            scope = scope.outer
