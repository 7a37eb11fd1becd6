"""Interpolation on regular grids."""

import itertools
import math

from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.numpy.arrays.util import convert, promote_inexact, to_array
from fnx.numpy.elementwise import ufuncs as u
from fnx.numpy.structure.joining import stack
from fnx.numpy.structure.shapes import broadcast_arrays
from fnx.numpy.structure.sorting import searchsorted
from fnx.pytree.operations import register_pytree_node


class RegularGridInterpolator:
    """A function known at the points of a grid of any spacing, interpolated between them.

    `points`: one increasing vector per axis; `values`: their shape, then any further axes. `method` is
    'linear' or 'nearest'. Outside the grid results are `fill_value`; None extrapolates. ValueError for
    another method, ShapeError for values of other shapes, NotImplementedError for `bounds_error`.

    >>> x, y = jnp.array([0.0, 1.0, 3.0]), jnp.array([0.0, 10.0, 30.0])
    >>> f = fnx.scipy.interpolate.RegularGridInterpolator((x,), y)
    >>> f(jnp.array([[2.0]]))
    Array([20.], dtype=float64)
    """

    def __init__(self, points, values, method="linear", bounds_error=False, fill_value=math.nan):
        if method not in ("linear", "nearest"):
            raise InvalidValue(f"method={method!r}; expected 'linear' or 'nearest'")
        if bounds_error:
            raise NotImplementedError("bounds_error=True; points outside give fill_value")
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value
        self.grid = tuple(to_array(p, "RegularGridInterpolator") for p in points)
        (self.values,) = promote_inexact("RegularGridInterpolator", values)
        self._check()

    def _check(self) -> None:
        sizes = tuple(g.shape[0] if g.ndim == 1 else None for g in self.grid)
        if len(sizes) > self.values.ndim or self.values.shape[: len(sizes)] != sizes:
            raise ShapeError(
                f"points of shapes {[g.shape for g in self.grid]} and values of shape "
                f"{self.values.shape}; expected a vector for each leading axis, of its length"
            )
        if self.fill_value is not None and not isinstance(self.fill_value, (int, float)):
            kind = getattr(getattr(self.fill_value, "dtype", None), "kind", "")
            if kind == "c" and self.values.dtype.kind != "c":
                raise TypeMismatch("fill_value is complex and values are not")

    def __call__(self, xi, method=None):
        """Values at points, their coordinates along the last axis (or a tuple of one array per axis)."""
        method = self.method if method is None else method
        if method not in ("linear", "nearest"):
            raise InvalidValue(f"method={method!r}; expected 'linear' or 'nearest'")
        n = len(self.grid)
        points = self._points(xi, n)
        if points.shape[-1] != n:
            raise InvalidValue(f"points have {points.shape[-1]} coordinates; expected {n}")
        lead = points.shape[:-1]
        flat = points.reshape(-1, n)
        places, shares, outside = self._find(flat)
        found = (
            self._linear(places, shares) if method == "linear" else self._nearest(places, shares)
        )
        if self.fill_value is not None:
            outside = outside.reshape(-1, *(1,) * (found.ndim - 1))
            found = convert(u.where3(outside, self.fill_value, found), found.dtype)
        return found.reshape(*lead, *self.values.shape[n:])

    @staticmethod
    def _points(xi, n):
        if isinstance(xi, tuple):
            parts = xi[0] if len(xi) == 1 and isinstance(xi[0], tuple) else xi
            return stack(broadcast_arrays(*parts), axis=-1)
        points = to_array(xi, "RegularGridInterpolator")
        return points.reshape(-1, n) if points.ndim == 1 and n == 1 else points

    def _find(self, points):
        """The cell below each point, the point's share of it, and whether it lies outside, per axis."""
        places, shares, outside = [], [], None
        for k, g in enumerate(self.grid):
            x = points[:, k]
            i = u.clip(searchsorted(g, x) - 1, 0, max(g.shape[0] - 2, 0))
            places.append(i)
            shares.append((x - g[i]) / (g[i + 1] - g[i]))
            out = u.logical_or(x < g[0], x > g[-1])
            outside = out if outside is None else u.logical_or(outside, out)
        return places, shares, outside

    def _linear(self, places, shares):
        further = (slice(None),) + (None,) * (self.values.ndim - len(places))
        total = None
        for corner in itertools.product((0, 1), repeat=len(places)):
            weight = None
            for up, share in zip(corner, shares):
                part = share if up else 1 - share
                weight = part if weight is None else weight * part
            term = self.values[tuple(i + up for i, up in zip(places, corner))] * weight[further]
            total = term if total is None else total + term
        return total

    def _nearest(self, places, shares):
        return self.values[tuple(u.where3(s <= 0.5, i, i + 1) for i, s in zip(places, shares))]


def _restore(aux, children):
    made = object.__new__(RegularGridInterpolator)
    made.method, made.bounds_error = aux
    made.grid, made.values, made.fill_value = children
    return made


register_pytree_node(
    RegularGridInterpolator,
    lambda f: ((f.grid, f.values, f.fill_value), (f.method, f.bounds_error)),
    _restore,
)

__all__ = ["RegularGridInterpolator"]
