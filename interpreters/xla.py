"""`apply_primitive`, under the name of JAX's module."""

from .foreign import apply_primitive as apply_primitive
