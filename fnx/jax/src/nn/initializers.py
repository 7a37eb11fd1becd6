"""`jax._src.nn.initializers`: the public initializers, and random complex numbers that they are made of."""

import math
from typing import Any

from fnx.core.array import Array
from fnx.nn import initializers
from fnx.nn.initializers import *
from fnx.numpy import log1p, sqrt


def _complex_uniform(key: Any, shape: Any, dtype: Any) -> Array:  # e3x
    """Complex numbers, uniform in a disc, of variance 1."""
    return initializers._uniform_disc(key, shape, dtype)


def _complex_truncated_normal(key: Any, upper: float, shape: Any, dtype: Any) -> Array:  # e3x
    """Complex normal numbers of sizes below `upper`."""
    inside = 1 - math.exp(-(upper**2))
    return initializers._on_disc(key, shape, dtype, lambda s: sqrt(-log1p(-inside * s)))
