"""Affine views: values that are elements of one buffer at a base and constant strides.

Source: affine accesses of the polyhedral model (Feautrier 1991). Transposes, slices and broadcasts of
stored arrays are such; a library can read them as they are.
"""

from collections.abc import Sequence
from math import prod

from fnx.core import scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.ir.affine import linear
from fnx.lowering.ir.kernel import Buffer

from .generation import Generation
from .values import Inlined, Materialized, Shape, Value


@dataclass(frozen=True, eq=False)
class View:
    """Element `index` lies at base + sum(strides * index) of the buffer."""

    buffer: Buffer
    base: Expr
    strides: tuple[int, ...]


def view(builder: Generation, h: Value) -> View | None:
    """A value as a view of what is stored, if it is one."""
    if isinstance(h.state, Materialized):
        strides, step = [], 1
        for n in reversed(h.shape):
            strides.append(step)
            step *= n
        return View(h.state.buffer, h.state.base, tuple(reversed(strides)))
    if not isinstance(h.state, Inlined) or 0 in h.shape:
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
