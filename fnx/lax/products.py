"""Products, convolutions, gathers, scatters and transforms of fnx.lax."""

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.lax.reductions import padtype_to_pads
from fnx.numpy.util import promote, to_array
from fnx.ops.contraction import DotGeneral, canonical_dims
from fnx.ops.convolution import ConvDimensionNumbers, ConvGeneralDilated, dilated
from fnx.ops.fft import FFT
from fnx.ops.indexing import Gather, ScatterAdd
from fnx.ops.scatter import Scatter, ScatterMax, ScatterMin, ScatterMul
from fnx.ops.windows import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers

__all__ = [
    "ConvDimensionNumbers",
    "FftType",
    "GatherDimensionNumbers",
    "GatherScatterMode",
    "Precision",
    "ScatterDimensionNumbers",
    "batch_matmul",
    "conv",
    "conv_dimension_numbers",
    "conv_general_dilated",
    "conv_transpose",
    "conv_with_general_padding",
    "dot",
    "dot_general",
    "fft",
    "gather",
    "index_take",
    "scatter",
    "scatter_add",
    "scatter_apply",
    "scatter_max",
    "scatter_min",
    "scatter_mul",
    "scatter_sub",
]


class Precision(enum.Enum):
    """Accepted where JAX asks for it; products are always computed in full precision."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


def _dtype(t: Any) -> np.dtype | None:
    return None if t is None else dtypes.canonical(t)


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Products summed over contracted axes, element by element along batch axes.

    `dimension_numbers`: ((lhs contracted, rhs contracted), (lhs batch, rhs batch)).
    """
    del precision, out_sharding
    x, y = to_array(lhs, "dot_general"), to_array(rhs, "dot_general", 1)
    if x.dtype != y.dtype:
        x, y = promote("dot_general", x, y)
    return DotGeneral(canonical_dims(dimension_numbers), _dtype(preferred_element_type))(x, y)


def dot(
    lhs: Any,
    rhs: Any,
    *args: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    dimension_numbers: Any = None,
    **_: Any,
) -> Array:
    """Vector and matrix products."""
    del args, precision
    x, y = to_array(lhs, "dot"), to_array(rhs, "dot", 1)
    if dimension_numbers is None:
        if not (1 <= x.ndim <= 2 and 1 <= y.ndim <= 2):
            raise ShapeError(f"lax.dot takes vectors and matrices, got shapes {x.shape}, {y.shape}")
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, None, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Array:
    """Matrix products of stacks of matrices."""
    x, y = to_array(lhs, "batch_matmul"), to_array(rhs, "batch_matmul", 1)
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (y.ndim - 2,)), (batch, batch)), precision)


# --- convolutions ------------------------------------------------------------------------------


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Layouts such as ("NHWC", "HWIO", "NHWC") as axis numbers."""
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if dimension_numbers is None:
        axes = tuple(range(rank))
        return ConvDimensionNumbers(axes, axes, axes)
    if any(not isinstance(t, str) for t in dimension_numbers):
        return ConvDimensionNumbers(*(tuple(t) for t in dimension_numbers))
    lhs, rhs, out = dimension_numbers
    for text, letters in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if len(text) != rank or any(text.count(c) != 1 for c in letters):
            raise InvalidValue(
                f"convolution layout {text!r} must have {rank} different letters, {letters[0]!r} and "
                f"{letters[1]!r} among them"
            )
    spatial = [c for c in rhs if c not in "OI"]

    def axes_of(text: str, first: str, second: str) -> tuple[int, ...]:
        return (text.index(first), text.index(second), *(text.index(c) for c in spatial))

    return ConvDimensionNumbers(
        axes_of(lhs, "N", "C"), axes_of(rhs, "O", "I"), axes_of(out, "N", "C")
    )


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Any,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """General convolution, as XLA defines it (a correlation: the kernel is not flipped)."""
    del precision, out_sharding
    x, w = to_array(lhs, "conv_general_dilated"), to_array(rhs, "conv_general_dilated", 1)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    spatial = x.ndim - 2
    left = tuple(lhs_dilation) if lhs_dilation is not None else (1,) * spatial
    right = tuple(rhs_dilation) if rhs_dilation is not None else (1,) * spatial
    strides = tuple(int(s) for s in window_strides)
    if isinstance(padding, str):
        sizes = [dilated(x.shape[k], d) for k, d in zip(numbers.lhs_spec[2:], left)]
        window = [dilated(w.shape[k], d) for k, d in zip(numbers.rhs_spec[2:], right)]
        padding = padtype_to_pads(sizes, window, strides, padding)
    pads = tuple((int(lo), int(hi)) for lo, hi in padding)
    prim = ConvGeneralDilated(
        strides,
        pads,
        left,
        right,
        numbers,
        int(feature_group_count),
        int(batch_group_count),
        _dtype(preferred_element_type),
    )
    return prim(x, w)


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Convolution with the default layout (batch, features, space)."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any,
    rhs_dilation: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Convolution with dilations and the default layout."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        preferred_element_type=preferred_element_type,
    )


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Any,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Array:
    """The transpose of a convolution with these strides: it enlarges."""
    x, w = to_array(lhs, "conv_transpose"), to_array(rhs, "conv_transpose", 1)
    spatial = x.ndim - 2
    if dimension_numbers is None:
        layouts = {
            1: ("NHC", "HIO", "NHC"),
            2: ("NHWC", "HWIO", "NHWC"),
            3: ("NHWDC", "HWDIO", "NHWDC"),
        }
        dimension_numbers = layouts[spatial]
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    dilation = tuple(rhs_dilation) if rhs_dilation is not None else (1,) * spatial
    sizes = [dilated(w.shape[k], d) for k, d in zip(numbers.rhs_spec[2:], dilation)]
    if isinstance(padding, str):
        pads = [transposed_padding(k, s, padding) for k, s in zip(sizes, strides, strict=True)]
    else:
        pads = [(int(lo), int(hi)) for lo, hi in padding]
        if use_consistent_padding:  # they are those of the convolution that is transposed
            pads = [(k - 1 - lo, k - 1 - hi) for k, (lo, hi) in zip(sizes, pads, strict=True)]
    if transpose_kernel:
        from fnx.ops.permute import Rev

        w = Rev(tuple(sorted(numbers.rhs_spec[2:])))(w)
        o, i, *rest = numbers.rhs_spec
        numbers = numbers._replace(rhs_spec=(i, o, *rest))
    return conv_general_dilated(
        x,
        w,
        (1,) * spatial,
        pads,
        tuple(strides),
        dilation,
        numbers,
        preferred_element_type=preferred_element_type,
    )


def transposed_padding(k: int, s: int, padding: str) -> tuple[int, int]:
    if padding.upper() == "SAME":
        total = k + s - 2
        before = k - 1 if s > k - 1 else -(-total // 2)
    elif padding.upper() == "VALID":
        total = k + s - 2 + max(k - s, 0)
        before = k - 1
    else:
        raise InvalidValue(f"unknown padding {padding!r}; expected 'SAME' or 'VALID'")
    return before, total - before


# --- gather and scatter ------------------------------------------------------------------------


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Array:
    """Windows of the operand at start indices."""
    x, i = to_array(operand, "gather"), to_array(start_indices, "gather", 1)
    kind = GatherScatterMode.from_any(mode)
    prim = Gather(
        dimension_numbers,
        fill_value,
        indices_are_sorted,
        kind,
        tuple(int(n) for n in slice_sizes),
        unique_indices,
    )
    return prim(x, i)


def _scatter(name: str, prim: Callable) -> Callable:
    def fn(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
    ) -> Array:
        x, i, u = (
            to_array(operand, name),
            to_array(scatter_indices, name, 1),
            to_array(updates, name, 2),
        )
        kind = GatherScatterMode.from_any(mode)
        return prim(dimension_numbers, indices_are_sorted, kind, unique_indices)(x, i, u)

    fn.__name__ = fn.__qualname__ = name
    fn.__doc__ = "The operand with windows at the scatter indices combined with the updates."
    return fn


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Array:
    """The operand with `func` of its elements at the scatter indices, applied once to each."""
    from fnx.lax.elementwise import full, full_like, select

    x = to_array(operand, "scatter_apply")
    there = scatter(
        full_like(x, False, bool), scatter_indices, full(update_shape, True), dimension_numbers,
        indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode,
    )  # fmt: skip
    return select(there, to_array(func(x)), x)


scatter = _scatter("scatter", Scatter)
scatter_add = _scatter("scatter_add", ScatterAdd)
scatter_mul = _scatter("scatter_mul", ScatterMul)
scatter_min = _scatter("scatter_min", ScatterMin)
scatter_max = _scatter("scatter_max", ScatterMax)


def scatter_sub(
    operand: Any, scatter_indices: Any, updates: Any, *args: Any, **kwargs: Any
) -> Array:
    """The operand with updates subtracted."""
    from fnx.ops.elementwise import neg

    return scatter_add(operand, scatter_indices, neg(to_array(updates)), *args, **kwargs)


def index_take(src: Any, idxs: Any, axes: Sequence[int]) -> Array:
    """Positions along several axes at once."""
    from fnx.numpy.indexing import getitem

    index: list = [slice(None)] * to_array(src).ndim
    for axis, i in zip(axes, idxs, strict=True):
        index[axis] = i
    return getitem(to_array(src), tuple(index))


# --- transforms --------------------------------------------------------------------------------


class FftType(enum.IntEnum):
    """Kinds of Fourier transforms."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


def fft(x: Any, fft_type: Any, fft_lengths: Sequence[int]) -> Array:
    """The Fourier transform over the last axes."""
    kind = fft_type.name.lower() if isinstance(fft_type, FftType) else str(fft_type).lower()
    x = to_array(x, "fft")
    if kind == "rfft" or dtypes.is_complex(x.dtype):
        return FFT(kind, tuple(int(n) for n in fft_lengths))(x)
    from fnx.ops.convert import convert

    return FFT(kind, tuple(int(n) for n in fft_lengths))(convert(x, dtypes.complex_of(x.dtype)))
