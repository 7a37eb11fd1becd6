"""`jax._src.sharding_impls`: how arrays lie."""

from typing import Any


def canonicalize_sharding(sharding: Any, api_name: str) -> None:  # jaxns
    """How a result lies by the types of its operands: None, since no mesh has axes in types."""
    del sharding, api_name
