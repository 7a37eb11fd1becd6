"""Samples of dot_general and convolutions."""

import numpy as np
from samples import Sample

from fnx.ops.linalg.contraction import DotGeneral
from fnx.ops.linalg.conv_layout import ConvDimensionNumbers, canonical_numbers
from fnx.ops.linalg.convolution import ConvGeneralDilated

_rng = np.random.default_rng(8)


def _f(*shape, dtype="float64"):
    x = _rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * _rng.normal(size=shape)
    return (3 * x).astype(dtype)


def _dot(contract, batch=((), ()), preferred=None):
    return DotGeneral((contract, batch), None if preferred is None else np.dtype(preferred))


_MATMUL = _dot(((1,), (0,)))
_NHWC = ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2))


def _conv(strides, padding, lhs_dilation, rhs_dilation, numbers=None, groups=1, batch_groups=1):
    numbers = canonical_numbers(len(strides)) if numbers is None else numbers
    return ConvGeneralDilated(
        strides, padding, lhs_dilation, rhs_dilation, numbers, groups, batch_groups
    )


SAMPLES = [
    Sample(_MATMUL, (_f(3, 4), _f(4, 5)), kinds="biufc"),
    Sample(_dot(((0,), (0,))), (_f(4, 3), _f(4, 5))),
    Sample(_dot(((0,), (1,))), (_f(4, 3), _f(5, 4))),
    Sample(_dot(((1,), (1,))), (_f(3, 4), _f(5, 4))),
    Sample(_dot(((0,), (0,))), (_f(4), _f(4))),
    Sample(_dot(((), ())), (_f(4), _f(3))),
    Sample(_dot(((), ())), (_f(), _f(3, 2))),
    Sample(_dot(((2,), (1,)), ((0,), (0,))), (_f(2, 3, 4), _f(2, 4, 5))),
    Sample(_dot(((2, 0), (1, 3)), ((1,), (2,))), (_f(2, 3, 4), _f(5, 4, 3, 2))),
    Sample(_dot(((0, 2), (3, 1)), ((1,), (2,))), (_f(2, 3, 4), _f(5, 4, 3, 2))),
    Sample(_MATMUL, (_f(9, 20), _f(20, 30))),  # large enough for BLAS
    Sample(_MATMUL, (_f(9, 20, dtype="float32"), _f(20, 30, dtype="float32"))),
    Sample(_MATMUL, (_f(9, 20, dtype="complex128"), _f(20, 30, dtype="complex128"))),
    Sample(_MATMUL, (_f(3, 0), _f(0, 5))),
    Sample(_dot(((1,), (0,)), preferred="int32"), (_f(3, 4, dtype="int8"), _f(4, 5, dtype="int8"))),
    Sample(
        _dot(((1,), (0,)), preferred="float64"),
        (_f(3, 4, dtype="float32"), _f(4, 5, dtype="float32")),
    ),
    Sample(_conv((1,), ((0, 0),), (1,), (1,)), (_f(2, 3, 8), _f(4, 3, 3)), kinds="iufc"),
    Sample(_conv((2,), ((3, -1),), (3,), (2,)), (_f(2, 3, 8), _f(4, 3, 3))),
    Sample(_conv((1,), ((1, 1),), (2,), (1,), groups=2), (_f(2, 6, 8), _f(4, 3, 3))),
    Sample(_conv((2,), ((1, 1),), (1,), (1,), batch_groups=2), (_f(4, 3, 8), _f(4, 3, 3))),
    Sample(
        _conv((2, 1), ((1, 1), (0, 2)), (1, 2), (2, 1), _NHWC), (_f(2, 7, 6, 3), _f(3, 2, 3, 4))
    ),
    Sample(_conv((), (), (), ()), (_f(2, 3), _f(4, 3))),
    Sample(_conv((1,), ((0, 0),), (1,), (1,)), (_f(2, 3, 2), _f(4, 3, 5))),  # an empty result
]
