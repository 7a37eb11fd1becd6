"""Relatives of convolutions: patches, convolutions with a kernel per place, shapes of results."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.lax.convolutions import (
    conv_dimension_numbers,
    conv_general_dilated,
    transposed_padding,
)
from fnx.lax.products import dot_general
from fnx.lax.reductions import padtype_to_pads
from fnx.lax.shapes import transpose
from fnx.numpy.arrays.util import integer, to_array
from fnx.ops.linalg.conv_layout import dilated

Sizes = Sequence[int]


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sizes,
    window_strides: Sizes,
    padding: Any,
    lhs_dilation: Sizes | None = None,
    rhs_dilation: Sizes | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """What a convolution's kernel sees at each place, as features: of each channel all its window.

    >>> lax.conv_general_dilated_patches(jnp.arange(4.0).reshape(1, 1, 4), (2,), (1,), "VALID")
    Array([[[0., 1., 2.],
            [1., 2., 3.]]], dtype=float64)
    """
    x = to_array(lhs, "conv_general_dilated_patches")
    window = tuple(integer(n, "an entry of filter_shape") for n in filter_shape)
    rank = len(window) + 2
    numbers = conv_dimension_numbers(x.shape, (0,) * rank, dimension_numbers)
    channels, size = x.shape[numbers.lhs_spec[1]], int(np.prod(window, dtype=int))
    eye = np.eye(size, dtype=x.dtype).reshape(size, 1, *window)
    kernels = np.tile(eye, (channels, *(1,) * (rank - 1)))
    kernel = ConcreteArray(np.ascontiguousarray(kernels.transpose(np.argsort(numbers.rhs_spec))))
    return conv_general_dilated(
        x, kernel, window_strides, padding, lhs_dilation, rhs_dilation, numbers, channels, 1,
        precision, preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_local(
    lhs: Any,
    rhs: Any,
    window_strides: Sizes,
    padding: Any,
    filter_shape: Sizes,
    lhs_dilation: Sizes | None = None,
    rhs_dilation: Sizes | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
) -> Array:
    """A convolution with a kernel for each place of the result.

    The axes of `rhs` are those of a kernel: results, channels and their windows, then places.

    >>> x, kernels = jnp.ones((1, 1, 3)), jnp.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 2, 2)
    >>> lax.conv_general_dilated_local(x, kernels, (1,), "VALID", (2,))
    Array([[[4., 6.]]], dtype=float64)
    """
    x, w = to_array(lhs, "conv_general_dilated_local"), to_array(rhs, "rhs", 1)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    patches = conv_general_dilated_patches(
        x, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, numbers
    )
    (_, i, *places), (batch, features, *space) = numbers.rhs_spec, numbers.out_spec
    made = dot_general(w, patches, (((i,), (features,)), (tuple(places), tuple(space))), precision)
    # axes now: places, results of the kernel, batch
    return transpose(made, np.argsort((*space, features, batch)))


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[list[int], ...]:
    """The orders of axes that bring layouts such as ("NHWC", "HWIO", "NHWC") to batch, features, space.

    >>> lax.conv_general_permutations(("NHWC", "HWIO", "NHWC"))
    ([0, 3, 1, 2], [3, 2, 0, 1], [0, 3, 1, 2])
    """
    rank = len(dimension_numbers[0])
    numbers = conv_dimension_numbers((0,) * rank, (0,) * rank, dimension_numbers)
    return tuple([list(spec) for spec in numbers])


def _out_shape(
    lhs: Sizes, rhs: Sizes, strides: Sizes, padding: Any, numbers: Any, dilation: Sizes
) -> tuple[int, ...]:
    spaces = [dilated(lhs[k], d) for k, d in zip(numbers.lhs_spec[2:], dilation, strict=True)]
    windows = [rhs[k] for k in numbers.rhs_spec[2:]]
    pads = padtype_to_pads(spaces, windows, strides, padding)
    out = [
        max((n + lo + hi - w) // s + 1, 0)
        for n, w, s, (lo, hi) in zip(spaces, windows, strides, pads, strict=True)
    ]
    plain = (lhs[numbers.lhs_spec[0]], rhs[numbers.rhs_spec[0]], *out)
    return tuple(int(plain[k]) for k in np.argsort(numbers.out_spec))


def conv_general_shape_tuple(
    lhs_shape: Sizes, rhs_shape: Sizes, window_strides: Sizes, padding: Any, dimension_numbers: Any
) -> tuple[int, ...]:
    """The shape of a convolution's result.

    >>> layouts = ("NHWC", "HWIO", "NHWC")
    >>> lax.conv_general_shape_tuple((1, 8, 8, 3), (3, 3, 3, 4), (2, 2), "SAME", layouts)
    (1, 4, 4, 4)
    """
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    ones = (1,) * len(window_strides)
    return _out_shape(lhs_shape, rhs_shape, window_strides, padding, numbers, ones)


def conv_transpose_shape_tuple(
    lhs_shape: Sizes, rhs_shape: Sizes, window_strides: Sizes, padding: Any, dimension_numbers: Any
) -> tuple[int, ...]:
    """The shape of the result of `conv_transpose`.

    >>> layouts = ("NHWC", "HWIO", "NHWC")
    >>> lax.conv_transpose_shape_tuple((1, 8, 8, 3), (3, 3, 3, 4), (2, 2), "SAME", layouts)
    (1, 16, 16, 4)
    """
    numbers = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    if isinstance(padding, str):
        windows = [rhs_shape[k] for k in numbers.rhs_spec[2:]]
        padding = [transposed_padding(k, s, padding) for k, s in zip(windows, window_strides)]
    ones = (1,) * len(window_strides)
    return _out_shape(lhs_shape, rhs_shape, ones, padding, numbers, window_strides)


def reduce_window_shape_tuple(
    operand_shape: Sizes,
    window_dimensions: Sizes,
    window_strides: Sizes,
    padding: Any,
    base_dilation: Sizes | None = None,
    window_dilation: Sizes | None = None,
) -> tuple[int, ...]:
    """The shape of the result of `reduce_window`.

    >>> lax.reduce_window_shape_tuple((8, 8), (3, 3), (1, 1), [(0, 0), (1, 1)])
    (6, 8)
    """
    ones = (1,) * len(operand_shape)
    sizes = [dilated(n, d) for n, d in zip(operand_shape, base_dilation or ones, strict=True)]
    window = [dilated(n, d) for n, d in zip(window_dimensions, window_dilation or ones)]
    pads = padtype_to_pads(sizes, window, window_strides, padding)
    return tuple(
        int(max((n + lo + hi - w) // s + 1, 0))
        for n, w, s, (lo, hi) in zip(sizes, window, window_strides, pads, strict=True)
    )


__all__ = [
    "conv_general_dilated_local",
    "conv_general_dilated_patches",
    "conv_general_permutations",
    "conv_general_shape_tuple",
    "conv_transpose_shape_tuple",
    "reduce_window_shape_tuple",
]
