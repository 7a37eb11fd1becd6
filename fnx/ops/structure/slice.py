"""Slice, pad and slice-add: boxes with strides read, set into padding, and added to."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fnx.core import scalar as expr
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.cost import FREE, SIMPLE
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import AddTo, Primitive, Undefined
from fnx.core.recipe import Operand, Piece, Pieces, Point, Recipe, Update, around
from fnx.ops.base.broadcast import (
    Broadcast,
    Shape,
    Sum,
    broadcast_axis,
    full,
    scalar,
    scalar_like,
    typed_zeros,
    zeros,
)
from fnx.ops.base.linear import Linear
from fnx.ops.base.permute import move_axis
from fnx.ops.base.sharding_rule import Factors, all_but, part
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.pointwise import NUMBER


@dataclass(frozen=True)
class Box(Primitive):
    """What slices have in common: from `start_indices` up to `limit_indices`, by `strides`."""

    start_indices: Shape
    limit_indices: Shape
    strides: Shape | None = None

    def steps(self) -> Shape:
        return self.strides or (1,) * len(self.start_indices)

    def box_shape(self) -> Shape:
        return tuple(
            [
                -((lo - hi) // step)
                for lo, hi, step in zip(self.start_indices, self.limit_indices, self.steps())
            ]
        )

    def box(self) -> tuple[slice, ...]:
        return tuple(map(slice, self.start_indices, self.limit_indices, self.steps()))

    def dense_box(self) -> tuple[Shape, Shape] | None:
        """The bounds of a box without gaps."""
        if self.strides is not None and any(s != 1 for s in self.strides):
            return None
        return tuple(self.start_indices), tuple(self.limit_indices)

    def check(self, shape: Shape) -> None:
        lo, hi, steps = self.start_indices, self.limit_indices, self.steps()
        if not len(lo) == len(hi) == len(steps) == len(shape):
            raise ShapeError(
                f"{self.name}[{lo}:{hi}:{steps}] of an operand of shape {shape}; expected one start, "
                "limit and stride per axis"
            )
        if any(not 0 <= a <= b <= n or s < 1 for a, b, n, s in zip(lo, hi, shape, steps)):
            raise InvalidValue(
                f"{self.name} from {lo} to {hi} by {steps} of an operand of shape {shape}; expected "
                "0 <= start <= limit <= size and strides of at least 1"
            )

    def with_axis(self, at: int, size: int) -> tuple:
        """The parameters with a whole axis put in."""

        def put(values: Shape, new: int) -> Shape:
            return (*values[:at], new, *values[at:])

        strides = None if self.strides is None else put(self.strides, 1)
        return put(self.start_indices, 0), put(self.limit_indices, size), strides

    def part_axes(self, shape: Shape) -> list[int]:
        """The axes along which it is not the whole array of this shape."""
        bounds = zip(self.start_indices, self.limit_indices, self.steps(), shape)
        return [k for k, (lo, hi, step, n) in enumerate(bounds) if (lo, hi, step) != (0, n, 1)]

    def in_parts(self, shape: Shape, parts: Mapping[int, int]) -> "Box":
        """The same of arrays whose axes are in so many parts."""
        hi = [
            part(n, parts[k]) if k in parts else h
            for k, (n, h) in enumerate(zip(shape, self.limit_indices))
        ]
        return type(self)(self.start_indices, tuple(hi), self.strides)

    def whole_along(self, axis: int, size: int) -> "Box":
        """The same, but for all of an axis."""

        def put(values: Shape, new: int) -> Shape:
            return (*values[:axis], new, *values[axis + 1 :])

        strides = None if self.strides is None else put(self.strides, 1)
        return type(self)(put(self.start_indices, 0), put(self.limit_indices, size), strides)

    def source(self, index: Sequence[expr.Expr]) -> list[expr.Expr]:
        """Where the element `index` of the box lies."""
        return [
            expr.add(expr.mul(i, expr.size(step)), expr.size(lo))
            for i, lo, step in zip(index, self.start_indices, self.steps())
        ]


class AddInto:
    """Adds an update to a box of an array in place."""

    def __init__(self, box: tuple[slice, ...], update: np.ndarray):
        self.box, self.update = box, update

    def __call__(self, out: np.ndarray) -> None:
        out[self.box] += self.update


@dataclass(frozen=True)
class Slice(Box):
    """The elements of a box."""

    name = "slice"
    cost = FREE
    moves = True

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        self.check(x.shape)
        return (ShapedArray(self.box_shape(), x.dtype, x.weak_type),)

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        out = np.asarray(x[self.box()])
        return out if out.flags.c_contiguous else out.copy()

    jvp = Linear.jvp

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        add_to = SliceAdd(self.start_indices, self.limit_indices, self.strides)
        ct = cts[0]
        into = AddInto(self.box(), ct._value) if type(ct) is ConcreteArray else None
        return (AddTo(x.aval, lambda total: add_to(total, ct), into),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (Slice(*self.with_axis(axes[0], size))(args[0]),), (axes[0],)

    def sharding(self, x: ShapedArray) -> Factors:
        rule = all_but(x.ndim, self.part_axes(x.shape))
        return Factors(
            rule.operands, rule.results, local=lambda parts: self.in_parts(x.shape, parts)
        )

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        (x,) = parts
        axis = next(k for k in self.part_axes(x.shape) if x.cut[k])
        lo, step, size = self.start_indices[axis], self.steps()[axis], self.box_shape()[axis]
        if step != 1 and size % grid.count(x.cut[axis]):
            return None
        box = grid.window(x, axis, lo, size * step)
        if step != 1:  # as many elements of each part, if there are parts
            shape = (*box.shape[:axis], size, *box.shape[axis + 1 :])
            box = grid.part(_strided(box.x, axis, step), shape, box.cut)
        return grid.apply(self.whole_along(axis, size), [box])

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        return Point(lambda *ix: x(*self.source(ix)))


class BoxUpdate(Box):
    """The operand with an update written into a box of it, or combined with what is there."""

    combine: ClassVar[Callable[[expr.Expr, expr.Expr], expr.Expr] | None] = None

    def abstract(self, x: ShapedArray, update: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        self.check(x.shape)
        if update.shape != self.box_shape():
            raise ShapeError(
                f"{self.name} in an operand of shape {x.shape} of an update of shape {update.shape}; "
                f"expected the slice's shape {self.box_shape()}"
            )
        if update.dtype != x.dtype or (self.combine is not None and x.dtype not in NUMBER):
            what = "equal dtypes" if self.combine is None else "numbers of equal dtypes"
            raise TypeMismatch(f"{self.name} of dtype {update.dtype} in {x.dtype}; expected {what}")
        return (ShapedArray(x.shape, x.dtype, x.weak_type and update.weak_type),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        at = next(k for k in axes if k is not None)
        x, update = (
            broadcast_axis(a, size, at) if k is None else move_axis(a, k, at)
            for a, k in zip(args, axes)
        )
        return (type(self)(*self.with_axis(at, size))(x, update),), (at,)

    def sharding(self, x: ShapedArray, update: ShapedArray) -> Factors:
        axes = all_but(x.ndim, self.part_axes(x.shape)).results
        return Factors(axes * 2, axes, local=lambda parts: self.in_parts(x.shape, parts))

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        x, update = parts
        axis = next(k for k in self.part_axes(x.shape) if x.cut[k] or update.cut[k])
        lo, hi, n = self.start_indices[axis], self.limit_indices[axis], x.shape[axis]
        step, names = self.steps()[axis], update.cut[axis]
        if step != 1:
            if names and update.shape[axis] % grid.count(names):
                return None
            size = step * update.shape[axis]
            shape = (*update.shape[:axis], size, *update.shape[axis + 1 :])
            update = grid.part(_spaced(update.x, axis, step), shape, update.cut)
        if not x.cut[axis]:
            x = grid.lay(x, grid.beside(x, axis, update.cut[axis]))
        cut = grid.beside(update, axis, x.cut[axis])
        moved = grid.moved(update, cut, axis, -lo, n)
        (made,) = grid.apply(self.whole_along(axis, n), [x, moved])
        return [grid.choose(axis, lo, hi, made, x, step)]

    def lower(self, x: Operand, update: Operand) -> Recipe:  # type: ignore[override]
        always = expr.const(True, "bool")
        return Update(
            x,
            update.shape,
            lambda *ix: (always, tuple(self.source(ix))),
            update,
            self.combine,
            unique=True,
            box=self.dense_box(),
        )


@dataclass(frozen=True)
class SliceAdd(BoxUpdate):
    """The operand with an update added to the elements of a box."""

    name = "slice_add"
    update_operand = 1
    update_kind = "add"
    combine = staticmethod(expr.add)

    def impl(self, x: np.ndarray, update: np.ndarray) -> np.ndarray:  # type: ignore[override]
        out = x.copy()
        out[self.box()] += update
        return out

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, _), (tx, tu) = primals, tangents
        if tu is None:
            return (self(*primals),), (tx,)
        return (self(*primals),), (self(typed_zeros(x.aval) if tx is None else tx, tu),)

    def transpose(self, cts: tuple, x: Any, update: Any) -> tuple:  # type: ignore[override]
        read = Slice(self.start_indices, self.limit_indices, self.strides)
        return (
            cts[0] if type(x) is Undefined else None,
            read(cts[0]) if type(update) is Undefined else None,
        )


@dataclass(frozen=True)
class Pad(Primitive):
    """The operand in a field of the value of rank 0: (low, high, interior) for each axis.

    Negative low and high crop; interior is the number of values between neighbours.
    """

    padding_config: tuple[tuple[int, int, int], ...]
    name = "pad"
    cost = SIMPLE
    moves = True

    def abstract(self, x: ShapedArray, value: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if len(self.padding_config) != len(x.shape) or value.shape:
            raise ShapeError(
                f"pad of an operand of shape {x.shape} with a value of shape {value.shape} and "
                f"padding_config {self.padding_config}; expected a value of rank 0, and (low, high, "
                "interior) for each axis"
            )
        if value.dtype != x.dtype:
            raise TypeMismatch(f"pad of {x.dtype} with {value.dtype}; expected equal dtypes")
        shape = self.out_shape(x.shape)
        if any(n < 0 for n in shape) or any(k < 0 for _, _, k in self.padding_config):
            raise InvalidValue(
                f"pad of an operand of shape {x.shape} by {self.padding_config} would have shape "
                f"{shape}; expected sizes and interior padding that are not negative"
            )
        return (ShapedArray(shape, x.dtype, x.weak_type and value.weak_type),)

    def out_shape(self, shape: Shape) -> Shape:
        return tuple(
            [
                lo + hi + n + max(n - 1, 0) * inner
                for n, (lo, hi, inner) in zip(shape, self.padding_config)
            ]
        )

    def boxes(self, shape: Shape) -> tuple[list[slice], list[slice]]:
        """What of the operand remains, and where in the result it goes."""
        read, write = [], []
        for n, m, (lo, _, inner) in zip(shape, self.out_shape(shape), self.padding_config):
            step = inner + 1
            first = max(0, -(lo // step)) if lo < 0 else 0
            last = min(n, max(first, (m - 1 - lo) // step + 1))
            read.append(slice(first, last))
            start = lo + first * step
            write.append(slice(start, start + (last - first) * step, step))
        return read, write

    def impl(self, x: np.ndarray, value: np.ndarray) -> np.ndarray:  # type: ignore[override]
        out = np.empty(self.out_shape(x.shape), x.dtype)
        out[...] = value
        read, write = self.boxes(x.shape)
        if all([r.stop > r.start for r in read]):
            out[tuple(write)] = x[tuple(read)]
        return out

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, value), (tx, tv) = primals, tangents
        tx = typed_zeros(x.aval) if tx is None else tx
        tv = scalar_like(0, value) if tv is None else tv
        return (self(*primals),), (self(tx, tv),)

    def transpose(self, cts: tuple, x: Any, value: Any) -> tuple:  # type: ignore[override]
        ct = cts[0]
        if ct.weak_type and x.shape:  # zeros go around it, as in JAX
            ct = ConvertElementType(ct.dtype)(ct)
        inner = self.unpad(ct, x.shape)
        if type(value) is not Undefined:
            return inner, None
        axes = tuple(range(len(x.shape)))
        rest = self(zeros(inner.aval), scalar(1, ct.dtype))
        outside = Sum(axes)(_times(ct, rest)) if axes else scalar(0, ct.dtype)
        return (inner if type(x) is Undefined else None), outside

    def unpad(self, ct: Array, shape: Shape) -> Array:
        """The elements of the result where the operand's went; 0 for what was cropped."""
        read, write = self.boxes(shape)
        if any(r.stop <= r.start for r in read):
            return full(shape, 0, ct.dtype)
        starts = tuple([w.start for w in write])
        limits = tuple([w.stop - w.step + 1 for w in write])
        strides = tuple([w.step for w in write])
        inner = Slice(starts, limits, strides if any(s != 1 for s in strides) else None)(ct)
        if inner.shape == shape:
            return inner
        back = tuple([(r.start, n - r.stop, 0) for r, n in zip(read, shape)])
        return Pad(back)(inner, scalar(0, ct.dtype))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (x, value), (kx, kv) = args, axes
        at = 0 if kx is None else kx
        config = (*self.padding_config[:at], (0, 0, 0), *self.padding_config[at:])
        if kv is None:
            return (Pad(config)(x, value),), (at,)
        # Lanes with padding of their own: choose by where the operand went.
        x = broadcast_axis(x, size, 0) if kx is None else x
        inner = Pad(config)(x, scalar(0, x.dtype))
        mask = Pad(self.padding_config)(
            full((*x.shape[:at], *x.shape[at + 1 :]), True, np.dtype(bool)),
            scalar(False, np.dtype(bool)),
        )
        from fnx.ops.elementwise.select import select

        return (
            select(broadcast_axis(mask, size, at), inner, Broadcast(inner.shape, (at,))(value)),
        ), (at,)

    def sharding(self, x: ShapedArray, value: ShapedArray) -> Factors:
        rule = all_but(x.ndim, [k for k, c in enumerate(self.padding_config) if c != (0, 0, 0)])
        return Factors((*rule.operands, ()), rule.results)

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        x, value = parts
        axis = next(k for k, c in enumerate(self.padding_config) if c != (0, 0, 0) and x.cut[k])
        lo, _, inner = self.padding_config[axis]
        config = (*self.padding_config[:axis], (0, 0, 0), *self.padding_config[axis + 1 :])
        size = self.out_shape(x.shape)[axis]
        wide = grid.window(grid.spread(x, axis, inner + 1, value.x), axis, -lo, size, value)
        return grid.apply(Pad(config), [wide, value])

    def lower(self, x: Operand, value: Operand) -> Recipe:  # type: ignore[override]
        shape = self.out_shape(x.shape)
        read, write = self.boxes(x.shape)
        if any(r.stop <= r.start for r in read):
            return Point(lambda *ix: value())
        if any(inner for _, _, inner in self.padding_config):
            return Point(lambda *ix: self.element(x, value, read, write, ix))

        def moved(*ix: expr.Expr) -> expr.Expr:
            return x(*[expr.sub(i, expr.size(c[0])) for i, c in zip(ix, self.padding_config)])

        lo, hi = [w.start for w in write], [w.stop for w in write]
        inside = Piece(tuple(lo), tuple(hi), moved)
        outside = [Piece(a, b, lambda *ix: value()) for a, b in around(shape, tuple(lo), tuple(hi))]
        return Pieces((inside, *outside))

    def element(
        self, x: Operand, value: Operand, read: list, write: list, ix: Sequence[expr.Expr]
    ) -> expr.Expr:
        here, index = expr.const(True, "bool"), []
        for i, r, w in zip(ix, read, write):
            off = expr.sub(i, expr.size(w.start))
            quotient = expr.apply("div", off, expr.size(w.step)) if w.step > 1 else off
            here = expr.logical_and(here, expr.compare("ge", off, expr.size(0)))
            here = expr.logical_and(here, expr.compare("lt", quotient, expr.size(r.stop - r.start)))
            if w.step > 1:
                exact = expr.mul(quotient, expr.size(w.step))
                here = expr.logical_and(here, expr.compare("eq", exact, off))
            inside = expr.clamp(expr.size(0), quotient, expr.size(r.stop - r.start - 1))
            index.append(expr.add(inside, expr.size(r.start)))
        return expr.select(here, x(*index), value())


def _times(x: Array, y: Array) -> Array:
    from fnx.ops.elementwise.arithmetic import mul

    return mul(x, y)


def _spaced(x: Array, axis: int, step: int) -> Array:
    """With zeros after each element along an axis, so that each is `step` after the one before."""
    config = [(0, 0, 0)] * x.ndim
    config[axis] = (0, step - 1, step - 1)
    return Pad(tuple(config))(x, scalar(0, x.dtype))


def _strided(x: Array, axis: int, step: int) -> Array:
    """Every `step`th element along an axis."""
    steps = [1] * x.ndim
    steps[axis] = step
    return Slice((0,) * x.ndim, x.shape, tuple(steps))(x)


def slice_axis(x: Array, start: int, stop: int, axis: int) -> Array:
    """Elements `start` to `stop` along one axis."""
    lo, hi = [0] * len(x.shape), list(x.shape)
    lo[axis], hi[axis] = start, stop
    return Slice(tuple(lo), tuple(hi))(x)
