"""`jaxlib`: its version alone, which libraries compare."""

from fnx.jax.finder import API

__version__ = API
__path__: list[str] = []  # what is below it the finder knows
