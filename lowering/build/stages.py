"""Stages: values of a round that are computed in several loops one after the other, not in one.

A distance to the nearest of many centres needs all distances; what is computed of it then may need all
differences again. In one loop these would wait in memory, since no registers are left. A later loop
computes them anew, from values that the loops before have stored.
"""

from collections.abc import Collection, Container, Iterable, Sequence

from fnx.core.scalar import Expr
from fnx.lowering.ir.expressions import ordered

from . import fuse


def cut(values: Sequence[Expr], varies: Container[Expr]) -> list[list[Expr]]:
    """Values that are stored, stage by stage: each needs those before alone."""
    level: dict[Expr, int] = {}
    stored = set(values)
    for e in ordered(values):
        level[e] = max([level[a] + (a in stored) for a in e.args], default=0)
    depth = max((level[e] for e in values), default=0)
    levels = [[e for e in values if level[e] == k] for k in range(depth + 1)]
    return _cut(levels, stored, varies)


def _cut(
    levels: list[list[Expr]], stored: Collection[Expr], varies: Container[Expr]
) -> list[list[Expr]]:
    """Cut where the fewest operations are made twice, if they would wait in memory otherwise."""
    best, fewest = 0, 0
    for k in range(1, len(levels)):
        before, after = (_computed(part, stored, varies) for part in (levels[:k], levels[k:]))
        again = before & after
        users = [*(after - again), *(e for part in levels[k:] for e in part)]
        waiting = {a for e in users for a in e.args if a in again}
        cheap = len(again) <= fuse.CHEAP_USES * len(waiting)
        if len(waiting) > fuse.SMALL and cheap and _is_rounded_alike(again):
            if not best or len(again) <= fewest:
                best, fewest = k, len(again)
    if not best:
        return [[e for part in levels for e in part]]
    return _cut(levels[:best], stored, varies) + _cut(levels[best:], stored, varies)


def _is_rounded_alike(exprs: Iterable[Expr]) -> bool:
    """Whether values are the same to the last bit in each loop: none may be fused with an addition."""
    return all(e.op not in ("mul", "square", "integer_pow") for e in exprs)


def _computed(
    levels: list[list[Expr]], stored: Collection[Expr], varies: Container[Expr]
) -> set[Expr]:
    """The operations that values take besides themselves, down to what is stored or read."""
    found: set[Expr] = set()
    todo = [a for part in levels for e in part for a in e.args]
    while todo:
        e = todo.pop()
        if e not in found and e not in stored and e in varies and e.op != "load":
            found.add(e)
            todo += e.args
    return found
