"""Dtypes as objects: fnx.numpy.float32 is a dtype in arguments, and makes an array of a number."""

from typing import Any

import ml_dtypes
import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.numpy.creation import asarray
from fnx.numpy.util import result_dtype


class _ScalarMeta(type):
    """Makes the class equal to its dtype, and calling it a conversion."""

    dtype: np.dtype

    def __call__(cls, x: Any = 0) -> Array:  # type: ignore[override]
        return asarray(x, dtype=cls.dtype)

    def __eq__(cls, other: Any) -> bool:
        if cls is other:
            return True
        try:
            return np.dtype(other) == cls.dtype if not isinstance(other, Array) else False
        except TypeError:
            return False

    def __ne__(cls, other: Any) -> bool:
        return not cls == other

    def __hash__(cls) -> int:
        return hash(cls.dtype)

    def __repr__(cls) -> str:
        return f"fnx.numpy.{cls.__name__}"
