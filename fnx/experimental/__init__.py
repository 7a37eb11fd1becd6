"""What JAX keeps in jax.experimental and programs use; the larger parts are modules of their own."""

from fnx.process.settings import enable_x64
from fnx.transforms.callbacks import io_callback

__all__ = ["enable_x64", "io_callback"]
