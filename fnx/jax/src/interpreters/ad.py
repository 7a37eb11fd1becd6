"""`jax._src.interpreters.ad`: what the public module has, and an error."""

from fnx.core.errors import ClosedOverValue as CustomVJPException  # diffrax, jaxopt
from fnx.interpreters.ad import *

__all__ = ["CustomVJPException"]
