"""Elementwise functions of fnx.lax that are one primitive each; they promote Python numbers alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import TypeMismatch
from fnx.numpy.arrays.util import PYTHON, constant, named, shown, to_array
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.elementwise import select as choose
from fnx.ops.elementwise import special
from fnx.ops.structure.basic import broadcast_to

_KIND = {"b": "b", "i": "i", "u": "i", "f": "f", "c": "c"}  # of numbers: unsigned ones are integers


def same_kind(name: str, number: Any, dtype: np.dtype) -> None:
    """Raise unless a Python number is of the kind of an array's: an integer is no float, as in JAX."""
    if _KIND.get(dtypes.scalar_dtype(number).kind) != _KIND.get(dtypes.kind(dtype)):
        raise TypeMismatch(
            f"{name} of an array of dtype {dtype} and the number {number!r} of type "
            f"{type(number).__name__}; expected equal kinds: convert one of them, or use the function of "
            "fnx.numpy, which promotes"
        )


def operands(name: str, *xs: Any) -> list[Array]:
    """Arguments as arrays; Python numbers take the dtype of the arrays beside them, of their kind."""
    dtype = next((x.dtype for x in xs if type(x) not in PYTHON and hasattr(x, "dtype")), None)
    out = []
    for k, x in enumerate(xs):
        if type(x) in PYTHON and dtype is not None:
            same_kind(name, x, dtype)
            out.append(constant(x, dtype))
        else:
            out.append(to_array(x, name, k))
    return out


def checked(prim: Any, *xs: Array) -> Any:
    """The primitive of operands that the user fitted; they are checked, traced or not."""
    prim.abstract(*[x.aval for x in xs])  # NumPy, which evaluates it, would promote and broadcast
    return prim(*xs)


def stretched(*xs: Array) -> tuple[Array, ...]:
    """Operands of one rank, whose axes of size 1 become as long as the others' (rank 0 stays)."""
    shapes = [x.shape for x in xs if x.shape]
    if not shapes or len(set(map(len, shapes))) > 1:
        return xs
    longest = tuple([next((n for n in column if n != 1), 1) for column in zip(*shapes)])
    fits = all(all(n in (1, m) for n, m in zip(s, longest)) for s in shapes)
    return tuple([broadcast_to(x, longest) if x.shape else x for x in xs]) if fits else xs


def _unary(
    prim: Any, what: str, given: str, gives: str, dtype: str = "float64", name: str = ""
) -> Callable:
    name = name or prim.name

    @named(name, shown(what, f"lax.{name}(jnp.array({given}))", gives, dtype))
    def fn(x: Any) -> Array:
        return checked(prim, to_array(x, name))

    return fn


def _accurate(prim: Any, what: str, given: str, gives: str) -> Callable:
    name = prim.name

    @named(name, shown(what, f"lax.{name}(jnp.array({given}))", gives))
    def fn(x: Any, *, accuracy: Any = None) -> Array:
        del accuracy
        return checked(prim, to_array(x, name))

    return fn


_FITTING = "Operands have equal dtypes, and equal ranks or rank 0; axes of size 1 are repeated."


def _binary(
    prim: Any, what: str, x: str, y: str, gives: str, dtype: str = "float64", name: str = ""
) -> Callable:
    name = name or prim.name
    call = f"lax.{name}(jnp.array({x}), jnp.array({y}))"

    @named(name, shown(f"{what}\n\n    {_FITTING}", call, gives, dtype))
    def fn(x: Any, y: Any) -> Array:
        return checked(prim, *stretched(*operands(name, x, y)))

    return fn


neg = _unary(ops.neg, "-x.", "[1.0, -2.0]", "[-1.,  2.]")
sign = _unary(ops.sign, "-1, 0 or 1; of complex numbers x / |x|.", "[-2.0, 0.0]", "[-1.,  0.]")
floor = _unary(ops.floor, "The largest integer not above x.", "[1.5, -1.5]", "[ 1., -2.]")
abs = _unary(ops.abs_, "The absolute value, or magnitude.", "[-2.0, 3.0]", "[2., 3.]")
is_finite = _unary(ops.is_finite, "Whether x is a finite number.", "[jnp.inf]", "[False]", "bool")
ceil = _unary(ops.ceil, "The smallest integer not below x.", "[1.5, -1.5]", "[ 2., -1.]")
square = _unary(ops.square, "x * x.", "[2.0, -3.0]", "[4., 9.]")
real = _unary(ops.real, "The real part of complex numbers.", "[1 + 2j]", "[1.]")
imag = _unary(ops.imag, "The imaginary part of complex numbers.", "[1 + 2j]", "[2.]")
asin = _unary(ops.asin, "The angle whose sine is x.", "[1.0]", "[1.57079633]")
acos = _unary(ops.acos, "The angle whose cosine is x.", "[0.0]", "[1.57079633]")
atan = _unary(ops.atan, "The angle whose tangent is x.", "[jnp.inf]", "[1.57079633]")
sinh = _unary(ops.sinh, "The hyperbolic sine.", "[0.0, jnp.log(2)]", "[0.  , 0.75]")
cosh = _unary(ops.cosh, "The hyperbolic cosine.", "[0.0, jnp.log(2)]", "[1.  , 1.25]")
asinh = _unary(ops.asinh, "The inverse of sinh.", "[0.75]", "[0.69314718]")
acosh = _unary(ops.acosh, "The inverse of cosh.", "[1.25]", "[0.69314718]")
atanh = _unary(ops.atanh, "The inverse of tanh.", "[0.6]", "[0.69314718]")
erf = _unary(special.erf, "The error function.", "[0.5]", "[0.52049988]")
erfc = _unary(special.erfc, "1 - erf(x), without cancellation.", "[0.5]", "[0.47950012]")
erf_inv = _unary(special.erf_inv, "The inverse of erf.", "[0.5]", "[0.47693628]")
lgamma = _unary(special.lgamma, "The logarithm of |gamma(x)|.", "[5.0]", "[3.17805383]")
digamma = _unary(special.digamma, "The derivative of lgamma.", "[1.0]", "[-0.57721566]")
bessel_i0e = _unary(special.bessel_i0e, "exp(-|x|) I0(x).", "[1.0]", "[0.46575961]")
bessel_i1e = _unary(special.bessel_i1e, "exp(-|x|) I1(x).", "[1.0]", "[0.20791042]")
population_count = _unary(ops.population_count, "How many bits are 1.", "[7]", "[3]", "int64")
clz = _unary(ops.clz, "How many leading bits are 0.", "[1, 8]", "[63, 60]", "int64")
bitwise_not = _unary(choose.not_, "All bits flipped.", "[5]", "[-6]", "int64", "bitwise_not")

exp = _accurate(ops.exp, "e ** x.", "[0.0, -jnp.inf]", "[1., 0.]")
exp2 = _accurate(ops.exp2, "2 ** x.", "[3.0, -1.0]", "[8. , 0.5]")
expm1 = _accurate(ops.expm1, "exp(x) - 1, exact for small x.", "[1e-20]", "[1.e-20]")
log = _accurate(ops.log, "The natural logarithm.", "[1.0, jnp.inf]", "[ 0., inf]")
log1p = _accurate(ops.log1p, "log(1 + x), exact for small x.", "[1e-20]", "[1.e-20]")
logistic = _accurate(ops.logistic, "1 / (1 + exp(-x)).", "[0.0, jnp.inf]", "[0.5, 1. ]")
sin = _accurate(ops.sin, "The sine of x in radians.", "[0.0, jnp.pi / 2]", "[0., 1.]")
cos = _accurate(ops.cos, "The cosine of x in radians.", "[0.0, jnp.pi]", "[ 1., -1.]")
tan = _accurate(ops.tan, "The tangent of x in radians.", "[0.0, jnp.pi / 4]", "[0., 1.]")
tanh = _accurate(ops.tanh, "The hyperbolic tangent.", "[0.0, 100.0]", "[0., 1.]")
sqrt = _accurate(ops.sqrt, "The square root.", "[1.0, 4.0]", "[1., 2.]")
rsqrt = _accurate(ops.rsqrt, "1 / sqrt(x).", "[1.0, 4.0]", "[1. , 0.5]")
cbrt = _accurate(ops.cbrt, "The cube root.", "[8.0, -27.0]", "[ 2., -3.]")

add = _binary(ops.add, "x + y.", "[1.0, 2.0]", "[3.0, 5.0]", "[4., 7.]")
sub = _binary(ops.sub, "x - y.", "[1.0, 2.0]", "[3.0, 5.0]", "[-2., -3.]")
div = _binary(ops.div, "x / y; integers lose the fraction.", "[-7]", "[2]", "[-3]", "int64")
rem = _binary(ops.rem, "The rest of x / y, with the sign of x.", "[-7]", "[4]", "[-3]", "int64")
atan2 = _binary(ops.atan2, "The angle of the point (y, x).", "[1.0]", "[0.0]", "[1.57079633]")
nextafter = _binary(ops.nextafter, "The float after x towards y.", "[0.0]", "[1.0]", "[5.e-324]")
max = _binary(ops.max_, "The larger one; nan if either is nan.", "[1.0]", "[3.0]", "[3.]")
min = _binary(ops.min_, "The smaller one; nan if either is nan.", "[1.0]", "[3.0]", "[1.]")
eq = _binary(choose.eq, "x == y.", "[1, 2]", "[2, 2]", "[False,  True]", "bool")
ne = _binary(choose.ne, "x != y.", "[1, 2]", "[2, 2]", "[ True, False]", "bool")
lt = _binary(choose.lt, "x < y.", "[1, 2]", "[2, 2]", "[ True, False]", "bool")
le = _binary(choose.le, "x <= y.", "[1, 2]", "[2, 2]", "[ True,  True]", "bool")
gt = _binary(choose.gt, "x > y.", "[3, 2]", "[2, 2]", "[ True, False]", "bool")
ge = _binary(choose.ge, "x >= y.", "[1, 2]", "[2, 2]", "[False,  True]", "bool")
bitwise_and = _binary(choose.and_, "Bits set in both.", "[6]", "[3]", "[2]", "int64", "bitwise_and")
bitwise_or = _binary(choose.or_, "Bits set in one.", "[6]", "[3]", "[7]", "int64", "bitwise_or")
bitwise_xor = _binary(choose.xor, "Bits that differ.", "[6]", "[3]", "[5]", "int64", "bitwise_xor")
shift_left = _binary(ops.shift_left, "Bits of x moved up by y.", "[3]", "[2]", "[12]", "int64")
shift_right_arithmetic = _binary(
    ops.shift_right_arithmetic,
    "Bits of x moved down by y; its sign stays.",
    "[-8]",
    "[2]",
    "[-2]",
    "int64",
)
shift_right_logical = _binary(
    ops.shift_right_logical,
    "Bits of x moved down by y, zeros moved in.",
    "[-1]",
    "[60]",
    "[15]",
    "int64",
)
complex = _binary(ops.complex_, "x + i y.", "[1.0]", "[2.0]", "[1.+2.j]", "complex128")
igamma = _binary(
    special.igamma,
    "The regularized lower incomplete gamma function of order x at y.",
    "[1.0]",
    "[jnp.log(2)]",
    "[0.5]",
)
igammac = _binary(special.igammac, "1 - igamma(x, y).", "[1.0]", "[jnp.log(2)]", "[0.5]")
igamma_grad_a = _binary(
    special.igamma_grad_a, "The derivative of igamma(x, y) by x.", "[1.0]", "[1.0]", "[-0.43172971]"
)
polygamma = _binary(
    special.polygamma,
    "The derivative of order x of digamma at y.",
    "[1.0]",
    "[1.0]",
    "[1.64493407]",
)
zeta = _binary(
    special.zeta,
    "The Hurwitz zeta function, the sum of (y + k) ** -x.",
    "[2.0]",
    "[1.0]",
    "[1.64493407]",
)
random_gamma_grad = _binary(
    special.random_gamma_grad,
    "The derivative of a gamma sample y by its shape parameter x.",
    "[1.0]",
    "[1.0]",
    "[1.17356303]",
)


__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bessel_i0e",
    "bessel_i1e",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clz",
    "complex",
    "cos",
    "cosh",
    "digamma",
    "div",
    "eq",
    "erf",
    "erf_inv",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "ge",
    "gt",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "imag",
    "is_finite",
    "le",
    "lgamma",
    "log",
    "log1p",
    "logistic",
    "lt",
    "max",
    "min",
    "ne",
    "neg",
    "nextafter",
    "polygamma",
    "population_count",
    "random_gamma_grad",
    "real",
    "rem",
    "rsqrt",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
    "zeta",
]
