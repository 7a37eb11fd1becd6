"""Printing and callbacks from compiled programs, a module path of JAX."""

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
    "inspect_array_sharding",
    "log",
    "nans",
    "print",
    "visualize_array_sharding",
]
