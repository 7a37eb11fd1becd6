"""Wrapped functions, a module path of JAX."""

from fnx.transforms.linear_util import (
    StoreException,
    WrappedFun,
    merge_linear_aux,
    transformation,
    transformation2,
    transformation_with_aux,
    wrap_init,
)

__all__ = [
    "StoreException",
    "WrappedFun",
    "merge_linear_aux",
    "transformation",
    "transformation2",
    "transformation_with_aux",
    "wrap_init",
]
