"""Tiles: nests that read one array along rows and another along columns, a small block at a time.

What is read along columns touches a cache line for each element. In a block of few rows and columns
those lines are still at hand when their next elements are wanted.
"""

from collections.abc import Iterable
from math import prod

from fnx.core import scalar
from fnx.core.scalar import Expr

from . import fuse, views
from .kernel import Buffer, Loop, Stmt, Store
from .values import substitute

_FAR = 8  # elements: a longer stride leaves the cache line


def across(stores: list[Store], index: list[Expr], shape: tuple[int, ...]) -> int | None:
    """The axis along which those accesses are contiguous that jump along the last one, if it pays."""
    if len(shape) < 2:
        return None
    axes = {id(v): k for k, v in enumerate(index)}
    last = len(shape) - 1
    votes = dict.fromkeys(range(last), 0)
    for _, position in _accesses(stores):
        found = views.linear(position, axes)
        if found is None:
            continue
        strides = found[1]
        if abs(strides.get(last, 0)) >= _FAR:
            for k in votes:
                votes[k] += abs(strides.get(k, 0)) == 1
    best = max(votes, key=votes.__getitem__)
    lines = prod(shape[best + 1 :])  # cache lines that are met before the first one is met again
    return best if votes[best] and shape[best] > 1 and lines >= fuse.TILED else None


def _accesses(stores: list[Store]) -> Iterable[tuple[Buffer, Expr]]:
    seen: set[int] = set()
    todo = []
    for s in stores:
        yield s.buffer, s.index
        todo += [s.value, s.index]
    while todo:
        e = todo.pop()
        if id(e) in seen:
            continue
        seen.add(id(e))
        if e.op == "load":
            yield e.attr, e.args[0]
        todo.extend(e.args)


def loops(
    dims: list[tuple[Expr, int]], body: list[Store], axis: int, in_place: bool
) -> list[Stmt]:
    """Loops over tiles of `axis` and the last one, and inside them over the elements of a tile."""
    last = len(dims) - 1
    exprs = [e for s in body for e in (s.index, s.value)]
    outer: list[tuple[Expr, int]] = []
    blocks: list[tuple[Expr, int]] = []
    inner: list[tuple[Expr, Expr]] = []
    for k, (v, n) in enumerate(dims):
        if k not in (axis, last):
            outer.append((v, n))
            continue
        most = min(fuse.TILE[k == last], n)
        block, i = scalar.var("int64", "t"), scalar.var("int64", "i")
        start = scalar.mul(block, scalar.size(most))
        exprs = substitute(exprs, v, scalar.add(start, i))
        rest = scalar.sub(scalar.size(n), start)
        length = scalar.size(most)
        if n % most:
            length = scalar.apply("min", rest, length)
        blocks.insert(0, (block, -(-n // most)))  # far reads run on along what is contiguous
        inner.append((i, length))
    new = iter(exprs)
    stmts: list[Stmt] = [Store(s.buffer, next(new), next(new)) for s in body]
    for i, length in reversed(inner):
        stmts = [Loop(i, length, stmts, vector=i is inner[-1][0] and not in_place)]
    for v, n in reversed(outer + blocks):
        stmts = [Loop(v, scalar.size(n), stmts)]
    return stmts
