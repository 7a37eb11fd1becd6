"""Printing and callbacks from compiled programs, a module path of JAX."""

from fnx.observe.explore import explore
from fnx.transforms.debugging import (
    breakpoint,
    callback,
    inspect_array_sharding,
    log,
    nans,
    print,
    visualize_array_sharding,
)

__all__ = [
    "breakpoint",
    "callback",
    "explore",
    "inspect_array_sharding",
    "log",
    "nans",
    "print",
    "visualize_array_sharding",
]
