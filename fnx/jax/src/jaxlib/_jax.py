"""`jaxlib._jax`: types."""

from fnx.transforms.jit import Jitted as PjitFunction  # gpjax

__all__ = ["PjitFunction"]
