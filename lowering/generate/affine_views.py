"""Affine views: values that are elements of one buffer at a base and constant strides.

Transposes, slices and broadcasts of stored arrays are such; a library can read them as they are.
"""

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from fnx.core import scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer

from .values import Handle, Pull, Shape, Stored

if TYPE_CHECKING:
    from .builder import Builder

FAR = 8  # elements: a longer stride leaves the cache line


@dataclass(frozen=True, eq=False)
class View:
    """Element `index` lies at base + sum(strides * index) of the buffer."""

    buffer: Buffer
    base: Expr
    strides: tuple[int, ...]


def view(builder: "Builder", h: Handle) -> View | None:
    """A value as a view of what is stored, if it is one."""
    if isinstance(h.state, Stored):
        strides, step = [], 1
        for n in reversed(h.shape):
            strides.append(step)
            step *= n
        return View(h.state.buffer, h.state.base, tuple(reversed(strides)))
    if not isinstance(h.state, Pull) or 0 in h.shape:
        return None
    axes = [scalar.var("int64") for _ in h.shape]
    element = builder.evaluated(lambda: h(*axes))
    if element.op != "load" or element.dtype != h.dtype:
        return None
    found = linear(element.args[0], {id(v): k for k, v in enumerate(axes)})
    if found is None:
        return None
    base, parts = found
    return View(element.attr, base, tuple(parts.get(k, 0) for k in range(h.ndim)))


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
        strides = multiples(position, axes)
        if abs(strides.get(last, 0)) >= FAR:
            for k in votes:
                votes[k] += abs(strides.get(k, 0)) == 1
    best = max(votes, key=votes.__getitem__)
    return best if votes[best] and shape[best] > 1 else None


def is_along(position: Expr, axis: Expr) -> bool:
    """Whether a position is contiguous along an axis."""
    return abs(multiples(position, {id(axis): 0}).get(0, 0)) == 1


def multiples(position: Expr, axes: dict[int, int]) -> dict[int, int]:
    """The strides of a position along axes; none where it is not affine."""
    found = linear(position, axes)
    return {} if found is None else found[1]


def collapsed(shape: Shape, strides: Sequence[int], axes: Sequence[int]) -> int | None:
    """The stride of several axes as one, 1 if they have one element; None if they do not make one."""
    found: int | None = None
    step = 0
    for k in reversed(axes):
        if shape[k] == 1:
            continue
        if found is None:
            found = strides[k]
        elif strides[k] != step:
            return None
        step = strides[k] * shape[k]
    return 1 if found is None else found


@dataclass(frozen=True, eq=False)
class Matrices:
    """Row-major matrices, or transposed ones, `leading` apart from row to row (column to column)."""

    view: View
    transposed: bool
    leading: int


def matrices(v: View, shape: Shape, rows: Sequence[int], cols: Sequence[int]) -> Matrices | None:
    """A view as matrices whose rows and columns are groups of axes, if a library can read them."""
    down, right = collapsed(shape, v.strides, rows), collapsed(shape, v.strides, cols)
    if down is None or right is None:
        return None
    m, n = (prod(shape[k] for k in axes) for axes in (rows, cols))
    if (right == 1 or n == 1) and (m == 1 or down >= n):
        return Matrices(v, False, max(n, 1) if m == 1 else down)
    if (down == 1 or m == 1) and (n == 1 or right >= m):
        return Matrices(v, True, max(m, 1) if n == 1 else right)
    return None


def offset(t: Expr, lead: Shape, strides: Sequence[int]) -> Expr:
    """Where item `t` of a stack begins."""
    if len(lead) > 1 and all(s == strides[k + 1] * lead[k + 1] for k, s in enumerate(strides[:-1])):
        lead, strides = (prod(lead),), strides[-1:]
    total = scalar.size(0)
    for k in reversed(range(len(lead))):
        t, i = scalar.divmod_size(t, lead[k]) if k else (t, t)
        total = scalar.add(total, scalar.mul(i, scalar.size(strides[k])))
    return total
