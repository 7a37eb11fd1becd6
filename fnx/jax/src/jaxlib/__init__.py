"""`jaxlib`: its version alone, which libraries compare."""

from fnx.jax.finder import API

__version__ = API
