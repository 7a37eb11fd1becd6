"""Reduction factoring: what a loop does to each term of a sum, though it could be done to the sum.

Source: reassociation by the distributive law, Muchnick 1997, ch. 12.
Input: what a loop carries, where carries are sums of products.
Output: sums of the factors that several sums share; what the loop multiplied each term with is applied
to the totals after it.
Legal when: the reduction may reassociate.
Pays when: a factor is shared, or a power of two multiplies all terms.
Costs: sums are rounded differently.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from fnx.core import scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.ir.expressions import nodes, ordered, replacing

_REAL = ("float32", "float64")
_Terms = list[tuple[float, Expr]]  # each with the power of two, or its negative, that multiplies it


@dataclass(frozen=True)
class Sums:
    """Carries and their values after an iteration. The last ones are sums of `factors`.

    `later[k]` is what a total gets when the loop has ended, where it is not what the loop began with and
    its terms: a power of two times a total that began with zero, and products of totals of factors with
    numbers that are the same in all iterations.
    """

    carries: list[Expr]
    yields: list[Expr]
    factors: list[Expr]
    later: dict[int, tuple[float, _Terms]]

    def begin(self, init: Sequence[Expr]) -> list[Expr]:
        """What the carries are before the first iteration, where they should begin with `init`."""
        zeros = [scalar.const(0, a.dtype) for a in self.carries]
        kept = [e if k not in self.later else z for k, (e, z) in enumerate(zip(init, zeros))]
        return kept + zeros[len(kept) :]

    def end(self, k: int, init: Expr, totals: Sequence[Expr]) -> Expr:
        """The value that carry `k` should have, `totals` being those after the last iteration."""
        anew = replacing(dict(zip(self.factors, totals[len(totals) - len(self.factors) :])))
        scale, terms = self.later[k]
        return _added(init, [(scale, totals[k]), *((s, anew(t)) for s, t in terms)])


def flat(carries: Sequence[Expr], yields: Sequence[Expr], var: Expr) -> Sums:
    """Sums take one term after the other, so that each is one operation if it is a product."""
    parents = Counter(a for e in nodes(yields) for a in set(e.args))
    sums = {
        k: [(s * t, x) for s, e in _terms(e.args[1], 1, parents) for t, x in [_scaled(e)]]
        for k, (a, e) in enumerate(zip(carries, yields, strict=True))
        if e.op == "add" and e.args[0] is a and e.dtype in _REAL
    }
    varies = varying([e for terms in sums.values() for _, e in terms], [var, *carries])
    factor = {e: _factor(e, varies) for terms in sums.values() for _, e in terms}
    uses = Counter(factor[e] for terms in sums.values() for _, e in terms)
    new, later = list(yields), dict[int, tuple[float, _Terms]]()
    for k, terms in sums.items():
        apart = [t for t in terms if (w := factor[t[1]]) is not None and uses[w] > 1]
        own = [t for t in terms if t not in apart]
        scale = min([abs(s) for s, _ in own], default=1.0)
        new[k] = _added(carries[k], [(s / scale, e) for s, e in own])
        if apart or scale != 1:
            later[k] = scale, apart
    factors = list(dict.fromkeys(factor[e] for _, terms in later.values() for _, e in terms))
    totals = [scalar.var(w.dtype, "a") for w in factors]
    new += map(scalar.add, totals, factors)
    return Sums([*carries, *totals], new, factors, later)


def varying(exprs: Sequence[Expr], leaves: Iterable[Expr]) -> set[Expr]:
    """The nodes of expressions that depend on variables, and these."""
    found = set(leaves)
    for e in ordered(exprs):
        if not found.isdisjoint(e.args):
            found.add(e)
    return found


def _terms(e: Expr, sign: float, parents: Counter[Expr]) -> _Terms:
    """The terms of a value that is a sum; a sum that others need too is one term."""
    if parents[e] > 1 or e.op not in ("add", "sub", "neg"):
        return [(sign, e)]
    signs = (-sign,) if e.op == "neg" else (sign, -sign if e.op == "sub" else sign)
    return [t for s, a in zip(signs, e.args, strict=True) for t in _terms(a, s, parents)]


def _scaled(e: Expr) -> tuple[float, Expr]:
    """A product as a power of two, or its negative, times the rest of it."""
    if e.op == "neg":
        scale, x = _scaled(e.args[0])
        return -scale, x
    if e.op != "mul":
        return 1.0, e
    if e.args[0] is e.args[1]:
        return 1.0, e
    found, scale = [], 1.0
    for a in e.args:
        if _is_power(a):
            scale *= a.attr
        else:
            s, x = _scaled(a)
            scale *= s
            found.append(x)
    if not found:
        return 1.0, e
    return scale, found[0] if len(found) == 1 else scalar.mul(*found)


def _is_power(e: Expr) -> bool:
    """Whether it is a power of two by which sums may be multiplied instead of their terms."""
    if e.op not in ("const", "literal") or not 1 < abs(e.attr) < math.inf:
        return False
    return abs(math.frexp(e.attr)[0]) == 0.5


def _added(total: Expr, terms: _Terms) -> Expr:
    for scale, term in terms:
        if abs(scale) != 1:
            term = scalar.mul(term, scalar.const(abs(scale), term.dtype))
        total = scalar.add(total, term) if scale > 0 else scalar.sub(total, term)
    return total


def _factor(term: Expr, varies: Collection[Expr]) -> Expr | None:
    """What is multiplied with a number that all iterations share."""
    if term.op != "mul":
        return None
    found = [a for a in term.args if a in varies]
    return found[0] if len(found) == 1 else None
