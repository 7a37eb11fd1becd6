"""`jax._src.monitoring`: what the public module has."""

from fnx.jax.public.monitoring import *  # orbax, flax
