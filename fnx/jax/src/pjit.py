"""`jax._src.pjit`: the call of a jitted function in jaxprs, and functions of meshes."""

from fnx.extend.core.primitives import jit_p as jit_p  # quax
from fnx.sharding import auto_axes as auto_axes  # jaxns

__all__ = ["auto_axes", "jit_p"]
