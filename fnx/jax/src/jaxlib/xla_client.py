"""`jaxlib.xla_client`: types."""

from fnx.core.errors import JaxRuntimeError as XlaRuntimeError  # dynamiqs
from fnx.process.devices import Device  # jax_dataclasses

__all__ = ["Device", "XlaRuntimeError"]
