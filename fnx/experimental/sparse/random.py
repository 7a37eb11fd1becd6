"""Random sparse arrays, under the name of JAX's module."""

from fnx.experimental.sparse.creation import random_bcoo

__all__ = ["random_bcoo"]
