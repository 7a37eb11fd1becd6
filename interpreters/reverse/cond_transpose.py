"""Transpose of branches: results in common, and cotangents that are added where they belong.

The transpose of a branch that reads an element of a large array adds to one element of its cotangent.
It says what and where, and the sum is made after it, in place.

Source: JAX's cond.
Input: branches, which operands are linear, which cotangents there are.
Output: branches of cotangents.
Legal when: always.
Pays when: a cotangent is an array of which each branch touches a part.
Costs: zeros for what only another branch reaches.
"""

from collections.abc import Sequence

from fnx.core import policy
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.jaxpr import Jaxpr
from fnx.core.primitive import AddTo
from fnx.interpreters.control_flow import CondRecord
from fnx.interpreters.linearize import transpose_jaxpr
from fnx.interpreters.operands import given, only, spread, undefined
from fnx.interpreters.passes.sink_updates import Sunk, sink
from fnx.interpreters.rewrite import with_zeros
from fnx.ops.structure.basic import zeros

Mask = tuple[bool, ...]


def union(masks: Sequence[Mask]) -> Mask:
    """Where any of the masks is true."""
    return tuple([any(column) for column in zip(*masks)])


def filled(jaxpr: Jaxpr, plain: int, made: Mask, mask: Mask, avals: Sequence[ShapedArray]) -> Jaxpr:
    """A jaxpr of `plain` results and then those in `made`, with zeros for the rest of `mask`."""
    if made == mask:
        return jaxpr
    eqns = list(jaxpr.eqns)
    outs: Sequence = spread(made, jaxpr.outs[plain:])
    full = with_zeros(eqns, outs, avals)
    return Jaxpr(jaxpr.inputs, eqns, [*jaxpr.outs[:plain], *only(mask, full)], name=jaxpr.name)


def adding_branches(
    cond: CondRecord, linear: Mask, nonzero: Mask
) -> tuple[Sunk, Mask, Mask] | None:
    """Transposed branches that say what is added where to the cotangents of large operands.

    Also which linear operands those are, and which of the others have a cotangent.
    """
    key = ("adding", cond.branches, linear, nonzero)
    return cond.branches[0].once(key, lambda: _make_adding(cond, linear, nonzero))


def _make_adding(cond: CondRecord, linear: Mask, nonzero: Mask) -> tuple[Sunk, Mask, Mask] | None:
    large = tuple(
        [a.size > policy.SELECTED_ELEMENTS for a in only(linear, cond.branches[0].in_avals)]
    )
    while any(large):
        parts = [transpose_jaxpr(b, linear, nonzero, large) for b in cond.branches]
        mask = union([made for _, made in parts])
        avals = only(linear, cond.branches[0].in_avals)
        branches = [filled(j, 0, made, mask, avals) for j, made in parts]
        wanted = [sum(mask[:k]) for k, x in enumerate(large) if x]
        sunk = sink(branches, wanted)
        fine = {u.result for u in sunk.updates if u.only_adds} if sunk else set()
        if sunk is not None and fine == set(wanted):
            return sunk, large, mask
        rest = tuple([x and sum(mask[:k]) in fine for k, x in enumerate(large)])
        large = rest if rest != large else (False,) * len(large)
    return None


def transpose_adding(
    cond: CondRecord, added: tuple[Sunk, Mask, Mask], cts: tuple, index: Array, args: tuple
) -> tuple:
    """Cotangents of operands, those of large ones as sums into what is there already."""
    sunk, large, mask = added
    linear = undefined(args)
    avals = only(linear, cond.branches[0].in_avals)
    values = [a for a, lin in zip(args, linear) if not lin]
    totals = [zeros(a) for a in only(large, avals)]  # nobody reads them
    operands = [*values, *totals, *only(given(cts), cts)]
    outs = cond.with_branches(sunk.branches)(index, *operands)
    found = dict(zip(sunk.others, outs))
    for u, rest in zip(sunk.updates, sunk.pieces(outs)):
        aval = sunk.branches[0].in_avals[u.operand]
        add = lambda total, u=u, rest=rest: u.apply(total, operands, rest)
        found[u.result] = AddTo(aval, add)
    return (None, *spread(linear, spread(mask, [found[k] for k in range(len(found))])))
