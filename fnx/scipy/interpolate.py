"""Interpolation on grids, with scipy.interpolate's names."""

from itertools import product
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy import ufuncs as u
from fnx.numpy.creation import array
from fnx.numpy.shape import broadcast_arrays, stack, where
from fnx.numpy.sorting import searchsorted
from fnx.numpy.util import promote_inexact


class RegularGridInterpolator:
    """Values on a grid of increasing coordinates, interpolated: method "linear" or "nearest".

    Outside of the grid: `fill_value`, or extrapolated where that is None.
    """

    def __init__(self, points, values, method="linear", bounds_error=False, fill_value=np.nan):
        if method not in ("linear", "nearest"):
            raise InvalidValue(f"RegularGridInterpolator with method={method!r}; expected linear or nearest")
        if bounds_error:
            raise InvalidValue("bounds_error=True is not supported: results cannot depend on values")
        self.method, self.fill_value = method, fill_value
        (self.values,) = promote_inexact("RegularGridInterpolator", array(values))
        self.grid = [promote_inexact("RegularGridInterpolator", array(p))[0] for p in points]
        shape = tuple(p.shape[0] for p in self.grid)
        if len(shape) > self.values.ndim or self.values.shape[: len(shape)] != shape:
            raise InvalidValue(f"a grid of shape {shape} does not fit values of shape {self.values.shape}")

    def __call__(self, xi: Any, method: str | None = None) -> Array:
        """The values at points, whose coordinates are the last axis (or a tuple of arrays)."""
        method = method or self.method
        xi = stack(broadcast_arrays(*map(array, xi)), -1) if isinstance(xi, tuple) else array(xi)
        (xi,) = promote_inexact("RegularGridInterpolator", xi)
        if xi.shape[-1] != len(self.grid):
            raise InvalidValue(f"points of {xi.shape[-1]} coordinates in a grid of {len(self.grid)} axes")
        lead = xi.shape[:-1]
        points = xi.reshape((-1, xi.shape[-1]))
        parts, outside = [], None
        for k, p in enumerate(self.grid):
            x = points[:, k]
            i = u.clip(searchsorted(p, x) - 1, 0, p.shape[0] - 2)
            share = (x - p[i]) / (p[i + 1] - p[i])
            parts.append(((i, 1 - share), (i + 1, share)))
            off = u.logical_or(x < p[0], x > p[-1])
            outside = off if outside is None else u.logical_or(outside, off)
        out = self._nearest(parts) if method == "nearest" else self._linear(parts)
        if self.fill_value is not None:
            mask = outside.reshape((-1,) + (1,) * (out.ndim - 1))
            out = where(mask, self.fill_value, out)
        return out.reshape((*lead, *self.values.shape[len(self.grid) :]))

    def _nearest(self, parts: list) -> Array:
        return self.values[tuple([where(low[1] >= 0.5, low[0], high[0]) for low, high in parts])]

    def _linear(self, parts: list) -> Array:
        total: Any = None
        for corner in product(*parts):
            weight = corner[0][1]
            for _, w in corner[1:]:
                weight = weight * w
            value = self.values[tuple([i for i, _ in corner])]
            term = value * weight.reshape((-1,) + (1,) * (value.ndim - 1))
            total = term if total is None else total + term
        return total


__all__ = ["RegularGridInterpolator"]
