"""Rules of users for vmap, a module path of JAX."""

from fnx.control_flow.sequential import sequential_vmap
from fnx.transforms.custom_vmap import custom_vmap

__all__ = [
    "custom_vmap",
    "sequential_vmap",
]
