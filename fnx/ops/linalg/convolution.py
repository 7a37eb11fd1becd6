"""conv_general_dilated: convolutions (without flipping) with strides, padding, dilations and groups."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from fnx.core import dtypes, policy
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Call, Operand, Recipe
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.base.compose import Program
from fnx.ops.base.float32_accumulation import Cast
from fnx.ops.base.permute import Reshape, Rev, Transpose
from fnx.ops.base.sharding_rule import Factors
from fnx.ops.linalg import conv_in_parts, conv_recipes
from fnx.ops.linalg.contraction import accumulator
from fnx.ops.linalg.conv_layout import (
    ConvDimensionNumbers,
    Shape,
    batch_groups,
    canonical_numbers,
    dilated,
    feature_groups,
    permuted,
    unpermuted,
)
from fnx.ops.structure.basic import add_any, broadcast_axis, convert, move_axis, zeros
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Pad, Slice

Pairs = tuple[tuple[int, int], ...]


def _blocks(windows: np.ndarray, axes: int) -> Iterator[tuple[slice, ...]]:
    """Boxes of a view of overlapping windows, along all and the next `axes` axes, that are small copies."""
    count = max(1, -(-windows.nbytes // policy.WINDOWS_AT_ONCE))
    steps = []
    for n in windows.shape[1 : 1 + axes]:
        steps.append(max(1, n // count))
        count = -(-count // n)
    spans = [[slice(k, k + s) for k in range(0, n, s)] for n, s in zip(windows.shape[1:], steps)]
    for box in itertools.product(*spans):
        yield (slice(None), *box)


@dataclass(frozen=True)
class ConvGeneralDilated(Primitive):
    """Sums of products of windows of lhs with rhs.

    out[b, o, p] = sum over i, k of lhs[b, i, p * stride + k * rhs_dilation - padding] * rhs[o, i, k]
    in the axes that `dimension_numbers` name; lhs has lhs_dilation - 1 zeros between neighbours.
    Features fall into `feature_group_count` groups (or the batch into `batch_group_count`), which
    do not mix. Meaning and parameters are XLA's.
    """

    window_strides: Shape
    padding: Pairs
    lhs_dilation: Shape
    rhs_dilation: Shape
    dimension_numbers: ConvDimensionNumbers
    feature_group_count: int = 1
    batch_group_count: int = 1
    preferred_element_type: np.dtype | None = None
    name = "conv_general_dilated"

    # --- shapes ---------------------------------------------------------------------------------

    def abstract(self, x: ShapedArray, w: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if x.dtype != w.dtype:
            raise TypeMismatch(
                f"{self.name} needs operands of one dtype, not {x.dtype} and {w.dtype}; convert one "
                "with .astype"
            )
        if x.dtype == dtypes.bool_:
            raise TypeMismatch(f"{self.name} of dtype bool; convert the operands with .astype")
        xs, ws, os = self._specs(x, w)
        batch, features = x.shape[xs[0]], x.shape[xs[1]]
        out, inputs = w.shape[ws[0]], w.shape[ws[1]]
        groups = self.feature_group_count * self.batch_group_count
        if (
            features != inputs * self.feature_group_count
            or out % groups
            or batch % self.batch_group_count
        ):
            raise ShapeError(
                f"{self.name}: lhs of shape {x.shape} has {features} features in "
                f"{self.feature_group_count} groups and batch {batch} in {self.batch_group_count}; rhs "
                f"of shape {w.shape} takes {inputs} features a group and makes {out}"
            )
        shape = [0] * x.ndim
        shape[os[0]], shape[os[1]] = batch // self.batch_group_count, out
        sizes = self.out_spatial([x.shape[a] for a in xs[2:]], [w.shape[a] for a in ws[2:]])
        for a, n in zip(os[2:], sizes, strict=True):
            shape[a] = n
        dtype = self.preferred_element_type or x.dtype
        return (ShapedArray(tuple(shape), dtype, x.weak_type and w.weak_type),)

    def _specs(self, x: ShapedArray, w: ShapedArray) -> ConvDimensionNumbers:
        numbers, n = self.dimension_numbers, len(self.window_strides)
        axes = list(range(n + 2))
        given = (self.padding, self.lhs_dilation, self.rhs_dilation)
        if (
            any(sorted(spec) != axes for spec in numbers)
            or x.ndim != n + 2
            or w.ndim != n + 2
            or any(len(p) != n for p in given)
        ):
            raise ShapeError(
                f"{self.name} with {n} window strides works on operands of rank {n + 2} (batch, "
                f"features, and {n} axes of space; out, in and space of the filter), with as many pairs "
                f"of padding and dilations; given shapes {x.shape} and {w.shape}, padding "
                f"{self.padding}, dilations {self.lhs_dilation} and {self.rhs_dilation}, and "
                f"dimension numbers {tuple(map(tuple, numbers))}"
            )
        if self.feature_group_count > 1 and self.batch_group_count > 1:
            raise ShapeError(f"{self.name}: only one of feature and batch group count may exceed 1")
        return numbers

    def out_spatial(self, sizes: Sequence[int], kernel: Sequence[int]) -> list[int]:
        found = []
        for n, k, s, (lo, hi), ld, rd in zip(
            sizes, kernel, self.window_strides, self.padding, self.lhs_dilation, self.rhs_dilation
        ):
            room = dilated(n, ld) + lo + hi - dilated(k, rd)
            found.append(max(0, room // s + 1))
        return found

    # --- numbers --------------------------------------------------------------------------------

    def impl(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:  # type: ignore[override]
        (aval,) = self.abstract(ShapedArray(x.shape, x.dtype), ShapedArray(w.shape, w.dtype))
        xs, ws, os = self.dimension_numbers
        dtype = accumulator(x.dtype, aval.dtype)
        x, w = x.transpose(xs).astype(dtype, copy=False), w.transpose(ws).astype(dtype, copy=False)
        groups = max(self.feature_group_count, self.batch_group_count)
        if self.batch_group_count > 1:  # groups of the batch become groups of features
            n, c, *space = x.shape
            x = x.reshape(groups, n // groups, c, *space).swapaxes(0, 1)
            x = x.reshape(n // groups, groups * c, *space)
        out = self._correlate(x, w, groups) if aval.size else np.zeros(
            tuple(aval.shape[a] for a in os), dtype
        )  # fmt: skip
        back = tuple(sorted(range(len(os)), key=os.__getitem__))
        return np.asarray(out.transpose(back), aval.dtype, order="C")

    def _correlate(self, x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
        """Canonical layout: windows side by side (im2col), and one matmul a group."""
        space = len(self.window_strides)
        (out, inputs, *kernel), batch = w.shape, x.shape[0]
        sizes = self.out_spatial(x.shape[2:], kernel)
        x = self._spread(x)
        reach = tuple(dilated(k, d) for k, d in zip(kernel, self.rhs_dilation))
        axes = tuple(range(2, 2 + space))
        view = np.lib.stride_tricks.sliding_window_view(x, reach, axes)
        steps = [slice(None, None, s) for s in (*self.window_strides, *self.rhs_dilation)]
        view = view[(slice(None), slice(None), *steps)]
        view = view.reshape(batch, groups, inputs, *view.shape[2:])
        to = (1, 0, *range(3, 3 + space), 2, *range(3 + space, 3 + 2 * space))
        windows = view.transpose(to)
        filters = w.reshape(groups, out // groups, inputs * prod(kernel)).swapaxes(1, 2)
        result = np.empty((groups, batch, *sizes, out // groups), x.dtype)
        for block in _blocks(windows, 2 if space else 1):
            into = result[block]
            rows = into[0].size // into.shape[-1]
            columns = windows[block].reshape(groups, rows, filters.shape[1])
            into[...] = np.matmul(columns, filters).reshape(into.shape)
        result = result.reshape(groups, batch, prod(sizes), out // groups)
        return result.transpose(1, 0, 3, 2).reshape(batch, out, *sizes)

    def _spread(self, x: np.ndarray) -> np.ndarray:
        """With holes and padding; negative padding crops."""
        sizes = [
            dilated(n, d) + max(lo, 0) + max(hi, 0)
            for n, d, (lo, hi) in zip(x.shape[2:], self.lhs_dilation, self.padding)
        ]
        if any(d > 1 for d in self.lhs_dilation) or any(
            p > 0 for pair in self.padding for p in pair
        ):
            wide = np.zeros((*x.shape[:2], *sizes), x.dtype)
            box = [
                slice(max(lo, 0), max(lo, 0) + dilated(n, d), d)
                for n, d, (lo, _) in zip(x.shape[2:], self.lhs_dilation, self.padding)
            ]
            wide[(..., *box)] = x
            x = wide
        crop = [slice(max(-lo, 0), n - max(-hi, 0)) for n, (lo, hi) in zip(sizes, self.padding)]
        return x[(..., *crop)]

    # --- derivatives ----------------------------------------------------------------------------

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, w), (tx, tw) = primals, tangents
        t = None if tx is None else self(tx, w)
        if tw is not None:
            other = self(x, tw)
            t = other if t is None else add_any(t, other)
        return (self(x, w),), (t,)

    def transpose(self, cts: tuple, x: Any, w: Any) -> tuple:  # type: ignore[override]
        xs, ws, os = self.dimension_numbers
        ct = permuted(cts[0], os)
        plain = self._canonical()
        sizes = tuple(x.shape[a] for a in xs[2:])
        kernel = tuple(w.shape[a] for a in ws[2:])
        groups, features = self.groups, x.shape[xs[1]]
        if isinstance(x, Undefined):
            ct = convert(ct, w.dtype)
            back = plain.pull_lhs(ct, permuted(w, ws), sizes, groups)
            if self.batch_group_count > 1:
                back = batch_groups(back, groups, features)
            return unpermuted(back, xs), None
        ct = convert(ct, x.dtype)
        x = permuted(x, xs)
        if self.batch_group_count > 1:
            x = feature_groups(x, groups)
        return None, unpermuted(plain.pull_rhs(ct, x, kernel, groups), ws)

    @property
    def groups(self) -> int:
        return max(self.feature_group_count, self.batch_group_count)

    def _canonical(self, groups: int | None = None) -> "ConvGeneralDilated":
        """The same in canonical layout; groups of the batch have become groups of features."""
        return ConvGeneralDilated(
            self.window_strides,
            self.padding,
            self.lhs_dilation,
            self.rhs_dilation,
            canonical_numbers(len(self.window_strides)),
            self.groups if groups is None else groups,
            1,
            self.preferred_element_type,
        )

    def pull_lhs(self, ct: Array, w: Array, sizes: Shape, groups: int) -> Array:
        """ct convolved with the reversed filter; strides and holes change places."""
        out, inputs, *kernel = w.shape
        n = len(kernel)
        w = Reshape((groups, out // groups, inputs, *kernel))(w)
        w = Transpose((0, 2, 1, *range(3, 3 + n)))(w)
        w = Rev(tuple(range(2, 2 + n)))(Reshape((groups * inputs, out // groups, *kernel))(w))
        padding = []
        for size, k, s, (lo, _), ld, rd, o in zip(
            sizes, kernel, self.window_strides, self.padding, self.lhs_dilation, self.rhs_dilation,
            ct.shape[2:],
        ):  # fmt: skip
            before = dilated(k, rd) - lo - 1
            padding.append(
                (before, dilated(size, ld) + dilated(k, rd) - 1 - dilated(o, s) - before)
            )
        return ConvGeneralDilated(
            self.lhs_dilation, tuple(padding), self.window_strides, self.rhs_dilation,
            self.dimension_numbers, groups,
        )(ct, w)  # fmt: skip

    def pull_rhs(self, ct: Array, x: Array, kernel: Shape, groups: int) -> Array:
        """lhs convolved with ct, the batch being summed; strides and the filter's holes change places."""
        batch, features, *sizes = x.shape
        n, out = len(sizes), ct.shape[1]
        x = Reshape((batch, groups, features // groups, *sizes))(x)
        x = Transpose((2, 1, 0, *range(3, 3 + n)))(x)
        x = Reshape((features // groups, groups * batch, *sizes))(x)
        ct = Transpose((1, 0, *range(2, 2 + n)))(ct)
        padding = []
        for size, k, s, (lo, _), ld, rd, o in zip(
            sizes, kernel, self.window_strides, self.padding, self.lhs_dilation, self.rhs_dilation,
            ct.shape[2:],
        ):  # fmt: skip
            after = dilated(o, s) - dilated(size, ld) + dilated(k, rd) - lo - 1
            padding.append((lo, after))
        found = ConvGeneralDilated(
            self.rhs_dilation, tuple(padding), self.lhs_dilation, self.window_strides,
            self.dimension_numbers, groups,
        )(x, ct)  # fmt: skip
        assert found.shape == (features // groups, out, *kernel)
        return Transpose((1, 0, *range(2, 2 + n)))(found)

    # --- batches --------------------------------------------------------------------------------

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (x, w), (kx, kw) = args, axes
        if not size:  # an empty batch would be no groups
            one = [ShapedArray(v.shape[:k] + v.shape[k + 1 :], v.dtype) if k is not None else v.aval
                    for v, k in zip(args, axes)]  # fmt: skip
            (aval,) = self.abstract(*one)
            return (zeros(aval.update(shape=(0, *aval.shape))),), (0,)
        xs, ws, os = self.dimension_numbers
        groups = self.groups
        if kx is None and groups > 1:
            x, kx = broadcast_axis(x, size, 0), 0
        x = permuted(x, xs, kx)
        w = permuted(w, ws, kw)
        if self.batch_group_count > 1:
            x = feature_groups(x, groups, kx is not None)
        if kw is None:  # batch elements of lhs are more batch
            batch, n, *rest = x.shape
            out = self._canonical()(Reshape((batch * n, *rest))(x), w)
            out = Reshape((batch, n, *out.shape[1:]))(out)
            return (unpermuted(out, os, True),), (0,)
        batch, o, *rest = w.shape
        w = Reshape((batch * o, *rest))(
            w
        )  # batch elements of rhs are more features, of both more groups
        if kx is not None:
            batch, n, c, *rest = x.shape
            x = Reshape((n, batch * c, *rest))(move_axis(x, 0, 1))
            groups *= batch
        out = self._canonical(groups)(x, w)
        out = Reshape((out.shape[0], batch, o, *out.shape[2:]))(out)
        return (unpermuted(move_axis(out, 1, 0), os, True),), (0,)

    # --- native code ----------------------------------------------------------------------------

    def sharding(self, x: ShapedArray, w: ShapedArray) -> Factors:
        xs, ws, os = self._specs(x, w)
        left: list = [None] * x.ndim
        right: list = [None] * w.ndim
        out: list = [None] * x.ndim
        if self.batch_group_count == 1:
            left[xs[0]] = out[os[0]] = "batch"
        if self.feature_group_count == self.batch_group_count == 1:
            right[ws[0]] = out[os[1]] = "features"
            left[xs[1]] = right[ws[1]] = "in"
        elif self.batch_group_count == 1:
            left[xs[1]] = right[ws[0]] = out[os[1]] = "groups"

        def local(parts: Mapping) -> ConvGeneralDilated:
            return replace(self, feature_group_count=self.groups // parts.get("groups", 1))

        return Factors(
            (tuple(left), tuple(right)),
            (tuple(out),),
            {"in": ("sum", 0)},
            {"groups": self.feature_group_count},
            local if self.feature_group_count > 1 else None,
        )

    def along(self, grid: Any, parts: Sequence[Any]) -> list | None:
        return conv_in_parts.convolution(self, grid, parts)

    def lower(self, x: Operand, w: Operand) -> Recipe:  # type: ignore[override]
        (aval,) = self.abstract(_aval(x), _aval(w))
        sums = accumulator(dtypes.canonical(x.dtype), aval.dtype)
        padded = any(p != (0, 0) for p in self.padding) or any(d > 1 for d in self.lhs_dilation)
        if padded or sums != aval.dtype or x.dtype != dtypes.NAME[sums]:
            return self._in_steps(x, w, sums, aval.dtype)
        products = aval.size * prod(w.shape) // max(w.shape[self.dimension_numbers.rhs_spec[0]], 1)
        # A filter's gradient: its sums are too few for tiles, in which each would wait for its terms.
        few = aval.size <= policy.SMALL and products >= policy.LONG_SUM * aval.size
        if products and (few or products <= policy.FOLDED_CONVOLUTION or dtypes.is_complex(sums)):
            return conv_recipes.fold(self, x, w, aval)
        return conv_recipes.products(self, x, w, aval)

    def _in_steps(self, x: Operand, w: Operand, sums: np.dtype, out: np.dtype) -> Recipe:
        """Operands in the dtype of the sums, lhs with its holes and edges; the sums; their rounding."""
        p = Program((_aval(x), _aval(w)))
        wide = [v if v.aval.dtype == sums else p(Cast(sums), v) for v in p.inputs]
        result = self._sums(p, *wide)
        return Call(p.jaxpr(self.name, result if out == sums else p(Cast(out), result)))

    def _sums(self, p: Program, x: Any, w: Any) -> Any:
        """The convolution without edges and holes, where it can be phase by phase."""
        for d, hole in enumerate(self.lhs_dilation):
            if hole > 1 and self.window_strides[d] == self.rhs_dilation[d] == 1:
                return self._phases(p, x, w, d)
        field = [(0, 0, 0)] * len(x.aval.shape)
        for a, (lo, hi), hole in zip(
            self.dimension_numbers.lhs_spec[2:], self.padding, self.lhs_dilation, strict=True
        ):
            field[a] = (lo, hi, hole - 1)
        if any(lo > 0 or hi > 0 or hole for lo, hi, hole in field):
            x = p(Pad(tuple(field)), x, p.constant(0, x.aval.dtype))
        elif any(f != (0, 0, 0) for f in field):
            stop = tuple(n + hi for n, (_, hi, _) in zip(x.aval.shape, field, strict=True))
            x = p(Slice(tuple(-lo for lo, _, _ in field), stop), x)
        n = len(self.window_strides)
        return p(self._with(padding=((0, 0),) * n, lhs_dilation=(1,) * n), x, w)

    def _with(self, **fields: Any) -> "ConvGeneralDilated":
        return replace(self, preferred_element_type=None, **fields)

    def _phases(self, p: Program, x: Any, w: Any, d: int) -> Any:
        """With `hole` - 1 zeros between neighbours, each result meets every `hole`-th tap only.

        Results `hole` apart meet the same taps: they are a convolution without holes. Its results
        are woven together with those of the other phases.
        """
        xs, ws, os = self.dimension_numbers
        hole, lo = self.lhs_dilation[d], self.padding[d][0]
        (aval,) = self.abstract(x.aval, w.aval)
        n, taps, total = x.aval.shape[xs[2 + d]], w.aval.shape[ws[2 + d]], aval.shape[os[2 + d]]
        longest = -(-total // hole)
        phases = []
        for phase in range(hole):
            first = (lo - phase) % hole
            shape = list(aval.shape)
            shape[os[2 + d]] = longest
            reach = -(-(taps - first) // hole)
            if reach <= 0 or not total:
                zero = p.constant(0, x.aval.dtype)
                phases.append(p(Broadcast(tuple(shape), ()), zero))
                continue
            start, stop, step = [0] * w.aval.ndim, list(w.aval.shape), [1] * w.aval.ndim
            start[ws[2 + d]], step[ws[2 + d]] = first, hole
            part = p(Slice(tuple(start), tuple(stop), tuple(step)), w) if taps > 1 else w
            before = (lo - phase - first) // hole
            padding, holes = list(self.padding), list(self.lhs_dilation)
            padding[d], holes[d] = (before, longest + reach - 1 - n - before), 1
            prim = self._with(padding=tuple(padding), lhs_dilation=tuple(holes))
            phases.append(prim._sums(p, x, part))
        return _woven(p, phases, os[2 + d], total)


def _aval(x: Operand) -> ShapedArray:
    return ShapedArray(x.shape, dtypes.canonical(x.dtype))


def _woven(p: Program, parts: list, axis: int, total: int) -> Any:
    """Arrays whose elements along an axis take turns; the first `total` of them."""
    shape = parts[0].aval.shape
    wide = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    apart = [p(Reshape(wide), v) for v in parts]
    longest = shape[axis] * len(parts)
    x = p(Reshape((*shape[:axis], longest, *shape[axis + 1 :])), p(Concatenate(axis + 1), *apart))
    if longest == total:
        return x
    stop = (*shape[:axis], total, *shape[axis + 1 :])
    return p(Slice((0,) * len(shape), stop), x)
