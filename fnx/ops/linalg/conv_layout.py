"""Layouts of convolutions: canonical is batch, features, space; of filters out, in, space."""

from collections.abc import Sequence
from typing import NamedTuple

from fnx.core import scalar as expr
from fnx.core.array import Array
from fnx.ops.base.permute import Reshape, Transpose
from fnx.ops.structure.basic import move_axis

Shape = tuple[int, ...]


class ConvDimensionNumbers(NamedTuple):
    """Which axes are which: lhs (batch, feature, *spatial), rhs (out, in, *spatial), out as lhs.

    >>> lax.conv_dimension_numbers((1, 3, 8), (4, 3, 2), None)
    ConvDimensionNumbers(lhs_spec=(0, 1, 2), rhs_spec=(0, 1, 2), out_spec=(0, 1, 2))
    """

    lhs_spec: Shape
    rhs_spec: Shape
    out_spec: Shape


def canonical_numbers(spatial: int) -> ConvDimensionNumbers:
    """Batch, feature, space; out, in, space."""
    axes = tuple(range(spatial + 2))
    return ConvDimensionNumbers(axes, axes, axes)


def dilated(n: int, dilation: int) -> int:
    """The length of n elements with dilation - 1 holes between neighbours."""
    return max(0, (n - 1) * dilation + 1) if n else 0


def placed(spec: Shape, index: Sequence[expr.Expr]) -> list[expr.Expr]:
    """An index of canonical layout in that of a specification."""
    at = dict(zip(spec, index, strict=True))
    return [at[a] for a in range(len(spec))]


def _transpose(x: Array, perm: Shape) -> Array:
    return x if perm == tuple(range(len(perm))) else Transpose(perm)(x)


def permuted(x: Array, spec: Shape, batch_axis: int | None = None) -> Array:
    """In canonical layout, a batch axis first if there is one."""
    if batch_axis is None:
        return _transpose(x, tuple(spec))
    return _transpose(x, (batch_axis, *(a + (a >= batch_axis) for a in spec)))


def unpermuted(x: Array, spec: Shape, batched: bool = False) -> Array:
    """Back from canonical layout."""
    back = tuple(sorted(range(len(spec)), key=spec.__getitem__))
    return _transpose(x, (0, *(a + 1 for a in back)) if batched else back)


def feature_groups(x: Array, groups: int, batched: bool = False) -> Array:
    """Groups of the batch as groups of features, in canonical layout."""
    k = int(batched)
    lead, (n, c, *space) = x.shape[:k], x.shape[k:]
    x = Reshape((*lead, groups, n // groups, c, *space))(x)
    x = move_axis(x, k, k + 1)
    return Reshape((*lead, n // groups, groups * c, *space))(x)


def batch_groups(x: Array, groups: int, features: int) -> Array:
    """The inverse of `feature_groups`."""
    n, _, *space = x.shape
    x = move_axis(Reshape((n, groups, features, *space))(x), 1, 0)
    return Reshape((groups * n, features, *space))(x)
