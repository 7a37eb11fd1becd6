"""`jax._src.state.types`: types of mutable references."""

from fnx.ref import AbstractRef  # flax

__all__ = ["AbstractRef"]
