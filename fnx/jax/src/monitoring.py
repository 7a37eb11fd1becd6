"""`jax._src.monitoring`: what the public module has."""

from fnx.jax.src.public_monitoring import *  # orbax, flax
