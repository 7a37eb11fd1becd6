"""Functions of flattened arguments, a module path of JAX."""

from fnx.extend.flat_functions import (
    debug_info,
    flatten_fun,
    flatten_fun_nokwargs,
    safe_map,
    shaped_abstractify,
)

__all__ = [
    "debug_info",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "safe_map",
    "shaped_abstractify",
]
