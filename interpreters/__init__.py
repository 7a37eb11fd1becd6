"""Transformations: each module is one interpreter of primitives, or primitives that carry jaxprs."""

from typing import Any

from fnx.core import later


def __getattr__(name: str) -> Any:
    """Those modules that programs for JAX use without importing them."""
    return later.find(__name__, name)
