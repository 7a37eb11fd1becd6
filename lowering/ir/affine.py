"""Affine forms of indices (polyhedral model, Feautrier 1991): a constant part and multiples of axes."""

from fnx.core import policy, scalar
from fnx.core.scalar import Expr

Linear = tuple[Expr, dict[int, int]] | None


def linear(e: Expr, axes: dict[int, int], known: dict[Expr, Linear] | None = None) -> Linear:
    """An index as a part that depends on no axis, and multiples of axes.

    `known` remembers, so that what many share is walked once.
    """
    memory = {} if known is None else known
    if e not in memory:
        memory[e] = _linear(e, axes, memory)
    return memory[e]


def _linear(e: Expr, axes: dict[int, int], known: dict[Expr, Linear]) -> Linear:
    if id(e) in axes:
        return scalar.size(0), {axes[id(e)]: 1}
    if e.op in ("add", "sub"):
        left, right = (linear(a, axes, known) for a in e.args)
        if left is None or right is None:
            return None
        sign = 1 if e.op == "add" else -1
        parts = dict(left[1])
        for k, n in right[1].items():
            parts[k] = parts.get(k, 0) + sign * n
        return scalar.apply(e.op, left[0], right[0]), parts
    if e.op == "mul":
        for a, b in (e.args, e.args[::-1]):
            if b.op in ("size", "const"):
                inner = linear(a, axes, known)
                if inner is None:
                    return None
                return scalar.mul(inner[0], b), {k: n * b.attr for k, n in inner[1].items()}
    return None if _mentions(e, axes) else (e, {})


def _mentions(root: Expr, axes: dict[int, int]) -> bool:
    seen, todo = set(), [root]
    while todo:
        e = todo.pop()
        if id(e) in axes:
            return True
        if e not in seen:
            seen.add(e)
            todo += e.args
    return False


def contiguous(positions: list[Expr], index: list[Expr], shape: tuple[int, ...]) -> int | None:
    """The axis along which most of those positions are contiguous that jump along the last one."""
    if len(shape) < 2:
        return None
    axes = {id(v): k for k, v in enumerate(index)}
    last = len(shape) - 1
    votes = dict.fromkeys(range(last), 0)
    for position in positions:
        strides = strides_of(position, axes)
        if abs(strides.get(last, 0)) >= policy.FAR_STRIDE:
            for k in votes:
                votes[k] += abs(strides.get(k, 0)) == 1
    best = max(votes, key=votes.__getitem__)
    return best if votes[best] and shape[best] > 1 else None


def is_along(position: Expr, axis: Expr) -> bool:
    """Whether a position is contiguous along an axis."""
    return abs(strides_of(position, {id(axis): 0}).get(0, 0)) == 1


def strides_of(position: Expr, axes: dict[int, int]) -> dict[int, int]:
    """How far apart in memory the neighbours along each axis are; nothing where it is not affine."""
    found = linear(position, axes)
    return {} if found is None else found[1]
