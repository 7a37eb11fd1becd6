"""Functions of flattened arguments, a module path of JAX."""

from fnx.extend.flat_functions import (
    argnums_partial,
    debug_info,
    flatten_fun,
    flatten_fun_nokwargs,
    safe_map,
    shaped_abstractify,
)

__all__ = [
    "argnums_partial",
    "debug_info",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "safe_map",
    "shaped_abstractify",
]
