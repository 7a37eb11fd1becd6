"""`jaxlib.xla_client`: its types that libraries name in annotations."""

from fnx.process.devices import Device as Device  # jax_dataclasses

__all__ = ["Device"]
