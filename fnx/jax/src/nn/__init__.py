"""`jax._src.nn`: what the public module has."""

from fnx.nn import *
