"""The elementwise primitives of arithmetic and elementary functions, one line of data each."""

import math
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.cost import (
    ELEMENTARY,
    FREE,
    PRODUCTS,
    QUOTIENT,
    RECIPROCAL_ROOT,
    REMAINDER,
    ROOT,
    SELECTION,
    Cost,
)
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Literal
from fnx.ops.base.broadcast import scalar, scalar_like
from fnx.ops.elementwise import reference_functions
from fnx.ops.elementwise.convert import (  # noqa: F401  the rest of the family, for its users
    BitcastConvertType,
    ConvertElementType,
    ReducePrecision,
    convert,
    strong,
)
from fnx.ops.elementwise.half_powers import HALF_POWERS, WHOLE_POWERS, HalfPower, by_root
from fnx.ops.elementwise.native import implements, native
from fnx.ops.elementwise.pointwise import (
    ANY,
    FLOAT,
    INEXACT,
    INTEGER,
    NUMBER,
    Elementwise,
    Pointwise,
    add,
    binary,
    dtype_table,
    elementary,
    exact_on_reals,
    identity,
    linear,
    unary,
)
from fnx.ops.elementwise.select import (  # noqa: F401
    and_,
    clamp,
    eq,
    ge,
    gt,
    le,
    lt,
    ne,
    not_,
    or_,
    select,
    select_n,
    xor,
)

REALS = dtype_table("c", dtypes.real_of)
COMPLEXES = {np.dtype(np.float32): dtypes.complex64, np.dtype(np.float64): dtypes.complex128}


def one(x: Any) -> Any:
    """1 in the dtype of x, as weak as x."""
    return scalar_like(1, x)


def constant(value: Any, x: Any) -> Any:
    """A number beside x in a derivative: as JAX has them, weak beside weak scalars alone."""
    return scalar(value, x.dtype) if x.shape else scalar_like(value, x)


def times(value: Any, x: Any) -> Any:
    """x times a number."""
    return mul(x, constant(value, x))


# --- arithmetic --------------------------------------------------------------------------------

neg: Elementwise = linear("neg", np.negative, NUMBER, lambda t, o, x: neg(t))
_SUB = (identity, lambda t, o, x, y: neg(t))
sub: Elementwise = binary("sub", np.subtract, NUMBER, _SUB, _SUB)
_MUL = (lambda t, o, x, y: mul(t, y), lambda t, o, x, y: mul(x, t))
mul: Elementwise = binary("mul", np.multiply, NUMBER, _MUL, _MUL)
_OVER = lambda t, o, x, y: div(t, y)


_DIV = native(
    reference_functions.div,
    2,
    {d: reference_functions.div if dtypes.is_integer(d) else np.divide for d in dtype_table("iuf")},
)


@dataclass(frozen=True)
class Div(Pointwise):
    """x / y. Whatever depends on y divides by it again: its derivatives share one reciprocal."""

    name = "div"
    cost = QUOTIENT
    accepts = NUMBER
    jvps = (_OVER, None)
    pulls = (_OVER, None)
    expr = "div"
    impl = staticmethod(_DIV)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, y), (tx, ty) = primals, tangents
        if ty is None:
            return super().jvp(primals, tangents)
        out, inverse = self(x, y), div(one(y), y)
        total = mul(ty, neg(mul(out, inverse)))
        return (out,), (total if tx is None else add(mul(tx, inverse), total),)

    def cost_of(self, x: Any, y: Any) -> Cost:  # type: ignore[override]
        return PRODUCTS if type(y) is Literal else self.cost


div: Pointwise = Div()
implements(_DIV, div)


def _truncated(q: Any) -> Any:
    return mul(sign(q), floor(abs_(q)))


rem = binary(
    "rem",
    reference_functions.rem,
    dtype_table("iuf"),
    (identity, lambda t, o, x, y: mul(t, neg(_truncated(div(x, y))))),
    cost=REMAINDER,
)


def _share(x: Any, out: Any, y: Any) -> Any:
    # Of an extremum: 1 where x is it, 1/2 where y is it too.
    half = select(eq(y, out), scalar_like(0.5, out), one(out))
    return select(eq(x, out), half, scalar_like(0, out))


_EXTREMUM = (
    lambda t, o, x, y: mul(t, _share(x, o, y)),
    lambda t, o, x, y: mul(t, _share(y, o, x)),
)
max_ = binary("max", np.maximum, ANY, _EXTREMUM)
min_ = binary("min", np.minimum, ANY, _EXTREMUM)


def _pow_exponent(t: Any, out: Any, x: Any, y: Any) -> Any:
    # x ** y * log(x); 0 where x is 0, as the limit is for y > 0. Never weak, as JAX's.
    log_x = log(select(eq(x, scalar(0, x.dtype)), one(x), x))
    return strong(mul(t, mul(log_x, out)))


def _pow_base(t: Any, out: Any, x: Any, y: Any) -> Any:
    # y x ** (y - 1), which where y is 0 is 0, also at x = 0. Never weak, but its derivatives are, as JAX's.
    x, y, zero = strong(x), strong(y), eq(y, scalar(0, y.dtype))
    if y.dtype != x.dtype:
        lower = select(zero, y, sub(y, scalar(1, y.dtype)))
        return mul(t, mul(convert(y, x.dtype), pow_(x, lower)))
    # Not y - 1 but x is changed there, since the derivative with respect to y needs x ** -1.
    if type(zero) is not ConcreteArray or zero._value.any():
        x = select(zero, select(eq(x, scalar(0, x.dtype)), one(x), x), x)
    return mul(t, mul(y, pow_(x, sub(y, scalar(1, y.dtype)))))


_POW = native(np.power, 2)


@dataclass(frozen=True)
class Pow(Pointwise):
    """x ** y, of equal inexact dtypes, or with an integer exponent of any integer dtype."""

    name = "pow"
    cost = ELEMENTARY
    accepts = INEXACT

    def abstract(self, x: ShapedArray, y: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if y.dtype != x.dtype and dtypes.is_integer(y.dtype):
            y = ShapedArray(y.shape, x.dtype, y.weak_type)
        return super().abstract(x, y)

    def impl(self, x: np.ndarray, y: np.ndarray) -> Any:  # type: ignore[override]
        if not y.ndim and x.dtype.kind != "c":
            known = y.item()  # as in programs, whose exponents of rank 0 are known
            if known in WHOLE_POWERS:
                return reference_functions.integer_pow(x, int(known))
            if known in HALF_POWERS and x.dtype in HalfPower.accepts:
                return HALF_POWERS[known].impl(x)
        return _POW(x, y if y.dtype == x.dtype else y.astype(x.dtype))

    @property
    def jvps(self) -> tuple:  # type: ignore[override]
        return (_pow_base, _pow_exponent)

    def scalar_fn(self, x: str, y: str) -> Any:  # type: ignore[override]
        def fn(a: expr.Expr, b: expr.Expr) -> expr.Expr:
            if b.op in ("const", "literal") and b.attr in WHOLE_POWERS:
                return expr.apply("integer_pow", a, attr=int(b.attr))
            return by_root(a, b) or expr.apply("pow", a, expr.cast(b, x))

        return fn


pow_ = Pow()
implements(_POW, pow_)


@dataclass(frozen=True)
class IntegerPow(Pointwise):
    """x ** y for an integer y that is known."""

    y: int
    name = "integer_pow"
    cost = PRODUCTS
    accepts = NUMBER

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        self._check(x.dtype)
        return super().abstract(x)

    def _check(self, dtype: np.dtype) -> None:
        if self.y < 0 and not dtypes.is_inexact(dtype):
            raise TypeMismatch(
                f"Integers cannot be raised to negative powers: integer_pow of dtype {dtype} with "
                f"exponent {self.y}; expected one that is not negative, or a float or complex operand"
            )

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        self._check(x.dtype)
        return reference_functions.integer_pow(x, self.y)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x,), (t,), y = primals, tangents, self.y
        if y == 0:
            return (self(x),), (None,)
        if y == 1:
            return (self(x),), (t,)
        return (self(x),), (times(y, mul(t, x if y == 2 else IntegerPow(y - 1)(x))),)

    def scalar_fn(self, x: str) -> Any:  # type: ignore[override]
        return lambda a: expr.apply("integer_pow", a, attr=self.y)


square: Elementwise = unary(
    "square", exact_on_reals(np.square), NUMBER, lambda t, o, x: times(2, mul(t, x))
)


def _abs_tangent(t: Any, out: Any, x: Any) -> Any:
    if not dtypes.is_complex(x.dtype):
        return mul(t, select(ge(x, scalar(0, x.dtype)), one(t), scalar_like(-1, t)))  # one at 0
    safe = select(eq(out, scalar(0, out.dtype)), one(out), out)
    return real(mul(t, div(conj(x), convert(safe, x.dtype))))


abs_: Elementwise = unary("abs", np.abs, dtype_table("if") | REALS, _abs_tangent)
sign: Elementwise = unary("sign", native(np.sign, exact=dict.fromkeys(INTEGER, np.sign)), NUMBER)
floor: Elementwise = unary("floor", np.floor, FLOAT)
ceil = unary("ceil", np.ceil, FLOAT)


@dataclass(frozen=True)
class Round(Pointwise):
    """To an integer; halves away from zero (0) or to the even one (1)."""

    rounding_method: int
    name = "round"
    accepts = FLOAT
    jvps = (None,)

    def impl(self, x: np.ndarray) -> Any:  # type: ignore[override]
        return np.rint(x) if self.rounding_method == 1 else reference_functions.round_away(x)

    def scalar_fn(self, x: str) -> Any:  # type: ignore[override]
        if self.rounding_method == 1:
            return lambda a: expr.apply("round_even", a)
        return lambda a: reference_functions.round_away_expr(a, x)


is_finite = unary("is_finite", np.isfinite, dtype_table("f", lambda d: dtypes.bool_))
nextafter = binary("nextafter", np.nextafter, FLOAT)

# --- powers, exponentials, logarithms -----------------------------------------------------------

sqrt = unary(
    "sqrt",
    exact_on_reals(np.sqrt),
    INEXACT,
    lambda t, o, x: mul(t, times(0.5, div(one(o), o))),
    cost=ROOT,
)
rsqrt: Elementwise = unary(
    "rsqrt",
    native(reference_functions.rsqrt),
    INEXACT,
    lambda t, o, x: mul(t, times(-0.5, div(o, x))),
    cost=RECIPROCAL_ROOT,
)
cbrt = elementary(
    "cbrt",
    reference_functions.cbrt,
    FLOAT,
    lambda t, o, x: mul(t, div(constant(1 / 3, x), square(o))),
)
exp = elementary("exp", np.exp, INEXACT, lambda t, o, x: mul(t, o))
exp2 = elementary(
    "exp2", reference_functions.exp2, INEXACT, lambda t, o, x: mul(t, times(math.log(2), o))
)
expm1 = elementary(
    "expm1", reference_functions.expm1, INEXACT, lambda t, o, x: mul(t, add(o, one(x)))
)
log: Elementwise = elementary("log", np.log, INEXACT, lambda t, o, x: div(t, x))
log2 = elementary(
    "log2",
    np.log2,
    FLOAT,
    lambda t, o, x: div(t, times(math.log(2), x)),
    lambda x: div(log(x), constant(math.log(2), x)),
)
log10 = elementary(
    "log10",
    reference_functions.log10,
    FLOAT,
    lambda t, o, x: div(t, times(math.log(10), x)),
    lambda x: div(log(x), constant(math.log(10), x)),
)
log1p = elementary(
    "log1p", reference_functions.log1p, INEXACT, lambda t, o, x: div(t, add(x, one(x)))
)
logistic = elementary(
    "logistic",
    reference_functions.logistic,
    INEXACT,
    lambda t, o, x: mul(t, mul(o, sub(one(x), o))),
)

# --- trigonometric and hyperbolic functions -----------------------------------------------------


def _one_minus_square(x: Any, unit: Any) -> Any:
    return mul(sub(unit, x), add(unit, x))


def _rsqrt_one_minus_square(x: Any) -> Any:
    return rsqrt(_one_minus_square(x, constant(1, x)))


def _norm2(x: Any, y: Any) -> Any:
    return add(square(x), square(y))


sin: Elementwise = elementary("sin", np.sin, INEXACT, lambda t, o, x: mul(t, cos(x)))
cos: Elementwise = elementary("cos", np.cos, INEXACT, lambda t, o, x: mul(t, neg(sin(x))))
tan = elementary("tan", np.tan, INEXACT, lambda t, o, x: mul(t, add(square(o), constant(1, x))))
asin = elementary("asin", np.arcsin, INEXACT, lambda t, o, x: mul(t, _rsqrt_one_minus_square(x)))
acos = elementary(
    "acos", np.arccos, INEXACT, lambda t, o, x: mul(t, neg(_rsqrt_one_minus_square(x)))
)
atan = elementary(
    "atan", np.arctan, INEXACT, lambda t, o, x: div(t, add(square(x), constant(1, x)))
)
sinh: Elementwise = elementary("sinh", np.sinh, INEXACT, lambda t, o, x: mul(t, cosh(x)))
cosh: Elementwise = elementary("cosh", np.cosh, INEXACT, lambda t, o, x: mul(t, sinh(x)))
tanh = elementary("tanh", np.tanh, INEXACT, lambda t, o, x: mul(t, sub(one(x), mul(o, o))))
asinh = elementary(
    "asinh", np.arcsinh, INEXACT, lambda t, o, x: mul(t, rsqrt(add(square(x), one(x))))
)
acosh = elementary(
    "acosh",
    np.arccosh,
    INEXACT,
    lambda t, o, x: mul(t, mul(rsqrt(sub(x, one(x))), rsqrt(add(x, one(x))))),
)
atanh = elementary(
    "atanh", np.arctanh, INEXACT, lambda t, o, x: div(t, _one_minus_square(x, one(x)))
)
atan2 = binary(
    "atan2",
    native(np.arctan2, 2),
    FLOAT,
    (
        lambda t, o, x, y: mul(t, div(y, _norm2(x, y))),
        lambda t, o, x, y: mul(t, neg(div(x, _norm2(x, y)))),
    ),
    cost=ELEMENTARY,
)

# --- complex numbers: cotangents are not conjugated, as in JAX ----------------------------------

real: Elementwise = linear(
    "real",
    reference_functions.real,
    REALS,
    lambda t, o, x: real(t),
    lambda ct, o, x: complex_(ct, scalar(0, ct.dtype)),
    cost=SELECTION,
)
imag: Elementwise = linear(
    "imag",
    reference_functions.imag,
    REALS,
    lambda t, o, x: imag(t),
    lambda ct, o, x: complex_(scalar(0, ct.dtype), neg(ct)),
    cost=SELECTION,
)
conj: Elementwise = linear(
    "conj", np.conjugate, dtype_table("c"), lambda t, o, x: conj(t), cost=SELECTION
)
complex_: Elementwise = binary(
    "complex",
    reference_functions.complex_,
    COMPLEXES,
    (
        lambda t, o, x, y: complex_(t, scalar_like(0, t)),
        lambda t, o, x, y: complex_(scalar_like(0, t), t),
    ),
    (lambda ct, o, x, y: real(ct), lambda ct, o, x, y: neg(imag(ct))),
    cost=SELECTION,
)

# --- the operand itself -------------------------------------------------------------------------

_SAME = {"impl": lambda x: x, "accepts": ANY, "expr": lambda a: a}
copy = Elementwise("copy", jvps=(identity,), pulls=(identity,), **_SAME, cost=FREE)
stop_gradient = Elementwise("stop_gradient", jvps=(None,), **_SAME, cost=FREE)

# --- bits ---------------------------------------------------------------------------------------

shift_left = binary("shift_left", np.left_shift, INTEGER)
shift_right_arithmetic = binary(
    "shift_right_arithmetic", reference_functions.shift_right_arithmetic, INTEGER
)
shift_right_logical = binary(
    "shift_right_logical", reference_functions.shift_right_logical, INTEGER
)
population_count = unary("population_count", reference_functions.population_count, INTEGER)
clz = unary("clz", reference_functions.clz, INTEGER)
