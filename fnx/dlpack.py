"""Arrays of other libraries, by the DLPack protocol."""

from fnx.numpy.arrays.creation import from_dlpack as from_dlpack

__all__ = ["from_dlpack"]
