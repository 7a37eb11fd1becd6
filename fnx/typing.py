"""Annotations for what functions take, a module path of JAX."""

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
