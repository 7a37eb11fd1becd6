"""`jax._src.dtypes`: what the public module has."""

from typing import Any

import numpy as np

from fnx.core.dtypes import to_inexact
from fnx.dtypes import *  # equinox, flax, tinygp
from fnx.dtypes import TypePromotionError as TypePromotionError
from fnx.dtypes import canonicalize_dtype

DType = np.dtype  # flax


def to_complex_dtype(dtype: Any) -> np.dtype:  # tinygp
    """The complex dtype of the precision that a dtype is computed in."""
    wide = to_inexact(canonicalize_dtype(dtype)) in ("float64", "complex128")
    return np.dtype("complex128" if wide else "complex64")


class ExtendedDType:  # flax: base of the dtype of its FP8 parameters
    """A dtype of a library's own. Classes of them can be defined; arrays of them are not to be had."""
