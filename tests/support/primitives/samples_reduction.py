"""Samples of reductions, cumulative operations, and windows."""

import numpy as np
from samples import Sample, cdata, data, integers

from fnx.core.aval import ShapedArray
from fnx.interpreters.primitives.reduce import Reduce
from fnx.interpreters.trace import trace_closed
from fnx.ops.elementwise.arithmetic import mul
from fnx.ops.elementwise.select import gt, select
from fnx.ops.reduction import pooling as p
from fnx.ops.reduction import reduction as r
from fnx.ops.reduction import select_and_scatter as w
from fnx.ops.reduction.cumulative import Cumulative, Recurrence

X, CUBE, EMPTY = data(3, 4), data(2, 3, 4), np.zeros((0, 4))
LINE = data(7, low=-2, high=2)
INTS = integers(3, 4)
NAN = np.array([[1.0, np.nan, 3.0, np.nan], [4.0, -np.inf, 4.0, np.inf]])
I32, I64 = np.dtype(np.int32), np.dtype(np.int64)

_REDUCTIONS = [
    Sample(r.Max((0,)), (X,), "biufc"),
    Sample(r.Min((0, 2)), (CUBE,), "biufc"),
    Sample(r.Max((0, 1)), (X,), note="all"),
    Sample(r.Max((1,)), (NAN,), smooth=0, note="nan"),
    Sample(r.Min((1,)), (NAN,), smooth=0, note="nan"),
    Sample(r.Max((0,)), (EMPTY,), smooth=0, note="empty"),
    Sample(r.Min((0,)), (EMPTY.astype(np.int32),), note="empty"),
    Sample(r.Prod((0,)), (X + 2,), "iufc"),
    Sample(r.Prod((0, 2)), (CUBE,)),
    Sample(r.Prod((0,)), (np.array([2.0, 0.0, 3.0, -1.0]),), note="with 0"),
    Sample(r.Prod((0,)), (np.array([2.0, 0.0, 0.0]),), note="with two 0"),
    Sample(r.Prod((1,)), (cdata(2, 3),), note="complex"),
    *[Sample(c((1,)), (INTS,), "biu") for c in (r.ReduceAnd, r.ReduceOr, r.ReduceXor)],
    *[
        Sample(c((0,)), (EMPTY.astype(np.int32),), note="empty")
        for c in (r.ReduceAnd, r.ReduceOr, r.ReduceXor)
    ],
    *[Sample(c((1,), I32), (X,), "biuf", smooth=1) for c in (r.ArgMax, r.ArgMin)],
    *[Sample(c((1,), I64), (NAN,), smooth=0, note="nan") for c in (r.ArgMax, r.ArgMin)],
    *[Sample(c((0,), I64), (INTS % 3,), note="ties") for c in (r.ArgMax, r.ArgMin)],
]

_CUMULATIVE = [
    *[
        Sample(Cumulative("cumsum", 1, rev), (X,), "iufc", note=f"rev={rev}")
        for rev in (False, True)
    ],
    *[
        Sample(Cumulative("cumprod", 0, rev), (X + 2,), "iufc", note=f"rev={rev}")
        for rev in (False, True)
    ],
    Sample(Cumulative("cumprod", 0), (np.array([2.0, 0.0, 3.0, -1.0]),), note="with 0"),
    *[
        Sample(Cumulative(name, axis, rev), (CUBE,), "iuf", note=f"{axis},rev={rev}")
        for name in ("cummax", "cummin")
        for axis, rev in ((1, False), (2, True))
    ],
    *[
        Sample(Cumulative("cumlogsumexp", 0, rev), (LINE,), "f", note=f"rev={rev}")
        for rev in (False, True)
    ],
    Sample(Cumulative("cumlogsumexp", 0), (LINE * 500,), smooth=1, note="far"),
    Sample(Cumulative("cumsum", 0), (EMPTY,), note="empty"),
    *[
        Sample(Recurrence(1, rev), (X, data(3, 4, seed=9)), "iufc", note=f"rev={rev}")
        for rev in (False, True)
    ],
]

_PLAIN = ((2, 3), (1, 2), ((0, 0), (1, 1)), (1, 1), (1, 1))
_DILATED = ((3, 2), (2, 1), ((1, 1), (-1, 1)), (2, 1), (1, 2))
_FIELD = data(5, 6)
_PADDED = ((2, 3), (1, 2), ((1, 1), (1, 1)), (1, 1), (1, 1))
_WINDOWS = [
    Sample(p.ReduceWindowMax(*_PADDED), (np.zeros((0, 6)),), smooth=0, note="of nothing"),
    Sample(
        w.WindowGather(*_PADDED, "max"),
        (np.zeros((0, 6)), np.zeros((0, 6))),
        smooth=0,
        batched=False,
        note="of nothing",
    ),
    *[
        Sample(c(*args), (_FIELD,), kinds, note=note)
        for c, kinds in (
            (p.ReduceWindowSum, "iufc"),
            (p.ReduceWindowMax, "iuf"),
            (p.ReduceWindowMin, "iuf"),
        )
        for args, note in ((_PLAIN, "plain"), (_DILATED, "dilated"))
    ],
    *[
        Sample(w.WindowGather(*_PLAIN, kind), (data(5, 6, seed=4), _FIELD), "iuf", note=kind)
        for kind in ("max", "min")
    ],
    *[
        Sample(w.WindowPick(*args, "max", -1), (_FIELD, integers(5, 6)), smooth=0, note=note)
        for args, note in ((_PLAIN, "plain"), (_DILATED, "dilated"))
    ],
    *[
        Sample(w.WindowScatter(*_PLAIN, kind), (data(4, 3, seed=4), _FIELD), "iuf", note=kind)
        for kind in ("max", "min")
    ],
]


def _jaxpr(fn, *examples):
    return trace_closed(fn, [ShapedArray((), np.asarray(x).dtype) for x in examples])


def _later_maximum(value, place, other, other_place):
    better = gt(other, value)
    return [select(better, other, value), select(better, other_place, place)]


_PRODUCT = _jaxpr(lambda a, b: [mul(a, b)], 1.0, 1.0)
_PLACE = _jaxpr(_later_maximum, 1.0, 1, 1.0, 1)
_GENERIC = [
    Sample(Reduce((0,), _PRODUCT), (X + 2, np.array(1.0))),
    Sample(Reduce((0, 2), _PRODUCT), (data(5, 3, 3) + 2, np.array(1.0))),
    Sample(Reduce((), _PRODUCT), (X + 2, np.array(1.0)), note="none"),
    Sample(Reduce((0,), _PRODUCT), (EMPTY, np.array(1.0)), note="empty"),
    Sample(Reduce((1,), _PLACE), (X, INTS, np.array(-9.0), np.array(0)), note="two"),
]

SAMPLES = [*_REDUCTIONS, *_CUMULATIVE, *_WINDOWS, *_GENERIC]
