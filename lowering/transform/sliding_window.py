"""Sliding windows with storage folding: loops over the layers of a grid become one.

Where one loop makes layers (rows, planes) of an array and the next ones read a few neighbouring layers
of it, as stencils do, all of them can go over the layers together: one that reads ahead follows some
iterations behind. Then of an array that nobody else reads there need be no more than these few layers,
a ring of them, which stays in the nearest cache. What touches the first or the last layer alone waits
for the iteration in which that is there.

Source: sliding window and storage folding of Halide (Ragan-Kelley et al. 2013); loop shifting, Allen &
Kennedy 2001, ch. 6.
Input: the loops of a block over the same layers.
Output: one loop; positions modulo the size of a window.
Legal when: which layers each statement touches is known, and dependences have constant distances.
Pays when: windows replace `window_gain` bytes of arrays that are handed on.
Costs: each statement asks whether the iteration is one of its own.
"""

from collections.abc import Callable, Iterator
from itertools import permutations
from math import gcd

from fnx.core import policy, scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import replacing
from fnx.lowering.ir.kernel import Buffer, If, Let, Loop, Nest, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.transform import array_contraction
from fnx.lowering.transform.statements import Statements

from . import loop_fusion


def roll(builder: Statements) -> None:
    """Join loops over layers in the nests of a program where that saves memory."""
    uses = loop_fusion.uses(builder.block)
    for stmt in traversal.statements(builder.block):
        if isinstance(stmt, Nest):
            roll_nest(builder, stmt, uses)


def roll_nest(builder: Statements, nest: Nest, uses: dict[Buffer, int]) -> bool:
    """Join loops over layers in a nest; whether there were some."""
    outer: list[Loop] = []
    body = nest.body
    while len(body) == 1 and isinstance(body[0], Loop) and loop_fusion.is_plain(body[0]):
        outer.append(body[0])
        body = body[0].body
    if (
        nest.results
        or any(x.kind.vectorized for x in outer)
        or sum(isinstance(s, Loop) for s in body) < 2
    ):
        return False
    layers = _Layers(builder, body, outer, uses)
    if not layers.fit():
        return False
    body[:] = [layers.loop()]
    head = f"kernel {nest.name}: "
    builder.notes = [
        n.replace(head, head + "windows, ", 1) if n.startswith(head) else n for n in builder.notes
    ]
    nest.note = f"windows, {nest.note}"
    return True


@dataclass(frozen=True)
class _Access:
    """Part of a layer; `layer` counts from that of a loop's iteration, or from the first one."""

    base: frozenset
    layer: int
    low: int  # where in the layer, at least
    high: int  # and at most
    writes: bool


class _Item:
    """A statement of the block: a loop over layers, or one that touches single layers."""

    def __init__(self, stmt: Stmt, loop: Loop | None = None):
        self.stmt, self.loop = stmt, loop
        self.found: dict[Buffer, list[_Access]] = {}
        self.behind = 0  # the iteration in which it begins

    @property
    def iterations(self) -> int:
        return traversal.extent(self.loop.extent) if self.loop else 1


class _Layers:
    """The statements of a block, by layers of the arrays that they hand to each other."""

    def __init__(
        self, builder: Statements, body: list[Stmt], outer: list[Loop], uses: dict[Buffer, int]
    ):
        self.builder, self.body, self.outer, self.uses = builder, body, outer, uses
        self.inside = dict.fromkeys(
            _defined(body)
        )  # what differs between iterations of the statements
        self.size: dict[Buffer, int] = {}  # from layer to layer
        self.items: list[_Item] = []
        self.kept: dict[Buffer, int] = {}  # layers of a window
        self.low: dict[Buffer, int] = {}  # where in a layer what an iteration touches begins,
        self.width: dict[Buffer, int] = {}  # and how many elements that is, in whole cache lines

    def fit(self) -> bool:
        """Whether the loops can go over layers together, and that saves memory."""
        if not all(isinstance(s, (Loop, Store)) for s in self.body):
            return False
        if not all(_is_known(s) for s in traversal.statements(self.body)):
            return False
        self._measure()
        if not self.size or min(self.size.values()) < policy.WINDOW_LAYER:
            return False
        self.items = [x for s in self.body for x in self._items(s)]
        work = [
            (traversal.work([i.stmt]), i.loop is not None and i.loop.kind.vectorized)
            for i in self.items
        ]
        if sum(w for w, vector in work if vector) * policy.WINDOW_SCALAR_PART > sum(
            w for w, _ in work
        ):
            return False
        if not all(map(self._place, self.items)):
            return False
        for b in self.size:
            if len({a.base for i in self.items for a in i.found.get(b, ())}) > 1:
                return False
        self._schedule()
        return self._windows()

    # --- layers

    def _measure(self) -> None:
        """How far layers are apart in the arrays that statements hand on."""
        touched = [set(traversal.buffers([s])) for s in self.body]
        for k, s in enumerate(self.body):
            for b in traversal.all_writes(s):
                if any(b in x for x in (*touched[:k], *touched[k + 1 :])):
                    self.size[b] = 0
        for s in self.body:
            if isinstance(s, Loop):
                for b, position, _ in _positions(s):
                    if b in self.size:
                        self.size[b] = max(self.size[b], _factor(s, position))

    def _items(self, s: Stmt) -> Iterator[_Item]:
        """A statement; where it touches single layers, each store of it by itself."""
        if not isinstance(s, Loop):
            yield _Item(s)
            return
        steps = [_factor(s, p) == self.size[b] for b, p, _ in _positions(s) if b in self.size]
        if any(steps) or not steps:
            yield _Item(s, s)
        else:
            yield from map(_Item, _apart(s))

    def _place(self, item: _Item) -> bool:
        """Find which layers a statement touches; False where that is not known."""
        loops = [s for s in traversal.statements([item.stmt]) if isinstance(s, Loop)]
        ranges = {s.index: traversal.extent(s.extent) for s in loops}
        for b, position, writes in _positions(item.stmt):
            if b not in self.size:
                continue
            size = self.size[b]
            found, low = dependence.terms(position)
            parts = dict(found)
            if item.loop is not None and parts.pop(item.loop.index, 0) != size:
                return False
            high = low
            for leaf in ranges.keys() & parts.keys():
                reach = parts.pop(leaf) * (ranges[leaf] - 1)
                low, high = low + min(reach, 0), high + max(reach, 0)
            if low // size != high // size:
                return False
            if any(leaf.op != "var" or leaf in self.inside for leaf in parts):
                return False
            layer, low = divmod(low, size)
            base = frozenset(parts.items())
            access = _Access(base, layer, low, high - layer * size, writes)
            known = item.found.setdefault(b, [])
            if access not in known:
                known.append(access)
        return True

    def _schedule(self) -> None:
        """Let each statement follow those before it whose layers it touches: how far behind."""
        for k, item in enumerate(self.items):
            for before in self.items[:k]:
                for b in item.found.keys() & before.found.keys():
                    for x in before.found[b]:
                        for y in item.found[b]:
                            never = item.loop is before.loop is None and x.layer != y.layer
                            if (x.writes or y.writes) and not never:
                                wait = before.behind - x.layer + y.layer
                                item.behind = max(item.behind, wait)

    # --- windows

    def _windows(self) -> bool:
        """Find of which arrays windows are kept; whether that is right, and worth while."""
        gain = total = 0
        for b in self.size:
            if b.space == "argument" or b.space == "global" and self.uses[b] > 1:
                continue
            accesses = [(i, a) for i in self.items for a in i.found.get(b, ())]
            if b.space == "global" and not self._is_apart(b, accesses):
                return False  # it lives within an iteration of the loops that there are
            at = [i.behind - a.layer for i, a in accesses]
            self.kept[b] = 1 << (max(at) - min(at)).bit_length()
            self.low[b] = min(a.low for _, a in accesses)
            line = self.builder.machine.line // itemsize(b.dtype)
            self.width[b] = -(-(max(a.high for _, a in accesses) + 1 - self.low[b]) // line) * line
            layer = self.width[b] * itemsize(b.dtype)
            if self.kept[b] * layer > self.builder.machine.window_bytes:
                return False
            total += self.kept[b] * layer
            gain += layer * max(i.iterations for i, _ in accesses)
        return self.is_worth(gain, total) and total <= self.builder.machine.windows_bytes

    def is_worth(self, gain: int, total: int) -> bool:
        """Whether windows of so many bytes, instead of arrays of so many, save enough."""
        return gain > max(self.builder.machine.window_gain, 2 * total)

    def _is_apart(self, b: Buffer, accesses: list[tuple[_Item, _Access]]) -> bool:
        """Whether other iterations of the loops around touch other elements."""
        factors = dict(accesses[0][1].base)
        layers = max(i.iterations + a.layer for i, a in accesses)
        steps = [(factors.get(x.index, 0), traversal.extent(x.extent)) for x in self.outer]
        span = max(a.high for _, a in accesses) - min(a.low for _, a in accesses)
        for step, n in sorted([*steps, (self.size[b], layers)]):
            if n > 1 and step <= span:
                return False
            span += step * (n - 1)
        return True

    # --- the loop

    def loop(self) -> Loop:
        """One loop in which all statements are, each in the iterations that have its layers."""
        iterations = max(item.behind + item.iterations for item in self.items)
        t = scalar.counter("t", iterations)
        windows = {}
        for b, layers in self.kept.items():  # their sizes are in the code: let it fit many grids
            room = 1 << (layers * self.width[b] - 1).bit_length()
            windows[b] = self.builder.new_stack(b.dtype, room)
        body: list[Stmt] = []
        for item in self.items:
            stmt = item.stmt
            for b in item.found.keys() & windows.keys():
                stmt = array_contraction.moved(stmt, b, windows[b], self._within(b, item.loop))
            inside = [stmt]
            if item.loop is not None:
                assert isinstance(stmt, Loop)
                layer = scalar.sub(t, scalar.size(item.behind))
                inside = [traversal.rewritten(s, replacing({stmt.index: layer})) for s in stmt.body]
            when = _when(t, item, iterations)
            body += inside if when.op == "const" else [If(when, inside, [])]
        return Loop(t, scalar.size(iterations), body)

    def _within(self, b: Buffer, loop: Loop | None) -> Callable[[Expr], Expr]:
        """Positions in a window instead of those in an array: layers take turns."""
        mask = scalar.const(self.kept[b] - 1, "int64")

        def at(position: Expr) -> Expr:
            found, number = dependence.terms(position)
            factors = dict(found)
            layer, rest = divmod(number, self.size[b])
            place, turn = scalar.size(rest - self.low[b]), scalar.size(layer)
            if loop is not None:
                turn = scalar.add(loop.index, turn)
                del factors[loop.index]
            for leaf in filter(factors.__contains__, self.inside):
                place = scalar.add(scalar.mul(leaf, scalar.size(factors[leaf])), place)
            turn = scalar.apply("and", turn, mask)
            return scalar.add(scalar.mul(turn, scalar.size(self.width[b])), place)

        return at


def _when(t: Expr, item: _Item, iterations: int) -> Expr:
    """Whether an iteration is one of a statement's own."""
    first, end = item.behind, item.behind + item.iterations
    if item.iterations == 1:
        return scalar.compare("eq", t, scalar.size(first))
    since = scalar.const(True, "bool")
    if first:
        since = scalar.compare("ge", t, scalar.size(first))
    if end < iterations:
        since = scalar.logical_and(since, scalar.compare("lt", t, scalar.size(end)))
    return since


def _is_known(s: Stmt) -> bool:
    if isinstance(s, Loop):
        number = s.extent.op in ("size", "const") and s.extent.attr > 0
        return number and not (s.carries or s.polled or s.reverse or s.kind.parallel)
    return type(s) in traversal.REWRITTEN


def _defined(body: list[Stmt]) -> Iterator[Expr]:
    for s in traversal.statements(body):
        yield from traversal.defined(s)
        if isinstance(s, Loop):
            yield s.index


def _factor(loop: Loop, position: Expr) -> int:
    """How far a loop's iterations are apart."""
    return dict(dependence.terms(position)[0]).get(loop.index, 0)


def _positions(s: Stmt) -> Iterator[tuple[Buffer, Expr, bool]]:
    """Where a statement touches memory, and whether it writes there."""
    for x in traversal.statements([s]):
        if isinstance(x, Store):
            yield x.buffer, x.index, True
    for e in traversal.nodes([s]):
        if e.op == "load":
            yield e.attr, e.args[0], False


def _apart(loop: Loop) -> list[Stmt]:
    """A loop for each store of a loop, where none meets what another one touches."""
    body: list[Stmt] = [loop]
    loops: list[Loop] = []
    while len(body) == 1 and isinstance(body[0], Loop):
        loops.append(body[0])
        body = body[0].body
    parts = [_needed(body, s) for s in body if isinstance(s, Store)]
    if not all(isinstance(s, (Store, Let)) for s in body):
        return [loop]
    ranges = {x.index: traversal.extent(x.extent) for x in loops}
    touched = [[(b, at) for s in part for b, at, _ in _positions(s)] for part in parts]
    for a, b in permutations(range(len(parts)), 2):
        store = parts[a][-1]
        assert isinstance(store, Store)
        if any(x is store.buffer and _meet(at, store.index, ranges) for x, at in touched[b]):
            return [loop]
    return [_around(loops, part) for part in parts]


def _needed(body: list[Stmt], store: Store) -> list[Stmt]:
    """A store of a block, after what it needs of the block's variables."""
    found: list[Stmt] = [store]
    for s in reversed(body[: body.index(store)]):
        if isinstance(s, Let):
            known = {e for e in traversal.nodes(found) if e.op == "var"}
            pairs = [(v, e) for v, e in zip(s.variables, s.values, strict=True) if v in known]
            if pairs:
                found.insert(0, Let([v for v, _ in pairs], [e for _, e in pairs]))
    return found


def _meet(a: Expr, b: Expr, ranges: dict[Expr, int]) -> bool:
    """Whether two positions may be the same in some iterations of loops."""
    (left, low), (right, high) = dependence.terms(a), dependence.terms(b)
    if left != right:
        return True
    steps = {leaf: factor for leaf, factor in left if leaf in ranges}
    if not steps:
        return low == high
    reach = sum(abs(f) * (ranges[leaf] - 1) for leaf, f in steps.items())
    return abs(low - high) <= reach and (low - high) % gcd(*steps.values()) == 0


def _around(loops: list[Loop], body: list[Stmt]) -> Stmt:
    for loop in reversed(loops):
        body = [
            Loop(
                loop.index,
                loop.extent,
                body,
                kind=loop.kind.shared(False),
                rolled=loop.rolled,
            )
        ]
    return body[0]


__all__ = ["roll", "roll_nest"]
