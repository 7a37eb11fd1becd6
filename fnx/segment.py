"""Reductions over segments: rows of an array are combined where they have the same number."""

from typing import Any

import numpy as np

from fnx import numpy as jnp
from fnx.core.array import Array
from fnx.core.errors import ShapeError


def _segments(
    kind: str, data: Any, segment_ids: Any, num_segments: int | None, start: Any, mode: Any
) -> Array:
    data, ids = jnp.asarray(data), jnp.asarray(segment_ids)
    if ids.shape != data.shape[: ids.ndim]:
        raise ShapeError(
            f"segment_{kind} of data of shape {data.shape} and segment_ids of shape {ids.shape}; expected "
            "one number for each row of the data"
        )
    if num_segments is None:
        num_segments = int(np.asarray(ids).max()) + 1 if ids.size else 0
    total = jnp.full((num_segments, *data.shape[ids.ndim :]), start, data.dtype)
    method = {"sum": "add", "prod": "multiply", "max": "max", "min": "min"}[kind]
    rows = jnp.where(jnp.less(ids, 0), num_segments, ids)  # negative numbers belong to no segment
    return getattr(total.at[rows], method)(data, mode=mode or "drop")


def _lowest(dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return False
    return -np.inf if dtype.kind in "fV" else jnp.iinfo(dtype).min


def _highest(dtype: np.dtype) -> Any:
    if dtype.kind == "b":
        return True
    return np.inf if dtype.kind in "fV" else jnp.iinfo(dtype).max


def segment_sum(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
) -> Array:
    """The sums of the rows of `data` that have the same number in `segment_ids`.

    `num_segments` must be given where the numbers are traced. Rows with numbers out of range are left
    out; empty segments have the sum 0.

    >>> segment_sum(jnp.arange(4.0), jnp.array([0, 0, 1, 1]))
    Array([1., 5.], dtype=float64)
    """
    del indices_are_sorted, unique_indices, bucket_size
    return _segments("sum", data, segment_ids, num_segments, 0, mode)


def segment_prod(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
) -> Array:
    """The products of rows with the same number, as in `segment_sum`; empty segments have 1."""
    del indices_are_sorted, unique_indices, bucket_size
    return _segments("prod", data, segment_ids, num_segments, 1, mode)


def segment_max(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
) -> Array:
    """The largest of the rows with the same number; empty segments have the smallest number there is."""
    del indices_are_sorted, unique_indices, bucket_size
    low = _lowest(jnp.asarray(data).dtype)
    return _segments("max", data, segment_ids, num_segments, low, mode)


def segment_min(
    data: Any,
    segment_ids: Any,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: Any = None,
) -> Array:
    """The smallest of the rows with the same number; empty segments have the largest number there is."""
    del indices_are_sorted, unique_indices, bucket_size
    high = _highest(jnp.asarray(data).dtype)
    return _segments("min", data, segment_ids, num_segments, high, mode)
