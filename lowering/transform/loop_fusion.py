"""Loop fusion, with array contraction: nests over the same outer loops become one.

A softmax is made as passes over a whole array: maxima of rows, sums of exponentials, quotients. Done row
by row in one nest, a row is used while it is in cache, and what only later passes of the same row read
needs no memory of the array's size: it shrinks to a number, or a row, on the stack
(`array_contraction.py`).

Source: Allen & Kennedy 2001, ch. 6 and 8; Gao et al. 1992.
Input: nests that follow one another in a block, up to `FUSION_HOPS` other statements between them.
Output: one nest, with the bodies in order inside the shared outer loops.
Legal when: every dependence between the nests is independent of the shared loops: an iteration touches a
part of each shared array that no other iteration touches; what is jumped over has nothing to do with it.
Pays when: arrays are handed on from nest to nest.
Costs: a longer nest, of at most `FUSED_NESTS` of those that there were.
"""

from math import prod

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read, replacing
from fnx.lowering.ir.kernel import Buffer, Loop, LoopKind, Nest, Stmt
from fnx.lowering.transform.accesses import Access, accesses, apart
from fnx.lowering.transform.array_contraction import kept_rows
from fnx.lowering.transform.statements import Statements

_MANY = 1 << 20


def fuse(builder: Statements) -> None:
    """Fuse nests in all blocks of the program that was built."""
    _Fuser(builder, uses(builder.block)).block(builder.block)


def uses(block: list[Stmt]) -> dict[Buffer, int]:
    """How many nests of a program touch a buffer; other statements count as many."""
    found: dict[Buffer, int] = {}
    _count(block, found)
    return found


def _count(body: list[Stmt], uses: dict[Buffer, int]) -> None:
    for stmt in body:
        if isinstance(stmt, Nest):
            for b in traversal.buffers(stmt.body):
                uses[b] = uses.get(b, 0) + 1
            continue
        own = [*buffers_read(traversal.expressions(stmt)), *traversal.writes(stmt)]
        for b in (*own, *(ref.buffer for ref in traversal.references(stmt))):
            uses[b] = uses.get(b, 0) + _MANY
        for inner in traversal.blocks(stmt):
            _count(inner, uses)


class _Fuser:
    """Fuses the nests of a program; `uses`: how many touch a buffer."""

    def __init__(self, builder: Statements, uses: dict[Buffer, int]):
        self.builder, self.uses = builder, uses
        self.footprints: dict[Stmt, Footprint] = {}

    def block(self, body: list[Stmt]) -> None:
        """Fuse nests of a block, and of the blocks of its loops and branches."""
        for stmt in body:
            if not isinstance(stmt, Nest):
                for inner in traversal.blocks(stmt):
                    self.block(inner)
        k = 0
        while k < len(body):
            stmt = body[k]
            if isinstance(stmt, Nest) and (cluster := Cluster.start(stmt)):
                self._grow(cluster, body, k)
                if len(cluster.members) > 1:
                    body[k] = cluster.nest(self.builder, self.uses)
            k += 1

    def _grow(self, cluster: "Cluster", body: list[Stmt], k: int) -> None:
        """Take in nests that follow, past statements that have nothing to do with them."""
        at, between = k + 1, []
        while at < len(body) and len(between) <= policy.FUSION_HOPS:
            stmt = body[at]
            if isinstance(stmt, Nest) and self._may_precede(stmt, between) and cluster.join(stmt):
                del body[at]
            else:
                between.append(stmt)
                at += 1
        body[k + 1 : k + 1] = cluster.drop_numbers()

    def _may_precede(self, stmt: Stmt, others: list[Stmt]) -> bool:
        """Whether a statement may be done before others."""
        mine = self._footprint(stmt)
        return all(mine.is_apart_from(self._footprint(other)) for other in others)

    def _footprint(self, stmt: Stmt) -> "Footprint":
        found = self.footprints.get(stmt)
        if found is None:
            found = self.footprints[stmt] = Footprint(stmt)
        return found


class Footprint:
    """What a statement touches, writes, reads of variables, and defines."""

    def __init__(self, stmt: Stmt):
        self.touched, self.written = (
            frozenset(traversal.buffers([stmt])),
            traversal.all_writes(stmt),
        )
        self.variables = frozenset([e for e in traversal.nodes([stmt]) if e.op == "var"])
        self.defined = traversal.defined(stmt)

    def is_apart_from(self, other: "Footprint") -> bool:
        """Whether the statement may change places with another, which is before it."""
        return (
            self.touched.isdisjoint(other.written)
            and other.touched.isdisjoint(self.written)
            and self.variables.isdisjoint(other.defined)
        )


# --- nests as outer loops around a body --------------------------------------------------------


class Loops:
    """A nest: its perfectly nested outer loops, and the block inside them."""

    def __init__(self, nest: Nest, loops: list[Loop], body: list[Stmt]):
        self.nest, self.loops, self.body = nest, loops, body

    @classmethod
    def of(cls, nest: Nest) -> "Loops | None":
        loops: list[Loop] = []
        body = nest.body
        if nest.results or any(
            type(s) not in traversal.REWRITTEN for s in traversal.statements(body)
        ):
            return None
        while len(body) == 1 and isinstance(body[0], Loop) and is_plain(body[0]):
            loops.append(body[0])
            body = body[0].body
        return cls(nest, loops, body) if loops else None

    @property
    def extents(self) -> list[int]:
        return [loop.extent.attr for loop in self.loops]

    def split(self, shape: list[int]) -> "Loops | None":
        """A single loop over all elements as loops over `shape` and, where more is left, a row."""
        if len(self.loops) != 1:
            return None
        (old,) = self.loops
        rows = prod(shape)
        row, rest = divmod(old.extent.attr, rows)
        if rest or not row:
            return None
        shape = [*shape, row] if row > 1 else shape
        index = [scalar.var("int64", "i") for _ in shape]
        position = scalar.linear_index(tuple(index), tuple(shape))
        body = [traversal.rewritten(s, replacing({old.index: position})) for s in self.body]
        loops = [Loop(i, scalar.size(n), []) for i, n in zip(index, shape, strict=True)]
        loops[-1].kind = LoopKind.of(vectorized=old.kind.vectorized and row > 1)
        loops[0].kind = loops[0].kind.shared(old.kind.parallel)
        return Loops(self.nest, loops, body)

    def inside(self, depth: int, index: list[Expr]) -> list[Stmt]:
        """What is inside the first `depth` loops, in terms of other index variables."""
        body = self.body
        for loop in reversed(self.loops[depth:]):
            body = [
                Loop(
                    loop.index,
                    loop.extent,
                    body,
                    kind=loop.kind.shared(False),
                    rolled=loop.rolled,
                )
            ]
        names = {a.index: b for a, b in zip(self.loops[:depth], index, strict=True)}
        return [traversal.rewritten(s, replacing(names)) for s in body]


def is_plain(loop: Loop) -> bool:
    known = loop.extent.op == "size" and loop.extent.attr > 0
    return known and not (loop.carries or loop.polled or loop.reverse)


# --- what an iteration touches ----------------------------------------------------------------------


# --- clusters ----------------------------------------------------------------------------------


class Cluster:
    """Nests that are to become one; `depth` outer loops are shared as soon as there are two."""

    def __init__(self, first: Loops):
        self.members = [first]
        self.depth = 0
        self.index: list[Expr] = []
        self.bodies: list[list[Stmt]] = []
        self.touched = set(traversal.buffers(first.nest.body))
        self._accesses: dict[Buffer, list[Access | None]] = {}  # of all bodies
        self._written: set[Buffer] = set()

    @classmethod
    def start(cls, nest: Nest) -> "Cluster | None":
        first = Loops.of(nest)
        return first and cls(first)

    def join(self, nest: Nest) -> bool:
        """Take in a nest that follows, if that is right and worth while."""
        new = Loops.of(nest)
        if new is None or len(self.members) == policy.FUSED_NESTS:
            return False
        buffers = traversal.buffers(nest.body)
        if self.touched.isdisjoint(buffers):
            return False
        if len(self.members) > 1:
            joined = self._extend(new)
        else:
            joined = self._begin(self.members[0], new)
        if joined:
            self.touched.update(buffers)
        return joined

    def _extend(self, new: Loops) -> bool:
        shape = self.members[0].extents[: self.depth]
        fitting = new if new.extents[: self.depth] == shape else new.split(shape)
        if fitting is None:
            return False
        return self._fits(fitting)

    def _begin(self, old: Loops, new: Loops) -> bool:
        """Find how many loops two nests can share, the more the better."""
        pairs = [(old, new)]
        if len(old.loops) == 1 and len(new.loops) > 1:
            shapes = [new.extents[:d] for d in range(1, len(new.loops) + 1)]
            pairs += [(split, new) for s in shapes if (split := old.split(s))]
        if len(new.loops) == 1 and len(old.loops) > 1:
            shapes = [old.extents[:d] for d in range(1, len(old.loops) + 1)]
            pairs += [(old, split) for s in shapes if (split := new.split(s))]
        tries = []
        for a, b in pairs:
            same = 0
            for m, n in zip(a.extents, b.extents, strict=False):
                if m != n:
                    break
                same += 1
            whole = same == len(a.loops) == len(b.loops) and not (_has_loop(a) or _has_loop(b))
            tries += [(d, a, b) for d in range(1, same + 1 - whole)]
        for depth, a, b in sorted(tries, key=lambda t: -t[0]):
            self.members, self.depth = [a], depth
            self.index = [loop.index for loop in a.loops[:depth]]
            self.bodies = [a.inside(depth, self.index)]
            self._accesses = accesses(self.bodies[0], self.index)
            self._written = {x for s in self.bodies[0] for x in traversal.all_writes(s)}
            if self._fits(b):
                return True
        self.members, self.depth = [old], 0
        return False

    def _fits(self, new: Loops) -> bool:
        """Whether a nest can share the outer loops; if so, it does."""
        body = new.inside(self.depth, self.index)
        shape = self.members[0].extents[: self.depth]
        rows = [_row(b) for b in (*self.bodies, body)]
        if min(rows) == 1 and max(rows) < policy.LONG_ROW:
            return False
        written = self._written.union(*(traversal.all_writes(s) for s in body))
        found = {b: list(known) for b, known in self._accesses.items()}
        for buffer, more in accesses(body, self.index).items():
            found.setdefault(buffer, []).extend(more)
        if not all(apart(found[b], shape) for b in written if b in found):
            return False  # one row needs another's, or sums over the outer loops
        self.members.append(new)
        self.bodies.append(body)
        self._accesses, self._written = found, written
        return True

    def drop_numbers(self) -> list[Nest]:
        """Leave out the last nests that compute single numbers a row: by themselves they are vectors."""
        dropped = []
        while len(self.members) > 1 and _row(self.bodies[-1]) == 1:
            self.bodies.pop()
            dropped.append(self.members.pop().nest)
        return dropped[::-1]

    # --- the nest

    def nest(self, builder: Statements, uses: dict[Buffer, int]) -> Nest:
        """One nest; arrays that nobody else reads are kept by rows."""
        nests = [m.nest for m in self.members]
        body = [s for b in self.bodies for s in b]
        touched = [set(traversal.buffers([s])) for s in body]
        rows = {b for found in touched for b in found if b.space == "private"}
        count: dict[Buffer, int] = {}
        for x in nests:
            for b in traversal.buffers(x.body):
                count[b] = count.get(b, 0) + 1
        for buffer, found in accesses(body, self.index).items():
            own = buffer.space == "global" and count.get(buffer) == uses.get(buffer)
            if own and apart(found, self.shape):
                at = [k for k, s in enumerate(body) if buffer in touched[k]]
                part = kept_rows(builder, [body[k] for k in at], buffer, found, self.index, rows)
                for k, new in zip(at, part, strict=True):
                    body[k] = new
        for b, n in count.items():
            uses[b] -= n - 1
        parallel = any(m.loops[0].kind.parallel for m in self.members)
        for k, (i, n) in enumerate(reversed(list(zip(self.index, self.shape, strict=True)))):
            kind = LoopKind.of(parallel=parallel and k == self.depth - 1)
            body = [Loop(i, scalar.size(n), body, kind=kind)]
        name = "_".join([nests[0].name, *(n.name.partition("_")[2] for n in nests[1:])])[:60]
        note = "; ".join(n.note for n in nests)
        gone = {f"kernel {n.name}: {n.note}" for n in nests}
        builder.notes = [n for n in builder.notes if n not in gone]
        builder.notes.append(f"kernel {name}: by rows, {note}")
        return Nest(name, body, [], note)

    @property
    def shape(self) -> list[int]:
        return self.members[0].extents[: self.depth]


def _has_loop(loops: Loops) -> bool:
    return any(isinstance(s, Loop) for s in loops.body)


def _row(body: list[Stmt]) -> int:
    """The length of the longest loop of a block; 1 without loops."""
    return max(
        (traversal.extent(s.extent) for s in traversal.statements(body) if isinstance(s, Loop)),
        default=1,
    )
