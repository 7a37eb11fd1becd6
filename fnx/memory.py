"""Kinds of memory, a module path of JAX."""

from fnx.process.abstract_devices import Space

__all__ = ["Space"]
