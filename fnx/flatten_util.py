"""Pytrees as one vector, a module path of JAX."""

from fnx.transforms.ravel import (
    ravel_pytree,
)

__all__ = [
    "ravel_pytree",
]
