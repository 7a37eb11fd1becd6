"""Convolutions of fnx.lax, as XLA defines them: correlations, the kernel is not flipped."""

from collections.abc import Sequence
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.lax.reductions import padtype_to_pads
from fnx.numpy.arrays.util import integer, integers, pairs_of_integers, to_array
from fnx.ops.linalg.conv_layout import ConvDimensionNumbers, dilated
from fnx.ops.linalg.convolution import ConvGeneralDilated

__all__ = [
    "ConvDimensionNumbers",
    "conv",
    "conv_dimension_numbers",
    "conv_general_dilated",
    "conv_transpose",
    "conv_with_general_padding",
]


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Layouts such as ("NHWC", "HWIO", "NHWC") as axis numbers.

    ValueError for a layout that lacks letters.

    >>> lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), ("NHWC", "HWIO", "NHWC")).lhs_spec
    (0, 3, 1, 2)
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if dimension_numbers is None:
        axes = tuple(range(rank))
        return ConvDimensionNumbers(axes, axes, axes)
    if any(not isinstance(t, str) for t in dimension_numbers):
        return ConvDimensionNumbers(*(tuple(t) for t in dimension_numbers))
    lhs, rhs, out = dimension_numbers
    places = sorted(c for c in rhs if c not in "OI")
    for text, letters in ((lhs, "NC"), (rhs, "OI"), (out, "NC")):
        if len(text) != rank or sorted(text) != sorted([*letters, *places]):
            raise InvalidValue(
                f"convolution layout {text!r} must have {rank} different letters, {letters[0]!r} and "
                f"{letters[1]!r} among them, and the others those of {rhs!r}"
            )
    spatial = [c for c in rhs if c not in "OI"]

    def axes_of(text: str, first: str, second: str) -> tuple[int, ...]:
        return (text.index(first), text.index(second), *(text.index(c) for c in spatial))

    return ConvDimensionNumbers(
        axes_of(lhs, "N", "C"), axes_of(rhs, "O", "I"), axes_of(out, "N", "C")
    )


def _check_ranks(x: Array, w: Array, spatial: int) -> None:
    if x.ndim != spatial + 2 or w.ndim != spatial + 2:
        raise ShapeError(
            f"a convolution with {spatial} window strides works on operands of rank {spatial + 2} (batch, "
            f"features, and {spatial} axes of space; out, in and space of the filter); given shapes "
            f"{x.shape} and {w.shape}. Add axes of size 1, or leave axes to fnx.vmap"
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
    """General convolution, as XLA defines it (a correlation: the kernel is not flipped).

    ShapeError for shapes that do not fit; ValueError for a word as padding of a dilated
    operand.

    >>> x = jnp.arange(5.0).reshape(1, 1, 5)
    >>> lax.conv_general_dilated(x, jnp.array([[[1.0, 0.0, -1.0]]]), (1,), "VALID")
    Array([[[-2., -2., -2.]]], dtype=float64)
    """
    del precision, out_sharding
    x, w = to_array(lhs, "conv_general_dilated"), to_array(rhs, "conv_general_dilated", 1)
    strides = integers(window_strides, "window_strides")
    spatial = len(strides)
    _check_ranks(x, w, spatial)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    ones = (1,) * spatial
    left = ones if lhs_dilation is None else integers(lhs_dilation, "lhs_dilation")
    right = ones if rhs_dilation is None else integers(rhs_dilation, "rhs_dilation")
    if any(n < 1 for n in (*strides, *left, *right)):
        raise InvalidValue(
            f"a convolution with window_strides {strides}, lhs_dilation {left} and rhs_dilation {right}; "
            "expected positive numbers"
        )
    if isinstance(padding, str):
        if any(d != 1 for d in left):
            raise InvalidValue(
                f"conv_general_dilated with padding={padding!r} and lhs_dilation {left}; expected pairs of "
                "numbers: what the word means of a dilated operand is not settled"
            )
        sizes = [x.shape[k] for k in numbers.lhs_spec[2:]]
        window = [dilated(w.shape[k], d) for k, d in zip(numbers.rhs_spec[2:], right)]
        padding = padtype_to_pads(sizes, window, strides, padding)
    pads = pairs_of_integers(padding, "padding")
    prim = ConvGeneralDilated(
        strides,
        pads,
        left,
        right,
        numbers,
        integer(feature_group_count, "feature_group_count"),
        integer(batch_group_count, "batch_group_count"),
        None if preferred_element_type is None else dtypes.canonical(preferred_element_type),
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
    """Convolution with the default layout (batch, features, space).

    >>> lax.conv(jnp.ones((1, 1, 4, 4)), jnp.ones((1, 1, 3, 3)), (1, 1), "VALID")
    Array([[[[9., 9.],
             [9., 9.]]]], dtype=float64)
    """
    kept = (precision, preferred_element_type)
    return conv_with_general_padding(lhs, rhs, window_strides, padding, None, None, *kept)


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
    """Convolution with dilations and the default layout.

    >>> x, kernel = jnp.ones((1, 1, 3)), jnp.ones((1, 1, 2))
    >>> lax.conv_with_general_padding(x, kernel, (1,), [(1, 0)], None, None)
    Array([[[1., 2., 2.]]], dtype=float64)
    """
    del precision
    dilations = (lhs_dilation, rhs_dilation)
    kept = {"preferred_element_type": preferred_element_type}
    return conv_general_dilated(lhs, rhs, window_strides, padding, *dilations, **kept)


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
    """The transpose of a convolution with these strides: it enlarges.

    >>> x, kernel = jnp.ones((1, 2, 1)), jnp.array([1.0, 5.0]).reshape(2, 1, 1)
    >>> lax.conv_transpose(x, kernel, (2,), "VALID", dimension_numbers=("NHC", "HIO", "NHC")).ravel()
    Array([5., 1., 5., 1.], dtype=float64)
    """
    x, w = to_array(lhs, "conv_transpose"), to_array(rhs, "conv_transpose", 1)
    spatial = len(integers(strides, "strides"))
    _check_ranks(x, w, spatial)
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
        pads = list(pairs_of_integers(padding, "padding"))
        if use_consistent_padding:  # they are those of the convolution that is transposed
            pads = [(k - 1 - lo, k - 1 - hi) for k, (lo, hi) in zip(sizes, pads, strict=True)]
    if transpose_kernel:
        from fnx.ops.base.permute import Rev

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
