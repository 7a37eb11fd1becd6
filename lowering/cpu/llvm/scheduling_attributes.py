"""Kernels whose instructions LLVM is to leave in the order in which they are written.

Its scheduler counts numbers that a loop reads as if they were in registers, though most of them wait in
memory where there are many. Trying to make do with what is left of the registers, it puts operations one
after another that were side by side: Horner's rule for several vectors then waits for each product, and
takes up to twice as long.
"""

from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.processor.features import vector_registers
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Loop, Stmt
from fnx.lowering.ir.number_formats import KIND

from . import vector_abi


def in_order(stmt: Stmt) -> bool:
    """Whether a vector loop of a kernel has many numbers, about as many as registers, and uses each little.

    Mathematical functions have many, too, but gain by scheduling.
    """
    loops = [s for s in traversal.statements([stmt]) if isinstance(s, Loop) and s.kind.vectorized]
    return any(_is_crowded(loop) for loop in loops)


def _is_crowded(loop: Loop) -> bool:
    found = [e for e in traversal.nodes([loop]) if KIND[e.dtype] == "f"]
    numbers = [e for e in found if e.op in ("const", "literal")]
    operations = [e for e in found if e.args and e.op != "load"]
    few = 4 * len(numbers) <= 3 * vector_registers()
    if few or len(operations) > thresholds.REGISTER_OPERATIONS * len(numbers):
        return False
    return not any(vector_abi.exists(e.op, e.dtype) for e in operations)
