"""Interpolation of arrays at coordinates."""

import itertools

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue
from fnx.lax.parameterized import round as round_away
from fnx.numpy.arrays.creation import asarray
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.util import to_array
from fnx.numpy.elementwise import ufuncs as u


def _mirror(index, size):
    """Reflection about the centres of the outermost elements: d c b | a b c d | c b a."""
    last = size - 1
    return u.abs(u.remainder(index + last, max(2 * last, 1)) - last) if last else index * 0


def _reflect(index, size):
    """Reflection about the outer edges: c b a | a b c d | d c b."""
    return u.floor_divide(_mirror(2 * index + 1, 2 * size + 1), 2)


_PLACES = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: u.clip(index, 0, size - 1),
    "wrap": u.remainder,
    "mirror": _mirror,
    "reflect": _reflect,
}


def _nearest(x):
    return [(round_away(x).astype(np.int32) if x.dtype.kind == "f" else x, None)]


def _linear(x):
    low = u.floor(x)
    up = x - low
    place = low.astype(np.int32)
    return [(place, 1 - up), (place + 1, up)]


def map_coordinates(input, coordinates, order, mode="constant", cval=0.0):
    """The input, interpolated at one array of coordinates for each axis.

    `order` 0 takes the nearest element, of two that are equally near the one farther from zero; 1
    interpolates linearly. `mode` says what lies outside: 'constant' (`cval`), 'nearest', 'wrap', 'mirror'
    or 'reflect'.

    ValueError for another number of coordinates than axes; NotImplementedError for other orders
    and modes.

    >>> fnx.scipy.ndimage.map_coordinates(np.arange(4.0), [np.array([0.5, 2.25])], order=1)
    Array([0.5 , 2.25], dtype=float64)
    """
    x = to_array(input, "map_coordinates")
    if len(coordinates) != x.ndim:
        raise InvalidValue(
            f"map_coordinates of an array of rank {x.ndim} with {len(coordinates)} arrays of "
            "coordinates; expected one for each axis"
        )
    if mode not in _PLACES:
        raise NotImplementedError(
            f"map_coordinates with mode={mode!r}; expected one of {', '.join(_PLACES)}"
        )
    if order not in (0, 1):
        raise NotImplementedError(f"map_coordinates with order={order}; expected 0 or 1")
    nodes = _nearest if order == 0 else _linear
    outside = asarray(cval, x.dtype)
    per_axis = []
    for c, size in zip([to_array(c, "map_coordinates", 1) for c in coordinates], x.shape):
        per_axis.append(
            [
                (_PLACES[mode](i, size), u.logical_and(i >= 0, i < size), weight)
                for i, weight in nodes(c)
            ]
        )
    total = None
    for corner in itertools.product(*per_axis):
        term = x.at[tuple(i for i, _, _ in corner)].get(mode="clip")
        if mode == "constant":
            inside = corner[0][1]
            for _, valid, _ in corner[1:]:
                inside = u.logical_and(inside, valid)
            term = u.where3(inside, term, outside)
        for _, _, weight in corner:
            term = term if weight is None else term * weight
        total = term if total is None else total + term
    if dtypes.is_integer(x.dtype) and dtypes.is_float(total.dtype):
        total = round_away(total)
    return total.astype(x.dtype)


__all__ = ["map_coordinates"]

_retell(globals())
