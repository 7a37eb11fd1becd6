"""Loop distribution: values of an iteration are computed in several loops one after the other, not in one.

A distance to the nearest of many centres needs all distances; what is computed of it then may need all
differences again. In one loop these would wait in memory, since no registers are left. A later loop
computes them anew, from values that the loops before have stored.

Source: loop distribution, Allen & Kennedy 2001, ch. 6; rematerialization (Briggs et al. 1992).
Input: the values that a blocked reduction shares.
Output: the values by loops; with those that later loops need besides.
Legal when: operations that are made again iteration alike: none may be fused with an addition.
Pays when: more would wait than there are registers for.
Costs: cheap operations are made twice.
"""

from collections.abc import Collection, Container, Iterable, Sequence

from fnx.core import policy
from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm import register_transpose
from fnx.lowering.ir.expressions import ordered


def cut(values: Sequence[Expr], varies: Container[Expr]) -> list[list[Expr]]:
    """Values that are stored, stage by stage; with those that later stages need besides."""
    level: dict[Expr, int] = {}
    stored = set(values)
    for e in ordered(values):
        level[e] = max([level[a] + (a in stored) for a in e.args], default=0)
    depth = max((level[e] for e in values), default=0)
    levels = [[e for e in values if level[e] == k] for k in range(depth + 1)]
    return _cut(levels, stored, varies)


def _cut(levels: list[list[Expr]], stored: set[Expr], varies: Container[Expr]) -> list[list[Expr]]:
    """Cut where the fewest operations are made twice, if they would wait in memory otherwise."""
    best: list[list[list[Expr]]] = []
    fewest = 0
    for k in range(1, len(levels)):
        before, after = ([e for part in some for e in part] for some in (levels[:k], levels[k:]))
        later = _computed(after, stored, varies)
        again = later & _computed(before, stored, varies)
        users = [e for e in ordered(after) if e in later - again or e in after]
        waiting = dict.fromkeys(a for e in users for a in e.args if a in again)
        cheap = [e for e in waiting if _is_cheap({e, *_computed([e], stored, varies)})]
        dear = [e for e in waiting if e not in cheap]
        if len(cheap) > policy.SMALL and len(dear) <= policy.CHEAP and _are_storable(dear):
            if not best or len(cheap) <= fewest:
                best, fewest = [[*levels[:k], dear], levels[k:]], len(cheap)
    if not best:
        return [[e for part in levels for e in part]]
    stored = stored.union(*best[0])
    return _cut(best[0], stored, varies) + _cut(best[1], stored, varies)


def _is_cheap(exprs: Collection[Expr]) -> bool:
    """Whether to make operations again; rounded alike, too: none may be fused with an addition."""
    few = len(exprs) <= policy.CHEAP_USES
    return few and all(e.op not in ("mul", "square", "integer_pow") for e in exprs)


def _are_storable(exprs: Iterable[Expr]) -> bool:
    return all(register_transpose.can(e.dtype) for e in exprs)


def _computed(
    values: Iterable[Expr], stored: Container[Expr], varies: Container[Expr]
) -> set[Expr]:
    """The operations that values take besides themselves, down to what is stored or read."""
    found: set[Expr] = set()
    todo = [a for e in values for a in e.args]
    while todo:
        e = todo.pop()
        if e not in found and e not in stored and e in varies and e.op != "load":
            found.add(e)
            todo += e.args
    return found
