"""Dtypes under JAX's names: canonical ones, promotion, bfloat16, float0, keys of random numbers."""

from typing import Any

import numpy as np
from ml_dtypes import bfloat16

from fnx.core.dtypes import bits, canonical, float0
from fnx.core.errors import InvalidValue, TypePromotionError
from fnx.numpy.arrays.scalar_types import (
    extended,
    finfo,
    iinfo,
    issubdtype,
    prng_key,
    promote_types,
    result_type,
)


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> np.dtype:
    """The dtype of arrays that are asked to have this one.

    >>> fnx.dtypes.canonicalize_dtype(float)
    dtype('float64')
    """
    del allow_extended_dtype
    return canonical(dtype)


def itemsize_bits(dtype: Any) -> int:
    """How many bits a number of a dtype has; ValueError for None.

    >>> fnx.dtypes.itemsize_bits("float32")
    32
    """
    if dtype is None:
        raise InvalidValue("itemsize_bits of None; expected a dtype")
    return bits(canonical(dtype))


def scalar_type_of(x: Any) -> type:
    """The Python type of the numbers of an array or scalar.

    >>> fnx.dtypes.scalar_type_of(jnp.arange(3))
    <class 'int'>
    """
    kind = np.result_type(x).kind
    return {"b": bool, "i": int, "u": int, "f": float, "c": complex}[kind]


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
