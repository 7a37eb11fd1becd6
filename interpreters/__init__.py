"""Transformations: each module is one interpreter of primitives, or primitives that carry jaxprs."""

from typing import Any

from fnx.core import lazy_imports


def __getattr__(name: str) -> Any:
    """Those modules that programs for JAX use without importing them."""
    return lazy_imports.find(__name__, name)
