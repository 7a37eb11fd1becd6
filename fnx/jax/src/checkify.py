"""`jax._src.checkify`: what the public module has."""

from fnx.experimental.checkify import *  # flax
