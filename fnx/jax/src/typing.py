"""`jax._src.typing`: the public annotations, and the class of arrays."""

from fnx.core.array import Array  # cuthbert
from fnx.typing import ArrayLike, DTypeLike, SupportsDType

__all__ = ["Array", "ArrayLike", "DTypeLike", "SupportsDType"]
