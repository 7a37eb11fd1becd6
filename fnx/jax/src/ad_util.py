"""`jax._src.ad_util`: primitives of differentiation."""

from fnx.extend.core.primitives import add_jaxvals_p  # unxt
from fnx.ops.elementwise.arithmetic import stop_gradient as stop_gradient_p  # lineax

__all__ = ["add_jaxvals_p", "stop_gradient_p"]
