"""Accesses of a loop's body: affine positions of each buffer, and whether iterations touch it apart."""

from fnx.core.scalar import Expr
from fnx.lowering.ir import affine, dependence, traversal
from fnx.lowering.ir.expressions import nodes
from fnx.lowering.ir.kernel import Buffer, Loop, Stmt, Store


class Access:
    """Where one iteration of outer loops touches a buffer: strides of the loops, and a range of offsets."""

    def __init__(self, base: frozenset, strides: tuple[int, ...], low: int, high: int):
        self.base, self.strides, self.low, self.high = base, strides, low, high


def accesses(body: list[Stmt], index: list[Expr]) -> dict[Buffer, list[Access | None]]:
    """The accesses of a block to each buffer; None where it may be anywhere."""
    extents = {
        s.index: s.extent.attr
        for s in traversal.statements(body)
        if isinstance(s, Loop) and s.extent.op in ("size", "const")
    }
    inner = list(extents)
    axes = {id(v): k for k, v in enumerate([*index, *inner])}
    found: dict[Buffer, list[Access | None]] = {}

    def note(buffer: Buffer, position: Expr) -> None:
        found.setdefault(buffer, []).append(access(position))

    def access(position: Expr) -> Access | None:
        parts = affine.linear(position, axes)
        if parts is None:
            return None
        strides = parts[1]
        base, low = dependence.terms(parts[0])
        high = low
        for k, stride in strides.items():
            if k >= len(index):
                reach = stride * (extents[inner[k - len(index)]] - 1)
                low, high = low + min(reach, 0), high + max(reach, 0)
        outer = tuple(strides.get(k, 0) for k in range(len(index)))
        return Access(base, outer, low, high)

    for s in traversal.statements(body):
        for e in nodes(traversal.expressions(s)):
            if e.op == "load":
                note(e.attr, e.args[0])
        if isinstance(s, Store):
            note(s.buffer, s.index)
    return found


def apart(accesses: list[Access | None], shape: list[int]) -> bool:
    """Whether different iterations of the outer loops touch different elements."""
    first = accesses[0]
    if first is None:
        return False
    for a in accesses:
        if a is None or a.base != first.base or a.strides != first.strides:
            return False
    span = max(a.high for a in accesses if a) - min(a.low for a in accesses if a)
    for stride, n in sorted(zip(first.strides, shape, strict=True)):
        if n > 1 and stride <= span:
            return False
        span += stride * (n - 1)
    return True
