"""What JAX keeps in jax.experimental and programs use."""

from fnx.callbacks import io_callback

__all__ = ["io_callback"]
