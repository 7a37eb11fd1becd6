"""Which loops become which kernels: an iteration a thread, or a result a block, or results in stages."""

from math import prod
from typing import Any

from fnx.lowering.ir import affine, kernel, traversal
from fnx.lowering.ir.kernel import Loop, LoopKind, Stmt

from . import independence, reductions, scans, several, stencils, transposes, updates
from .plan import Scheduling


def scheduled(scheduler: Scheduling, s: Loop, name: str, note: str) -> bool:
    """Make kernels of a loop; False, and nothing, where threads cannot share it or it is short."""
    if independence.calls([s]):
        return False
    if s.kind is LoopKind.GRID_BLOCK:
        scheduler.launch("block", [(s.index, s.extent)], s.body, name, note)
        return True
    if s.carries:
        if scans.scheduled(scheduler, [], [s], name, note):
            return True
        return reductions.whole(scheduler, s, name, note)
    if s.extent.op not in ("size", "const"):
        return _of_unknown_length(scheduler, s, name, note)
    loops, body = independence.chain(s)
    found = independence.parallel(loops, body, scheduler.halves)
    marked = {x for x in loops if x.kind.vectorized and not _has_atomics(x)}
    found = [x for x in loops if x in found or x in marked]
    if updates.scheduled(scheduler, loops, body, found, name, note):
        return True
    rest: list[Stmt] = body
    for x in reversed([x for x in loops if x not in found]):
        rest = [Loop(x.index, x.extent, rest, reverse=x.reverse)]
    axes = [(x.index, x.extent) for x in found]
    for rows in (scans, reductions):
        if rows.scheduled(scheduler, axes, rest, name, note):
            return True
    if independence.count(found) < scheduler.limits.parallel:
        return False
    return flat(scheduler, axes, rest, name, note)


def flat(scheduler: Scheduling, axes: Any, body: list[Stmt], name: str, note: str) -> bool:
    """An iteration a thread: in blocks of two dimensions where there are two long axes."""
    for squares in (transposes, stencils):
        if squares.scheduled(scheduler, axes, body, name, note):
            return True
    limits = scheduler.limits
    axes = _along_stores(axes, body, limits.tile[0])
    if all(n.op in ("size", "const") for _, n in axes):
        axes, body = several.elements(limits, axes, body, prod(int(n.attr) for _, n in axes))
    sizes = [traversal.extent(n) for _, n in axes]
    tile = len(sizes) > 1 and sizes[-1] >= limits.tile[0] and sizes[-2] >= limits.tile[1]
    scheduler.launch("tile" if tile else "flat", axes, body, name, note)
    return True


def _along_stores(axes: Any, body: list[Stmt], least: int) -> Any:
    """The axes, that along which threads side by side store side by side as the last one, if it is long."""
    numbers = {id(i): k for k, (i, _) in enumerate(axes)}
    stores = [s for s in traversal.statements(body) if isinstance(s, kernel.Store)]
    strides = [affine.strides_of(s.index, numbers) for s in stores if s.buffer.space != "private"]
    apart = lambda k: [abs(x.get(k, 0)) for x in strides]
    if not strides or 1 in apart(len(axes) - 1):
        return axes
    for k, (_, n) in enumerate(axes):
        if set(apart(k)) == {1} and traversal.extent(n) >= least:
            return [*axes[:k], *axes[k + 1 :], axes[k]]
    return axes


def _has_atomics(x: Loop) -> bool:
    """Whether a loop updates places that are not its index's."""
    return any(
        isinstance(s, kernel.Store) and x.index not in _leaves(s.index)
        for s in traversal.statements(x.body)
        if not (isinstance(s, kernel.Store) and s.buffer.space == "private")
    )


def _leaves(e: Any) -> set:
    seen, stack = set(), [e]
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            stack.extend(e.args)
    return seen


def _of_unknown_length(scheduler: Scheduling, s: Loop, name: str, note: str) -> bool:
    """A loop whose length is computed: it is shared where it is marked as a vector's."""
    if not s.kind.vectorized or _has_atomics(s):
        return False
    if any(b.space == "private" for b in traversal.buffers([s])):
        return False
    return flat(scheduler, [(s.index, s.extent)], s.body, name, note)


__all__ = ["flat", "scheduled"]
