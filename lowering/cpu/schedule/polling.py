"""Polling: loops of known length that run for long ask now and then whether to stop.

A loop of the user's program that nobody knows the length of is polled wherever it stands, and so is
the outermost of those of known length. This finds the others of which one run takes long: loops inside
those, and kernels.

Source: safepoint polls in loops, with strip-mined polls in counted ones (HotSpot's C2).
Input: all loops of known length.
Output: the same, some of them `polled`.
Legal when: always; a cancelled program's results are never read.
Pays when: one run of the loop takes about a second (`POLLED_WORK`), and it is no loop of vectors.
Costs: a branch each iteration, and a call of some 20 ns each 10 ms.
"""

from collections.abc import Iterable

from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.generate.generation import Generation
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Loop, Stmt


def of_long_loops(builder: Generation) -> None:
    """Mark the long loops of a program."""
    _mark(builder.block)


def _mark(body: Iterable[Stmt]) -> None:
    for stmt in body:
        if isinstance(stmt, Loop):
            if traversal.work([stmt]) < thresholds.POLLED_WORK:
                continue  # nor is any loop inside it that long
            stmt.polled = stmt.polled or not _may_be_vectors(stmt)
        for block in traversal.blocks(stmt):
            _mark(block)


def _may_be_vectors(loop: Loop) -> bool:
    """Whether LLVM might make vectors of it, and could not with a call in it."""
    if loop.kind.vectorized or any(traversal.blocks(s) for s in loop.body):
        return loop.kind.vectorized
    return loop.reassociate or not loop.carries
