"""`jax._src.random.threefry2x32`: what the generator does with keys that are words."""

from typing import Any

from fnx.core.array import Array
from fnx.random import key as _key
from fnx.random import key_data as _key_data
from fnx.random.generators import fold_in as threefry_fold_in  # quax
from fnx.random.generators import random_bits as threefry_random_bits  # quax
from fnx.random.generators import split as threefry_split  # quax

__all__ = ["threefry_fold_in", "threefry_random_bits", "threefry_seed", "threefry_split"]


def threefry_seed(seed: Any) -> Array:  # quax
    """The words of the key of an integer."""
    return _key_data(_key(seed, impl="threefry2x32"))
