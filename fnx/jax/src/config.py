"""`jax._src.config`: settings as objects, whose value is `.value`, and which a call changes for a while."""

from fnx.core.config import numpy_dtype_promotion, numpy_rank_promotion  # quaxed

__all__ = ["numpy_dtype_promotion", "numpy_rank_promotion"]
