"""What one thread does, at the end of the kernel before, or by all threads of those after it.

A launch takes longer than a few operations on scalars.
Source: kernel fusion of producers that are computed again (Filipovic et al. 2015).
Legal when: the kernel before is one block, whose threads all know what it has left, and one of them stores;
or it stores nothing itself, and no kernel in between writes to what it reads.
"""

from collections.abc import Collection

from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read
from fnx.lowering.ir.kernel import Buffer, Eval, Let, Store
from fnx.lowering.ir.number_formats import itemsize

from . import plan
from .plan import Kernel, Step
from .thresholds import Limits


def merged(steps: list[Step]) -> list[Step]:
    """Steps with what is one thread's in the kernels before, where that may be."""
    found: list[Step] = []
    for s in steps:
        for block in plan.blocks(s):
            block[:] = merged(block)
        before = found[-1] if found else None
        if isinstance(s, Kernel) and isinstance(before, Kernel) and _may_follow(before, s):
            before.body += s.body
            before.names = before.names | s.names
        else:
            found.append(s)
    return found


def _may_follow(before: Kernel, k: Kernel) -> bool:
    if k.shape != "single" or before.shape != "block" or before.guards != k.guards:
        return False
    return not before.axes and all(type(s) in (Let, Eval, Store) for s in k.body)


def without_idle(steps: list[Step]) -> list[Step]:
    """Steps without kernels that leave nothing: what they computed is computed by those who read it."""
    found: list[Step] = []
    for s in steps:
        for block in plan.blocks(s):
            block[:] = without_idle(block)
        if not isinstance(s, Kernel) or s.stored or any(map(traversal.all_writes, s.body)):
            found.append(s)
    return found


def replicated(steps: list[Step], slots: Collection[Buffer], limits: Limits) -> None:
    """Let kernels compute what single threads before them only compute, and store nowhere."""
    for n, s in enumerate(steps):
        for block in plan.blocks(s):
            replicated(block, slots, limits)
        if not isinstance(s, Kernel) or s.shape != "single" or not _is_pure(s, limits):
            continue
        made = {v for x in s.body for v in traversal.defined(x)}
        reads = buffers_read(e for x in s.body for e in traversal.expressions(x))
        for k in steps[n + 1 :]:
            if not isinstance(k, Kernel) or k.guards != s.guards:
                break
            writes = [b for x in k.statements() for b in traversal.all_writes(x)]
            if any(b in slots or _meet(b, r) for b in writes for r in reads):
                break
            if k.shape != "single" and made & {
                *traversal.nodes(k.statements()),
                *(n for _, n in k.axes),
            }:
                k.first += s.body


def _is_pure(k: Kernel, limits: Limits) -> bool:
    return all(type(s) in (Let, Eval) for s in k.body) and traversal.work(k.body) <= limits.again


def _meet(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers share memory: those of the workspace may, one after another."""
    if a.space != "global" or b.space != "global":
        return a is b
    (first, low), (second, _) = sorted(
        (x.place, x.place + x.size * itemsize(x.dtype)) for x in (a, b)
    )
    return second < low or first == second
