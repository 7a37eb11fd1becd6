"""`jaxlib.xla_client`: types."""

from fnx.process.devices import Device  # jax_dataclasses

__all__ = ["Device"]
