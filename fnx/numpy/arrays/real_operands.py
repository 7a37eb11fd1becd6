"""Operands of functions that are defined for real numbers only."""

from collections.abc import Sequence

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import TypeMismatch


class NotReal(TypeMismatch, ValueError):
    """Complex numbers were given to a function of real ones."""


def reals(name: str, xs: Sequence[Array]) -> Sequence[Array]:
    """The operands. NumPy and SciPy, which evaluate some, have an order, or drop imaginary parts."""
    for x in xs:
        if dtypes.is_complex(x.dtype):
            raise NotReal(f"{name} of dtype {x.dtype}; expected real numbers")
    return xs
