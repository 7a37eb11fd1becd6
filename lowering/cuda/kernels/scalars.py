"""What one thread does, as the end of the kernel before: a launch takes longer than a few operations.

Legal when: that kernel is one block, whose threads then all know what it has left, and one of them stores.
"""

from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Eval, Let, Store

from . import plan
from .plan import Kernel, Step


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
