"""`jax.lib`: the version of jaxlib."""

from fnx.jax.finder import API

__version__ = API  # equinox's tests
__all__: list[str] = []
