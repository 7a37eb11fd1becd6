"""Groups: values over one iteration space that share a loop nest, and the nests made of them.

A group is open while values of its shape may still join. A member may read other members at its
own index, where they are in registers; whoever reads a member otherwise closes the group first.
Closing it emits one nest, in which only those members are stored that somebody outside needs.
"""

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

from fnx.core import scalar
from fnx.core.recipe import Fold
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import depends_on, nodes, replacing
from fnx.lowering.ir.kernel import Loop, Stmt, Store

from . import boundary_regions, buffer_reuse, fusion_policy
from .values import Handle, NeedsFlush, Pending, Shape


def squeezed(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def places(shape: Shape) -> list[tuple[Expr | None, ...]]:
    """The elements of one lane: their numbers along short axes, None along long ones."""
    found: list[tuple] = [()]
    for n in shape:
        along = [None] if n > fusion_policy.SMALL else [scalar.size(k) for k in range(n)]
        found = [(*at, i) for at in found for i in along]
    return found


class Member:
    """A value of the group: its handle, and how an element is computed and where it is stored."""

    __slots__ = ("at", "expr", "fn", "handle", "name", "number", "shape", "target")

    def __init__(
        self,
        shape: Shape,
        fn: Callable[..., Expr],
        handle: Handle | None,
        number: int,
        name: str,
        target: Callable[..., tuple[Any, Expr]] | None = None,
        at: tuple[Expr | None, ...] | None = None,
    ):
        self.shape, self.fn, self.handle, self.number = shape, fn, handle, number
        self.name, self.target = name, target
        self.at = at  # the index along axes that the group has not, of one element of a lane
        self.expr: Expr


class FoldMember:
    """A reduction of the group: its recipe and the handles of its results."""

    __slots__ = ("fold", "handles", "name")

    def __init__(self, fold: Fold, handles: list[Handle], name: str):
        self.fold, self.handles, self.name = fold, handles, name

    def is_stored(self) -> bool:
        """Whether its results, though accumulated in registers, are too many to be handed on in them."""
        return False

    def stores(self, builder: Any, results: list[list[Expr]]) -> list[Stmt]:
        """What its nest ends with if they are stored."""
        return []

    def settle(self, builder: Any, results: list[list[Expr]]) -> None:
        """Its results are in registers: for each element one of each handle."""
        for k, handle in enumerate(self.handles):
            builder.settle_registers(handle, [r[k] for r in results])


class Group:
    """One iteration space, its index variables, and what is computed at each point.

    At a point of lanes may be several elements of a value, which has more axes: short ones.
    """

    def __init__(self, shape: Shape):
        self.shape = squeezed(shape)
        self.vars = [scalar.counter("i", n) for n in self.shape]
        self.members: list[Member] = []
        self.folds: list[FoldMember] = []
        self.axes: tuple[int, ...] | None = None  # of the folds, in the squeezed shape
        self.points: set[tuple[int, ...]] = set()  # ids of indices besides the plain one
        self.open = True
        self.nodes: set[Expr] = set()  # of what is computed lane by lane
        self.others: set[Expr] = set()  # of what is computed point by point
        self.regional = False  # whether members choose by index near their edges

    def index(
        self,
        shape: Shape,
        values: list[Expr] | None = None,
        at: tuple[Expr | None, ...] | None = None,
    ) -> tuple[Expr, ...]:
        """The index of an array of `shape` at the group's point; `at`: along axes it has not."""
        rest = iter(self.vars if values is None else values)
        if at is not None:
            return tuple(next(rest) if i is None else i for i in at)
        zero = scalar.size(0)
        return tuple(zero if n == 1 else next(rest) for n in shape)

    def indices(self, shape: Shape) -> list[tuple[Expr, ...]]:
        """The indices of all elements of an array of `shape` at the group's point."""
        if squeezed(shape) == self.shape:
            return [self.index(shape)]
        return [self.index(shape, at=at) for at in places(shape)]

    def covers(self, shape: Shape, index: tuple[Expr, ...]) -> bool:
        """Whether `index` is the group's own point."""
        if not self.open:
            return False
        pairs = list(zip(index, shape, strict=True))
        key = tuple(id(i) for i, n in pairs if n != 1)
        if self.nodes and any(n <= fusion_policy.SMALL for _, n in pairs):
            if all(i.op == "size" for i, n in pairs if n <= fusion_policy.SMALL):
                key = tuple(id(i) for i, n in pairs if n > fusion_policy.SMALL)
        return key == tuple(map(id, self.vars)) or key in self.points

    def allow(self, values: list[Expr]) -> None:
        self.points.add(tuple(map(id, values)))

    def add_element(
        self, handle: Handle, fn: Callable[..., Expr], expr: Expr, number: int, name: str, at: Any
    ) -> None:
        """One more element of a lane."""
        member = Member(handle.shape, fn, handle, number, name, at=at)
        member.expr = expr
        self.members.append(member)
        self.nodes.update(nodes([expr], self.nodes))

    def note(self, exprs: Iterable[Expr]) -> None:
        """Count what a point computes, too; or a lane, which counts what it has in common once."""
        counted = self.nodes or self.others
        counted.update(nodes(exprs, counted))

    def totals(self) -> bool:
        """Whether all that is reduced is reduced to single numbers, part by part if need be."""
        return self.axes is None or len(self.axes) == len(self.shape)

    def is_full(self) -> bool:
        """Whether a point or a lane has so many operations that what follows is better done apart."""
        return (
            len(self.nodes) > fusion_policy.LANE_NODES
            or len(self.others) > fusion_policy.NEST_NODES
        )


# --- nests -------------------------------------------------------------------------------------


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
            if m.handle is None or not isinstance(m.handle.state, Pending):
                continue
            # Members that nobody outside reads stay as they are: they are dead.
            if m.handle.target is not None:
                m.handle.state = m.handle.target

    # A store of a member at a point: where to, and what.
    def _store(self, m: Member, values: list[Expr] | None = None) -> Store:
        index = self.group.index(m.shape, values, m.at)
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
            tiled = None if reused else self.builder.target.tiled(self.builder, dims, stores)
            if tiled is not None:
                self._nest(tiled, [], plain=self._loops(dims, list(stores)))
                return
        first = reused or buffer_reuse.read_later(stores)
        body = buffer_reuse.read_first(stores) if first else list(stores)
        # Unrolled before the vectoriser comes, a short row would be elements far apart.
        self._nest(self._loops(dims, body, unroll=int(rows)), [])

    def _by_regions(self, reused: bool) -> bool:
        """Cut where members choose by index: inside no choice is left, and around lie thin slabs."""
        group = self.group
        found = boundary_regions.regions([m.expr for m in self.stores], group.vars, group.shape)
        made = []
        for low, high in found:
            values, dims = self._region(low, high)
            try:
                made.append((dims, [self._store(m, values) for m in self.stores]))
            except NeedsFlush:
                return False  # a value has joined since that a member reads elsewhere
        for dims, stores in made:
            first = reused or buffer_reuse.read_later(stores)
            body = buffer_reuse.read_first(stores) if first else list(stores)
            self._nest(self._loops(dims, body), [])
        return bool(made)

    def _region(self, low: Shape, high: Shape) -> tuple[list[Expr], list[tuple[Expr, int]]]:
        """The group's point in a box, and the loops over it."""
        values, dims = [], []
        for lo, hi in zip(low, high, strict=True):
            values.append(scalar.size(lo))
            if hi - lo > 1:
                dims.append((scalar.counter("i", hi - lo), hi - lo))
                values[-1] = scalar.add(dims[-1][0], values[-1])
        self.group.allow(values)
        return values, dims

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
        return bool(self.group.shape) and self.group.shape[-1] <= fusion_policy.UNROLLED_AXIS

    def _unroll(self) -> tuple[list, list[Store]] | None:
        """The last axis written out; None if a value has joined since that a member reads elsewhere."""
        group = self.group
        outer = group.vars[:-1]
        points = [[*outer, scalar.size(k)] for k in range(group.shape[-1])]
        for p in points:
            group.allow(p)
        try:
            stores = [self._store(m, p) for m in self.stores for p in points]
        except NeedsFlush:
            return None
        return list(zip(outer, group.shape[:-1], strict=True)), stores

    def _loops(self, dims: list[tuple[Expr, int]], body: list[Stmt], unroll: int = 0) -> list[Stmt]:
        """Loops around a body, the last axis innermost."""
        inner = True
        for var, n in reversed(dims):
            body = [Loop(var, scalar.size(n), body, vector=inner, unroll=unroll * inner)]
            inner = False
        return body

    def _nest(self, body: list[Stmt], results: list[Expr], plain: list[Stmt] | None = None) -> None:
        group = self.group
        if group.nodes:
            body = _with_known_strides(body)
        names = list(dict.fromkeys(m.name for m in [*self.stores, *group.folds])) or ["nest"]
        work = traversal.work(body)
        first = body[0] if body else None
        if work >= fusion_policy.NEST_WORK and not results and len(body) == 1:
            if isinstance(first, Loop) and not first.carries:
                first.parallel = not group.folds or self._rows_apart()
        self.builder.emit_nest(names, body, results, self.note(names), plain)

    def _weight(self) -> int:
        return 1 + len(self.group.members) + len(self.group.folds)

    def _rows_apart(self) -> bool:
        return self.group.axes is not None and 0 not in self.group.axes

    def note(self, names: list[str]) -> str:
        members = [m.name for m in {id(m.handle): m for m in self.group.members}.values()]
        return (
            f"{list(self.group.shape)} {' '.join(members + [n for n in names if n not in members])}"
        )


def _with_known_strides(body: list[Stmt]) -> list[Stmt]:
    """A nest of lanes in which the vectoriser knows how far elements and lanes are apart.

    Other sizes are parameters, and code is shared by all of them. How large a problem is, decides
    over the code anyway.
    """
    found = {}
    for e in traversal.nodes(body):
        if e.op == "size" and fusion_policy.SMALL < e.attr <= fusion_policy.PROBLEM:
            found[e] = scalar.const(e.attr, "int64")
    anew = replacing(found)
    return [traversal.rewritten(s, anew) for s in body]
