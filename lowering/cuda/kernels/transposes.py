"""Reads along another axis than the threads' one, by squares of shared memory.

Threads side by side read memory side by side where an array is read along the last axis of a loop; where it
is read along another one, each of them has a line of memory to itself. So a block reads a square of such an
array along that axis first, and its threads then take what is theirs out of shared memory. A row of the
square has one element more than there are threads: columns fall into different banks.

Source: An Efficient Matrix Transpose in CUDA C/C++ (Harris 2013).
Legal when: nothing that is read so is written in the loop.
Pays when: neighbours along the last axis are far apart, and both axes fill a square.
"""

from collections.abc import Sequence

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import affine, traversal
from fnx.lowering.ir.expressions import depends_on, replacing
from fnx.lowering.ir.kernel import Buffer, Eval, Let, Stmt, Store

from .plan import Axes, Scheduling, Staged


def scheduled(scheduler: Scheduling, axes: Axes, body: list[Stmt], name: str, note: str) -> bool:
    """Make a kernel of a loop that reads across; False, and nothing, where it does not."""
    if not all(type(s) in (Let, Eval, Store) for s in body):
        return False
    side = scheduler.limits.tile[0]
    wide = [n.op in ("size", "const") and n.attr >= side for _, n in axes]
    if len(axes) < 2 or not wide[-1]:
        return False
    across = _across(axes, wide, body)
    if not across:
        return False
    axis = max(across, key=lambda k: len(across[k]))
    loads = across[axis][: scheduler.limits.staged]
    lane, row = scalar.counter("x", side), scalar.counter("y", side)
    at = lambda a, b: scalar.add(scalar.mul(a, scalar.size(side + 1)), b)
    squares = [
        Buffer(f"square{k}", e.dtype, side * (side + 1), "shared") for k, e in enumerate(loads)
    ]
    stores: list[Stmt] = [
        Store(square, at(row, lane), e) for square, e in zip(squares, loads, strict=True)
    ]
    taken = {
        e: scalar.load(square, at(lane, row), e.dtype)
        for square, e in zip(squares, loads, strict=True)
    }
    anew = replacing(taken)
    new = [traversal.rewritten(s, anew) for s in body]
    order = [x for k, x in enumerate(axes[:-1]) if k != axis]
    staged = Staged(stores, lane, row, side)
    scheduler.launch("square", [*order, axes[axis], axes[-1]], new, name, note, staged=staged)
    return True


def _across(axes: Axes, wide: Sequence[bool], body: list[Stmt]) -> dict[int, list[Expr]]:
    """What is read along an axis before the last one, by the axis."""
    written = {s.buffer for s in body if isinstance(s, Store)}
    defined = [v for s in body for v in traversal.defined(s)]
    numbers, last = {id(i): k for k, (i, _) in enumerate(axes)}, len(axes) - 1
    found: dict[int, list[Expr]] = {}
    for e in traversal.nodes(body):
        if e.op != "load" or e.attr in written or e.attr.space == "private":
            continue
        strides = affine.strides_of(e.args[0], numbers)
        if abs(strides.get(last, 0)) < policy.FAR_STRIDE or depends_on([e], defined):
            continue
        for k in range(last):
            if wide[k] and abs(strides.get(k, 0)) == 1:
                found.setdefault(k, []).append(e)
    return found
