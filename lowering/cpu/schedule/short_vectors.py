"""Short vectors: whether a short last axis of a nest is computed as vectors, or written out.

Written out, each element of a row is a vector of its own along the axis before, gathered and
scattered with the row's length between its elements (superword-level parallelism, Larsen & Amarasinghe
2000, is the other way).
"""

from fnx.core import policy
from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm import vector_abi
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.generate.values import Shape
from fnx.lowering.ir import affine
from fnx.lowering.ir.expressions import nodes
from fnx.lowering.ir.kernel import Store
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.transform import lookup_tables


def rows_are_vectors(stores: list[Store], index: list[Expr], shape: Shape) -> bool:
    """Whether what is read and written along a short last axis lies side by side.

    Not if its index decides something, other than which element of a small array is read, and no
    vectors that are half empty of costly functions.
    """
    if len(shape) < 2 or not 4 <= shape[-1] <= policy.SMALL:
        return False
    exprs = list(nodes([e for s in stores for e in (s.value, s.index)]))
    costly = shape[-1] <= policy.UNROLLED_AXIS and any(
        vector_abi.exists(e.op, e.dtype) for e in exprs
    )
    row = shape[-1] * max(itemsize(s.buffer.dtype) for s in stores)
    if row < (thresholds.COSTLY_ROW if costly else thresholds.SHORT_ROW):
        return False
    laid = lookup_tables.comparisons(exprs)
    if _any_of([e for e in exprs if e.dtype == "bool" and e not in laid], index[-1]):
        return False
    positions = [s.index for s in stores] + [e.args[0] for e in exprs if e.op == "load"]
    found = [affine.linear(p, {id(index[-1]): 0}) for p in positions]
    return all(f is not None and f[1].get(0, 0) in (0, 1) for f in found)


def _any_of(roots: list[Expr], index: Expr) -> bool:
    """Whether an expression is one of an index, other than through what is read there."""
    seen, todo = set(), list(roots)
    while todo:
        e = todo.pop()
        if e is index:
            return True
        if e not in seen and e.op != "load":
            seen.add(e)
            todo += e.args
    return False
