"""`jax._src.flatten_util`."""

from fnx.flatten_util import ravel_pytree  # blackjax

__all__ = ["ravel_pytree"]
