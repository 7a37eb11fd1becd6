"""Rank-k sums: the sum of outer products over iterations is one matrix product after the loop.

The cotangent of a matrix that each iteration multiplies with a vector is such a sum. Adding to a whole
matrix in each iteration costs a load and a store for each multiplication; the stacks of the two vectors
are short beside it, one of them is often there already, and their product reads them from registers.

Source: level-3 BLAS.
Input: the transpose of a scan, which carries the sum.
Output: the same, which stacks the vectors, and the product.
Legal when: the carry is only added to, by an outer product in each iteration.
Pays when: there are `RANK_K_ITERATIONS` iterations, and the matrix is `RANK_K_MATRIX` times the two
vectors.
Costs: the stacks, at most `RANK_K_STACKS` bytes that are not there anyway; another order of the sum.
"""

from collections.abc import Sequence

from fnx.core import policy
from fnx.core.array import Array
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var, made_once
from fnx.interpreters.rewrite import live
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.linalg.contraction import DotGeneral

_OUTER = (((), ()), ((), ()))
_ITERATIONS = DotGeneral((((0,), (0,)), ((), ())), None)
Terms = tuple[tuple[Var, Var], ...]


@dataclass(frozen=True)
class Stacked:
    """A transposed loop with stacks for sums.

    `jaxpr` has no more the carries of these sums, and `count` results more, the stacks. `terms`: for each
    sum the pairs of stacks, by their number among these and after them the rows that the loop reads;
    None if it is still a carry.
    """

    jaxpr: Jaxpr
    count: int
    terms: tuple[tuple[tuple[int, int], ...] | None, ...]

    def totals(self, sums: Sequence, stacks: Sequence, rows: Sequence) -> list[Array]:
        """All sums, from those that are carries, the stacks and the operands of the loop's rows."""
        rest, found = iter(sums), (*stacks, *rows)
        totals = []
        for pairs in self.terms:
            total = next(rest) if pairs is None else None
            for a, b in pairs or ():
                product = _ITERATIONS(found[a], found[b])
                total = product if total is None else add(total, product)
            totals.append(total)
        return totals


@made_once
def stacked(jaxpr: Jaxpr, consts: int, sums: int, carry: int, length: int) -> Stacked | None:
    """A transposed loop with stacks for those of its sums that are the first of its carries."""
    rows = jaxpr.inputs[consts + carry :]
    maker, readers = definitions(jaxpr.eqns), _readers(jaxpr)
    fixed = set(jaxpr.inputs[:consts])
    found: list[Terms | None] = []
    for v, out in zip(jaxpr.inputs[consts : consts + sums], jaxpr.outs):
        terms = _terms(v, out, maker, readers) if length >= policy.RANK_K_ITERATIONS else None
        inside = terms and not fixed & {x for pair in terms for x in pair}
        found.append(terms if inside and all(map(_is_larger, terms or ())) else None)
    more = dict.fromkeys(x for terms in found for pair in terms or () for x in pair)
    new = [x for x in more if x not in rows]
    size = sum(x.aval.nbytes for x in new)
    if not more or size > sum(v.aval.nbytes for v in rows) and size * length > policy.RANK_K_STACKS:
        return None
    kept = [k for k in range(carry) if k >= sums or found[k] is None]
    outs: list[Atom] = [*(jaxpr.outs[k] for k in kept), *jaxpr.outs[carry:], *new]
    inputs = [*jaxpr.inputs[:consts], *(jaxpr.inputs[consts + k] for k in kept), *rows]
    number = {x: k for k, x in enumerate([*new, *rows])}
    pairs = [terms and tuple((number[a], number[b]) for a, b in terms) for terms in found]
    body = Jaxpr(inputs, live(jaxpr.eqns, outs), outs, name=jaxpr.name)
    return Stacked(body, len(new), tuple(pairs))


def _readers(jaxpr: Jaxpr) -> dict[Atom, list[Eqn | None]]:
    """Which equations read a value; None: it is a result."""
    found: dict[Atom, list[Eqn | None]] = {}
    for e in jaxpr.eqns:
        for a in e.inputs:
            found.setdefault(a, []).append(e)
    for a in jaxpr.outs:
        found.setdefault(a, []).append(None)
    return found


def _terms(v: Var, out: Atom, maker: dict[Var, Eqn], readers: dict) -> Terms | None:
    """The vectors whose products an iteration adds to a carry, if it does nothing else with it."""
    terms: list[tuple[Var, Var]] = []
    while v is not out:
        read = readers.get(v, [])
        e = read[0] if len(read) == 1 else None
        if e is None or e.prim.name != "add":
            return None
        term = e.inputs[1] if e.inputs[0] is v else e.inputs[0]
        product = maker.get(term)  # type: ignore[call-overload]
        if product is None or len(readers[term]) != 1 or not _is_outer(product):
            return None
        terms.append(tuple(product.inputs))
        v = e.outs[0]
    return tuple(terms) if readers[v] == [None] else None


def _is_outer(e: Eqn) -> bool:
    """Whether an equation makes an outer product of two values."""
    prim = e.prim
    if not isinstance(prim, DotGeneral) or prim.dimension_numbers != _OUTER:
        return False
    dtypes = {a.aval.dtype for a in (*e.inputs, *e.outs)}
    return len(dtypes) == 1 and all(type(a) is Var and a.aval.shape for a in e.inputs)


def _is_larger(pair: tuple[Var, Var]) -> bool:
    a, b = (x.aval.size for x in pair)
    return a * b >= policy.RANK_K_MATRIX * (a + b)
