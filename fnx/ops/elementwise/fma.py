"""The fused multiply-add: where a product and a sum must be rounded once, compiled or not."""

from typing import Any

import numpy as np

from fnx.core.cost import PRODUCTS
from fnx.ops.elementwise.arithmetic import mul
from fnx.ops.elementwise.native import native
from fnx.ops.elementwise.pointwise import FLOAT, Elementwise, identity

_SPLIT = 2.0**27 + 1
_LARGEST = 2.0**480  # of factors whose parts have products that are finite


def _fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> Any:
    """With NumPy: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).

    In float64, rounded to odd, so that rounding again to a narrower dtype is right.
    """
    a, b, c = (v.astype(np.float64) for v in (x, y, z))
    with np.errstate(all="ignore"):
        high, low = _product(a, b)
        upper, lower = _sum(c, low)
        total, rest = _sum(high, upper)
        last = _to_odd(*_sum(rest, lower))
        found = total + last if x.dtype == np.float64 else _to_odd(*_sum(total, last))
        plain = a * b + c
        fits = np.isfinite(plain) & (found != 0) & (abs(a) < _LARGEST) & (abs(b) < _LARGEST)
        return np.where(fits, found, plain).astype(x.dtype)


def _product(a: Any, b: Any) -> tuple:
    """A product and its error (Dekker 1971)."""
    high = [_SPLIT * v - (_SPLIT * v - v) for v in (a, b)]
    low = [v - h for v, h in zip((a, b), high, strict=True)]
    product = a * b
    error = high[0] * high[1] - product
    return product, error + high[0] * low[1] + low[0] * high[1] + low[0] * low[1]


def _sum(a: Any, b: Any) -> tuple:
    """A sum and its error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _to_odd(value: Any, error: Any) -> Any:
    """A sum and its error as one number: where that is not exact, the one with an odd last bit."""
    even = np.asarray(value).view(np.int64) % 2 == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & even, np.nextafter(value, towards), value)


fma = Elementwise(
    "fma",
    native(_fma, 3),
    FLOAT,
    (lambda t, o, x, y, z: mul(t, y), lambda t, o, x, y, z: mul(x, t), identity),
    expr="fma",
    cost=PRODUCTS,
)
