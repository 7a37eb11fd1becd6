"""What JAX keeps in jax.experimental and programs use; the larger parts are modules of their own."""

from fnx.callbacks import io_callback
from fnx.settings import enable_x64

__all__ = ["enable_x64", "io_callback"]
