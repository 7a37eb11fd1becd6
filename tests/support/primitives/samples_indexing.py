"""Samples of gather, the scatters and dynamic slices."""

import numpy as np
from samples import Sample, data

from fnx.ops.structure.dynamic_slice import DynamicSlice, dynamic_slice_add, dynamic_update_slice
from fnx.ops.structure.gather import Gather, ScatterAdd
from fnx.ops.structure.gather_dimension_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    as_scatter,
)
from fnx.ops.structure.scatter import Scatter, ScatterMax, ScatterMin, ScatterMul

_rng = np.random.default_rng(7)
_CLIP, _FILL = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP
_INSIDE = GatherScatterMode.PROMISE_IN_BOUNDS


def _f(*shape):
    return _rng.normal(size=shape)


def _i(*shape, high=6, low=-2, dtype=np.int64):
    return _rng.integers(low, high, size=shape).astype(dtype)


# Dimension numbers, slice sizes, operand, indices: some of these lie outside.
_WINDOWS = [
    (GatherDimensionNumbers((), (0,), (0,)), (1,), _f(5), _i(7, 1)),
    (GatherDimensionNumbers((1,), (0,), (0,)), (1, 4), _f(5, 4), _i(3, 1, dtype=np.int32)),
    (GatherDimensionNumbers((0,), (1,), (1,)), (4, 1), _f(4, 5), _i(3, 1)),
    (GatherDimensionNumbers((0,), (0,), (0,)), (1, 4), _f(5, 4), np.array([2])),
    (GatherDimensionNumbers((), (0, 1), (0, 1)), (1, 1), _f(5, 4), _i(2, 3, 2)),
    (GatherDimensionNumbers((1, 2), (), (0, 1)), (2, 3), _f(5, 4), _i(3, 2)),
    (GatherDimensionNumbers((0, 2), (1,), (1, 0)), (2, 1, 3), _f(5, 4, 3), _i(3, 2)),
    (GatherDimensionNumbers((1,), (0, 2), (0, 2)), (1, 4, 1), _f(5, 4, 3), _i(4, 2)),
    (GatherDimensionNumbers((), (1,), (1,), (0,), (0,)), (1, 1), _f(3, 4), _i(3, 5, 1)),
    (GatherDimensionNumbers((2,), (1,), (1,), (0,), (1,)), (1, 1, 2), _f(3, 4, 2), _i(5, 3, 1)),
]


def _gathers():
    for dims, sizes, x, indices in _WINDOWS:
        for mode in (_CLIP, _FILL):
            yield Sample(Gather(dims, 0.5, False, mode, sizes, False), (x, indices))
        yield Sample(Gather(dims, None, False, _INSIDE, sizes, False), (x, np.clip(indices, 0, 1)))


def _scatters():
    for dims, sizes, x, indices in _WINDOWS:
        shape = Gather(dims, 0, False, _CLIP, sizes, False).windows(x, indices).shape
        updates = _f(*shape)
        updates += np.sign(updates)  # away from 0, for products
        for kind in (Scatter, ScatterAdd, ScatterMul, ScatterMin, ScatterMax):
            for mode in (_CLIP, _FILL):
                yield Sample(kind(as_scatter(dims), False, mode, False), (x, indices, updates))


def _dtypes():
    dims = GatherDimensionNumbers((), (0,), (0,))
    indices = np.array([[4], [0], [9], [4]])
    x, u = data(5), data(4, seed=1)
    for prim in (Scatter, ScatterAdd, ScatterMul, ScatterMin, ScatterMax):
        scatter = prim(as_scatter(dims), False, _FILL, False)
        yield Sample(scatter, (x, indices, u), kinds="biufc")
    yield Sample(Gather(dims, None, False, _CLIP, (1,), False), (x, indices), kinds="biufc")


_one, _far, _before = np.int32(1), np.int64(9), np.int32(-4)
SAMPLES = [
    *_gathers(),
    *_scatters(),
    *_dtypes(),
    Sample(DynamicSlice((2, 3)), (_f(4, 5), _one, _one), kinds="biufc"),
    Sample(DynamicSlice((2, 3)), (_f(4, 5), _before, _far)),
    Sample(DynamicSlice((2,)), (_f(4).astype(np.float32), _one)),
    Sample(DynamicSlice(()), (_f(),)),
    Sample(dynamic_update_slice, (_f(4, 5), _f(2, 3), _one, _before), kinds="biufc"),
    Sample(dynamic_update_slice, (_f(4), _f(4), _far)),
    Sample(dynamic_slice_add, (_f(4, 5), _f(2, 3), _one, _far), kinds="biufc"),
    Sample(dynamic_slice_add, (_f(4).astype(np.complex128), _f(1).astype(np.complex128), _one)),
]
