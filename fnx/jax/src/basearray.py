"""`jax._src.basearray`: the class of arrays."""

from fnx.core.array import Array  # jinns

__all__ = ["Array"]
