"""`jax._src.lib`: modules of jaxlib's."""

from fnx.jax.src.jaxlib import xla_client  # dynamiqs

__all__ = ["xla_client"]
