"""`jax._src.numpy.lax_numpy`: the public functions."""

from fnx.numpy import *  # haliax
