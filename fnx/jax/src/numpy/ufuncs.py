"""`jax._src.numpy.ufuncs`: the public functions, and their type."""

from fnx.numpy import *
from fnx.numpy import ufunc  # esquilax

__all__ = ["ufunc"]
