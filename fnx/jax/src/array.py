"""`jax._src.array`: what pickles of JAX's arrays name."""

from collections.abc import Callable
from typing import Any

from fnx.core.array import Array, ConcreteArray, as_array

__all__ = ["ConcreteArray", "_reconstruct_array"]


def _reconstruct_array(  # pickle, and joblib, cloudpickle and dill, which write what it reads
    fun: Callable, args: tuple, arr_state: tuple, aval_state: dict[str, Any]
) -> Array:
    """An array of fnx with the numbers of an array of JAX that was pickled."""
    numbers = fun(*args)  # NumPy's own way, which JAX's pickles have inside
    numbers.__setstate__(arr_state)
    array: Any = as_array(numbers)
    return array.with_weak_type(bool(aval_state.get("weak_type", False)))
