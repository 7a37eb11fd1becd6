"""`jax._src.numpy.reductions`: the public functions, and which axes they take."""

from typing import Any

from fnx.numpy import *
from fnx.numpy.arrays.util import canonical_axes


def _reduction_dims(a: Any, axis: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:  # hamux
    """The axes that are reduced, twice: named axes are none of an array's here."""
    axes = canonical_axes(axis, a.ndim)
    return axes, axes
