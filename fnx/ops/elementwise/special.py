"""Special functions, element by element; SciPy evaluates them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import scalar as expr
from fnx.core.cost import LIBRARY, SPECIAL
from fnx.core.formula import V, constant, where
from fnx.ops.base.broadcast import NARROW, scalar, scalar_like
from fnx.ops.elementwise import bessel
from fnx.ops.elementwise.arithmetic import (
    add,
    binary,
    div,
    exp,
    log,
    log1p,
    mul,
    neg,
    one,
    sign,
    square,
    sub,
    times,
    unary,
)
from fnx.ops.elementwise.native import native
from fnx.ops.elementwise.parameter_derivatives import (
    beta_grad_a,
    beta_grad_b,
    in_double,
    no_slope,
    number,
    zeta_grad_s,
)
from fnx.ops.elementwise.pointwise import FLOAT, Elementwise
from fnx.ops.elementwise.select import eq, select


def scipy_function(name: str, part: int | None = None) -> Callable[..., Any]:
    """SciPy's function, or one of its results, imported when first needed; 16-bit floats become float32."""

    def impl(*xs: np.ndarray) -> Any:
        from scipy import special

        fn, dtype = getattr(special, name), xs[0].dtype
        if dtype in NARROW:
            xs = tuple([x.astype(np.float32) for x in xs])
        found = fn(*xs) if part is None else fn(*xs)[part]
        return np.asarray(found).astype(dtype, copy=False)

    return impl


_scipy = scipy_function


def scipy_scalar(name: str, part: int = 0) -> Callable[..., expr.Expr]:
    """The scalar operation of `scipy_function(name, part)`."""
    return lambda *xs: expr.special(name, *xs, part=part)


_scalar = scipy_scalar


def _lgamma(x: np.ndarray) -> Any:
    return np.where(np.isneginf(x), x.dtype.type(math.inf), _scipy("gammaln")(x))


def _erf_slope(x: Any) -> Any:
    return times(2 / math.sqrt(math.pi), exp(neg(square(x))))


erf = unary(
    "erf", native(_scipy("erf")), FLOAT, lambda t, o, x: mul(t, _erf_slope(x)), cost=SPECIAL
)
erfc = unary(
    "erfc", native(_scipy("erfc")), FLOAT, lambda t, o, x: mul(t, neg(_erf_slope(x))), cost=SPECIAL
)
erf_inv = unary(
    "erf_inv",
    native(_scipy("erfinv")),
    FLOAT,
    lambda t, o, x: mul(t, times(math.sqrt(math.pi) / 2, exp(square(o)))),
    cost=SPECIAL,
)
lgamma = unary("lgamma", native(_lgamma), FLOAT, lambda t, o, x: mul(t, digamma(x)), cost=SPECIAL)
digamma: Elementwise = unary(
    "digamma",
    native(_scipy("psi")),
    FLOAT,
    lambda t, o, x: mul(t, polygamma(scalar(1, x.dtype) if x.shape else one(x), x)),
    cost=SPECIAL,
)


def _polygamma(m: np.ndarray, x: np.ndarray) -> Any:
    # The derivative of order m of digamma; order 0 is digamma itself.
    from scipy import special

    a, b = (v.astype(np.float64) for v in (m, x))
    value = np.where(a % 2 == 1, 1.0, -1.0) * special.gamma(a + 1) * special.zeta(a + 1, b)
    value = np.where((a == 1) & (b < 0), _trigamma(b), value)
    return np.where(a == 0, special.psi(b), value).astype(x.dtype)


def _trigamma(x: np.ndarray) -> Any:
    # Reflection: trigamma(x) + trigamma(1 - x) = (pi / sin(pi x))^2, DLMF 5.15.6.
    from scipy import special

    return (np.pi / np.sin(np.pi * x)) ** 2 - special.zeta(2.0, 1.0 - np.minimum(x, 0.0))


def _polygamma_scalar(a: expr.Expr, b: expr.Expr) -> expr.Expr:
    """As `_polygamma`; where the order is a number of the program, only its own formula."""
    known = float(a.attr) if a.op in ("const", "literal") else None
    zero, unit = number(0.0, a), number(1.0, a)
    if known == 0:
        return expr.special("psi", b)
    if known == 1:
        return _trigamma_series(V(b)).e
    up = expr.add(a, unit)
    odd = expr.compare("eq", expr.apply("abs", expr.apply("rem", a, number(2.0, a))), unit)
    size = expr.mul(expr.special("gamma", up), expr.special("zeta", up, b))
    value = expr.mul(expr.select(odd, unit, number(-1.0, a)), size)
    if known is None:
        first = expr.compare("eq", a, unit)
        reflected = expr.logical_and(first, expr.compare("lt", b, zero))
        value = expr.select(reflected, _trigamma_scalar(b), value)
    if known is None:
        value = expr.select(expr.compare("eq", a, zero), expr.special("psi", b), value)
    return value


_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _trigamma_series(x: V) -> V:
    """Ten steps upwards by 1 / x^2, then the asymptotic series, DLMF 5.15.8; left of 0 reflected."""
    left = x < 0
    y = where(left, 1 - x, x)
    z = y + 10
    inverse = 1 / z
    square = inverse * inverse
    tail = constant(_BERNOULLI[-1], x)
    for b in reversed(_BERNOULLI[:-1]):
        tail = tail * square + b
    total = (inverse * square) * tail + square * 0.5 + inverse
    for k in reversed(range(10)):
        step = 1 / (y + k)
        total = step * step + total
    ratio = math.pi / V(expr.apply("sin", (math.pi * x).e))
    return where(left, ratio * ratio - total, total)


def _trigamma_scalar(x: expr.Expr) -> expr.Expr:
    ratio = expr.apply(
        "div", number(math.pi, x), expr.apply("sin", expr.mul(number(math.pi, x), x))
    )
    mirror = expr.sub(number(1.0, x), expr.apply("min", x, number(0.0, x)))
    return expr.sub(expr.mul(ratio, ratio), expr.special("zeta", number(2.0, x), mirror))


polygamma: Elementwise = binary(
    "polygamma",
    _polygamma,
    FLOAT,
    (
        no_slope("polygamma", "its order"),
        lambda t, o, m, x: mul(t, polygamma(add(m, one(m)), x)),
    ),
    expr=in_double(_polygamma_scalar),
    cost=LIBRARY,
)
zeta: Elementwise = binary(
    "zeta",
    _scipy("zeta"),
    FLOAT,
    (
        lambda t, o, s, q: mul(t, zeta_grad_s(s, q)),
        lambda t, o, s, q: mul(t, neg(mul(s, zeta(add(s, one(s)), q)))),
    ),
    expr=_scalar("zeta"),
    cost=LIBRARY,
)


# --- incomplete gamma and beta functions -------------------------------------------------------


def _gamma_density(a: Any, x: Any) -> Any:
    """x^(a-1) e^-x / gamma(a): the derivative in x of the regularized lower function."""
    return exp(sub(mul(sub(a, one(a)), log(x)), add(x, lgamma(a))))


def _numeric_slope_a(a: np.ndarray, x: np.ndarray) -> Any:
    """The derivative in a of gammainc: a central difference of order 8 in log(a), in float64."""
    from scipy import special

    p, q = (v.astype(np.float64) for v in (a, x))
    h = 0.05 / np.sqrt(1.0 + p)  # the function varies over sqrt(a) / a
    total = sum(
        w * (special.gammainc(p * np.exp(k * h), q) - special.gammainc(p * np.exp(-k * h), q))
        for k, w in _WEIGHTS
    )
    return (total / (h * p)).astype(a.dtype)


_WEIGHTS = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))


def _numeric_slope_a_scalar(p: expr.Expr, q: expr.Expr) -> expr.Expr:
    h = expr.apply("div", number(0.05, p), expr.apply("sqrt", expr.add(number(1.0, p), p)))

    def at(k: int) -> expr.Expr:
        factor = expr.apply("exp", expr.mul(number(float(k), p), h))
        return expr.special("gammainc", expr.mul(p, factor), q)

    total = number(0.0, p)
    for k, w in _WEIGHTS:
        total = expr.add(total, expr.mul(number(w, p), expr.sub(at(k), at(-k))))
    return expr.apply("div", total, expr.mul(h, p))


igamma_grad_a = binary(
    "igamma_grad_a",
    _numeric_slope_a,
    FLOAT,
    (
        no_slope("igamma_grad_a", "a"),
        lambda t, o, a, x: mul(t, mul(_gamma_density(a, x), sub(log(x), digamma(a)))),
    ),
    expr=in_double(_numeric_slope_a_scalar),
    cost=LIBRARY,
)
igamma = binary(
    "igamma",
    _scipy("gammainc"),
    FLOAT,
    (
        lambda t, o, a, x: mul(t, igamma_grad_a(a, x)),
        lambda t, o, a, x: mul(t, _gamma_density(a, x)),
    ),
    expr=_scalar("gammainc"),
    cost=LIBRARY,
)
igammac = binary(
    "igammac",
    _scipy("gammaincc"),
    FLOAT,
    (
        lambda t, o, a, x: mul(t, neg(igamma_grad_a(a, x))),
        lambda t, o, a, x: mul(t, neg(_gamma_density(a, x))),
    ),
    expr=_scalar("gammaincc"),
    cost=LIBRARY,
)


def _random_gamma_slope(a: Any, sample: Any) -> Any:
    # Of a sample at a fixed quantile: -(dP/da) / (dP/dx), implicit differentiation.
    return -_numeric_slope_a(a, sample) / _density(a, sample)


def _density(a: np.ndarray, x: np.ndarray) -> Any:
    from scipy import special

    p, q = (v.astype(np.float64) for v in (a, x))
    return np.exp((p - 1) * np.log(q) - q - special.gammaln(p)).astype(a.dtype)


def _random_gamma_slope_scalar(a: expr.Expr, sample: expr.Expr) -> expr.Expr:
    slope = in_double(_numeric_slope_a_scalar)(a, sample)
    density = in_double(_density_scalar)(a, sample)
    return expr.apply("neg", expr.apply("div", slope, density))


def _density_scalar(p: expr.Expr, q: expr.Expr) -> expr.Expr:
    power = expr.mul(expr.sub(p, number(1.0, p)), expr.apply("log", q))
    return expr.apply("exp", expr.sub(expr.sub(power, q), expr.apply("lgamma", p)))


random_gamma_grad = binary(
    "random_gamma_grad",
    _random_gamma_slope,
    FLOAT,
    tuple(no_slope("random_gamma_grad", of) for of in ("a", "the sample")),
    expr=_random_gamma_slope_scalar,
    cost=LIBRARY,
)


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    log_beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
    body = add(mul(sub(a, one(a)), log(x)), mul(sub(b, one(b)), log1p(neg(x))))
    return exp(sub(body, log_beta))


regularized_incomplete_beta = Elementwise(
    "regularized_incomplete_beta",
    _scipy("betainc"),
    FLOAT,
    (
        lambda t, o, a, b, x: mul(t, beta_grad_a(a, b, x)),
        lambda t, o, a, b, x: mul(t, beta_grad_b(a, b, x)),
        lambda t, o, a, b, x: mul(t, _beta_density(a, b, x)),
    ),
    expr=_scalar("betainc"),
    cost=LIBRARY,
)


# --- Bessel functions, scaled by exp(-|x|) -----------------------------------------------------


def _i1e_slope(t: Any, o: Any, x: Any) -> Any:
    # i1e' = i0e - i1e * (sign(x) + 1 / x), which is 1/2 at 0
    zero = eq(x, scalar(0, x.dtype))
    safe = select(zero, one(x), x)
    slope = sub(bessel_i0e(safe), mul(o, add(sign(safe), div(one(safe), safe))))
    return mul(t, select(zero, scalar_like(0.5, x), slope))


def _i0e_slope(t: Any, o: Any, x: Any) -> Any:
    return mul(t, sub(bessel_i1e(x), mul(sign(x), o)))


bessel_i0e = unary(
    "bessel_i0e", native(_scipy("i0e")), FLOAT, _i0e_slope, expr=bessel.i0e, cost=LIBRARY
)
bessel_i1e = unary(
    "bessel_i1e", native(_scipy("i1e")), FLOAT, _i1e_slope, expr=bessel.i1e, cost=LIBRARY
)

__all__ = [
    "bessel_i0e",
    "bessel_i1e",
    "digamma",
    "erf",
    "erf_inv",
    "erfc",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "lgamma",
    "polygamma",
    "random_gamma_grad",
    "regularized_incomplete_beta",
    "zeta",
]
