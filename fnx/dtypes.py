"""What is asked of dtypes, a module path of JAX."""

from fnx import numpy as _numpy  # noqa: F401  # the whole, before parts of it
from fnx.numpy.arrays.dtype_queries import (
    TypePromotionError,
    bfloat16,
    canonicalize_dtype,
    extended,
    finfo,
    float0,
    iinfo,
    issubdtype,
    itemsize_bits,
    prng_key,
    promote_types,
    result_type,
    scalar_type_of,
)

__all__ = [
    "TypePromotionError",
    "bfloat16",
    "canonicalize_dtype",
    "extended",
    "finfo",
    "float0",
    "iinfo",
    "issubdtype",
    "itemsize_bits",
    "prng_key",
    "promote_types",
    "result_type",
    "scalar_type_of",
]
