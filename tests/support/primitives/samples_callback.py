"""Samples of calls of Python functions."""

import numpy as np
from samples import Sample, data

from fnx.core.aval import ShapedArray
from fnx.ops.callback import METHODS, Callback

_TYPES = (ShapedArray((3,), np.dtype(np.float64)), ShapedArray((), np.dtype(np.int64)))


def _sorted(x):
    return np.sort(x, -1), np.argmin(x, -1)


def _one_per_lane(x):
    return np.sort(x, -1), np.broadcast_to(np.argmin(x, -1), x.shape[:-1])


SAMPLES = [
    Sample(Callback(_one_per_lane, _TYPES, vmap_method=m), (data(3),), smooth=0, note=m)
    for m in METHODS
    if m != "legacy_vectorized"
]
SAMPLES += [Sample(Callback(_sorted, _TYPES), (data(3),), smooth=0, batched=False, note="plain")]
