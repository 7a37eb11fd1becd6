"""Products of matrices whose elements share a scale in blocks: MXFP8 and NVFP4."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fnx import lax, numpy
from fnx.core import dtypes
from fnx.core.errors import InvalidValue, ShapeError
from fnx.ops.elementwise import arithmetic as ops

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see


@dataclass(frozen=True, eq=False)
class BlockScaleConfig:
    """How an operand is made narrow: the dtypes of its elements and scales, and how many share a scale."""

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool = False


def get_scaled_dot_general_config(mode: str, global_scale: Any = None) -> BlockScaleConfig:
    """The configuration of `scaled_dot_general` that is called "mxfp8" or "nvfp4".

    InvalidValue for another name. From the OCP Microscaling Formats (MX) Specification, 2023.

    >>> fnx.nn.get_scaled_dot_general_config("mxfp8").block_size
    32
    """
    if mode == "nvfp4":
        scale = jnp.ones((1,), np.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, jnp.float4_e2m1fn, jnp.float8_e4m3fn, scale)
    if mode == "mxfp8":
        return BlockScaleConfig(mode, 32, jnp.float8_e4m3fn, jnp.float8_e8m0fnu, None)
    raise InvalidValue(f"block-scaled products of mode {mode!r}; expected 'mxfp8' or 'nvfp4'")


def scaled_matmul(
    lhs: Any,
    rhs: Any,
    lhs_scales: Any,
    rhs_scales: Any,
    preferred_element_type: Any = np.float32,
) -> Any:
    """The product over the last axis of arrays (B, M, K) and (B, N, K), each scaled in blocks: (B, M, N).

    Scales have shapes (B, M, K / block) and (B, N, K / block). Products are summed in float32 or a wider
    `preferred_element_type`. ShapeError for shapes that do not fit.

    >>> a, scale = jnp.arange(1.0, 4.0).reshape(1, 1, 3), jnp.full((1, 1, 1), 0.5)
    >>> fnx.nn.scaled_matmul(a, a, scale, scale)
    Array([[[3.5]]], dtype=float32)
    """
    a, b, a_scales, b_scales = map(jnp.asarray, (lhs, rhs, lhs_scales, rhs_scales))
    fits = all(x.ndim == 3 for x in (a, b, a_scales, b_scales)) and (
        (a.shape[0], a.shape[2]) == (b.shape[0], b.shape[2])
        and (a_scales.shape[0], a_scales.shape[2]) == (b_scales.shape[0], b_scales.shape[2])
        and (*a.shape[:2], *b.shape[:2]) == (*a_scales.shape[:2], *b_scales.shape[:2])
        and a_scales.shape[2] > 0
        and a.shape[2] % a_scales.shape[2] == 0
    )
    if not fits:
        raise ShapeError(
            f"scaled_matmul of shapes {a.shape} and {b.shape} with scales {a_scales.shape} and "
            f"{b_scales.shape}; expected (B, M, K), (B, N, K), (B, M, k) and (B, N, k), K a multiple of k"
        )
    out = dtypes.canonical(preferred_element_type)
    wide = out if out.itemsize > 4 else np.dtype(np.float32)
    a, b = _scaled(a, a_scales, wide), _scaled(b, b_scales, wide)
    return lax.dot_general(a, b, (((2,), (2,)), ((0,), (0,)))).astype(out)


def _scaled(x: Any, scales: Any, dtype: Any) -> Any:
    block = x.shape[-1] // scales.shape[-1]
    return x.astype(dtype) * jnp.repeat(scales.astype(dtype), block, axis=-1)


def scaled_dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    preferred_element_type: Any = np.float32,
    configs: Sequence[BlockScaleConfig] | None = None,
    implementation: Any = None,
) -> Any:
    """`lax.dot_general` of operands that are made narrow first, each block with a scale of its own.

    `configs` are those of lhs, rhs and cotangents; without them nothing is made narrow. Derivatives pass
    the rounding straight through and are zero where "nvfp4" clips; cotangents stay as wide as they are.
    ShapeError where the axes that are summed over have no multiple of the block.

    >>> configs = [fnx.nn.get_scaled_dot_general_config("mxfp8")] * 3
    >>> x = jnp.ones((2, 32))
    >>> fnx.nn.scaled_dot_general(x, x, (((1,), (1,)), ((), ())), configs=configs)
    Array([[32., 32.],
           [32., 32.]], dtype=float32)
    """
    del implementation
    if configs is None:
        return lax.dot_general(
            lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type
        )
    a, b = jnp.asarray(lhs), jnp.asarray(rhs)
    (a_sum, b_sum), (a_batch, b_batch) = dimension_numbers
    out_type = preferred_element_type or jnp.result_type(a, b)
    a3, a_shape = _three_axes(a, a_sum, a_batch)
    b3, b_shape = _three_axes(b, b_sum, b_batch)
    a3, b3 = _narrowed(a3, configs[0]), _narrowed(b3, configs[1])
    out = lax.dot_general(a3, b3, (((2,), (2,)), ((0,), (0,)))).astype(out_type)
    return out.reshape(*(a.shape[k] for k in a_batch), *a_shape, *b_shape)


def _three_axes(x: Any, summed: Sequence[int], batch: Sequence[int]) -> tuple[Any, list[int]]:
    """As (batch, others, summed), and the sizes of the others."""
    others = [k for k in range(x.ndim) if k not in (*summed, *batch)]
    sizes = [math.prod([x.shape[k] for k in axes]) for axes in (batch, others, summed)]
    return x.transpose(*batch, *others, *summed).reshape(sizes), [x.shape[k] for k in others]


def _narrowed(x: Any, config: BlockScaleConfig) -> Any:
    """An operand with the numbers that its narrow form has, and the derivatives of itself."""
    fixed = ops.stop_gradient(x)
    narrow, scales = _quantized(fixed, config)
    value = _scaled(narrow, scales, np.promote_types(x.dtype, np.float32))
    if config.mode == "nvfp4":
        value = value * config.global_scale
        most = float(jnp.finfo(config.data_type).max) * float(jnp.finfo(config.scale_type).max)
        x = jnp.where(abs(fixed) <= most * config.global_scale, x, fixed)
    return value + (x - fixed)  # which is 0, with a derivative


def _quantized(x: Any, config: BlockScaleConfig) -> tuple[Any, Any]:
    """Narrow elements, and the scale of each block along the last axis."""
    size = config.block_size
    if not x.shape[-1] or x.shape[-1] % size:
        raise ShapeError(
            f"an operand of shape {x.shape} (batch, others, summed) in blocks of {size}; expected "
            f"summed axes whose size is a multiple of {size}, as mode {config.mode!r} asks for"
        )
    blocks = x.astype(np.promote_types(x.dtype, np.float32)).reshape(*x.shape[:-1], -1, size)
    most = float(jnp.finfo(config.data_type).max)
    if config.mode == "nvfp4":
        blocks = blocks / config.global_scale
    scales = jnp.max(abs(blocks), axis=-1, keepdims=True) / most
    if config.mode == "nvfp4":
        scales = jnp.clip(scales, 0, float(jnp.finfo(config.scale_type).max))
        narrow = scales.astype(config.scale_type)
    else:
        narrow = _power_of_two_above(scales).astype(config.scale_type)
    wide = narrow.astype(blocks.dtype)
    # A block of zeros has scale zero.
    scaled = jnp.where(wide == 0, 0, blocks / jnp.where(wide == 0, 1, wide))
    elements = jnp.clip(scaled, -most, most).astype(config.data_type)
    return elements.reshape(x.shape), narrow[..., 0]


def _power_of_two_above(x: Any) -> Any:
    """The least power of two that is not below, of those that float8_e8m0fnu has."""
    mantissa, exponent = jnp.frexp(x)
    up = jnp.where(mantissa == 0.5, exponent - 1, exponent)
    return jnp.ldexp(jnp.ones_like(x), jnp.clip(jnp.where(x == 0, -127, up), -127, 127))


__all__ = ["get_scaled_dot_general_config", "scaled_dot_general", "scaled_matmul"]
