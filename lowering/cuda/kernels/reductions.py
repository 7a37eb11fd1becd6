"""Reductions: by the threads of a block, in two stages.

All of them combine in an order that the sizes alone decide: the same bits from run to run.
Source: Harris 2007 (reductions with warp shuffles).
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import affine, traversal
from fnx.lowering.ir.expressions import depends_on, replacing
from fnx.lowering.ir.kernel import Eval, Let, Loop, LoopKind, Stmt, Store

from . import combining, independence, rows, several
from .plan import Axes, Scheduling
from .thresholds import GPU, Limits


def whole(scheduler: Scheduling, s: Loop, name: str, note: str) -> bool:
    """A loop with carries that no loop is around."""
    if s.extent.op not in ("size", "const"):
        return False
    return scheduled(scheduler, [], [s], name, note)


def scheduled(scheduler: Scheduling, axes: Axes, body: list[Stmt], name: str, note: str) -> bool:
    """Make kernels of independent iterations with loops inside; False where one thread each is best."""
    limits = scheduler.limits
    loops = [x for x in body if isinstance(x, Loop)]
    if not loops or not all(isinstance(x, (Let, Eval, Store, Loop)) for x in body):
        return False
    if not all(x.extent.op in ("size", "const") for x in loops):
        return False
    if rows.private(body):
        if not all(type(s) in traversal.REWRITTEN for s in traversal.statements(body)):
            return False
    elif any(_by_threads(x, scheduler, limits.threads) is None for x in loops):
        return False
    count, terms = _count(axes), max(independence.extent(x) for x in loops)
    by_columns = bool(axes) and not any(_is_along(x, [i for i, _ in axes]) for x in loops)
    if not rows.private(body) and _split(scheduler, axes, body, by_columns, name, note):
        return True
    # What a thread would keep lies far from it, where it is much.
    is_large = terms >= limits.lanes and rows.own_bytes(body) > GPU.stack_bytes
    least = limits.parallel if _differ(loops, axes) else limits.blocks
    if by_columns and count >= least and not is_large:
        return False
    if axes and _is_for_warps(limits, count, terms, body):
        lanes = min(limits.lanes, limits.threads)
        if _shared_rows(scheduler, axes, body, lanes, name, note):
            return True
    least = limits.row if not axes or count >= limits.parallel else limits.parallel
    if terms < least and not is_large:
        return False
    return _shared_rows(scheduler, axes, body, limits.threads, name, note)


def _is_for_warps(limits: Limits, count: int, terms: int, body: list[Stmt]) -> bool:
    """Whether there are so many rows, of so few terms, that a warp each is best."""
    carried = {c.dtype for x in body if isinstance(x, Loop) for c in x.carries}
    if not limits.lanes <= terms <= limits.few or not carried <= combining.SHUFFLED:
        return False
    if terms < limits.row:
        return count >= limits.parallel
    return 2 * count * limits.lanes >= limits.blocks * limits.threads


def _shared_rows(
    scheduler: Scheduling, axes: Axes, body: list[Stmt], threads: int, name: str, note: str
) -> bool:
    """A kernel of iterations with loops that so many threads share, with arrays of their own."""
    groups = scheduler.limits.threads // threads
    group = scalar.counter("w", groups) if groups > 1 else None
    known = len(scheduler.temporaries)
    body = rows.of_blocks(scheduler, body, _linear(axes), _count(axes), group, groups)
    new = [_by_threads(x, scheduler, threads) if isinstance(x, Loop) else x for x in body]
    if None in new or groups > 1 and len(scheduler.temporaries) > known:
        del scheduler.temporaries[known:]
        return False
    more = {} if group is None else {"lanes": threads, "group": group}
    scheduler.launch("block", axes, new, name, note, **more)  # type: ignore[arg-type]
    return True


def _count(axes: Axes) -> int:
    total = 1
    for _, n in axes:
        total *= max(traversal.extent(n), 1)
    return total


def _is_along(loop: Loop, results: list[Expr]) -> bool:
    """Whether something is read side by side along a loop, of what differs between results, if any does."""
    found = [*traversal.nodes(loop.body), *_nodes(loop.yields)]
    loads = [e for e in found if e.op == "load" and e.attr.space != "private"]
    own = [e for e in loads if depends_on([e], results)]
    return any(affine.is_along(e.args[0], loop.index) for e in own or loads)


def _differ(loops: list[Loop], axes: Axes) -> bool:
    """Whether what loops read differs from result to result, and not only what they read once."""
    results = [i for i, _ in axes]
    loads = [(x, e) for x in loops for e in (*traversal.nodes(x.body), *_nodes(x.yields))]
    return any(
        e.op == "load" and depends_on([e], [x.index]) and depends_on([e], results) for x, e in loads
    )


def _nodes(roots: list[Expr]) -> list[Expr]:
    seen: dict[Expr, None] = {}
    stack = list(roots)
    while stack:
        e = stack.pop()
        if e not in seen:
            seen[e] = None
            stack.extend(e.args)
    return list(seen)


def _by_threads(s: Loop, scheduler: Scheduling, threads: int) -> Loop | None:
    """A loop for the threads of a block: they share its iterations, or, of few, what is in each."""
    inner = [x for x in s.body if isinstance(x, Loop)]
    counted = [x.extent.op in ("size", "const") for x in (s, *inner)]
    if not inner or s.carries or not all(counted):
        return _shared_out(s, scheduler, threads)
    rounds = [-(-independence.extent(x) // threads) for x in (s, *inner)]
    terms = [independence.extent(x) for x in (s, *inner)]
    combining_takes = 2 * threads.bit_length()  # rounds, with what threads wait for one another
    if terms[0] * sum(n + combining_takes for n in rounds[1:]) >= rounds[0] * sum(terms[1:]):
        return _shared_out(s, scheduler, threads)
    body = [_shared_out(x, scheduler, threads) if isinstance(x, Loop) else x for x in s.body]
    if None in body or not all(isinstance(x, (Let, Eval, Store, Loop)) for x in body):
        return _shared_out(s, scheduler, threads)
    return Loop(s.index, s.extent, body, reverse=s.reverse)  # type: ignore[arg-type]


def _shared_out(s: Loop, scheduler: Scheduling, threads: int) -> Loop | None:
    """A loop whose iterations some threads share; None if they cannot."""
    if s.extent.op not in ("size", "const") or s.extent.attr < 1:
        return None
    if s.carries and (combining.operations(s) is None or combining.sees_carries(s)):
        return None
    plain = Loop(s.index, s.extent, s.body)
    if not independence.parallel([plain], s.body, scheduler.halves):
        return None
    shared = Loop(
        s.index, s.extent, s.body, s.carries, s.init, s.yields,
        kind=LoopKind.THREAD, reassociate=s.reassociate, reverse=s.reverse,
    )  # fmt: skip
    return several.of_loop(scheduler.limits, shared, threads)


# --- two stages -------------------------------------------------------------------------------


def _alone(body: list[Stmt]) -> tuple[list[Stmt], Loop, list[Stmt]] | None:
    """The one loop of a body, what is before it (values only) and what is after."""
    places = [k for k, s in enumerate(body) if isinstance(s, Loop)]
    if len(places) != 1:
        return None
    k = places[0]
    before, loop = body[:k], body[k]
    assert isinstance(loop, Loop)
    if not all(isinstance(s, (Let, Eval)) for s in before):
        return None
    if not all(type(s) in traversal.REWRITTEN for s in traversal.statements(loop.body)):
        return None
    return before, loop, body[k + 1 :]


def _split(
    scheduler: Scheduling, axes: Axes, body: list[Stmt], by_columns: bool, name: str, note: str
) -> bool:
    """Parts of a reduction by threads or blocks of their own, and then the parts."""
    found = _alone(body)
    if found is None or not found[1].carries:
        return False
    before, s, after = found
    n = independence.extent(s)
    count, length = _parts(scheduler.limits, _count(axes), n, by_columns)
    if count < 2:
        return False
    part, within = scalar.counter("p", count), scalar.counter("j", length)
    if by_columns:
        chunk = _every(s, part, within, count, length)
    else:
        chunk = part_of(s, part, within, count, length)
        chunk.kind = LoopKind.THREAD
    operations = combining.operations(s)
    assert operations is not None
    chunk.init = [
        combining.identity(o, c.dtype) for o, c in zip(operations, s.carries, strict=True)
    ]
    results = _count(axes)
    row = _linear(axes)
    buffers = [scheduler.temporary(c.dtype, results * count) for c in s.carries]

    def place(p: Expr) -> Expr:
        if by_columns:
            return scalar.add(scalar.mul(p, scalar.size(results)), row)
        return scalar.add(scalar.mul(row, scalar.size(count)), p)

    stores = [Store(b, place(part), c) for b, c in zip(buffers, chunk.carries, strict=True)]
    first: Axes = [(part, scalar.size(count))]
    first = [*first, *axes] if by_columns else [*axes, *first]
    shape = "flat" if by_columns else "block"
    scheduler.launch(shape, first, [*before, chunk, *stores], name, f"{note}, in parts")
    j = scalar.counter("j", count)
    terms = [scalar.load(b, place(j), b.dtype) for b in buffers]
    yields = [
        combining.combined(o, c, t) for o, c, t in zip(operations, s.carries, terms, strict=True)
    ]
    again = Loop(j, scalar.size(count), [], s.carries, s.init, yields, reassociate=True)
    rest: list[Stmt] = [*before, again, *after]
    if by_columns and scheduled(scheduler, axes, rest, name, f"{note}, the parts"):
        return True
    again.kind = LoopKind.SERIAL if by_columns else LoopKind.THREAD
    scheduler.launch(shape, axes, rest, name, f"{note}, the parts")
    return True


def _parts(limits: Limits, results: int, n: int, by_columns: bool) -> tuple[int, int]:
    """Into how many parts a reduction of n terms is cut, and how long they are: all threads have one."""
    if by_columns:
        if n <= 16 * limits.strip:  # which are few rounds of loads
            return 1, n
        count = min(limits.blocks * limits.threads // results, n // (4 * limits.strip))
        return count, -(-n // max(count, 1))
    if n < limits.split or results * limits.threads > limits.blocks * limits.tile[0]:
        return 1, n
    length = max(-(-n // max(limits.blocks // results, 2)), limits.strip * limits.threads)
    return -(-n // length), length


def _linear(axes: Axes) -> Expr:
    """The number of an iteration among all those of axes."""
    sizes = tuple(int(n.attr) for _, n in axes)
    return scalar.linear_index(tuple(i for i, _ in axes), sizes)


def _every(s: Loop, part: Expr, within: Expr, count: int, length: int) -> Loop:
    """Each count-th iteration of a loop, from the part's number on: parts side by side read so, too."""
    last = independence.extent(s) - (length - 1) * count  # parts that have one in the last round
    extent = scalar.size(length)
    if last < count:
        has_last = scalar.compare("lt", part, scalar.size(last))
        extent = scalar.select(has_last, extent, scalar.size(length - 1))
    place = scalar.add(scalar.mul(within, scalar.size(count)), part)
    return _of_part(s, within, extent, place)


def part_of(s: Loop, part: Expr, within: Expr, count: int, length: int) -> Loop:
    """The iterations of a part of a loop, in the order in which it runs, with carries of their own."""
    n = independence.extent(s)
    start = scalar.mul(part, scalar.size(length))
    extent = scalar.size(length)
    if n % length:
        extent = scalar.apply("min", extent, scalar.sub(scalar.size(n), start))
    place = scalar.add(start, within)
    if s.reverse:
        place = scalar.sub(scalar.size(n - 1), place)
    return _of_part(s, within, extent, place)


def _of_part(s: Loop, within: Expr, extent: Expr, place: Expr) -> Loop:
    """A loop over the iterations at some places of another one, with carries of its own."""
    carries = [scalar.var(c.dtype, "a") for c in s.carries]
    anew = replacing({s.index: place, **dict(zip(s.carries, carries, strict=True))})
    body = [_renamed(x, anew) for x in s.body]
    yields = [anew(e) for e in s.yields]
    return Loop(within, extent, body, carries, [], yields, reassociate=s.reassociate)


def _renamed(s: Stmt, anew) -> Stmt:  # type: ignore[no-untyped-def]
    return traversal.rewritten(s, anew)
