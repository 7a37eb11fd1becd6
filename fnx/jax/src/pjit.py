"""`jax._src.pjit`: the call of a jitted function in jaxprs."""

from fnx.extend.core.primitives import jit_p as jit_p  # quax

__all__ = ["jit_p"]
