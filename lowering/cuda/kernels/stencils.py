"""Neighbours that a stencil reads of an array, by tiles in shared memory with what lies around them.

Each point of a stencil reads an array at several places, and its neighbours read nearly the same ones. So a
block first brings its tile of the array and the surroundings into shared memory, an element a thread at a
time, and its threads then read their neighbours there. Of the loads from memory of a point that are left,
4/3 for neighbours at a distance of 1, and 15/8 for those at 2, the most are one row side by side.

Source: 3D Finite Difference Computation on GPUs using CUDA (Micikevicius 2009).
Legal when: what is read so is not written in the loop (a half of it may be), and lies in the array.
Pays when: there are many neighbours in the plane of the last two axes, and tiles for all processors.
"""

from collections.abc import Sequence
from math import prod

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import dependence, traversal
from fnx.lowering.ir.expressions import depends_on, replacing
from fnx.lowering.ir.kernel import Buffer, Eval, Let, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize

from .independence import never_met
from .plan import Axes, Halo, Scheduling, Staged

_NUMBERS = ("size", "const")
Offsets = dict[Expr, tuple[int, int]]  # loads by how far down and across they are from one of them


def scheduled(scheduler: Scheduling, axes: Axes, body: list[Stmt], name: str, note: str) -> bool:
    """Make a kernel of a loop that reads neighbours; False, and nothing, where it does not."""
    limits = scheduler.limits
    columns, rows = limits.tile
    if len(axes) < 2 or not all(n.op in _NUMBERS for _, n in axes):
        return False
    sizes = [int(n.attr) for _, n in axes]
    if sizes[-1] < columns or sizes[-2] < rows or prod(sizes) < limits.points:
        return False
    if not all(type(s) in (Let, Eval, Store) for s in body):
        return False
    found = _groups(scheduler, axes, sizes, body)
    lane, row = scalar.counter("x", columns), scalar.counter("y", rows)
    stores: list[Stmt] = []
    halos: list[Halo] = []
    taken: dict[Expr, Expr] = {}
    left = limits.shared
    for group in found:
        first, halo = _halo(group, axes, limits.tile)
        load = next(iter(group))
        left -= halo.rows * halo.columns * itemsize(load.dtype)
        if left < 0 or len(halos) == limits.staged:
            break
        square = Buffer(f"square{len(halos)}", load.dtype, halo.rows * halo.columns, "shared")
        stores.append(Store(square, halo.place, first))
        halos.append(halo)
        top, start = (min(d[k] for d in group.values()) for k in (0, 1))
        for e, (down, across) in group.items():
            at = scalar.mul(scalar.add(row, scalar.size(down - top)), scalar.size(halo.columns))
            at = scalar.add(at, scalar.add(lane, scalar.size(across - start)))
            taken[e] = scalar.load(square, at, e.dtype)
    if not halos:
        return False
    new = [traversal.rewritten(s, replacing(taken)) for s in body]
    staged = Staged(stores, lane, row, rows, halos)
    scheduler.launch("square", axes, new, name, note, staged=staged)
    return True


def _halo(group: Offsets, axes: Axes, tile: tuple[int, int]) -> tuple[Expr, Halo]:
    """What is loaded of a square and around it: an element of it, and its numbers."""
    load, (down, across) = next(iter(group.items()))
    downs, acrosses = ([d[k] for d in group.values()] for k in (0, 1))
    rows, columns = (
        n + max(ds) - min(ds) for n, ds in zip(reversed(tile), (downs, acrosses), strict=True)
    )
    place, row, lane = (scalar.var("int64", n) for n in "kyx")
    (a, _), (b, _) = axes[-2:]
    stride = dict(dependence.terms(load.args[0])[0])[a]
    back = (down - min(downs)) * stride + across - min(acrosses)
    index = replacing({a: row, b: lane})(load.args[0])
    if back:
        index = scalar.sub(index, scalar.size(back))
    return scalar.load(load.attr, index, load.dtype), Halo(place, row, lane, rows, columns)


def _groups(
    scheduler: Scheduling, axes: Axes, sizes: Sequence[int], body: list[Stmt]
) -> list[Offsets]:
    """Loads of neighbours in a plane, where they are enough; most of them first."""
    stores = [s for s in body if isinstance(s, Store)]
    defined = [v for s in body for v in traversal.defined(s)]
    (a, _), (b, _) = axes[-2:]
    planes: dict[tuple, dict[Expr, int]] = {}
    for e in traversal.nodes(body):
        if e.op != "load" or e.attr.space not in ("global", "argument"):
            continue
        parts, number = dependence.terms(e.args[0])
        multiples = dict(parts)
        others = [x for x in multiples if x not in (a, b)]
        if multiples.get(b) != 1 or multiples.get(a, 0) <= scheduler.limits.reach:
            continue
        if not depends_on(others, [a, b, *defined]):
            planes.setdefault((e.attr, parts), {})[e] = number
    found: list[Offsets] = []
    for (buffer, parts), numbers in planes.items():
        stride = dict(parts)[a]
        for group in _clusters(numbers, stride, scheduler.limits.reach):
            if len(group) < scheduler.limits.neighbours:
                continue
            first = next(iter(group))
            ends = [d * stride + c for d, c in _corners(group)]
            low, high = _ends(scheduler, dict(parts), axes, sizes)
            if low + numbers[first] + ends[0] < 0 or high + numbers[first] + ends[1] >= buffer.size:
                continue
            low_end, high_end = (scalar.add(first.args[0], scalar.const(n, "int64")) for n in ends)
            written = [s.index for s in stores if s.buffer is buffer]
            if all(never_met((low_end, high_end), w, axes, scheduler.halves) for w in written):
                found.append(group)
    return sorted(found, key=lambda g: -len(g))


def _clusters(numbers: dict[Expr, int], stride: int, reach: int) -> list[Offsets]:
    """Loads near one another: how far each is from the first of them, which is at (0, 0)."""
    found: list[tuple[int, Offsets]] = []
    for e, number in sorted(numbers.items(), key=lambda x: x[1]):
        for base, group in found:
            down = (number - base + stride // 2) // stride
            across = number - base - down * stride
            downs, acrosses = (
                [d[k] for d in group.values()] + [new] for k, new in ((0, down), (1, across))
            )
            near = max(downs) - min(downs) <= reach
            if near and max(acrosses) - min(acrosses) <= reach:
                group[e] = down, across
                break
        else:
            found.append((number, {e: (0, 0)}))
    return [group for _, group in found]


def _corners(group: Offsets) -> list[tuple[int, int]]:
    downs, acrosses = ([d[k] for d in group.values()] for k in (0, 1))
    return [(min(downs), min(acrosses)), (max(downs), max(acrosses))]


def _ends(
    scheduler: Scheduling, multiples: dict[Expr, int], axes: Axes, sizes: Sequence[int]
) -> tuple[float, float]:
    """Between which numbers the moving part of a position lies."""
    known = {i: (0.0, float(n - 1)) for (i, _), n in zip(axes, sizes, strict=True)}
    known |= {x: (0.0, float(n)) for x, n in scheduler.halves.items()}
    low = high = 0.0
    for leaf, factor in multiples.items():
        ends = [factor * x for x in known.get(leaf) or scalar.bounds(leaf)]
        low, high = low + min(ends), high + max(ends)
    return low, high
