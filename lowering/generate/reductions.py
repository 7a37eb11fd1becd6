"""The nests of groups in which something is reduced, and where the accumulators are.

Source: reduction recognition, Allen & Kennedy 2001, ch. 5; unroll-and-jam and scalar replacement, ch. 8.
Few results have accumulators in registers (`accumulators.py`); results along the last axis in vectors of
registers, or in memory, to which a few rows at a time are added; a reduced last axis has one in a
register for each row. Few terms are written out.
"""

from collections.abc import Callable, Sequence
from math import prod

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import affine, traversal
from fnx.lowering.ir.expressions import nodes, replacing
from fnx.lowering.ir.kernel import Buffer, Fill, Let, Loop, LoopKind, Ref, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize

from .accumulators import Accumulators
from .fusion_groups import Reduction
from .values import Materialized, NeedsFlush, Value


class ReductionNests(Accumulators):
    """Emits the nest of a closed group with reductions."""

    outer_kept = False  # whether the outermost loop is over an axis that is not reduced

    def _emit(self) -> None:
        group = self.group
        axes = group.axes or ()
        kept = [k for k in range(len(group.shape)) if k not in axes]
        results = prod(group.shape[k] for k in kept)
        inner = self._contiguous() if len(axes) < len(group.shape) else None
        if self.builder.target.results_apart:
            apart = self._fold_registers if results <= policy.SMALL else self._fold_rows
            apart(kept, list(axes))
        elif results <= policy.SMALL:
            side_by_side = kept == [len(group.shape) - 1] or kept == [inner] and self._moves(inner)
            if side_by_side and results >= policy.FEW_LANES:
                self._fold_lanes(kept[0])
            else:
                self._fold_registers(kept, list(axes))
        elif inner in axes and (len(axes) == 1 or self._reassociates()):
            self._fold_rows(kept, sorted(axes, key=lambda k: (k == inner, k)))
        elif inner in kept and self._lanes() <= group.shape[inner] and self._moves(inner):
            self._fold_across(inner, kept, list(axes))
        elif self._is_short(axes):
            self._written_out(kept, list(axes))
        elif not axes or axes[-1] == len(group.shape) - 1:
            self._fold_rows(kept, list(axes))
        else:
            self._accumulated_in_memory()

    def _contiguous(self) -> int | None:
        """The axis along which what is read lies side by side, where it does not along the last."""
        group = self.group
        values = [e for f in group.reductions for e in self._values_at(f, list(group.vars))]
        values += [m.expr for m in self.stores]
        loads = [e for e in nodes(values) if e.op == "load"]
        places = [e.args[0] for e in loads]
        axis = affine.contiguous(places, list(group.vars), group.shape)
        far = [e for e in loads if e.attr.size >= self.builder.machine.far_read]
        if axis is None or not far:
            return None
        # What is stored on the way usually lies side by side along the last axis.
        along = _numbers_along(far, group.vars[-1]) + len(self.stores) * prod(group.shape)
        return axis if _numbers_along(far, group.vars[axis]) >= along else None

    def _moves(self, axis: int) -> bool:
        """Whether all can be computed at other points too: not if a value has joined since that a
        member reads elsewhere.
        """
        group = self.group
        point = list(group.vars)
        point[axis] = scalar.var("int64", "l")
        group.allow(point)
        try:
            for f in group.reductions:
                self._values_at(f, point)
            for m in self.stores:
                m.fn(*group.index(m.shape, point, m.at))
        except NeedsFlush:
            return False
        return True

    def _lanes(self) -> int:
        """Accumulators of a vector."""
        return self.builder.machine.vector // max(
            itemsize(h.dtype) for f in self.group.reductions for h in f.results
        )

    def _is_short(self, axes: tuple[int, ...]) -> bool:
        """Whether to write the terms out: where they lie side by side, vectors only of very few."""
        shape = self.group.shape
        if prod(shape[k] for k in axes) > policy.UNROLLED_ROW:
            return False
        return len(shape) - 1 not in axes or shape[-1] <= policy.INTERLEAVED

    def _fill(self, result: Value, value: Expr) -> None:
        stored = result.destination or self.builder.new_stored(result)
        self.builder.emit(Fill(Ref(stored.buffer, stored.base), scalar.size(result.size), value))
        result.state = stored

    def _points(self, axes: list[int]) -> list[list[Expr]]:
        """The indices of the group with numbers along some axes, all combinations of them."""
        points: list[list[Expr]] = [list(self.group.vars)]
        for k in axes:
            sizes = [scalar.size(j) for j in range(self.group.shape[k])]
            points = [[*p[:k], j, *p[k + 1 :]] for p in points for j in sizes]
        for p in points:
            self.group.allow(p)
        return points

    def _fold_registers(self, kept: list[int], axes: list[int]) -> None:
        """Few results: one accumulator each in registers, loops over the reduced axes."""
        group = self.group
        points = self._points(kept)
        stores = [self._store(m, p) for m in self.stores for p in points]
        accs, init, nexts = [], [], []
        for f in group.reductions:
            for p in points:
                acc = tuple(scalar.var(e.dtype, "a") for e in f.recipe.init)
                accs += acc
                init += f.recipe.init
                nexts += f.recipe.combine(acc, self._values_at(f, p))
        dims = [(group.vars[k], group.shape[k]) for k in axes]
        if not kept and len(dims) > 1:
            dims, stores, nexts = self._collapse_reduction(dims, stores, nexts)
        by_strips = self._by_strips(dims, stores, accs, init, nexts, len(points))
        if by_strips is not None:
            loops, values = by_strips
            self._finish(loops, accs, len(points), values)
            return
        if self._is_shared_out(dims):
            loops = self._shared_out(dims, list(stores), accs, init, nexts, len(points))
        else:
            loops = self._fold_loops(dims, list(stores), accs, init, nexts, self._reassociates())
        self._finish(loops, accs, len(points))

    def _fold_lanes(self, axis: int) -> None:
        """Few results along an axis: accumulators side by side on the stack, as vectors."""
        group, builder = self.group, self.builder
        for f in group.reductions:
            for value in f.results:
                value.state = value.destination or builder.new_stored(value)
        whole, lanes = list(group.vars), group.shape[axis]
        pieces = [
            self._lane_piece(n, lambda lane, lo=lo: _with(whole, axis, _plus(lane, lo)))
            for lo, n in _powers(lanes, self._lanes())
        ]
        rows: list[Stmt] = [stmt for _, body, _ in pieces for stmt in body]
        for var, n in reversed(_without(list(zip(whole, group.shape, strict=True)), axis)):
            rows = [Loop(var, scalar.size(n), rows)]
        before, after = ([s for p in pieces for s in p[k]] for k in (0, 2))
        self._nest([*before, *rows, *after], [])
        for f in group.reductions:
            for value in f.results:
                builder.load_registers(value)

    def _fold_across(self, axis: int, kept: list[int], axes: list[int]) -> None:
        """What is read lies side by side along an axis that is kept: vectors of accumulators along it."""
        group, builder = self.group, self.builder
        for f in group.reductions:
            for value in f.results:
                value.state = value.destination or builder.new_stored(value)
        n, lanes = group.shape[axis], self._lanes()
        vectors = min(self.builder.machine.side_by_side, n // lanes)
        width = vectors * lanes
        number = scalar.counter("t", -(-n // width))
        start = scalar.mul(number, scalar.const(width, "int64"))
        start = scalar.apply("min", start, scalar.size(n - width))  # the last ones overlap

        def at(low: int) -> Callable[[Expr], list[Expr]]:
            return lambda lane: _with(group.vars, axis, scalar.add(start, _plus(lane, low)))

        pieces = [self._lane_piece(lanes, at(v * lanes)) for v in range(vectors)]
        rows: list[Stmt] = [stmt for _, body, _ in pieces for stmt in body]
        for k in reversed(axes):
            rows = [Loop(group.vars[k], scalar.size(group.shape[k]), rows)]
        before, after = ([s for p in pieces for s in p[k]] for k in (0, 2))
        block: list[Stmt] = [Loop(number, scalar.size(-(-n // width)), [*before, *rows, *after])]
        for k in reversed([k for k in kept if k != axis]):
            block = [Loop(group.vars[k], scalar.size(group.shape[k]), block)]
        self.outer_kept = True
        self._nest(block, [])

    def _rows_apart(self) -> bool:
        return self.outer_kept or super()._rows_apart()

    def _lane_piece(
        self, lanes: int, at: Callable[[Expr], list[Expr]]
    ) -> tuple[list[Stmt], list[Stmt], list[Stmt]]:
        """One vector: how its accumulators begin, what each row adds, where they go."""
        group = self.group
        lane = scalar.counter("l", lanes)
        point = at(lane)
        group.allow(point)
        before: list[Stmt] = []
        body: list[Stmt] = [self._store(m, point) for m in self.stores]
        after: list[Stmt] = []
        for f in group.reductions:
            accs = [self.builder.new_stack(h.dtype, lanes) for h in f.results]
            old = tuple(scalar.load(a, lane, a.dtype) for a in accs)
            values = f.recipe.combine(old, self._values_at(f, point))
            before += [Store(a, lane, e) for a, e in zip(accs, f.recipe.init, strict=True)]
            body += _all_at_once([(a, lane) for a in accs], values)
            for value, e in zip(f.results, old, strict=True):
                index = self._kept_index(f, value, point)
                position = value.state.position(value.shape, index)
                after.append(Store(value.state.buffer, position, e))

        def loop(stmts: list[Stmt]) -> list[Stmt]:
            # Unrolled before the vectoriser comes, it would not become a vector.
            return [
                Loop(
                    lane, scalar.const(lanes, "int64"), stmts, kind=LoopKind.VECTORIZED, rolled=True
                )
            ]

        return loop(before), loop(body), loop(after)

    def _written_out(self, kept: list[int], axes: list[int]) -> None:
        """Few terms: they are written out, in a loop over the results."""
        group = self.group
        points = self._points(axes)
        body: list[Stmt] = [self._store(m, p) for m in self.stores for p in points]
        for f in group.reductions:
            accs = f.recipe.init
            for p in points:
                accs = f.recipe.combine(accs, self._values_at(f, p))
            for result, value in zip(f.results, accs, strict=True):
                stored = result.destination or self.builder.new_stored(result)
                result.state = stored
                position = stored.position(result.shape, self._kept_index(f, result))
                body.append(Store(stored.buffer, position, value))
        self._nest(self._loops([(group.vars[k], group.shape[k]) for k in kept], body), [])

    def _fold_rows(self, kept: list[int], axes: list[int]) -> None:
        """The last axis is reduced: an accumulator in a register for each row."""
        group = self.group
        body: list[Stmt] = [self._store(m) for m in self.stores]
        accs, init, nexts, after = [], [], [], []
        for f in group.reductions:
            acc = tuple(scalar.var(e.dtype, "a") for e in f.recipe.init)
            accs += acc
            init += f.recipe.init
            nexts += f.recipe.combine(acc, self._values_at(f, list(group.vars)))
            for value, a in zip(f.results, acc, strict=True):
                stored = value.destination or self.builder.new_stored(value)
                value.state = stored
                position = stored.position(value.shape, self._kept_index(f, value))
                after.append(Store(stored.buffer, position, a))
        dims = [(group.vars[k], group.shape[k]) for k in axes]
        row = [*self._fold_loops(dims, body, accs, init, nexts, self._reassociates()), *after]
        for k in reversed(kept):
            row = [Loop(group.vars[k], scalar.size(group.shape[k]), row)]
        self.outer_kept = True
        self._nest(row, [])

    def _kept_index(
        self, f: Reduction, value: Value, values: list[Expr] | None = None
    ) -> tuple[Expr, ...]:
        full = self.group.index(f.recipe.shape, values)
        index = tuple(i for k, i in enumerate(full) if k not in f.recipe.axes)
        assert len(index) == len(value.shape)
        return index

    def _accumulated_in_memory(self) -> None:
        """The last axis is kept: accumulators in memory, to which a few rows at a time are added."""
        group = self.group
        for f in group.reductions:
            for result, value in zip(f.results, f.recipe.init, strict=True):
                self._fill(result, value)
        n, axis = group.shape[-1], max(group.axes or ())
        # Unrolled before the vectoriser comes, a short row would be elements far apart.
        whole = self._lanes() // 2 <= n <= policy.SMALL

        def inner(rows: list[Expr]) -> list[Stmt]:
            lane = scalar.counter("i", n)
            body = self._added(axis, rows, lane)
            body = [Loop(lane, scalar.size(n), body, kind=LoopKind.VECTORIZED, rolled=bool(whole))]
            for k in reversed(range(axis + 1, len(group.shape) - 1)):
                body = [Loop(group.vars[k], scalar.size(group.shape[k]), body)]
            return body

        loops = self._few_at_once(axis, inner)
        for k in reversed(range(axis)):
            loops = [Loop(group.vars[k], scalar.size(group.shape[k]), loops)]
        self._nest(loops, [])

    def _few_at_once(self, axis: int, inner: Callable[[list[Expr]], list[Stmt]]) -> list[Stmt]:
        """Loops over rows, of which each iteration adds a few to the accumulators it has loaded."""
        group, few = self.group, self.builder.machine.rows_at_once
        rows = group.shape[axis]
        values = [e for f in group.reductions for e in self._values_at(f, list(group.vars))]
        values += [m.expr for m in self.stores]
        heavy = few * sum(1 for _ in nodes(values)) > policy.HEAVY_ROWS
        if rows < 2 * few or group.shape[-1] < policy.WIDE_ROW or heavy:
            return [Loop(group.vars[axis], scalar.size(rows), inner([group.vars[axis]]))]
        # What depends on how many rows there are is computed as the loops begin: code is shared by sizes.
        size, number, tail = (scalar.counter("i", n) for n in (rows + 1, rows // few, few))
        count, left = scalar.divmod_size(size, few)
        whole = scalar.mul(count, scalar.const(few, "int64"))
        first = scalar.mul(number, scalar.const(few, "int64"))
        return [
            Let([size], [scalar.size(rows)]),
            Loop(number, count, inner([_plus(first, k) for k in range(few)])),
            Loop(tail, left, inner([scalar.add(whole, tail)])),
        ]

    def _added(self, axis: int, rows: list[Expr], lane: Expr) -> list[Stmt]:
        """What is stored at some rows, and added to the accumulators row after row."""
        group = self.group
        new = [replacing({group.vars[axis]: row, group.vars[-1]: lane}) for row in rows]
        stores = [self._store(m) for m in self.stores]
        body = [traversal.rewritten(s, at) for at in new for s in stores]
        for f in group.reductions:
            places = []
            for value in f.results:
                stored = value.state
                assert isinstance(stored, Materialized)
                position = stored.position(value.shape, self._kept_index(f, value))
                places.append((stored.buffer, new[0](position)))
            values = tuple(scalar.load(b, i, b.dtype) for b, i in places)
            terms = self._values_at(f, list(group.vars))
            for at in new:
                values = f.recipe.combine(values, tuple(at(e) for e in terms))
            body += _all_at_once(places, values)
        return body


def _numbers_along(loads: list[Expr], axis: Expr) -> int:
    """How many numbers lie in arrays that are read contiguously along an axis."""
    return sum({e.attr: e.attr.size for e in loads if affine.is_along(e.args[0], axis)}.values())


def _all_at_once(places: list[tuple[Buffer, Expr]], values: Sequence[Expr]) -> list[Stmt]:
    """Stores of values that may read what the others overwrite."""
    before: list[Stmt] = []
    if len(places) > 1:
        names = [scalar.var(v.dtype) for v in values]
        before, values = [Let(names, list(values))], names
    return [*before, *(Store(b, p, v) for (b, p), v in zip(places, values, strict=True))]


def _with(values: Sequence[Expr], k: int, value: Expr) -> list[Expr]:
    return [*values[:k], value, *values[k + 1 :]]


def _without(values: list, k: int) -> list:
    return [*values[:k], *values[k + 1 :]]


def _plus(lane: Expr, low: int) -> Expr:
    return scalar.add(lane, scalar.const(low, "int64")) if low else lane


def _powers(n: int, most: int) -> list[tuple[int, int]]:
    """Parts of [0, n), as (start, length), whose lengths are powers of two up to `most`."""
    found, low = [], 0
    while low < n:
        length = most
        while length > n - low:
            length //= 2
        found.append((low, length))
        low += length
    return found
