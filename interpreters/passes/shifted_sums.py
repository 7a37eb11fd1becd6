"""Shifted sums: additions of shifted fields to zeros are one field of pieces, each a sum of slices.

The cotangent of a difference of neighbours is such a sum, a little longer than its terms: two of them where
they overlap, one at each end. Added to zeros in memory each term is a pass; as a concatenation it is read
where it is needed, as a padded field is.

Source: XLA's algebraic simplifier (pad of a slice; dynamic-update-slice of a constant).
Input: a jaxpr with chains of slice_add that begin with zeros.
Output: the same, with concatenations for chains.
Legal when: nobody reads what lies between the additions.
Pays when: there is one axis, two terms at least, and few pieces, of which one is most of the array. With
more axes each piece is rows of its own, and what lies in memory is read by several as fast.
Costs: nothing is added to a zero, which may have another sign.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fnx.core import policy
from fnx.core.array import ConcreteArray
from fnx.core.def_use import definitions, use_counts
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.interpreters.rewrite import bind_into, live
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice

Term = tuple[int, int, Atom]  # from where to where, and what is added there


def in_pieces(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with concatenations for sums of shifted fields and zeros."""
    if not any([e.prim.name == "slice_add" for e in jaxpr.eqns]):
        return jaxpr
    maker, uses = definitions(jaxpr.eqns), use_counts(jaxpr)
    inner = {
        e.inputs[0] for e in jaxpr.eqns if e.prim.name == "slice_add" and uses[e.inputs[0]] == 1
    }
    eqns: list[Eqn] = []
    for e in jaxpr.eqns:
        ends = e.prim.name == "slice_add" and e.outs[0] not in inner
        terms = _terms(e, maker, uses) if ends else None
        if terms is None:
            eqns.append(e)
        else:
            pieces = _pieces(eqns, e.outs[0], terms)
            eqns.append(Eqn(Concatenate(0), pieces, e.outs, e.source))
    return jaxpr if len(eqns) == len(jaxpr.eqns) else jaxpr.with_eqns(live(eqns, jaxpr.outs))


def _terms(e: Eqn, maker: dict[Var, Eqn], uses: dict[Atom, int]) -> list[Term] | None:
    """What a chain adds to zeros, if the pieces are few."""
    shape = e.outs[0].aval.shape
    if len(shape) != 1:
        return None
    chain: list[Eqn] = []
    link: Eqn | None = e
    while (
        link is not None
        and link.prim.name == "slice_add"
        and (not chain or uses[link.outs[0]] == 1)
    ):
        chain.insert(0, link)
        link = maker.get(link.inputs[0]) if type(link.inputs[0]) is Var else None
    if not _is_zero(link) or link.outs[0] is not chain[0].inputs[0]:  # type: ignore[union-attr]
        return None
    boxes = [c.prim.dense_box() for c in chain]  # type: ignore[attr-defined]
    if None in boxes:
        return None
    terms = [(low, high, c.inputs[1]) for c, ((low,), (high,)) in zip(chain, boxes)]
    cuts = _cuts(terms, shape[0])
    longest = max([high - low for low, high in pairwise(cuts)])
    few = len(cuts) - 1 <= policy.CONCATENATED and 4 * longest >= 3 * shape[0]
    return terms if few and len(terms) > 1 else None


def _is_zero(e: Eqn | None) -> bool:
    a = e.inputs[0] if e is not None and isinstance(e.prim, Broadcast) else None
    known = type(a) is Literal and type(a.value) is ConcreteArray
    return known and not a.value._value.any()  # type: ignore[union-attr]


def _cuts(terms: Sequence[Term], n: int) -> list[int]:
    return sorted({0, n, *(at for low, high, _ in terms for at in (low, high))})


def _pieces(eqns: list[Eqn], out: Var, terms: Sequence[Term]) -> list[Var]:
    """What lies between two ends of terms: the sum of those that are there."""
    pieces = []
    for low, high in pairwise(_cuts(terms, out.aval.size)):
        there = [(start, x) for start, stop, x in terms if start <= low and high <= stop]
        parts = [bind_into(eqns, Slice((low - at,), (high - at,)), [x])[0] for at, x in there]
        if not parts:
            zero = Literal(ConcreteArray(np.zeros((), out.aval.dtype)))
            parts = bind_into(eqns, Broadcast((high - low,), ()), [zero])
        total = parts[0]
        for part in parts[1:]:
            (total,) = bind_into(eqns, add, [total, part])
        pieces.append(total)
    return pieces
