"""Rarer special functions, element by element; SciPy evaluates them."""

import math
from typing import Any

import numpy as np

from fnx.ops.broadcast import scalar
from fnx.ops.elementwise import (
    add,
    binary,
    cos,
    div,
    exp,
    log,
    mul,
    neg,
    one,
    sin,
    square,
    sub,
    times,
    unary,
)
from fnx.ops.pointwise import FLOAT, Elementwise
from fnx.ops.select import eq, select
from fnx.ops.special import _scipy

_HALF_PI = math.pi / 2
_ROOT = math.sqrt(2 * math.pi)


def _part(name: str, which: int) -> Any:
    """One of the results of a SciPy function that has several."""

    def impl(x: np.ndarray) -> Any:
        from scipy import special

        wide = x if x.dtype.itemsize >= 4 else x.astype(np.float32)
        return np.asarray(getattr(special, name)(wide)[which]).astype(x.dtype, copy=False)

    return impl


def _safe_ratio(top: Any, x: Any, at_zero: float) -> Any:
    zero = eq(x, scalar(0, x.dtype))
    return select(zero, scalar(at_zero, x.dtype), div(top, select(zero, one(x), x)))


ndtri = unary(
    "ndtri",
    _scipy("ndtri"),
    FLOAT,
    lambda t, o, x: mul(t, times(_ROOT, exp(times(0.5, square(o))))),
    expr=None,
)
log_ndtr = unary(
    "log_ndtr",
    _scipy("log_ndtr"),
    FLOAT,
    lambda t, o, x: mul(t, times(1 / _ROOT, exp(sub(times(-0.5, square(x)), o)))),
    expr=None,
)
expi = unary("expi", _scipy("expi"), FLOAT, lambda t, o, x: mul(t, div(exp(x), x)), expr=None)
exp1 = unary("exp1", _scipy("exp1"), FLOAT, lambda t, o, x: mul(t, neg(div(exp(neg(x)), x))), expr=None)
expn = binary(
    "expn",
    _scipy("expn"),
    FLOAT,
    (None, lambda t, o, n, x: mul(t, neg(expn(sub(n, one(n)), x)))),
    expr=None,
)
spence = unary(
    "spence",
    _scipy("spence"),
    FLOAT,
    lambda t, o, x: mul(t, select(eq(x, one(x)), neg(one(x)), div(log(x), _not_one(x)))),
    expr=None,
)


def _not_one(x: Any) -> Any:
    gap = sub(one(x), x)
    return select(eq(gap, scalar(0, x.dtype)), one(x), gap)


dawsn = unary(
    "dawsn", _scipy("dawsn"), FLOAT, lambda t, o, x: mul(t, sub(one(x), times(2, mul(x, o)))), expr=None
)
erfcx = unary(
    "erfcx",
    _scipy("erfcx"),
    FLOAT,
    lambda t, o, x: mul(t, sub(times(2, mul(x, o)), scalar(2 / math.sqrt(math.pi), x.dtype))),
    expr=None,
)
sine_integral = unary(
    "sine_integral", _part("sici", 0), FLOAT, lambda t, o, x: mul(t, _safe_ratio(sin(x), x, 1.0)), expr=None
)
cosine_integral = unary(
    "cosine_integral", _part("sici", 1), FLOAT, lambda t, o, x: mul(t, div(cos(x), x)), expr=None
)
fresnel_s = unary(
    "fresnel_s", _part("fresnel", 0), FLOAT, lambda t, o, x: mul(t, sin(times(_HALF_PI, square(x)))), expr=None
)
fresnel_c = unary(
    "fresnel_c", _part("fresnel", 1), FLOAT, lambda t, o, x: mul(t, cos(times(_HALF_PI, square(x)))), expr=None
)


def _hyp1f1_slope(t: Any, o: Any, a: Any, b: Any, x: Any) -> Any:
    return mul(t, mul(div(a, b), hyp1f1(add(a, one(a)), add(b, one(b)), x)))


def _hyp2f1_slope(t: Any, o: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    factor = div(mul(a, b), c)
    return mul(t, mul(factor, hyp2f1(add(a, one(a)), add(b, one(b)), add(c, one(c)), x)))


def _many(name: str, jvps: tuple) -> Any:
    return Elementwise(name, _scipy(name), FLOAT, jvps)


hyp1f1 = _many("hyp1f1", (None, None, _hyp1f1_slope))
hyp2f1 = _many("hyp2f1", (None, None, None, _hyp2f1_slope))

__all__ = [
    "cosine_integral",
    "dawsn",
    "erfcx",
    "exp1",
    "expi",
    "expn",
    "fresnel_c",
    "fresnel_s",
    "hyp1f1",
    "hyp2f1",
    "log_ndtr",
    "ndtri",
    "sine_integral",
    "spence",
]
