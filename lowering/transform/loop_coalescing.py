"""Loop coalescing: outer loops of few iterations are one with the loops inside them, for equal shares.

Three colours of an image, or two sequences of a batch, are no three or two equal shares for two or
four threads; their rows are.

Source: Polychronopoulos 1987; OpenMP's collapse.
Input: a nest whose outer loop threads will share.
Output: one loop over the product of the extents, whose index is divided for the old ones.
Legal when: the loops are perfectly nested and independent.
Pays when: the outer loop has fewer than `COALESCED_ITERATIONS` iterations, and one of them takes
`COALESCED_WORK` operations.
Costs: two divisions an iteration.
"""

from fnx.core import policy, scalar
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import replacing
from fnx.lowering.ir.kernel import Loop, LoopKind, Nest

from .statements import Statements


def coalesce(builder: Statements) -> None:
    """Merge outer loops of all nests of a program that are to be shared out."""
    for stmt in traversal.statements(builder.block):
        if isinstance(stmt, Nest) and len(stmt.body) == 1 and isinstance(stmt.body[0], Loop):
            stmt.body[0] = _merged(stmt.body[0])


def _merged(loop: Loop) -> Loop:
    """A loop with the loops that are all that is inside it, as long as its iterations are too few."""
    if not loop.kind.parallel or loop.carries:
        return loop
    while traversal.extent(loop.extent) < policy.COALESCED_ITERATIONS and len(loop.body) == 1:
        (inner,) = loop.body
        if not (isinstance(inner, Loop) and _is_plain(inner)):
            break
        if inner.kind.vectorized or traversal.work(inner.body) < policy.COALESCED_WORK:
            break  # its iterations are the lanes of vectors, or too short
        n = inner.extent.attr
        both = scalar.var("int64", "t")
        outer_index, inner_index = scalar.divmod_size(both, n)
        names = {loop.index: outer_index, inner.index: inner_index}
        replaced = replacing(names)
        body = [traversal.rewritten(s, replaced) for s in inner.body]
        loop = Loop(both, scalar.size(loop.extent.attr * n), body, kind=LoopKind.PARALLEL)
    return loop


def _is_plain(loop: Loop) -> bool:
    known = loop.extent.op == "size" and loop.extent.attr > 1
    plain = known and not (loop.carries or loop.polled or loop.reverse)
    inside = any(isinstance(s, Loop) for s in loop.body)
    return (
        plain
        and inside
        and all(type(s) in traversal.REWRITTEN for s in traversal.statements(loop.body))
    )
