"""What a convolution without edges and holes computes, element by element, for compilers."""

from typing import Any, Protocol

from fnx.core import scalar as expr
from fnx.core.aval import ShapedArray
from fnx.core.recipe import Fold, Operand, Products, Recipe
from fnx.ops.linalg.conv_layout import Shape, placed


class Convolution(Protocol):
    """The parameters of the primitive that a recipe depends on."""

    dimension_numbers: Any
    window_strides: tuple[int, ...]
    rhs_dilation: tuple[int, ...]
    feature_group_count: int
    batch_group_count: int

    @property
    def groups(self) -> int: ...


def _kept(conv: Convolution, aval: ShapedArray) -> Shape:
    """The axes of the result, canonical: group, batch, space, features of a group."""
    batch, features, *space = (aval.shape[a] for a in conv.dimension_numbers.out_spec)
    return (conv.groups, batch, *space, features // conv.groups)


def _points(conv: Convolution, x: Operand, w: Operand, aval: ShapedArray) -> tuple:
    """Where, for an index of `_kept` and one of kernel and channel, the three arrays are."""
    xs, ws, os = conv.dimension_numbers
    _, batches, *_, features = _kept(conv, aval)
    n, channels = len(aval.shape) + 1, w.shape[ws[1]]

    def group_of(index: tuple, size: int, at: expr.Expr) -> expr.Expr:
        return expr.add(expr.mul(index[0], expr.size(size)), at)

    def left(*index: expr.Expr) -> expr.Expr:
        batch, channel = index[1], index[-1]
        if conv.batch_group_count > 1:
            batch = group_of(index, batches, batch)
        elif conv.feature_group_count > 1:
            channel = group_of(index, channels, channel)
        spots = [
            expr.add(expr.mul(p, expr.size(s)), expr.mul(k, expr.size(d)))
            for p, k, s, d in zip(
                index[2 : n - 1], index[n:-1], conv.window_strides, conv.rhs_dilation,
                strict=True,
            )
        ]  # fmt: skip
        return x(*placed(xs, (batch, channel, *spots)))

    def right(*index: expr.Expr) -> expr.Expr:
        out = group_of(index, features, index[n - 1])
        return w(*placed(ws, (out, index[-1], *index[n:-1])))

    def place(*index: expr.Expr) -> tuple[expr.Expr, ...]:
        out = group_of(index, features, index[-1])
        return tuple(placed(os, (index[1], out, *index[2:-1])))

    return left, right, place


def products(conv: Convolution, x: Operand, w: Operand, aval: ShapedArray) -> Recipe:
    """Sums of products, which are computed by tiles."""
    kept, ws = _kept(conv, aval), conv.dimension_numbers.rhs_spec
    shape = (*kept, *(w.shape[a] for a in ws[2:]), w.shape[ws[1]])
    return Products((x, w), shape, len(kept), *_points(conv, x, w, aval))


def fold(conv: Convolution, x: Operand, w: Operand, aval: ShapedArray) -> Recipe:
    """A reduction, for few or complex numbers."""
    _, ws, os = conv.dimension_numbers
    left, right, _ = _points(conv, x, w, aval)
    inner = (*(w.shape[a] for a in ws[2:]), w.shape[ws[1]])
    n, features = len(aval.shape), _kept(conv, aval)[-1]

    def fn(*index: expr.Expr) -> tuple[expr.Expr, ...]:
        batch, out, *at = (index[a] for a in os)
        group, feature = expr.divmod_size(out, features)
        point = (group, batch, *at, feature, *index[n:])
        return (expr.mul(left(*point), right(*point)),)

    return Fold(
        (*aval.shape, *inner),
        tuple(range(n, n + len(inner))),
        (expr.const(0, x.dtype),),
        fn,
        lambda acc, new: (expr.add(acc[0], new[0]),),
        reassociate=True,
    )
