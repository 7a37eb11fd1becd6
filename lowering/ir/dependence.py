"""Offsets in buffers: multiples of variables and a number; and which two are never the same."""

from collections.abc import Mapping
from itertools import product

from fnx.core import policy, scalar
from fnx.core.scalar import Expr

from .kernel import Loop, While

_NUMBERS = ("size", "const", "literal")
Terms = tuple[dict[Expr, int], int]


def terms(e: Expr) -> tuple[frozenset, int]:
    """Multiples of leaves, and a number: the same for equal sums."""
    parts, number = _terms(e, {})
    return frozenset((leaf, n) for leaf, n in parts.items() if n), number


def _terms(e: Expr, known: dict[Expr, Terms]) -> Terms:
    if e in known:
        return known[e]
    parts: dict[Expr, int] = {}
    total, inside = 0, []
    if e.op in _NUMBERS:
        total = e.attr
    elif e.op in ("add", "sub"):
        inside = [(e.args[0], 1), (e.args[1], 1 if e.op == "add" else -1)]
    elif e.op == "mul" and any(a.op in _NUMBERS for a in e.args):
        number, other = sorted(e.args, key=lambda a: a.op not in _NUMBERS)
        inside = [(other, number.attr)]
    else:
        parts[e] = 1
    for a, factor in inside:
        more, number = _terms(a, known)
        total += factor * number
        for leaf, n in more.items():
            parts[leaf] = parts.get(leaf, 0) + factor * n
    known[e] = parts, total
    return known[e]


def halves(loop: Loop | While) -> dict[Expr, int]:
    """Carries that are 0 and a size by turns: where the old half of a buffer begins."""
    found = {}
    for c, first, last in zip(loop.carries, loop.init, loop.yields, strict=True):
        if first is scalar.size(0) and last.op == "sub" and last.args[1] is c:
            if last.args[0].op == "size":
                found[c] = last.args[0].attr
    return found


def differ(p: Expr, q: Expr, halves: Mapping[Expr, int], known: dict[Expr, Terms]) -> bool:
    """Whether two positions are never the same, whatever the values of variables are.

    Variables in `halves` are 0 or a size. `known` remembers what positions are made of.
    """
    (parts, number), (others, start) = _terms(p, known), _terms(q, known)
    left = {x: parts.get(x, 0) - others.get(x, 0) for x in {**parts, **others}}
    left = {x: n for x, n in left.items() if n}
    if len(left) > policy.HALVES or not left.keys() <= halves.keys():
        return False
    shifts = product(*[(0, n * halves[x]) for x, n in left.items()])
    return all([number - start + sum(found) != 0 for found in shifts])
