"""Annotations for what functions take: ArrayLike and DTypeLike."""

from typing import Any, Protocol, Union, runtime_checkable

import numpy as np

from fnx.core.array import Array


@runtime_checkable
class SupportsDType(Protocol):
    """Has a dtype.

    >>> isinstance(jnp.ones(2), fnx.typing.SupportsDType)
    True
    """

    @property
    def dtype(self) -> np.dtype: ...


# Unions at run time, so that isinstance(x, ArrayLike) works as in JAX.
ArrayLike = Union[Array, np.ndarray, np.bool_, np.number, bool, int, float, complex]  # noqa: UP007
DTypeLike = Union[str, type[Any], np.dtype, SupportsDType]  # noqa: UP007

__all__ = ["ArrayLike", "DTypeLike", "SupportsDType"]
