"""Names of `jax.interpreters.xla`: an `impl` for primitives that have none, types of arrays."""

from fnx.core.array import conversions as canonicalize_dtype_handlers
from fnx.interpreters.primitives.user_primitives import apply_primitive

__all__ = ["apply_primitive", "canonicalize_dtype_handlers"]
