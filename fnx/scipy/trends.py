"""Samples without their trend: a mean, or lines of least squares."""

import itertools

import numpy as np

from fnx.core.errors import InvalidValue
from fnx.numpy import linalg as np_linalg
from fnx.numpy.arrays.util import canonical_axis, promote_inexact
from fnx.numpy.reductions import averages
from fnx.numpy.structure.joining import concatenate
from fnx.numpy.structure.shapes import moveaxis


def detrend(data, axis=-1, type="linear", bp=0, overwrite_data=None):
    """Less the mean, or the line of least squares between break points `bp`, along an axis.

    ValueError for another type, and for break points outside; NotImplementedError for
    `overwrite_data`.

    >>> abs(fnx.scipy.signal.detrend(jnp.array([1.0, 3.0, 5.0])).round(6))
    Array([0., 0., 0.], dtype=float64)
    """
    if overwrite_data is not None:
        raise NotImplementedError("detrend has no overwrite_data: arrays are immutable")
    if type not in ("constant", "linear"):
        raise InvalidValue(f"detrend with type={type!r}; expected 'constant' or 'linear'")
    (x,) = promote_inexact("detrend", data)
    if type == "constant":
        return x - averages.mean(x, axis, keepdims=True)
    k = canonical_axis(axis, x.ndim)
    n = x.shape[k]
    ends = np.unique(np.concatenate([[0], np.atleast_1d(np.asarray(bp)), [n]]))
    if ends[0] < 0 or ends[-1] > n:
        raise InvalidValue(f"detrend with bp={bp}; expected break points in [0, {n})")
    x = moveaxis(x, k, 0)
    columns = x.reshape(n, -1)
    parts = []
    for start, stop in itertools.pairwise(ends):
        count = stop - start
        line = np.stack([np.ones(count), np.arange(1, count + 1) / count], axis=-1).astype(x.dtype)
        part = columns[start:stop]
        parts.append(part - line @ np_linalg.lstsq(line, part)[0])
    return moveaxis(concatenate(parts).reshape(x.shape), 0, k)
