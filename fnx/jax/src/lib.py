"""`jax._src.lib`: modules of jaxlib's."""

from fnx.jax.src import jaxlib_xla_client as xla_client  # dynamiqs

__all__ = ["xla_client"]
