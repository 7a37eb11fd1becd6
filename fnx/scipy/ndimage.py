"""Interpolation of images, with scipy.ndimage's names."""

from itertools import product
from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy import ufuncs as u
from fnx.numpy.util import convert, promote_inexact, to_array


def _mirrored(i: Array, n: int) -> Array:
    """Indices reflected about the centres of the end elements."""
    period = max(2 * (n - 1), 1)
    i = u.remainder(i, period)
    return u.minimum(i, period - i) if n > 1 else i * 0


def _reflected(i: Array, n: int) -> Array:
    """Indices reflected about the ends."""
    i = u.remainder(i, 2 * n)
    return u.minimum(i, 2 * n - 1 - i)


_FIXED = {
    "constant": lambda i, n: i,
    "nearest": lambda i, n: u.clip(i, 0, n - 1),
    "wrap": lambda i, n: u.remainder(i, n),
    "mirror": _mirrored,
    "reflect": _reflected,
}


def map_coordinates(input, coordinates, order, mode="constant", cval=0.0):
    """The values of an array at places between its elements.

    One array of coordinates per axis, of equal shapes; `order` 0 takes the nearest element, 1
    interpolates linearly; `mode` says what lies outside: "constant" (cval), "nearest", "wrap",
    "mirror", "reflect".
    """
    x = to_array(input, "map_coordinates")
    if mode not in _FIXED:
        raise InvalidValue(f"map_coordinates with mode={mode!r}; expected one of {', '.join(_FIXED)}")
    if order not in (0, 1):
        raise InvalidValue(f"map_coordinates of order {order}; expected 0 or 1")
    places = [promote_inexact("map_coordinates", c)[0] for c in coordinates]
    if len(places) != x.ndim:
        raise InvalidValue(f"map_coordinates of rank {x.ndim} at {len(places)} coordinates; expected equal")
    parts = [_neighbours(c, n, order, mode) for c, n in zip(places, x.shape)]
    total: Any = None
    for choice in product(*parts):
        inside, weight = True, None
        for _, ok, w in choice:
            inside = ok if inside is True else u.logical_and(inside, ok)
            weight = w if weight is None else u.multiply(weight, w)
        value = x[tuple([i for i, _, _ in choice])]
        value = u.where3(inside, value, convert(to_array(cval), x.dtype)) if mode == "constant" else value
        term = u.multiply(value, weight) if order else value
        total = term if total is None else u.add(total, term)
    if dtypes.is_integer(x.dtype):
        total = u.round(total)
    return convert(total, x.dtype)


def _neighbours(c: Array, n: int, order: int, mode: str) -> list[tuple]:
    """The elements beside a coordinate: (index, whether it exists, weight)."""
    if order == 0:
        near = convert(u.floor(c + 0.5) if mode == "constant" else u.round(c), dtypes.default_for("i"))
        return [_fixed(near, n, mode, u.multiply(c, 0) + 1)]
    low = u.floor(c)
    share = c - low
    first = convert(low, dtypes.default_for("i"))
    return [_fixed(first, n, mode, 1 - share), _fixed(first + 1, n, mode, share)]


def _fixed(i: Array, n: int, mode: str, weight: Array) -> tuple:
    inside = u.logical_and(i >= 0, i < n)
    return u.clip(_FIXED[mode](i, n), 0, n - 1), inside, weight


__all__ = ["map_coordinates"]
