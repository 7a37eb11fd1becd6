"""`jax._src.ad_util`: primitives of differentiation."""

from fnx.ops.elementwise.arithmetic import stop_gradient as stop_gradient_p  # lineax

__all__ = ["stop_gradient_p"]
