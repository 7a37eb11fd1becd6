"""Samples of elementwise primitives."""

import numpy as np
from samples import Sample, cdata, data, integers

from fnx.core import dtypes
from fnx.ops.elementwise import arithmetic as e
from fnx.ops.elementwise import select as s
from fnx.ops.elementwise import special as f
from fnx.ops.elementwise.convert import BitcastConvertType, ConvertElementType, ReducePrecision
from fnx.ops.elementwise.fma import fma
from fnx.ops.elementwise.half_powers import HALF_POWERS
from fnx.ops.elementwise.pointwise import add_weak

X, Y = data(3, 4), data(3, 4, seed=3)
POSITIVE = data(3, 4, low=0.3, high=2.5)
UNIT = data(3, 4, low=-0.9, high=0.9)
SCALAR = np.array(0.7)
INTS, MORE_INTS = integers(3, 4), integers(3, 4, seed=1)
I32 = np.dtype(np.int32)


def _members(prims: list, *args: np.ndarray, **options: object) -> list[Sample]:
    return [Sample(p, args, **options) for p in prims]


_ARITHMETIC = [
    *_members([e.add, e.sub, e.mul], X, Y, kinds="iufc"),
    *_members([e.add, e.sub, e.mul], X, SCALAR, kinds="iufc"),
    *_members([e.add, e.sub, e.mul, e.div], SCALAR, POSITIVE, kinds="iufc"),
    *_members([e.max_, e.min_], SCALAR, X, kinds="biufc"),
    Sample(e.div, (X, POSITIVE), "iufc"),
    Sample(add_weak, (X, Y), "iufc"),
    *[Sample(fma, args, "f") for args in ((X, Y, X + 1), (X, SCALAR, Y), (SCALAR, SCALAR, X))],
    Sample(e.rem, (data(3, 4, low=-9, high=9), data(3, 4, low=1.6, high=2.3)), "iuf"),
    Sample(e.rem, (INTS, integers(3, 4, low=1, high=5)), note="integers"),
    Sample(e.div, (INTS, MORE_INTS), note="integers by zero too"),
    Sample(e.rem, (INTS, MORE_INTS), note="integers by zero too"),
    *_members([e.max_, e.min_], X, Y, kinds="biufc"),
    *_members([e.neg, e.square], X, kinds="iufc"),
    *_members([e.abs_], X, kinds="ifc"),
    *_members([e.sign], X, kinds="iufc", smooth=1),
    *_members([e.floor, e.ceil, e.Round(0), e.Round(1)], data(3, 4, low=-4, high=4), kinds="f"),
    Sample(e.is_finite, (np.array([1.0, np.inf, -np.inf, np.nan]),), "f"),
    Sample(e.nextafter, (X, Y), "f", smooth=0),
    *[Sample(e.IntegerPow(y), (X + 2.0,), "iufc", note=str(y)) for y in (0, 1, 2, 3, 7)],
    *[Sample(e.IntegerPow(y), (X + 2.0,), "fc", note=str(y)) for y in (-1, -3)],
    Sample(e.pow_, (POSITIVE, X), "fc"),
    Sample(e.pow_, (POSITIVE, SCALAR), "fc"),
    Sample(e.pow_, (POSITIVE, INTS.astype(np.int32)), note="integer exponents"),
    *[Sample(HALF_POWERS[y], (POSITIVE,), smooth=0, note=str(y)) for y in (1.5, -2.5)],
    Sample(e.copy, (X,), "biufc"),
    Sample(e.stop_gradient, (X,), "biufc", smooth=0),
]

_FUNCTIONS = [
    *_members([e.exp, e.exp2, e.expm1, e.tanh, e.logistic, e.sin, e.cos], X, kinds="fc"),
    *_members([e.sinh, e.cosh, e.asinh, e.tan, e.atan], X, kinds="fc"),
    *_members([e.asin, e.acos, e.atanh], UNIT, kinds="fc"),
    *_members([e.sqrt, e.rsqrt, e.log, e.log1p], POSITIVE, kinds="fc"),
    *_members([e.log2, e.log10], POSITIVE, kinds="f"),
    Sample(e.acosh, (POSITIVE + 1.5,), "fc"),
    Sample(e.cbrt, (X,), "f"),
    Sample(e.atan2, (X, Y), "f"),
    *_members([f.erf, f.erfc], X, kinds="f"),
    Sample(f.erf_inv, (UNIT,), "f"),
    *_members([f.lgamma, f.digamma], POSITIVE, kinds="f"),
    Sample(f.polygamma, (np.full((3, 4), 2.0), POSITIVE), "f", smooth=0),
    Sample(f.zeta, (POSITIVE + 1.5, POSITIVE + 1), "f", smooth=1),
    Sample(f.igamma, (POSITIVE, POSITIVE[::-1].copy()), "f", smooth=1),
    Sample(f.igammac, (POSITIVE, POSITIVE[::-1].copy()), "f", smooth=1),
    Sample(f.igamma_grad_a, (POSITIVE, POSITIVE[::-1].copy()), "f", smooth=0),
    Sample(f.random_gamma_grad, (POSITIVE, POSITIVE[::-1].copy()), "f", smooth=0),
    Sample(f.regularized_incomplete_beta, (POSITIVE, POSITIVE + 1, (UNIT + 1) / 2), "f", smooth=1),
    *_members([f.bessel_i0e, f.bessel_i1e], X, kinds="f"),
]

_COMPLEX = [
    *_members(
        [e.neg, e.square, e.exp, e.sin, e.cos, e.tanh, e.log, e.sqrt, e.rsqrt, e.sinh, e.cosh],
        cdata(2, 3),
        note="complex",
    ),
    *_members(
        [e.tan, e.asin, e.acos, e.atan, e.asinh, e.acosh, e.atanh], cdata(2, 3), note="complex"
    ),
    *_members([e.expm1, e.log1p, e.exp2, e.logistic], cdata(2, 3), note="complex"),
    *_members([e.real, e.imag, e.conj], cdata(2, 3), kinds="c", note="complex"),
    Sample(e.abs_, (cdata(2, 3),), note="complex"),
    *_members(
        [e.add, e.sub, e.mul, e.div, e.pow_], cdata(2, 3), cdata(2, 3, seed=5), note="complex"
    ),
    *_members([s.eq, s.ne], cdata(2, 3), cdata(2, 3), note="complex"),
    Sample(e.sign, (cdata(2, 3),), smooth=0, note="complex"),
    Sample(e.complex_, (X, Y)),
    Sample(e.complex_, (X, SCALAR)),
    Sample(e.complex_, (X.astype(np.float32), Y.astype(np.float32)), note="float32", smooth=0),
]

_LOGIC = [
    *_members([s.eq, s.ne], INTS, MORE_INTS, kinds="biufc"),
    *_members([s.lt, s.le, s.gt, s.ge], INTS, MORE_INTS, kinds="biuf"),
    *_members([s.lt_to, s.le_to, s.eq_to], X, Y, kinds="biuf"),
    Sample(
        s.lt_to,
        (
            np.array([0.0, -0.0, np.nan, -np.nan, np.inf]),
            np.array([-0.0, 0.0, np.inf, -np.inf, np.nan]),
        ),
        note="ends",
    ),
    *_members([s.and_, s.or_, s.xor], INTS, MORE_INTS, kinds="biu"),
    Sample(s.not_, (INTS,), "biu"),
    *_members(
        [e.shift_left, e.shift_right_arithmetic, e.shift_right_logical],
        INTS,
        integers(3, 4, low=0, high=7),
        kinds="iu",
    ),
    *_members(
        [e.shift_left, e.shift_right_arithmetic, e.shift_right_logical],
        INTS,
        integers(3, 4, low=60, high=70),
        note="by more than the width",
    ),
    *_members([e.population_count, e.clz], INTS, kinds="iu"),
    Sample(s.select_n, (X > 0, X, Y), "biufc"),
    Sample(s.select_n, (np.array(True), X, Y), "biufc"),
    Sample(s.select_n, (X > 0, SCALAR, Y)),
    Sample(s.select_n, (np.array(False), SCALAR, Y)),
    Sample(s.select_n, (integers(3, 4, low=0, high=3).astype(I32), X, Y, X * Y), "biufc"),
    Sample(s.clamp, (np.array(-0.5), X, np.array(0.5)), "biuf"),
    Sample(s.clamp, (X - 0.6, Y, X + 0.6), "biuf"),
]

_WIDE = np.array([0.0, -0.0, 1.5, -1.5, 300.7, -3e9, 3e9, 1e30, np.inf, -np.inf, np.nan])
_CONVERSIONS = [
    *[Sample(ConvertElementType(d), (INTS,), "biufc", note=dtypes.NAME[d]) for d in dtypes.ALL],
    *[
        Sample(ConvertElementType(d), (_WIDE,), smooth=0, note=f"far to {dtypes.NAME[d]}")
        for d in dtypes.ALL
    ],
    Sample(ConvertElementType(dtypes.complex128), (X,)),
    Sample(ConvertElementType(dtypes.float64), (cdata(3, 4),), note="real part"),
    Sample(BitcastConvertType(dtypes.int64), (X,), smooth=0),
    Sample(BitcastConvertType(dtypes.int32), (X,), smooth=0, note="to narrower"),
    Sample(BitcastConvertType(dtypes.float64), (X + 1j,), smooth=0, note="of complex"),
    Sample(BitcastConvertType(dtypes.complex128), (X.reshape(-1, 2),), smooth=0, note="to complex"),
    Sample(
        BitcastConvertType(dtypes.float64), (INTS.astype(np.int32).reshape(3, 2, 2),), note="wider"
    ),
    *[
        Sample(
            ReducePrecision(exponent, mantissa),
            (data(40, low=-99, high=99),),
            "f",
            smooth=0,
            note=f"{exponent},{mantissa}",
        )
        for exponent, mantissa in ((5, 10), (8, 7), (4, 3), (11, 52))
    ],
    Sample(ReducePrecision(4, 3), (_WIDE,), smooth=0, note="far"),
]

SAMPLES = [*_ARITHMETIC, *_FUNCTIONS, *_COMPLEX, *_LOGIC, *_CONVERSIONS]
