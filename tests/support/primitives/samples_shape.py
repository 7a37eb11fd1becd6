"""Samples of primitives that move elements."""

import numpy as np
from samples import Sample, cdata, data

from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.ops.base.broadcast import Broadcast, Constant, Sum
from fnx.ops.base.float32_accumulation import Cast
from fnx.ops.base.permute import Reshape, Rev, Squeeze, Transpose
from fnx.ops.structure.join import Concatenate, Iota, Split
from fnx.ops.structure.slice import Pad, Slice, SliceAdd
from fnx.ops.structure.slice_set import SliceSet

X, CUBE, ROW, SCALAR = data(3, 4), data(2, 3, 4), data(1, 4), np.array(0.3)
EMPTY = np.zeros((0, 4))

_SAME = [
    Sample(Constant(ConcreteArray(X)), ()),
    Sample(Constant(ConcreteArray(np.arange(20.0).reshape(4, 5))), (), note="large"),
    Sample(Broadcast((2, 3, 4), (1, 2)), (X,), "biufc"),
    Sample(Broadcast((3, 3, 4), (0, 2)), (ROW,)),
    Sample(Broadcast((3, 4), ()), (SCALAR,), "biufc"),
    Sample(Broadcast((1, 3, 1, 4), (1, 3)), (X,), note="axes put in"),
    Sample(Broadcast((0, 4), (1,)), (ROW[0],), note="empty"),
    Sample(Reshape((2, 6)), (X,), "biufc"),
    Sample(Reshape(()), (data(1, 1),), note="to rank 0"),
    Sample(Squeeze((0,)), (ROW,), "biufc"),
    Sample(Squeeze((0, 2)), (data(1, 3, 1),)),
    Sample(Transpose((1, 0)), (X,), "biufc"),
    Sample(Transpose((2, 0, 1)), (CUBE,)),
    Sample(Transpose(()), (SCALAR,)),
    Sample(Rev((0,)), (X,), "biufc"),
    Sample(Rev((0, 2)), (CUBE,)),
    Sample(Slice((0, 1), (2, 4)), (X,), "biufc"),
    Sample(Slice((1, 0, 0), (2, 3, 4), (1, 2, 3)), (CUBE,), note="strides"),
    Sample(Slice((2, 1), (2, 3)), (X,), note="empty"),
    Sample(SliceAdd((0, 1), (2, 4)), (X, data(2, 3)), "iufc"),
    Sample(SliceAdd((1, 0, 0), (2, 3, 4), (1, 2, 3)), (CUBE, data(1, 2, 2)), note="strides"),
    Sample(SliceSet((0, 1), (2, 4)), (X, data(2, 3)), "biufc"),
    Sample(SliceSet((1, 0, 0), (2, 3, 4), (1, 2, 3)), (CUBE, data(1, 2, 2)), note="strides"),
    Sample(Pad(((1, 2, 0), (0, 1, 0))), (X, SCALAR), "biufc"),
    Sample(Pad(((1, 0, 1), (0, 2, 2))), (X, SCALAR), note="interior"),
    Sample(Pad(((-1, 1, 0), (2, -1, 0))), (X, SCALAR), note="negative"),
    Sample(Pad(((-2, 1, 1), (1, -2, 2))), (X, SCALAR), note="negative and interior"),
    Sample(Pad(((1, 1, 0), (0, 0, 0))), (EMPTY, SCALAR), note="empty"),
    Sample(Concatenate(0), (X, data(2, 4)), "biufc"),
    Sample(Concatenate(1), (X, EMPTY.reshape(4, 0)[:3], data(3, 2)), note="with an empty one"),
    Sample(Concatenate(0), (cdata(2), cdata(3)), note="complex"),
    Sample(Split(1, (1, 3)), (X,), "biufc"),
    Sample(Split(0, (1, 0, 2)), (X,), note="with an empty one"),
    *[
        Sample(Iota(1, d, (2, 5, 2)), (), note=dtypes.NAME[d])
        for d in dtypes.ALL
        if d != dtypes.bool_
    ],
]

_SUMS = [
    Sample(Sum((0,)), (X,), "iufc"),
    Sample(Sum((0, 2)), (CUBE,), "iufc"),
    Sample(Sum((0, 1)), (X,), note="all"),
    Sample(Sum(()), (X,), note="none"),
    Sample(Sum((0,)), (EMPTY,), note="empty"),
    Sample(Sum((1,)), (cdata(3, 50),), note="complex"),
    Sample(Sum((0,)), (data(1000, low=0.5),), "iufc", note="long"),
]

_LOWERED = [Sample(Cast(dtypes.float32), (X.astype(np.float16),))]

SAMPLES = [*_SAME, *_SUMS, *_LOWERED]
