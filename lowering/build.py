"""Builds the Kernel IR of a jaxpr: equation by equation, from the recipes of its primitives.

A `Builder` walks a jaxpr and keeps a `Handle` for each variable. Small arrays live in registers and
their operations are unrolled; elementwise values of large arrays are pulled into their readers or
join open groups (groups.py); everything else is stored. Regions are in regions.py, updates in
updates.py, library routines in blas.py. The choices themselves are in fuse.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import dtypes, recipe, scalar
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var
from fnx.core.scalar import Expr
from fnx.lowering import blas, boxes, fuse, regions, updates
from fnx.lowering.groups import Folding, FoldMember, Group, Member, Nests, squeezed
from fnx.lowering.kernel import (
    Buffer,
    CallHost,
    Copy,
    Eval,
    Let,
    Nest,
    Ref,
    Stmt,
    Store,
)
from fnx.lowering.order import box_chains, overwritten, readers_first
from fnx.lowering.values import (
    Handle,
    NeedsFlush,
    Pending,
    Pull,
    Registers,
    Shape,
    Stored,
    buffers_read,
    static_indices,
)

FOREVER = float("inf")
OWN = object()  # the scope of a handle that belongs to the jaxpr that it is given to


def dtype_name(dtype: Any) -> str:
    return dtypes.NAME[dtype]


class Scope:
    """One jaxpr that is being built: its variables, and how far we are."""

    def __init__(self, outer: "Scope | None" = None):
        self.handles: dict[Var, Handle] = {}
        self.position = 0
        self.outer = outer
        self.groups: list[Group] = []
        self.eqns: tuple[Eqn, ...] = ()
        self.chains: set[int] = set()  # box updates that wait for the next of their chain
        self.uses: dict[Var, list[int]] = {}  # numbers of reading equations; -1: an output


class Builder:
    """Statements and buffers of one program."""

    in_place = False

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.block: list[Stmt] = []
        self.scope = Scope()
        self.depth = 0  # of loops around the current block
        self.kernels = 0
        self.notes: list[str] = []

    # --- statements and buffers -------------------------------------------------------------------

    def emit(self, stmt: Stmt) -> None:
        self.block.append(stmt)

    def put(self, buffer: Buffer, position: Expr, value: Expr) -> None:
        """Store one element."""
        self.emit(Store(buffer, position, value))

    def emit_nest(
        self, names: Sequence[str], body: list[Stmt], results: list[Expr], note: str = ""
    ) -> None:
        name = "_".join(n.replace("-", "_") for n in names[:4])[:60]
        self.kernels += 1
        self.emit(Nest(f"k{self.kernels}_{name}", body, results, note))
        self.notes.append(f"kernel k{self.kernels}_{name}: {note}")

    def new_buffer(self, dtype: str, size: int) -> Buffer:
        buffer = Buffer(f"b{len(self.buffers)}", dtype, max(size, 1), "workspace", -1)
        self.buffers.append(buffer)
        return buffer

    def new_stored(self, handle: Handle) -> Stored:
        return handle.hint or Stored(self.new_buffer(handle.dtype, handle.size))

    # --- jaxprs ---------------------------------------------------------------------------------------

    def jaxpr(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[Handle],
        targets: dict[Var, Stored] | None = None,
    ) -> list[Handle]:
        """Build a jaxpr in the current block; the handles of its outputs."""
        jaxpr = readers_first(jaxpr)
        scope = self.scope = Scope(self.scope)
        for var, given in zip(jaxpr.inputs, inputs, strict=True):
            scope.handles[var] = self._enter(given)
        self._count_uses(jaxpr)
        for var, target in (targets or {}).items():
            if var in scope.handles:
                continue  # an input: copied by whoever asked
            scope.handles[var] = self._new_handle(var)
            scope.handles[var].target = target
        self._hint_targets(jaxpr, targets or {})
        for k, eqn in enumerate(jaxpr.eqns):
            scope.position = k
            self._eqn(eqn)
        scope.position = len(jaxpr.eqns)
        outs = [self.handle(atom) for atom in jaxpr.outs]
        self.scope = scope.outer  # type: ignore[assignment]
        self._leave(scope, outs)
        return outs

    def _hint_targets(self, jaxpr: Jaxpr, targets: dict[Var, Stored]) -> None:
        """A value that is made by updates of another, which dies there, has that one's place too."""
        scope = self.scope
        maker = {v: e for e in jaxpr.eqns for v in e.outs}
        for var, target in targets.items():
            while var in maker and len(maker[var].outs) == 1 and overwritten(maker[var]):
                (var,) = overwritten(maker[var])
                if var not in maker or var in scope.handles or len(scope.uses.get(var, [])) != 1:
                    break
                scope.handles[var] = self._new_handle(var)
                scope.handles[var].hint = target

    def _enter(self, given: Handle) -> Handle:
        """A handle of this scope for a value from outside; it shares the state."""
        handle = Handle(given.shape, given.dtype, given.state)
        # It may die here only if it was made for this scope (a carry).
        handle.scope = self.scope if given.scope is OWN else given.scope
        return handle

    def _count_uses(self, jaxpr: Jaxpr) -> None:
        handles = self.scope.handles
        self.scope.eqns = jaxpr.eqns
        self.scope.chains, _ = box_chains(jaxpr)
        uses: dict[Var, list[int]] = {}
        for k, eqn in enumerate(jaxpr.eqns):
            for atom in eqn.inputs:
                if type(atom) is Var:
                    uses.setdefault(atom, []).append(k)
        for atom in jaxpr.outs:
            if type(atom) is Var:
                uses.setdefault(atom, []).append(-1)
        self.scope.uses = uses
        for var, handle in handles.items():
            self._set_uses(handle, uses.get(var, []))

    @staticmethod
    def _set_uses(handle: Handle, numbers: list[int]) -> None:
        handle.consumers = numbers
        handle.last_use = FOREVER if -1 in numbers else max(numbers, default=-1)

    def _new_handle(self, var: Var) -> Handle:
        handle = Handle(var.aval.shape, dtype_name(var.aval.dtype))
        handle.scope = self.scope
        self._set_uses(handle, self.scope.uses.get(var, []))
        return handle

    def _leave(self, scope: Scope, outs: list[Handle]) -> None:
        """Close what is open in a finished scope, so that its outputs stand on their own."""
        self.scope, outer = scope, self.scope
        self.flush_all()
        for handle in outs:
            self.settle(handle)
        self.scope = outer
        for handle in outs:
            handle.scope = outer

    def handle(self, atom: Any) -> Handle:
        if type(atom) is Literal:
            dtype = dtype_name(atom.aval.dtype)
            value = atom.value._value.item() if dtype != "bfloat16" else float(atom.value._value)
            return Handle((), dtype, Registers([scalar.literal(value, dtype)]))
        return self.scope.handles[atom]

    # --- equations ------------------------------------------------------------------------------------

    def _eqn(self, eqn: Eqn) -> None:
        inputs = [self.handle(a) for a in eqn.inputs]
        outs = []
        for var in eqn.outs:
            if var not in self.scope.handles:
                self.scope.handles[var] = self._new_handle(var)
            outs.append(self.scope.handles[var])
        if not any(h.consumers for h in outs) and not eqn.prim.effects:
            return  # dead
        recipes = eqn.prim.lower(*inputs)
        waits = isinstance(recipes, recipe.Update) and recipes.box is not None
        for h in inputs:
            if isinstance(h.state, boxes.Boxes) and not (waits and h is recipes.operand):
                self.store(h)
        if isinstance(recipes, tuple):
            for h, r in zip(outs, recipes, strict=True):
                self._recipe(eqn, r, inputs, [h])
        else:
            self._recipe(eqn, recipes, inputs, outs)

    def _recipe(self, eqn: Eqn, r: Any, inputs: list[Handle], outs: list[Handle]) -> None:
        match r:
            case recipe.Point():
                self._point(eqn, r, inputs, outs[0])
            case recipe.Reshape():
                self._reshape(r, outs[0])
            case recipe.Pieces():
                self._pieces(eqn, r, outs[0])
            case recipe.Fold():
                self._fold(eqn, r, inputs, outs)
            case recipe.Cumulative():
                updates.cumulative(self, r, outs, eqn.prim.name)
            case recipe.Update() if boxes.extends(r, r.operand, outs[0], id(eqn) in self.scope.chains):  # type: ignore[arg-type]
                boxes.extend(self, r, r.operand, outs[0])  # type: ignore[arg-type]
            case recipe.Update() if updates.is_anew(self, r, inputs, outs[0]):
                self._store_pieces(eqn, boxes.pieces(r, outs[0].shape), outs[0])
            case recipe.Update():
                updates.update(self, r, inputs, outs[0], eqn.prim.name)
            case recipe.Library() if blas.known(r):
                blas.library(self, r, outs)
            case recipe.Host() | recipe.Library():
                self._host(eqn, inputs, outs)
            case recipe.Call():
                self._call(r, inputs, outs)
            case recipe.Branch():
                regions.branch(self, r, inputs, outs)
            case recipe.While():
                regions.while_loop(self, r, inputs, outs)
            case recipe.Loop():
                regions.loop(self, r, inputs, outs)
            case _:
                raise TypeError(f"unknown recipe {r!r} of {eqn.prim.name}")

    # --- points -----------------------------------------------------------------------------------------

    def _point(self, eqn: Eqn, r: recipe.Point, inputs: list[Handle], out: Handle) -> None:
        if fuse.is_small(out.shape):
            self.registers(out, r.fn)
            return
        own = fuse.weight(eqn.prim.name)
        cost = own
        for h in inputs:
            if isinstance(h.state, Pull):
                expands = h.size > 1 and out.size > h.size
                if h.state.cost > 1 and expands:
                    self.store(h)  # or each element would be computed many times
                else:
                    cost += h.state.cost
        uses = len(out.consumers)
        if -1 not in out.consumers and out.target is None and fuse.inlined(cost, uses):
            out.state = Pull(r.fn, cost)
            return
        self.join(out, r.fn, eqn.prim.name)

    def registers(self, out: Handle, fn: Callable[..., Expr]) -> None:
        """Compute a small array now, element by element."""
        self.settle_registers(out, self.evaluated(lambda: [fn(*ix) for ix in static_indices(out.shape)]))

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
        """The elements as they are now: those that are read from memory get names."""
        read = [e for e in elements if buffers_read([e])]
        if not read:
            return elements
        names = {id(e): scalar.var(e.dtype, "r") for e in read}
        values = {id(e): e for e in read}
        self.emit(Let([names[k] for k in values], list(values.values())))
        return [names.get(id(e), e) for e in elements]

    def join(self, out: Handle, fn: Callable[..., Expr], name: str) -> None:
        """Make a value a member of the open group of its shape."""
        self.member(out.shape, fn, out, name)

    def member(
        self,
        shape: Shape,
        fn: Callable[..., Expr],
        handle: Handle | None,
        name: str,
        target: Callable | None = None,
    ) -> None:
        while True:
            group = self._group(shape)
            member = Member(shape, fn, handle, self.scope.position, name, target)
            try:
                member.expr = fn(*group.index(shape))
            except NeedsFlush as stop:
                self.flush(stop.group)
                continue
            break
        group.members.append(member)
        if handle is not None:
            handle.state = Pending(group, _memoised(fn))

    def _group(self, shape: Shape) -> Group:
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

    def flush(self, group: Group) -> None:
        """Close a group and emit its nest."""
        scope: Scope | None = self.scope
        while scope is not None and group not in scope.groups:
            scope = scope.outer
        assert scope is self.scope, "a group of an outer scope was left open"
        scope.groups.remove(group)
        stores = [m for m in group.members if m.handle is None or self._needed(m, group)]
        Nests(self, group, stores).emit()

    def _needed(self, m: Member, group: Group) -> bool:
        """Whether somebody reads a member who is not computed inside its group."""
        assert m.handle is not None
        inside = {id(x.handle) for x in group.members if x.handle is not None}
        inside |= {id(h) for f in group.folds for h in f.handles}
        return m.handle.target is not None or not self._absorbed(m.handle, inside)

    def _absorbed(self, handle: Handle, inside: set[int]) -> bool:
        for k in handle.consumers:
            if k == -1 or k > self.scope.position:
                return False
            if k == self.scope.position:
                # The equation at work may be the reader that asked for this flush.
                if not all(id(h) in inside for h in self._outs_of(k)):
                    return False
                continue
            for h in self._outs_of(k):
                if id(h) in inside:
                    continue
                if not isinstance(h.state, Pull) or not self._absorbed(h, inside):
                    return False
        return True

    def _outs_of(self, number: int) -> list[Handle]:
        eqn = self.scope.eqns[number]
        return [self.scope.handles[v] for v in eqn.outs if v in self.scope.handles]

    # --- storing -------------------------------------------------------------------------------------------

    def store(self, handle: Handle) -> Stored:
        """Make sure that a value is in memory."""
        state = handle.state
        if isinstance(state, boxes.Boxes):
            boxes.store(self, handle)
        elif isinstance(state, Pull):
            if fuse.is_small(handle.shape):
                self.registers(handle, state.fn)
            else:
                if handle.target is None:
                    handle.target = self.new_stored(handle)
                self.join(handle, state.fn, "store")
        if isinstance(handle.state, (Pending, Folding)):
            if handle.target is None:
                handle.target = self.new_stored(handle)
            self.flush(handle.state.group)
        if isinstance(handle.state, Registers):
            stored = handle.target or self.new_stored(handle)
            for k, e in enumerate(handle.state.elements):
                position = scalar.add(stored.base, scalar.size(k))
                self.emit(Store(stored.buffer, position, e))
            return stored  # the registers stay: they are the better copy
        assert isinstance(handle.state, Stored), handle
        return handle.state

    def settle(self, handle: Handle) -> Handle:
        """Give a value a form that outlives its scope: registers or memory."""
        if fuse.is_small(handle.shape):
            if not isinstance(handle.state, Registers):
                self._to_registers(handle)
        elif not isinstance(handle.state, Stored):
            self.store(handle)
        return handle

    def _to_registers(self, handle: Handle) -> None:
        elements = self.evaluated(lambda: [handle(*ix) for ix in static_indices(handle.shape)])
        handle.state = Registers(self.kept(elements))

    def store_into(self, handle: Handle, target: Stored) -> None:
        """Write a value to a place, wherever it is now."""
        if isinstance(handle.state, Pull) and not fuse.is_small(handle.shape):
            handle.target = target
            self.store(handle)
            return
        if isinstance(handle.state, (Pending, Folding)):
            if handle.target is None:
                handle.target = target
            self.flush(handle.state.group)
        if isinstance(handle.state, Pull):
            self._to_registers(handle)
        if isinstance(handle.state, Registers):
            for k, e in enumerate(handle.state.elements):
                self.emit(Store(target.buffer, scalar.add(target.base, scalar.size(k)), e))
            return
        source = handle.state
        assert isinstance(source, Stored)
        if source.buffer is target.buffer and source.base is target.base:
            return
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

    # --- other recipes ---------------------------------------------------------------------------------------

    def _reshape(self, r: recipe.Reshape, out: Handle) -> None:
        operand: Handle = r.operand  # type: ignore[assignment]
        if fuse.is_small(out.shape):
            self.settle(operand)
            out.state = operand.state
            return
        if isinstance(operand.state, Pull) and squeezed(operand.shape) == squeezed(out.shape):
            shape = operand.shape
            state = operand.state

            def fn(*index: Expr) -> Expr:
                rest = iter([i for i, n in zip(index, out.shape, strict=True) if n != 1])
                zero = scalar.size(0)
                return state.read(shape, tuple(zero if n == 1 else next(rest) for n in shape))

            if -1 not in out.consumers and out.target is None and len(out.consumers) <= 1:
                out.state = Pull(fn, state.cost)
                return
        if out.target is not None and isinstance(operand.state, (Pull, Pending)):
            if operand.target is None and isinstance(operand.state, Pull):
                operand.target = out.target
        stored = self.store(operand)
        out.state = Stored(stored.buffer, stored.base, stored.owned)
        if out.target is not None and stored.buffer is not out.target.buffer:
            self.store_into(out, out.target)
            out.state = out.target

    def _pieces(self, eqn: Eqn, r: recipe.Pieces, out: Handle) -> None:
        def choose(*index: Expr) -> Expr:
            return _piece_at(r.pieces, index)

        if fuse.is_small(out.shape):
            self.registers(out, choose)
            return
        differ = [
            k
            for k in range(out.ndim)
            if any(p.lo[k] != r.pieces[0].lo[k] or p.hi[k] != r.pieces[0].hi[k] for p in r.pieces)
        ]
        stack = differ == [out.ndim - 1] and out.shape[-1] <= fuse.UNROLLED_AXIS
        if stack and -1 not in out.consumers and out.target is None and len(out.consumers) == 1:
            out.state = Pull(choose, 2)
            return
        if stack:
            self.join(out, choose, eqn.prim.name)
            return
        self._store_pieces(eqn, r, out)

    def _store_pieces(self, eqn: Eqn, r: recipe.Pieces, out: Handle) -> None:
        stored = out.target or self.new_stored(out)
        for p in r.pieces:
            extent = tuple(h - l for l, h in zip(p.lo, p.hi, strict=True))
            if 0 in extent:
                continue

            def at(*index: Expr, lo: Shape = p.lo) -> tuple[Expr, ...]:
                return tuple(scalar.add(i, scalar.size(l)) for i, l in zip(index, lo, strict=True))

            def value(*index: Expr, fn: Callable = p.fn, at: Callable = at) -> Expr:
                return fn(*at(*index))

            def target(*index: Expr, at: Callable = at) -> tuple[Buffer, Expr]:
                return stored.buffer, stored.position(out.shape, at(*index))

            if fuse.is_small(extent):
                for ix in static_indices(extent):
                    self.put(*target(*ix), self.evaluated(lambda ix=ix, value=value: value(*ix)))
            else:
                self.member(extent, value, None, eqn.prim.name, target)
        # The pieces are stored by groups that are still open: close those before anyone reads.
        self.flush_writers()
        out.state = stored

    def flush_writers(self) -> None:
        for group in list(self.scope.groups):
            if any(m.handle is None for m in group.members):
                self.flush(group)

    def _fold(self, eqn: Eqn, r: recipe.Fold, inputs: list[Handle], outs: list[Handle]) -> None:
        size = 1
        for n in r.shape:
            size *= n
        short = all(n <= fuse.SMALL for n in r.shape)  # longer axes are run-time parameters
        if short and all(fuse.is_small(h.shape) for h in outs) and size <= fuse.UNROLLED_WORK:
            if all(fuse.is_small(h.shape) or isinstance(h.state, Stored) for h in inputs):
                self._unrolled_fold(r, outs)
                return
        for h in inputs:
            if isinstance(h.state, Pull) and h.state.cost > 1 and h.size > 1 and size > h.size:
                self.store(h)
        keep = [k for k, n in enumerate(r.shape) if n != 1]
        axes = tuple(keep.index(k) for k in r.axes if r.shape[k] != 1)
        while True:
            group = self._group(r.shape)
            if group.folds and group.axes != axes:
                self.flush(group)
                continue
            try:
                r.fn(*group.index(r.shape))  # only to see what stands in the way
            except NeedsFlush as stop:
                self.flush(stop.group)
                continue
            break
        group.axes = axes
        group.folds.append(FoldMember(r, outs, eqn.prim.name))
        for h in outs:
            h.state = Folding(group)

    def _unrolled_fold(self, r: recipe.Fold, outs: list[Handle]) -> None:
        def make() -> list[list[Expr]]:
            columns: list[list[Expr]] = [[] for _ in outs]
            kept = [k for k in range(len(r.shape)) if k not in r.axes]
            for at in static_indices(tuple(r.shape[k] for k in kept)):
                accs = r.init
                for along in static_indices(tuple(r.shape[k] for k in r.axes)):
                    index: list[Any] = [None] * len(r.shape)
                    for k, i in zip([*kept, *r.axes], [*at, *along], strict=True):
                        index[k] = i
                    values = r.fn(*index)
                    accs = r.combine(accs, values)
                for column, e in zip(columns, accs, strict=True):
                    column.append(e)
            return columns

        for out, column in zip(outs, self.evaluated(make), strict=True):
            self.settle_registers(out, column)

    def _host(self, eqn: Eqn, inputs: list[Handle], outs: list[Handle]) -> None:
        """Call the primitive's own impl from native code."""
        self.notes.append(f"host call: {eqn.prim.name}")

        def place(h: Handle) -> tuple[Ref, Shape, str]:
            stored = self.store(h)
            return Ref(stored.buffer, stored.base), h.shape, h.dtype

        given = [place(h) for h in inputs]
        made = []
        for h in outs:
            stored = h.target or self.new_stored(h)
            h.state = stored
            made.append((Ref(stored.buffer, stored.base), h.shape, h.dtype))
        self.emit(CallHost(_Impl(eqn.prim), given, made, eqn.prim.name))
        for h in outs:
            if fuse.is_small(h.shape):
                self._to_registers(h)

    def _call(self, r: recipe.Call, inputs: list[Handle], outs: list[Handle]) -> None:
        targets = {
            atom: out.target
            for atom, out in zip(r.jaxpr.outs, outs, strict=True)
            if out.target is not None and type(atom) is Var
        }
        self.flush_all()
        results = self.jaxpr(r.jaxpr, self.settled(inputs), targets)
        for out, made in zip(outs, results, strict=True):
            self.adopt(out, made)

    def settled_region(self, inputs: Sequence[Handle], keep: Sequence[int] = ()) -> list[Handle]:
        """As `settled`; operands in `keep`, initial carries, may wait to be stored in their place."""
        for k, h in enumerate(inputs):
            if k not in keep or fuse.is_small(h.shape):
                self.settled([h])
            elif isinstance(h.state, (Pending, Folding)):
                self.store(h)
        self.flush_all()
        return list(inputs)

    def load_registers(self, h: Handle) -> None:
        """Bring a small array from memory into registers."""
        self._to_registers(h)

    def settled(self, inputs: Sequence[Handle]) -> list[Handle]:
        """The operands of a region: in registers, in memory, or trivial to compute again."""
        for h in inputs:
            if isinstance(h.state, Pull) and h.state.cost == 0 and not fuse.is_small(h.shape):
                if not self.pulls_from_memory(h):
                    continue
            self.settle(h)
        self.flush_all()
        return list(inputs)

    def pulls_from_memory(self, h: Handle) -> bool:
        index = tuple(scalar.var("int64") for _ in h.shape)
        return bool(buffers_read([self.evaluated(lambda: h(*index))]))

    def adopt(self, out: Handle, made: Handle) -> None:
        """Take the result of a region as the value of an equation's output."""
        out.state = made.state
        if out.target is not None and not isinstance(made.state, Registers):
            self.store_into(out, out.target)
            out.state = out.target

    # --- overwriting -------------------------------------------------------------------------------------------

    def dies(self, handle: Handle) -> bool:
        """Whether the memory of an operand of the equation at work may be overwritten by it."""
        state = handle.state
        if not isinstance(state, Stored) or not state.owned or handle.scope is not self.scope:
            return False
        scope: Scope | None = self.scope
        while scope is not None:
            for other in scope.handles.values():
                if isinstance(other.state, Stored) and other.state.buffer is state.buffer:
                    if other.last_use > scope.position:
                        return False
            scope = scope.outer
        return True

    def save_readers(self, buffer: Buffer) -> None:
        """Before a buffer is overwritten: compute whatever still means to read its old elements."""
        self.flush_all()
        scope: Scope | None = self.scope
        while scope is not None:
            for handle in list(scope.handles.values()):
                if handle.last_use > scope.position and isinstance(handle.state, Pull):
                    index = tuple(scalar.var("int64") for _ in handle.shape)
                    if buffer in buffers_read([self.evaluated(lambda h=handle, i=index: h(*i))]):
                        self.store(handle)
            scope = scope.outer
        self.flush_all()


def _memoised(fn: Callable[..., Expr]) -> Callable[..., Expr]:
    memo: dict[tuple, Expr] = {}

    def at(*index: Expr) -> Expr:
        key = tuple(map(id, index))
        if key not in memo:
            memo[key] = fn(*index)
        return memo[key]

    return at


def _piece_at(pieces: tuple[recipe.Piece, ...], index: tuple[Expr, ...]) -> Expr:
    """The element of the piece that holds `index`: decided now where it can be, else selected."""
    found: Expr | None = None
    for p in reversed(pieces):
        inside = scalar.const(True, "bool")
        clamped = []
        for axis, (i, lo, hi) in enumerate(zip(index, p.lo, p.hi, strict=True)):
            if i.op == "size":
                inside = scalar.logical_and(inside, scalar.const(lo <= i.attr < hi, "bool"))
            elif not all(q.lo[axis] >= lo and q.hi[axis] <= hi for q in pieces):
                inside = scalar.logical_and(inside, scalar.compare("ge", i, scalar.size(lo)))
                inside = scalar.logical_and(inside, scalar.compare("lt", i, scalar.size(hi)))
                i = scalar.clamp(scalar.size(lo), i, scalar.size(hi - 1))
            clamped.append(i)
        if inside.op == "const" and not inside.attr:
            continue
        if any(h <= l for l, h in zip(p.lo, p.hi, strict=True)):
            continue
        value = p.fn(*clamped)
        found = value if found is None else scalar.select(inside, value, found)
    assert found is not None, "the pieces do not cover the index"
    return found


class _Impl:
    """A primitive's impl as a callback: it may be compared and named."""

    def __init__(self, prim: Any):
        self.prim = prim

    def __call__(self, *values: Any) -> tuple:
        outs = self.prim.impl(*values)
        return outs if isinstance(outs, tuple) else (outs,)
