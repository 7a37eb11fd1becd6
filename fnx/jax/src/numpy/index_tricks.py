"""`jax._src.numpy.index_tricks`: what `r_` and `c_` are instances of."""

from fnx.numpy.numerics.grids import CClass, RClass  # quaxed

__all__ = ["CClass", "RClass"]
