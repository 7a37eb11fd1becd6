"""Reductions over segments: rows of an array are combined where they have the same number."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import ShapeError
from fnx.numpy.arrays.creation import asarray, full
from fnx.numpy.arrays.util import named
from fnx.numpy.structure.nonzero import need_known
from fnx.numpy.structure.shapes import broadcast_to
from fnx.ops.reduction.reduction import highest, lowest


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtypes.is_inexact(dtype) else lowest(dtype)  # of complex numbers, too


def _highest(dtype: np.dtype) -> Any:
    return np.inf if dtypes.is_inexact(dtype) else highest(dtype)


def _reduction(name: str, method: str, empty: Callable[[np.dtype], Any], doc: str) -> Callable:
    @named(name, doc)
    def fn(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: Any = None,
    ) -> Array:
        del unique_indices, bucket_size
        x, ids = asarray(data), asarray(segment_ids)
        rest = x.shape[1:]
        if x.shape[:1] not in ((), (1,), ids.shape[-1:]):
            raise ShapeError(
                f"{name} of data of shape {x.shape} and segment_ids of shape {ids.shape}; expected one "
                "number for each row of the data"
            )
        if num_segments is None:
            known = need_known(ids, name, "pass num_segments=, the static length of the result")
            num_segments = int(known.max()) + 1 if ids.size else 0
        total = full((num_segments, *rest), empty(x.dtype), x.dtype)
        return getattr(total.at[ids], method)(
            broadcast_to(x, ids.shape + rest),
            mode=mode or "drop",
            indices_are_sorted=indices_are_sorted,
            wrap_negative_indices=False,  # negative numbers: no segment
        )

    return fn


segment_sum = _reduction(
    "segment_sum",
    "add",
    lambda _: 0,
    """The sums of the rows of `data` that have the same number in `segment_ids`.

    `num_segments` must be given where the numbers are traced. Rows with numbers out of range are left
    out; empty segments have the sum 0.

    >>> segment_sum(jnp.arange(4.0), jnp.array([0, 0, 1, 1]))
    Array([1., 5.], dtype=float64)
    """,
)
segment_prod = _reduction(
    "segment_prod",
    "multiply",
    lambda _: 1,
    "The products of rows with the same number, as in `segment_sum`; empty segments have 1.",
)
segment_max = _reduction(
    "segment_max",
    "max",
    _lowest,
    "The largest of the rows with the same number; empty segments have the smallest number there is.",
)
segment_min = _reduction(
    "segment_min",
    "min",
    _highest,
    "The smallest of the rows with the same number; empty segments have the largest number there is.",
)
