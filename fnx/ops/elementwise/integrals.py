"""Functions defined by integrals and series, element by element, evaluated by SciPy; and x log y."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import scalar as expr
from fnx.core.cost import LIBRARY, SPECIAL
from fnx.ops.base.broadcast import scalar
from fnx.ops.elementwise.arithmetic import (
    abs_,
    add,
    binary,
    cos,
    div,
    exp,
    log,
    log1p,
    mul,
    neg,
    one,
    sin,
    square,
    sub,
    times,
    unary,
)
from fnx.ops.elementwise.native import native
from fnx.ops.elementwise.parameter_derivatives import (
    hyp1f1_grad_a,
    hyp1f1_grad_b,
    hyp2f1_grad_a,
    hyp2f1_grad_b,
    hyp2f1_grad_c,
    in_double,
    no_slope,
    number,
)
from fnx.ops.elementwise.pointwise import FLOAT, INEXACT, Elementwise, dtype_table
from fnx.ops.elementwise.select import eq, select
from fnx.ops.elementwise.special import erf
from fnx.ops.elementwise.special import scipy_function as _scipy
from fnx.ops.elementwise.special import scipy_scalar as _scalar

ROOT_PI = math.sqrt(math.pi)
COMPLEX = dtype_table("c")

# --- products with logarithms -------------------------------------------------------------------


def _product(log_of: Callable) -> Callable:
    def impl(x: np.ndarray, y: np.ndarray) -> Any:
        with np.errstate(all="ignore"):
            # A nan of y stays, an infinite logarithm does not.
            found = np.where((x == 0) & ~np.isnan(y), x.dtype.type(0), x * log_of(y))
        return found.astype(x.dtype, copy=False)

    return impl


def _product_expr(op: str) -> Callable:
    def fn(x: expr.Expr, y: expr.Expr) -> expr.Expr:
        zero = expr.const(0, x.dtype)
        known = expr.logical_and(expr.compare("eq", x, zero), expr.compare("eq", y, y))
        return expr.select(known, zero, expr.mul(x, expr.apply(op, y)))

    return fn


def _ratio(x: Any, y: Any) -> Any:
    """x / y, and 0 where both are 0; its slope in x at 0 is 1 / y."""
    zero = times(0.0, one(x))
    both = eq(add(abs_(x), abs_(y)), abs_(zero))
    return div(x, select(both, one(y), y))


xlogy = binary(
    "xlogy",
    native(_product(np.log), 2),
    INEXACT,
    (lambda t, o, x, y: mul(t, log(y)), lambda t, o, x, y: mul(t, _ratio(x, y))),
    expr=_product_expr("log"),
    cost=SPECIAL,
)
xlog1py = binary(
    "xlog1py",
    native(_product(np.log1p), 2),
    INEXACT,
    (
        lambda t, o, x, y: mul(t, log1p(y)),
        lambda t, o, x, y: mul(t, _ratio(x, add(one(y), y))),
    ),
    expr=_product_expr("log1p"),
    cost=SPECIAL,
)

# --- the normal distribution and error functions ------------------------------------------------


def _ndtri_slope(t: Any, o: Any, x: Any) -> Any:
    return mul(t, times(math.sqrt(2 * math.pi), exp(times(0.5, square(o)))))


ndtri = unary("ndtri", _scipy("ndtri"), FLOAT, _ndtri_slope, expr=_scalar("ndtri"), cost=LIBRARY)
erfcx = unary(
    "erfcx",
    _scipy("erfcx"),
    FLOAT,
    lambda t, o, x: mul(t, sub(times(2, mul(x, o)), scalar(2 / ROOT_PI, x.dtype))),
    expr=_scalar("erfcx"),
    cost=LIBRARY,
)
dawsn = unary(
    "dawsn",
    _scipy("dawsn"),
    INEXACT,
    lambda t, o, x: mul(t, sub(one(x), times(2, mul(x, o)))),
    expr=_scalar("dawsn"),
    cost=LIBRARY,
)
wofz = unary(
    "wofz",
    _scipy("wofz"),
    COMPLEX,
    lambda t, o, x: mul(t, sub(scalar(2j / ROOT_PI, x.dtype), times(2, mul(x, o)))),
    expr=_scalar("wofz"),
    cost=LIBRARY,
)


def _owens_slope_h(t: Any, o: Any, h: Any, a: Any) -> Any:
    density = times(-0.5 / math.sqrt(2 * math.pi), exp(times(-0.5, square(h))))
    return mul(t, mul(density, erf(times(math.sqrt(0.5), mul(a, h)))))


def _owens_slope_a(t: Any, o: Any, h: Any, a: Any) -> Any:
    wide = add(one(a), square(a))
    return mul(t, div(exp(times(-0.5, mul(square(h), wide))), times(2 * math.pi, wide)))


owens_t = binary(
    "owens_t",
    _scipy("owens_t"),
    FLOAT,
    (_owens_slope_h, _owens_slope_a),
    expr=_scalar("owens_t"),
    cost=LIBRARY,
)

# --- exponential, sine, cosine and Fresnel integrals --------------------------------------------


def _spence_slope(t: Any, o: Any, x: Any) -> Any:
    # log(x) / (1 - x), and -1 at 1
    at_one = eq(x, one(x))
    safe = select(at_one, times(2, one(x)), x)
    return mul(t, select(at_one, neg(one(x)), div(log(safe), sub(one(x), safe))))


def _over(fn: Callable) -> Callable:
    """fn(x) / x, where 0 has the limit of sin(x) / x."""

    def slope(t: Any, o: Any, x: Any) -> Any:
        zero = eq(x, scalar(0, x.dtype))
        safe = select(zero, one(x), x)
        return mul(t, select(zero, one(x), div(fn(safe), safe)))

    return slope


def _quarter(fn: Callable) -> Callable:
    return lambda t, o, x: mul(t, fn(times(math.pi / 2, square(x))))


expi = unary(
    "expi",
    _scipy("expi"),
    FLOAT,
    lambda t, o, x: mul(t, div(exp(x), x)),
    expr=_scalar("expi"),
    cost=LIBRARY,
)
spence = unary(
    "spence", _scipy("spence"), FLOAT, _spence_slope, expr=_scalar("spence"), cost=LIBRARY
)
sine_integral = unary(
    "sine_integral", _scipy("sici", 0), FLOAT, _over(sin), expr=_scalar("sici", 0), cost=LIBRARY
)
cosine_integral = unary(
    "cosine_integral",
    _scipy("sici", 1),
    FLOAT,
    lambda t, o, x: mul(t, div(cos(x), x)),
    expr=_scalar("sici", 1),
    cost=LIBRARY,
)
fresnel_sine = unary(
    "fresnel_sine",
    _scipy("fresnel", 0),
    FLOAT,
    _quarter(sin),
    expr=_scalar("fresnel", 0),
    cost=LIBRARY,
)
fresnel_cosine = unary(
    "fresnel_cosine",
    _scipy("fresnel", 1),
    FLOAT,
    _quarter(cos),
    expr=_scalar("fresnel", 1),
    cost=LIBRARY,
)


def _expn(n: np.ndarray, x: np.ndarray) -> Any:
    from scipy import special

    a, b = (v.astype(np.float64) for v in (n, x))
    with np.errstate(all="ignore"):
        return np.where(a < 1, np.exp(-b) / b, special.expn(np.maximum(a, 0), b)).astype(x.dtype)


def _expn_scalar(a: expr.Expr, b: expr.Expr) -> expr.Expr:
    simple = expr.apply("div", expr.apply("exp", expr.apply("neg", b)), b)
    other = expr.special("expn", expr.apply("max", a, number(0.0, a)), b)
    return expr.select(expr.compare("lt", a, number(1.0, a)), simple, other)


expn: Elementwise = binary(
    "expn",
    _expn,
    FLOAT,
    (no_slope("expn", "n"), lambda t, o, n, x: mul(t, neg(expn(sub(n, one(n)), x)))),
    expr=in_double(_expn_scalar),
    cost=LIBRARY,
)

# --- Bessel and hypergeometric functions --------------------------------------------------------

bessel_j: Elementwise = binary(
    "bessel_j",
    _scipy("jv"),
    FLOAT,
    (
        no_slope("bessel_j", "its order"),
        lambda t, o, n, x: mul(
            t, times(0.5, sub(bessel_j(sub(n, one(n)), x), bessel_j(add(n, one(n)), x)))
        ),
    ),
    expr=_scalar("jv"),
    cost=LIBRARY,
)


def _up(x: Any) -> Any:
    return add(x, one(x))


hyp1f1: Elementwise = Elementwise(
    "hyp1f1",
    _scipy("hyp1f1"),
    FLOAT,
    (
        lambda t, o, *abx: mul(t, hyp1f1_grad_a(*abx)),
        lambda t, o, *abx: mul(t, hyp1f1_grad_b(*abx)),
        lambda t, o, a, b, x: mul(t, mul(div(a, b), hyp1f1(_up(a), _up(b), x))),
    ),
    expr=_scalar("hyp1f1"),
    cost=LIBRARY,
)
hyp2f1: Elementwise = Elementwise(
    "hyp2f1",
    _scipy("hyp2f1"),
    FLOAT,
    (
        lambda t, o, *abcx: mul(t, hyp2f1_grad_a(*abcx)),
        lambda t, o, *abcx: mul(t, hyp2f1_grad_b(*abcx)),
        lambda t, o, *abcx: mul(t, hyp2f1_grad_c(*abcx)),
        lambda t, o, a, b, c, x: mul(t, mul(div(mul(a, b), c), hyp2f1(_up(a), _up(b), _up(c), x))),
    ),
    expr=_scalar("hyp2f1"),
    cost=LIBRARY,
)
