"""Groups: values over one iteration space that share a loop nest, and the nests made of them.

A group is open while values of its shape may still join. A member may read other members at its
own index, where they are in registers; whoever reads a member otherwise closes the group first.
Closing it emits one nest, in which only those members are stored that somebody outside needs.
"""

from collections.abc import Callable
from math import prod
from typing import Any

from fnx.core import scalar
from fnx.core.recipe import Fold
from fnx.core.scalar import Expr
from fnx.lowering import fuse, reuse, tiles
from fnx.lowering.kernel import Fill, Loop, Ref, Stmt, Store
from fnx.lowering.values import (
    Folding,
    Handle,
    Pending,
    Registers,
    Shape,
    Stored,
    depends_on,
    substitute,
)


def squeezed(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


class Member:
    """A value of the group: its handle, and how an element is computed and where it is stored."""

    __slots__ = ("expr", "fn", "handle", "name", "number", "shape", "target")

    def __init__(
        self,
        shape: Shape,
        fn: Callable[..., Expr],
        handle: Handle | None,
        number: int,
        name: str,
        target: Callable[..., tuple[Any, Expr]] | None = None,
    ):
        self.shape, self.fn, self.handle, self.number = shape, fn, handle, number
        self.name, self.target = name, target
        self.expr: Expr


class FoldMember:
    """A reduction of the group: its recipe and the handles of its results."""

    __slots__ = ("fold", "handles", "name")

    def __init__(self, fold: Fold, handles: list[Handle], name: str):
        self.fold, self.handles, self.name = fold, handles, name


class Group:
    """One iteration space, its index variables, and what is computed at each point."""

    def __init__(self, shape: Shape):
        self.shape = squeezed(shape)
        self.vars = [scalar.var("int64", "i") for _ in self.shape]
        self.members: list[Member] = []
        self.folds: list[FoldMember] = []
        self.axes: tuple[int, ...] | None = None  # of the folds, in the squeezed shape
        self.points: set[tuple[int, ...]] = set()  # ids of indices besides the plain one
        self.open = True

    def index(self, shape: Shape, values: list[Expr] | None = None) -> tuple[Expr, ...]:
        """The index of an array of `shape` at the group's point."""
        rest = iter(self.vars if values is None else values)
        zero = scalar.size(0)
        return tuple(zero if n == 1 else next(rest) for n in shape)

    def covers(self, shape: Shape, index: tuple[Expr, ...]) -> bool:
        """Whether `index` is the group's own point."""
        key = tuple(id(i) for i, n in zip(index, shape, strict=True) if n != 1)
        return self.open and (key == tuple(map(id, self.vars)) or key in self.points)

    def allow(self, values: list[Expr]) -> None:
        self.points.add(tuple(map(id, values)))


# --- nests ------------------------------------------------------------------------------------------------


class Nests:
    """Emits the nest of a closed group through a builder (which gives buffers and takes statements)."""

    def __init__(self, builder: Any, group: Group, stores: list[Member]):
        self.builder, self.group, self.stores = builder, group, stores

    def emit(self) -> None:
        group = self.group
        if group.folds:
            self._folds()
        elif self.stores:
            self._points()
        group.open = False
        self._settle()

    def _settle(self) -> None:
        for m in self.group.members:
            if m.handle is None or not isinstance(m.handle.state, Pending):
                continue
            # Members that nobody outside reads stay as they are: they are dead.
            if m.handle.target is not None:
                m.handle.state = m.handle.target

    # A store of a member at a point: where to, and what.
    def _store(self, m: Member, values: list[Expr] | None = None) -> Store:
        index = self.group.index(m.shape, values)
        expr = m.expr if values is None else m.fn(*index)
        if m.target is not None:
            buffer, position = m.target(*index)
            return Store(buffer, position, expr)
        assert m.handle is not None
        if m.handle.target is None:
            m.handle.target = self.builder.new_stored(m.handle)
        target = m.handle.target
        return Store(target.buffer, target.position(m.shape, index), expr)

    def _points(self) -> None:
        group = self.group
        if 0 in group.shape:
            for m in self.stores:  # nothing to compute, but a place to point at
                self._store(m, [scalar.size(0)] * len(group.shape))
            return
        reused = reuse.choose(self.builder, group, self.stores)
        stores = [self._store(m) for m in self.stores]
        dims = list(zip(group.vars, group.shape, strict=True))
        flat = self._collapse(stores)
        if flat is not None:
            dims, stores = flat
        elif self._wants_unroll(stores):
            dims, stores = self._unroll()
        else:
            across = tiles.across(stores, group.vars, group.shape)
            if across is not None and not reused:
                self._nest(tiles.loops(dims, list(stores), across, self.builder.in_place), [])
                return
        body = reuse.read_first(stores) if reused else list(stores)
        self._nest(self._loops(dims, body), [])

    def _collapse(self, stores: list[Store]) -> tuple[list, list[Store]] | None:
        """One loop over all elements, where everything is read and stored at the same position."""
        group = self.group
        if len(group.shape) < 2:
            return None
        position = scalar.linear_index(tuple(group.vars), group.shape)
        exprs = [e for s in stores for e in (s.index, s.value)]
        if depends_on(exprs, set(map(id, group.vars)), stop=position):
            return None
        flat = scalar.var("int64", "i")
        new = iter(substitute(exprs, position, flat))
        total = 1
        for n in group.shape:
            total *= n
        return [(flat, total)], [Store(s.buffer, next(new), next(new)) for s in stores]

    def _wants_unroll(self, stores: list[Store]) -> bool:
        """Whether the last axis is short and its index decides something (pieces of a stack)."""
        if not self.group.shape or self.group.shape[-1] > fuse.UNROLLED_AXIS:
            return False
        return True

    def _unroll(self) -> tuple[list, list[Store]]:
        group = self.group
        outer = group.vars[:-1]
        points = [[*outer, scalar.size(k)] for k in range(group.shape[-1])]
        for p in points:
            group.allow(p)
        stores = [self._store(m, p) for m in self.stores for p in points]
        return list(zip(outer, group.shape[:-1], strict=True)), stores

    def _loops(self, dims: list[tuple[Expr, int]], body: list[Stmt]) -> list[Stmt]:
        """Loops around a body, the last axis innermost."""
        inner = True
        for var, n in reversed(dims):
            body = [Loop(var, scalar.size(n), body, vector=inner and not self.builder.in_place)]
            inner = False
        return body

    def _nest(self, body: list[Stmt], results: list[Expr]) -> None:
        group = self.group
        names = [m.name for m in [*self.stores, *group.folds]] or ["nest"]
        work = 1
        for n in group.shape:
            work *= n
        work *= 1 + len(group.members) + len(group.folds)
        first = body[0] if body else None
        if work >= fuse.PARALLEL_WORK and not results and len(body) == 1:
            if isinstance(first, Loop) and not self.builder.in_place and not first.carries:
                first.parallel = not group.folds or self._rows_apart()
        self.builder.emit_nest(names, body, results, note=self._note(names))

    def _rows_apart(self) -> bool:
        return self.group.axes is not None and 0 not in self.group.axes

    def _note(self, names: list[str]) -> str:
        members = [m.name for m in self.group.members]
        return f"{list(self.group.shape)} {' '.join(members + [n for n in names if n not in members])}"

    # --- folds ----------------------------------------------------------------------------------------

    def _folds(self) -> None:
        group = self.group
        axes = group.axes or ()
        kept = [k for k in range(len(group.shape)) if k not in axes]
        results = 1
        for k in kept:
            results *= group.shape[k]
        if 0 in group.shape:
            self._empty_folds(results)
        elif results <= fuse.SMALL:
            if kept == [len(group.shape) - 1] and results >= fuse.FEW_LANES:
                self._fold_lanes(results)
            else:
                self._fold_registers(kept, list(axes))
        elif prod(group.shape[k] for k in axes) <= fuse.UNROLLED_ROW:
            self._fold_short(kept, list(axes))
        elif not axes or axes[-1] == len(group.shape) - 1:
            self._fold_rows(kept, list(axes))
        else:
            self._fold_memory(kept)

    def _empty_folds(self, results: int) -> None:
        for f in self.group.folds:
            for k, handle in enumerate(f.handles):
                if handle.size <= fuse.SMALL:
                    handle.state = Registers([f.fold.init[k]] * handle.size)
                else:
                    self._fill(handle, f.fold.init[k])
        for m in self.stores:
            self._store(m, [scalar.size(0)] * len(self.group.shape))

    def _fill(self, handle: Handle, value: Expr) -> None:
        stored = handle.target or self.builder.new_stored(handle)
        self.builder.emit(Fill(Ref(stored.buffer, stored.base), scalar.size(handle.size), value))
        handle.state = stored

    def _values_at(self, f: FoldMember, values: list[Expr]) -> tuple[Expr, ...]:
        return f.fold.fn(*self.group.index(f.fold.shape, values))

    def _fold_registers(self, kept: list[int], axes: list[int]) -> None:
        """Few results: one accumulator each in registers, loops over the reduced axes."""
        group = self.group
        points: list[list[Expr]] = [list(group.vars)]
        for k in kept:
            points = [
                [*p[:k], scalar.size(j), *p[k + 1 :]] for p in points for j in range(group.shape[k])
            ]
        for p in points:
            group.allow(p)
        stores = [self._store(m, p) for m in self.stores for p in points]
        accs, init, nexts = [], [], []
        for f in group.folds:
            for p in points:
                acc = tuple(scalar.var(e.dtype, "a") for e in f.fold.init)
                accs += acc
                init += f.fold.init
                nexts += f.fold.combine(acc, self._values_at(f, p))
        dims = [(group.vars[k], group.shape[k]) for k in axes]
        if not kept and len(dims) > 1:
            dims, stores, nexts = self._collapse_fold(dims, stores, nexts)
        reassociate = all(f.fold.reassociate for f in group.folds)
        body = self._fold_loops(dims, list(stores), accs, init, nexts, reassociate)
        self._nest(body, accs)
        # Results come fold by fold, point by point, output by output.
        rest = iter(accs)
        for f in group.folds:
            columns = [[next(rest) for _ in f.fold.init] for _ in points]
            for k, handle in enumerate(f.handles):
                self.builder.settle_registers(handle, [c[k] for c in columns])

    def _collapse_fold(self, dims: list, stores: list[Store], nexts: list[Expr]) -> tuple:
        group = self.group
        position = scalar.linear_index(tuple(group.vars), group.shape)
        exprs = [e for s in stores for e in (s.index, s.value)] + nexts
        if depends_on(exprs, set(map(id, group.vars)), stop=position):
            return dims, stores, nexts
        flat = scalar.var("int64", "i")
        new = iter(substitute(exprs, position, flat))
        total = 1
        for n in group.shape:
            total *= n
        stores = [Store(s.buffer, next(new), next(new)) for s in stores]
        return [(flat, total)], stores, list(new)

    def _fold_loops(
        self,
        dims: list[tuple[Expr, int]],
        body: list[Stmt],
        accs: list[Expr],
        init: list[Expr],
        nexts: list[Expr],
        reassociate: bool,
    ) -> list[Stmt]:
        """Nested loops that hand the accumulators through; `accs` hold the results after them."""
        if not dims:  # every axis has size 1: the fold has one step
            once = scalar.var("int64", "i")
            dims = [(once, 1)]
        (var, n), *rest = dims
        if not rest:
            return [
                Loop(var, scalar.size(n), body, accs, init, nexts, reassociate=reassociate)
            ]
        inner = [scalar.var(a.dtype, "a") for a in accs]
        again = substitute_many(nexts, accs, inner)
        loops = self._fold_loops(rest, body, inner, list(accs), again, reassociate)
        return [Loop(var, scalar.size(n), loops, accs, init, inner, reassociate=reassociate)]

    def _fold_lanes(self, lanes: int) -> None:
        """Few results along the last axis: accumulators side by side on the stack, as a vector."""
        group, builder = self.group, self.builder
        # Unrolled before the vectoriser comes, they would not become vectors.
        hint = int(lanes & (lanes - 1) == 0)
        lane, extent = group.vars[-1], scalar.const(lanes, "int64")
        body: list[Stmt] = [self._store(m) for m in self.stores]
        before: list[Stmt] = []
        after: list[Stmt] = []
        for f in group.folds:
            accs = []
            for handle, init in zip(f.handles, f.fold.init, strict=True):
                acc = builder.new_stack(handle.dtype, lanes)
                stored = handle.target or builder.new_stored(handle)
                handle.state = stored
                accs.append(acc)
                before.append(Store(acc, lane, init))
                position = stored.position(handle.shape, self._kept_index(f, handle))
                after.append(Store(stored.buffer, position, scalar.load(acc, lane, acc.dtype)))
            old = tuple(scalar.load(a, lane, a.dtype) for a in accs)
            values = f.fold.combine(old, self._values_at(f, list(group.vars)))
            body += [Store(a, lane, v) for a, v in zip(accs, values, strict=True)]
        rows: list[Stmt] = [Loop(lane, extent, body, vector=True, unroll=hint)]
        for var, n in reversed(list(zip(group.vars[:-1], group.shape[:-1], strict=True))):
            rows = [Loop(var, scalar.size(n), rows)]
        first, final = (Loop(lane, extent, b, vector=True, unroll=hint) for b in (before, after))
        self._nest([first, *rows, final], [])
        for f in group.folds:
            for handle in f.handles:
                builder.load_registers(handle)

    def _fold_short(self, kept: list[int], axes: list[int]) -> None:
        """Few terms: they are written out, in a loop over the results."""
        group = self.group
        points: list[list[Expr]] = [list(group.vars)]
        for k in axes:
            points = [
                [*p[:k], scalar.size(j), *p[k + 1 :]] for p in points for j in range(group.shape[k])
            ]
        for p in points:
            group.allow(p)
        body: list[Stmt] = [self._store(m, p) for m in self.stores for p in points]
        for f in group.folds:
            accs = f.fold.init
            for p in points:
                accs = f.fold.combine(accs, self._values_at(f, p))
            for handle, value in zip(f.handles, accs, strict=True):
                stored = handle.target or self.builder.new_stored(handle)
                handle.state = stored
                position = stored.position(handle.shape, self._kept_index(f, handle))
                body.append(Store(stored.buffer, position, value))
        self._nest(self._loops([(group.vars[k], group.shape[k]) for k in kept], body), [])

    def _fold_rows(self, kept: list[int], axes: list[int]) -> None:
        """The last axis is reduced: an accumulator in a register for each row."""
        group = self.group
        body: list[Stmt] = [self._store(m) for m in self.stores]
        accs, init, nexts, after = [], [], [], []
        for f in group.folds:
            acc = tuple(scalar.var(e.dtype, "a") for e in f.fold.init)
            accs += acc
            init += f.fold.init
            nexts += f.fold.combine(acc, self._values_at(f, list(group.vars)))
            for handle, a in zip(f.handles, acc, strict=True):
                stored = handle.target or self.builder.new_stored(handle)
                handle.state = stored
                position = stored.position(handle.shape, self._kept_index(f, handle))
                after.append(Store(stored.buffer, position, a))
        reassociate = all(f.fold.reassociate for f in group.folds)
        dims = [(group.vars[k], group.shape[k]) for k in axes]
        row = [*self._fold_loops(dims, body, accs, init, nexts, reassociate), *after]
        for k in reversed(kept):
            row = [Loop(group.vars[k], scalar.size(group.shape[k]), row)]
        self._nest(row, [])

    def _kept_index(self, f: FoldMember, handle: Handle) -> tuple[Expr, ...]:
        full = self.group.index(f.fold.shape)
        index = tuple(i for k, i in enumerate(full) if k not in f.fold.axes)
        assert len(index) == len(handle.shape)
        return index

    def _fold_memory(self, kept: list[int]) -> None:
        """The last axis is kept: accumulators in memory, added to row by row."""
        group = self.group
        body: list[Stmt] = [self._store(m) for m in self.stores]
        for f in group.folds:
            accs, places = [], []
            for k, handle in enumerate(f.handles):
                self._fill(handle, f.fold.init[k])
                stored = handle.state
                assert isinstance(stored, Stored)
                position = stored.position(handle.shape, self._kept_index(f, handle))
                places.append((stored.buffer, position))
                accs.append(scalar.load(stored.buffer, position, handle.dtype))
            values = f.fold.combine(tuple(accs), self._values_at(f, list(group.vars)))
            body += [Store(b, p, v) for (b, p), v in zip(places, values, strict=True)]
        for k in reversed(range(len(group.shape))):
            inner = k == len(group.shape) - 1
            body = [Loop(group.vars[k], scalar.size(group.shape[k]), body, vector=inner)]
        self._nest(body, [])


def substitute_many(exprs: list[Expr], old: list[Expr], new: list[Expr]) -> list[Expr]:
    for a, b in zip(old, new, strict=True):
        exprs = substitute(exprs, a, b)
    return exprs


__all__ = ["FoldMember", "Folding", "Group", "Member", "Nests"]
