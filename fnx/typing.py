"""Annotations for what functions take, a module path of JAX."""

from fnx import numpy as _numpy  # noqa: F401  # the whole, before parts of it
from fnx.numpy.arrays.typing import (
    ArrayLike,
    DTypeLike,
    SupportsDType,
)

__all__ = [
    "ArrayLike",
    "DTypeLike",
    "SupportsDType",
]
