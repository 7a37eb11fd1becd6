"""Loop nests of closed fusion groups: one point after another, by regions, by tiles, or written out."""

from math import prod
from typing import Any

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate import boundary_regions, buffer_reuse
from fnx.lowering.generate.fusion_groups import Group, Member
from fnx.lowering.generate.values import Fused, NeedsFlush, Shape, values_at_rest
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import depends_on, replacing
from fnx.lowering.ir.kernel import Loop, LoopKind, Stmt, Store


class Nests:
    """Emits the nest of a closed group through a builder (which gives buffers and takes statements)."""

    def __init__(self, builder: Any, group: Group, stores: list[Member]):
        self.builder, self.group, self.stores = builder, group, stores

    def emit(self) -> None:
        self._emit()
        self.group.open = False
        self._settle()

    def _emit(self) -> None:
        if self.stores:
            self._points()

    def _settle(self) -> None:
        for m in self.group.members:
            if m.value is None or not isinstance(m.value.state, Fused):
                continue
            # Members that nobody outside reads stay as they are: they are dead.
            if m.value.destination is not None:
                m.value.state = m.value.destination

    # A store of a member at a point: where to, and what.
    def _store(self, m: Member, values: list[Expr] | None = None) -> Store:
        index = self.group.index(m.shape, values, m.at)
        expr = m.expr if values is None else m.fn(*index)
        if m.destination is not None:
            buffer, position = m.destination(*index)
            return Store(buffer, position, expr)
        assert m.value is not None
        if m.value.destination is None:
            m.value.destination = self.builder.new_stored(m.value)
        destination = m.value.destination
        return Store(destination.buffer, destination.position(m.shape, index), expr)

    @values_at_rest()
    def _stores_at(self, values: list[Expr]) -> list[Store]:
        return [self._store(m, values) for m in self.stores]

    def _points(self) -> None:
        group = self.group
        if 0 in group.shape:
            for m in self.stores:  # nothing to compute, but a place to point at
                self._store(m, [scalar.size(0)] * len(group.shape))
            return
        reused = buffer_reuse.choose(self.builder, group, self.stores)
        if group.regional and self._by_regions(reused):
            return
        stores = [self._store(m) for m in self.stores]
        dims = list(zip(group.vars, group.shape, strict=True))
        flat, rows = self._collapse(stores), False
        if flat is not None:
            dims, stores = flat
        elif self.builder.target.rows_are_vectors(stores, group.vars, group.shape):
            rows = True
        elif self._wants_unroll():
            dims, stores = self._unroll() or (dims, stores)
        else:
            tiled = None
            if not reused:
                tiled = self.builder.target.tiled(
                    self.builder, dims, stores, group.vars, group.shape
                )
            if tiled is not None:
                self._nest(tiled, [], plain=self._loops(dims, list(stores)))
                return
        first = reused or buffer_reuse.read_later(stores)
        body = buffer_reuse.read_first(stores) if first else list(stores)
        # Unrolled before the vectoriser comes, a short row would be elements far apart.
        self._nest(self._loops(dims, body, rolled=rows), [])

    def _by_regions(self, reused: bool) -> bool:
        """Cut where members choose by index: inside no choice is left, and around lie thin slabs."""
        group = self.group
        found = boundary_regions.regions([m.expr for m in self.stores], group.vars, group.shape)
        made = []
        for row in boundary_regions.rows(found):
            low, high = row[0]
            outer, dims = self._region(low[:-1], high[:-1])
            parts = []
            for low, high in row:
                last, inner = self._region(low[-1:], high[-1:])
                values = [*outer, *last]
                self.group.allow(values)
                try:
                    parts.append((inner, self._stores_at(values)))
                except NeedsFlush:
                    return False  # a value has joined since that a member reads elsewhere
            made.append((dims, parts))
        for dims, parts in made:
            self._nest(self._side_by_side(dims, parts, reused), [])
        return bool(made)

    def _region(self, low: Shape, high: Shape) -> tuple[list[Expr], list[tuple[Expr, int]]]:
        """The index in a box, and the loops over it."""
        values, dims = [], []
        for lo, hi in zip(low, high, strict=True):
            values.append(scalar.size(lo))
            if hi - lo > 1:
                dims.append((scalar.counter("i", hi - lo), hi - lo))
                values[-1] = scalar.add(dims[-1][0], values[-1])
        return values, dims

    def _side_by_side(self, dims: list, parts: list, reused: bool) -> list[Stmt]:
        """Loops over boxes that differ along the last axis only: what is to be done in a row, in order."""
        body: list[Stmt] = []
        for inner, stores in parts:
            first = reused or buffer_reuse.read_later(stores)
            part = buffer_reuse.read_first(stores) if first else list(stores)
            if len(parts) == 1:
                return self._loops([*dims, *inner], part)
            body += self._loops(inner, part)
        for index, n in reversed(dims):
            body = [Loop(index, scalar.size(n), body)]
        return body

    def _collapse(self, stores: list[Store]) -> tuple[list, list[Store]] | None:
        """One loop over all elements, where everything is read and stored at the same position."""
        group = self.group
        if len(group.shape) < 2:
            return None
        position = scalar.linear_index(tuple(group.vars), group.shape)
        exprs = [e for s in stores for e in (s.index, s.value)]
        if depends_on(exprs, group.vars, stop=position):
            return None
        flat = scalar.var("int64", "i")
        new = replacing({position: flat})
        return [(flat, prod(group.shape))], [traversal.rewritten(s, new) for s in stores]

    def _wants_unroll(self) -> bool:
        """Whether the last axis is short and its index decides something (pieces of a stack)."""
        return bool(self.group.shape) and self.group.shape[-1] <= policy.UNROLLED_AXIS

    def _unroll(self) -> tuple[list, list[Store]] | None:
        """The last axis written out; None if a value has joined since that a member reads elsewhere."""
        group = self.group
        outer = group.vars[:-1]
        points = [[*outer, scalar.size(k)] for k in range(group.shape[-1])]
        for p in points:
            group.allow(p)
        try:
            with values_at_rest():
                stores = [self._store(m, p) for m in self.stores for p in points]
        except NeedsFlush:
            return None
        return list(zip(outer, group.shape[:-1], strict=True)), stores

    def _loops(
        self, dims: list[tuple[Expr, int]], body: list[Stmt], rolled: bool = False
    ) -> list[Stmt]:
        """Loops around a body, the last axis innermost."""
        inner = True
        for var, n in reversed(dims):
            kind = LoopKind.of(vectorized=inner)
            body = [Loop(var, scalar.size(n), body, kind=kind, rolled=rolled and inner)]
            inner = False
        return body

    def _nest(self, body: list[Stmt], results: list[Expr], plain: list[Stmt] | None = None) -> None:
        group = self.group
        if group.nodes:
            body = _with_known_strides(body)
        names = list(dict.fromkeys(m.name for m in [*self.stores, *group.reductions])) or ["nest"]
        work = traversal.work(body)
        first = body[0] if body else None
        if work >= self.builder.machine.nest_work and not results and len(body) == 1:
            if isinstance(first, Loop) and not first.carries:
                first.kind = first.kind.shared(not group.reductions or self._rows_apart())
        self.builder.emit_nest(names, body, results, self._note(names), plain)

    def _weight(self) -> int:
        return 1 + len(self.group.members) + len(self.group.reductions)

    def _rows_apart(self) -> bool:
        return self.group.axes is not None and 0 not in self.group.axes

    def _note(self, names: list[str]) -> str:
        members = [m.name for m in {id(m.value): m for m in self.group.members}.values()]
        return (
            f"{list(self.group.shape)} {' '.join(members + [n for n in names if n not in members])}"
        )


def _with_known_strides(body: list[Stmt]) -> list[Stmt]:
    """A nest of small problems in which the vectoriser knows how far elements and problems are apart.

    Other sizes are parameters, and code is shared by all of them. How large a problem is, decides
    over the code anyway.
    """
    found = {}
    for e in traversal.nodes(body):
        if e.op == "size" and policy.SMALL < e.attr <= policy.PROBLEM:
            found[e] = scalar.const(e.attr, "int64")
    anew = replacing(found)
    return [traversal.rewritten(s, anew) for s in body]
