"""Arrays of other libraries, by the DLPack protocol."""

from fnx import numpy as _numpy  # noqa: F401  # the whole, before parts of it
from fnx.numpy.arrays.creation import from_dlpack as from_dlpack

__all__ = ["from_dlpack"]
