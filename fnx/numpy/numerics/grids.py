"""Grids by slices (mgrid, r_), and windows of signal processing."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.creation import array, full, ones
from fnx.numpy.arrays.util import integer, promote, promote_inexact, to_arrays
from fnx.numpy.elementwise import ufuncs
from fnx.numpy.numerics.calculus import i0
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.nonzero import nonzero
from fnx.numpy.structure.ranges import arange, linspace, meshgrid
from fnx.numpy.structure.shapes import moveaxis
from fnx.ops.base.broadcast import broadcast_axis
from fnx.ops.base.permute import Reshape
from fnx.ops.structure.join import Concatenate


def mask_indices(n, mask_func, k=0, *, size=None):
    """Indices at which a mask function of a square matrix of ones is not 0.

    >>> jnp.mask_indices(3, jnp.triu, 1)
    (Array([0, 0, 1], dtype=int64), Array([1, 2, 2], dtype=int64))
    """
    return nonzero(mask_func(ones((n, n)), k), size=size)


def ix_(*args):
    """Vectors as grids for indexing the outer product of positions.

    ValueError for what are no vectors.

    >>> jnp.arange(12).reshape(3, 4)[jnp.ix_(jnp.array([0, 2]), jnp.array([1, 3]))]
    Array([[ 1,  3],
           [ 9, 11]], dtype=int64)
    """
    xs = to_arrays("ix_", *args)
    outs = []
    for k, x in enumerate(xs):
        if x.ndim != 1:
            raise InvalidValue(f"ix_ needs vectors, not shape {x.shape}")
        if x.dtype == dtypes.bool_:
            x = array(np.nonzero(np.asarray(x))[0])
        outs.append(Reshape((*(1,) * k, x.shape[0], *(1,) * (len(xs) - k - 1)))(x))
    return tuple(outs)


def _window(M: int, terms: Sequence[float]) -> Array:
    """A sum of cosines, as windows of signal processing are."""
    M = integer(M, "M")
    if M <= 1:
        return ones(max(M, 0))
    angle = linspace(0.0, 2 * math.pi, M)
    total = full((M,), terms[0], float)
    for k, weight in enumerate(terms[1:], 1):
        total = total + ufuncs.cos(angle * k) * weight
    return total


def hanning(M):
    """The Hann window.

    >>> jnp.hanning(5).round(6)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float64)
    """
    return _window(M, (0.5, -0.5))


def hamming(M):
    """The Hamming window.

    >>> jnp.hamming(5).round(6)
    Array([0.08, 0.54, 1.  , 0.54, 0.08], dtype=float64)
    """
    return _window(M, (0.54, -0.46))


def blackman(M):
    """The Blackman window.

    >>> jnp.abs(jnp.blackman(5)).round(6)
    Array([0.  , 0.34, 1.  , 0.34, 0.  ], dtype=float64)
    """
    return _window(M, (0.42, -0.5, 0.08))


def bartlett(M):
    """The triangular window.

    >>> jnp.bartlett(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float64)
    """
    M = integer(M, "M")
    if M <= 1:
        return ones(max(M, 0))
    return 1.0 - ufuncs.abs(linspace(-1.0, 1.0, M))


def kaiser(M, beta):
    """The Kaiser window.

    >>> jnp.kaiser(3, 0.0)
    Array([1., 1., 1.], dtype=float64)
    """
    M = integer(M, "M")
    if M <= 1:
        return ones(max(M, 0))
    t = linspace(-1.0, 1.0, M)
    (beta,) = promote_inexact("kaiser", beta)
    inside = ufuncs.maximum(1.0 - t * t, 0.0)
    return i0(beta * ufuncs.sqrt(inside)) / i0(beta)


class _Grid:
    """np.mgrid, np.ogrid: grids by slices."""

    def __init__(self, sparse: bool):
        self.sparse = sparse

    def __getitem__(self, index: Any) -> Any:
        parts = index if isinstance(index, tuple) else (index,)
        axes = [_range_of(s) for s in parts]
        if not axes:
            return () if self.sparse else array([], dtype=int)
        if not isinstance(index, tuple):
            return axes[0]
        axes = promote("mgrid", *axes, strictly=False)
        grids = meshgrid(*axes, sparse=self.sparse, indexing="ij")
        if self.sparse:
            return grids
        return Concatenate(0)(*[broadcast_axis(g, 1, 0) for g in grids])


def _range_of(s: slice) -> Array:
    start = 0 if s.start is None else s.start
    stop = start if s.stop is None else s.stop
    step = 1 if s.step is None else s.step
    if isinstance(step, complex):
        return linspace(start, stop, int(abs(step)))
    return arange(start, stop, step)


class _Joined:
    """np.r_, np.c_: arrays by slices, joined.

    A text in front says how: the axis along which to join, the least rank, and where the axes of
    arrays of a smaller rank go ("0,2,-1": new axes in front); "r" and "c" are rows and columns.
    """

    def __init__(self, *how: int):
        self.how = how

    def __getitem__(self, index: Any) -> Array:
        parts = list(index) if isinstance(index, tuple) else [index]
        how = parts.pop(0) if parts and isinstance(parts[0], str) else self.how
        if how in ("r", "c"):
            joined = _join(parts, *self.how)
            if joined.ndim > 1:
                return joined
            return joined[None] if how == "r" else joined[:, None]
        try:
            given = how.split(",") if isinstance(how, str) else how
            axis, rank, place = (*map(int, given), *self.how[len(given) :])
        except ValueError as error:
            raise InvalidValue(
                f"{how!r} does not say how to join; expected 'r', 'c', or integers: 'axis,rank,place'"
            ) from error
        return _join(parts, axis, rank, place)


class RClass(_Joined):
    """What np.r_ is: joined along the first axis."""

    def __init__(self) -> None:
        super().__init__(0, 1, -1)


class CClass(_Joined):
    """What np.c_ is: each a column of at least one element, joined along the last axis."""

    def __init__(self) -> None:
        super().__init__(-1, 2, 0)


def _join(parts: list, axis: int, rank: int, place: int) -> Array:
    arrays = []
    for part in parts:
        x = _range_of(part) if isinstance(part, slice) else array(part)
        old, missing = x.ndim, rank - x.ndim
        x = Reshape((*(1,) * missing, *x.shape))(x) if missing > 0 else x
        if missing > 0 and old and place != -1:  # the array's own axes begin at `place`
            first = place if place >= 0 else place + missing + 1
            x = moveaxis(x, range(missing, rank), range(first, first + old))
        arrays.append(x)
    return concatenate(arrays, axis)


mgrid, ogrid, r_, c_ = _Grid(False), _Grid(True), RClass(), CClass()
s_, index_exp = np.s_, np.index_exp


__all__ = [
    "bartlett",
    "blackman",
    "c_",
    "hamming",
    "hanning",
    "index_exp",
    "ix_",
    "kaiser",
    "mask_indices",
    "mgrid",
    "ogrid",
    "r_",
    "s_",
]
