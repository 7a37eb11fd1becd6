"""Strip mining and interchange: sweeps over independent columns are made for a strip of them at a time.

What each member of an ensemble, or each column of a model's grid, touches nobody else does, in loops of
steps and in what comes before and after these. Step by step over all columns, memory streams through the
caches again and again. Strip by strip the state stays near, and arrays that live in between alone (the
rows of a sweep that the next one goes back over) need the size of a strip.

Source: Allen & Kennedy 2001, ch. 9 (strip-mine-and-interchange).
Input: a loop of steps, and what stands around it in a block.
Output: a nest over strips, with all steps inside; arrays of the strip alone on the stack.
Legal when: no dependence crosses columns (`independent_axes.py`).
Pays when: the state of all columns does not stay in a core's own cache (`streamed`), that of a strip does.
Costs: a nest more for the columns that are left; inside a strip nobody asks whether to stop.
"""

from collections.abc import Callable, Iterator
from math import prod

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import depends_on, nodes, replacing
from fnx.lowering.ir.kernel import Buffer, Eval, Let, Loop, LoopKind, Nest, Progress, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.transform.statements import Statements

from .independent_axes import IndependentColumns, Part, chain, extents

# Of statements over columns, and of the arrays that these alone touch.
Made = Callable[[Statements, IndependentColumns, list[Stmt], list[Buffer]], list[Stmt] | None]


def steps_of_strips(builder: Statements) -> None:
    """Turn sweeps of a program that gain by it."""
    rebuild(builder, builder.block, _strips)


def rebuild(builder: Statements, body: list[Stmt], make: Made) -> None:
    """Replace sweeps over independent columns, with what is around them, by what is made of them."""
    k = 0
    while k < len(body):
        stmt = body[k]
        found = _rebuilt(builder, body, k, make) if isinstance(stmt, Loop) else None
        if found is not None:
            k, stop, new = found
            body[k:stop] = new
            k += len(new)
            continue
        if not isinstance(stmt, Nest):
            for inner in traversal.blocks(stmt):
                rebuild(builder, inner, make)
        k += 1


def _rebuilt(
    builder: Statements, body: list[Stmt], k: int, make: Made
) -> tuple[int, int, list[Stmt]] | None:
    """The sweep at `k` and what is around it, made anew: from where to where, and by what."""
    for axes in _candidates(builder, body, k):
        columns = IndependentColumns(builder, axes)
        if not columns.join(body[k]):
            continue
        first, stop = k, k + 1
        while stop < len(body) and columns.join(body[stop]):
            stop += 1
        while first and columns.join(body[first - 1]):
            first -= 1
        stmts = body[first:stop]
        outer, variables = _outside(builder.block, stmts)
        if any(v in variables for s in stmts for v in traversal.defined(s)):
            continue
        private = [b for b in columns.strides if b.space == "global" and b not in outer]
        new = make(builder, columns, stmts, private)
        if new is not None:
            return first, stop, new
    return None


# --- what could be columns -----------------------------------------------------------------------


def _candidates(builder: Statements, body: list[Stmt], k: int) -> list[tuple[int, ...]]:
    """Axes of columns that all nests of a sweep may have, the most columns first."""
    mine = [extents(loops) for loops in _chains(builder, [body[k]])]
    if not mine or not all(mine):
        return []
    found = {n for n in _runs(mine[0]) if n >= 2 * policy.INNERMOST_ITERATIONS}
    found = {n for n in found if all(any(e % n == 0 for e in _runs(x)) for x in mine)}
    near = [extents(loops) for loops in _chains(builder, body[max(k - 8, 0) : k + 8])]
    return [_finest(n, near) for n in sorted(found, reverse=True)[: policy.STRIP_TRIES]]


def _runs(extents: list[int]) -> dict[int, None]:
    """Products of neighbouring loops."""
    return {
        prod(extents[a:b]): None
        for a in range(len(extents))
        for b in range(a + 1, len(extents) + 1)
    }


def _finest(n: int, nests: list[list[int]]) -> tuple[int, ...]:
    """The most axes that some nest has for `n` columns."""
    best: tuple[int, ...] = (n,)
    for x in nests:
        for a in range(len(x)):
            for b in range(a + len(best) + 1, len(x) + 1):
                if prod(x[a:b]) == n and 1 not in x[a:b]:
                    best = tuple(x[a:b])
    return best


def _chains(builder: Statements, body: list[Stmt]) -> Iterator[list[Loop]]:
    """The perfectly nested loops of the nests of a block."""
    for s in body:
        if isinstance(s, Nest):
            for x in builder.plain.get(s, s.body):
                yield chain(x)[0]
        elif isinstance(s, Loop):
            yield from _chains(builder, s.body)


# --- strips ------------------------------------------------------------------------------------


def _strips(
    builder: Statements, columns: IndependentColumns, stmts: list[Stmt], private: list[Buffer]
) -> list[Stmt] | None:
    """The statements strip by strip, if that is worth while."""
    near = _bytes_near(columns, stmts, private)
    if near is None:
        return None
    own = sum(-(-b.size // columns.count) * itemsize(b.dtype) for b in private)
    machine = builder.machine
    stack = machine.stack_bytes
    most = min(
        machine.near_bytes // near, stack // own if 0 < own <= stack else policy.STRIP_COLUMNS
    )
    width = _width(columns.axes[-1], most, columns.least, machine.vector_bits)
    return None if width is None else made(builder, columns, stmts, private, width)


def made(
    builder: Statements,
    columns: IndependentColumns,
    stmts: list[Stmt],
    private: list[Buffer],
    width: int,
) -> list[Stmt] | None:
    """Statements for strips of so many columns, or of fewer where one would take too long.

    `private` are arrays that they alone touch.
    """
    parts = in_parts(builder, columns, stmts, private, width)
    n = columns.axes[-1]
    once = traversal.work(parts[0].body) // (columns.count // n * (n // width))
    if once > policy.STRIP_WORK:  # narrower ones, then
        width = policy.STRIP_WORK * width // once
        if width < columns.least:
            return None
        parts = in_parts(builder, columns, stmts, private, width)
    nests = [s for s in traversal.statements(stmts) if isinstance(s, Nest)]
    gone = {f"kernel {s.name}: {s.note}" for s in nests}
    builder.notes = [x for x in builder.notes if x not in gone]
    builder.notes += [f"kernel {s.name}: {s.note}" for s in parts]
    sites = [s.shown.site for s in traversal.statements(stmts) if isinstance(s, Loop) and s.shown]
    return _with_questions(parts, Progress(sites[0].counting("strip")) if sites else None)


def in_parts(
    builder: Statements,
    columns: IndependentColumns,
    stmts: list[Stmt],
    private: list[Buffer],
    width: int,
) -> list[Nest]:
    """A nest for whole strips, and one for the columns that are left."""
    n = columns.axes[-1]
    parts = [Part.of(columns.axes, width, 0, n // width)]
    if n % width:
        parts.append(Part.of(columns.axes, n % width, n - n % width, 1))
    return [_Strip(builder, columns, part, private).nest(stmts) for part in parts]


def _outside(block: list[Stmt], stmts: list[Stmt]) -> tuple[set[Buffer], set[Expr]]:
    """The buffers and variables that the rest of the program uses."""
    mine = set(stmts)

    def others(body: list[Stmt]) -> Iterator[Stmt]:
        for s in body:
            if s not in mine:
                yield s
                for inner in traversal.blocks(s):
                    yield from others(inner)

    buffers: set[Buffer] = set()
    roots: list[Expr] = []
    for s in others(block):
        roots += traversal.expressions(s)
        buffers |= {ref.buffer for ref in traversal.references(s)} | set(traversal.writes(s))
    found = list(nodes(roots))
    buffers |= {e.attr for e in found if e.op == "load"}
    return buffers, {e for e in found if e.op == "var"}


def _bytes_near(
    columns: IndependentColumns, stmts: list[Stmt], private: list[Buffer]
) -> int | None:
    """Bytes a column that ought to stay in cache; None if they do for all columns together."""
    loops = [s for s in traversal.statements(stmts) if isinstance(s, Loop) and s in stmts]
    loops = [s for top in loops for s in _sweeps(top)]
    steps = [s.index for s in loops]
    stepped = set(traversal.buffers(loops))
    column = gain = 0
    for b, positions in columns.places.items():
        if b.space == "private":
            continue
        stride = columns.strides.get(b)
        if stride is None:
            found = [s for p in positions if (s := columns.stride(p, {}))]
            stride = max(found, default=0)
        streams = (
            depends_on(positions, steps)
            and stride * itemsize(b.dtype) < columns.builder.machine.line
        )
        if not stride or b not in private and streams:
            continue
        size = -(-b.size // columns.count) * itemsize(b.dtype)
        column += size
        gain += size if b in private or b in stepped else 0
    return column if gain * columns.count > columns.builder.machine.streamed_bytes else None


def _sweeps(loop: Loop) -> list[Loop]:
    """A loop of steps, and those inside it."""
    return [loop, *(x for s in loop.body if isinstance(s, Loop) for x in _sweeps(s))]


def _width(n: int, most: int, least: int, vector_bits: int) -> int | None:
    """How many of `n` columns make a strip."""
    most = min(most, policy.STRIP_COLUMNS)
    if n <= most:
        return n if n >= least else None
    vector = max(vector_bits // 64, 4) if least > 1 else 1
    width = most // vector * vector
    for even in (8, 4) if least > 1 else (8, 4, 1):
        if even < vector and least <= width <= n // policy.FEW_STRIPS:
            return width  # a shorter last strip costs less than vectors that are not whole
        fitting = [d for d in range(least, most + 1) if d % even == 0 and n % d == 0]
        if fitting and fitting[-1] * 4 >= most and (even == 4 or fitting[-1] >= 2 * vector):
            return fitting[-1]
    return (width if width >= least else most // least * least) or None


class _Strip:
    """Makes the nest over strips of a part of the columns."""

    def __init__(
        self, builder: Statements, columns: IndependentColumns, part: Part, private: list[Buffer]
    ):
        self.columns, self.part, self.nest_work = columns, part, builder.machine.nest_work
        self.own: dict[Buffer, Buffer] = {}
        left = builder.machine.stack_bytes
        for b in private:
            layers = -(-b.size // (columns.count * columns.strides[b]))
            size = layers * columns.strides[b] * part.width
            if size * itemsize(b.dtype) <= left:
                left -= size * itemsize(b.dtype)
                self.own[b] = builder.new_stack(b.dtype, size)
        self.halves: dict[tuple[Expr, int], Expr] = {}  # the same in arrays of a strip's size
        for b in self.own:
            leaves = {leaf for p in columns.places[b] for leaf, _ in dependence.terms(p)[0]}
            for leaf in leaves & columns.halves.keys():
                self.halves[leaf, self._half(b, leaf)] = scalar.var("int64", "h")
        self.known: dict[Expr, Expr] = {}

    def nest(self, stmts: list[Stmt]) -> Nest:
        body = [self._moved(x) for s in stmts for x in self._rows(s)]
        part = self.part
        iterations = list(zip(part.index, (*part.axes[:-1], part.blocks), strict=True))
        if part.blocks == 1:
            iterations.pop()
        work = traversal.work(body) * prod(n for _, n in iterations)
        for k, (i, n) in reversed(list(enumerate(iterations))):
            shared = k == 0 and work >= self.nest_work
            body = [Loop(i, scalar.size(n), body, kind=LoopKind.of(parallel=shared))]
        nests = [s for s in traversal.statements(stmts) if isinstance(s, Nest)]
        note = f"strips of {part.width} columns, " + " | ".join(s.note for s in nests)
        return Nest(f"{nests[0].name}_strips", body, note=note)

    def _rows(self, stmt: Stmt) -> list[Stmt]:
        """What a statement does to one strip."""
        if isinstance(stmt, (Let, Eval)):
            return [stmt]
        if isinstance(stmt, Loop):
            return [self._loop(stmt)]
        found = []
        for x in self.columns.parts[stmt]:
            ways = list(self.part.ways(x))
            found.append(ways[self.columns.chosen[x]][0])
        return found

    def _loop(self, loop: Loop) -> Loop:
        body = [x for s in loop.body for x in self._rows(s)]
        carries, init, yields = list(loop.carries), list(loop.init), list(loop.yields)
        for (c, n), half in self.halves.items():
            if c in loop.carries:
                carries.append(half)
                init.append(scalar.size(0))
                yields.append(scalar.sub(scalar.size(n), half))
        return Loop(loop.index, loop.extent, body, carries, init, yields, reverse=loop.reverse)

    # --- arrays of one strip

    def _moved(self, s: Stmt) -> Stmt:
        """A statement that keeps arrays of its own on the stack."""
        if not self.own:
            return s
        if isinstance(s, Store) and s.buffer in self.own:
            return Store(self.own[s.buffer], self._within(s.buffer, s.index), self._anew(s.value))
        if isinstance(s, Loop):
            body, s.body = s.body, []
            new = traversal.rewritten(s, self._anew)
            assert isinstance(new, Loop)
            new.body = [self._moved(x) for x in body]
            return new
        return traversal.rewritten(s, self._anew)

    def _anew(self, root: Expr) -> Expr:
        stack = [root]
        while stack:
            e = stack[-1]
            if e in self.known:
                stack.pop()
                continue
            below = [a for a in e.args if a not in self.known]
            if below:
                stack += below
                continue
            stack.pop()
            if e.op == "load" and e.attr in self.own:
                self.known[e] = scalar.load(
                    self.own[e.attr], self._within(e.attr, e.args[0]), e.dtype
                )
            else:
                args = tuple([self.known[a] for a in e.args])
                same = all(a is b for a, b in zip(args, e.args, strict=True))
                self.known[e] = e if same else scalar.node(e.op, e.dtype, args, e.attr)
        return self.known[root]

    def _half(self, buffer: Buffer, half: Expr) -> int:
        """The size of a strip's half of a buffer."""
        layers = self.columns.halves[half] // self.columns.count // self.columns.strides[buffer]
        return layers * self.columns.strides[buffer] * self.part.width

    def _within(self, buffer: Buffer, position: Expr) -> Expr:
        """The place in the strip's own array of what is at a position of the array for all columns."""
        columns, part = self.columns, self.part
        stride = columns.strides[buffer]
        whole, layer = stride * columns.count, stride * part.width
        found, number = dependence.terms(position)
        layers, number = divmod(number - stride * part.start, whole)
        # Apart: how far places of one column are from each other is to be plain.
        far, place = scalar.size(layers * layer), scalar.size(number)
        for leaf, factor in found:
            if leaf in part.index:
                continue
            if factor % whole == 0:
                term = scalar.mul(self._anew(leaf), scalar.size(factor // whole * layer))
                far = scalar.add(far, term)
            elif columns.is_far(leaf, factor, whole):
                half = self.halves[leaf, self._half(buffer, leaf)]
                far = scalar.add(far, half) if factor == 1 else scalar.sub(far, half)
            else:
                place = scalar.add(scalar.mul(self._anew(leaf), scalar.size(factor)), place)
        return scalar.add(far, place)


def _with_questions(nests: list[Nest], shown: Progress | None) -> list[Stmt]:
    """The nests, with questions in between whether to stop where they take long."""
    found: list[Stmt] = []
    for nest in nests:
        pieces = -(-traversal.work(nest.body) // policy.STRIPS_WORK)
        (loop,) = nest.body if len(nest.body) == 1 else (None,)
        if pieces < 2 and shown is None or not isinstance(loop, Loop) or loop.carries:
            found.append(nest)
            continue
        n = loop.extent.attr
        length = -(-n // min(pieces, n))
        chunk, i = scalar.counter("t", -(-n // length)), scalar.counter("i", length)
        start = scalar.mul(chunk, scalar.size(length))
        rest = scalar.apply("min", scalar.sub(scalar.size(n), start), scalar.size(length))
        anew = replacing({loop.index: scalar.add(start, i)})
        body = [traversal.rewritten(s, anew) for s in loop.body]
        nest.body = [Loop(i, rest, body, kind=LoopKind.of(parallel=loop.kind.parallel))]
        strips = scalar.size(-(-n // length))
        found.append(Loop(chunk, strips, [nest], polled=True, shown=shown))
    return found


__all__ = ["in_parts", "made", "rebuild", "steps_of_strips"]
