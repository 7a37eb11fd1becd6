"""Elementwise functions of fnx.lax: one primitive each; no promotion, but of Python numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy.util import PYTHON, constant, named, to_array
from fnx.ops import elementwise as ops
from fnx.ops import select as choose
from fnx.ops import special
from fnx.ops.basic import broadcast_to
from fnx.ops.convert import BitcastConvertType, ConvertElementType, ReducePrecision
from fnx.ops.convert import convert as _convert

_every = all  # fnx.lax has names of its own for several builtins
# Kinds of numbers: each holds those of lower rank.
_RANK = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def operands(name: str, *xs: Any) -> list[Array]:
    """Arguments as arrays; Python numbers take the dtype of the arrays beside them."""
    dtype = next((x.dtype for x in xs if type(x) not in PYTHON and hasattr(x, "dtype")), None)
    out = []
    for k, x in enumerate(xs):
        if type(x) in PYTHON and dtype is not None:
            if _RANK[dtypes.scalar_dtype(x).kind] > _RANK.get(dtypes.kind(dtype), 0):
                raise TypeMismatch(
                    f"{name} of an array of dtype {dtype} and the number {x!r}, which that cannot hold; "
                    "convert the array first (fnx.numpy's functions promote)"
                )
            out.append(constant(x, dtype))
        else:
            out.append(to_array(x, name, k))
    return out


def checked(prim: Any, *xs: Array) -> Any:
    """The primitive of operands that the user fitted; they are checked, traced or not."""
    prim.abstract(*[x.aval for x in xs])  # NumPy, which evaluates it, would promote and broadcast
    return prim(*xs)


def _stretched(*xs: Array) -> tuple[Array, ...]:
    """Operands of one rank, whose axes of size 1 become as long as the others' (rank 0 stays)."""
    shapes = [x.shape for x in xs if x.shape]
    if not shapes or len(set(map(len, shapes))) > 1:
        return xs
    longest = tuple([next((n for n in column if n != 1), 1) for column in zip(*shapes)])
    fits = _every(_every(n in (1, m) for n, m in zip(s, longest)) for s in shapes)
    return tuple([broadcast_to(x, longest) if x.shape else x for x in xs]) if fits else xs


def _unary(prim: Any, name: str | None = None) -> Callable:
    name = name or prim.name

    @named(name, f"Elementwise {name}, in the dtype of `x`.")
    def fn(x: Any) -> Array:
        return checked(prim, to_array(x, name))

    return fn


def _accurate(prim: Any) -> Callable:
    @named(prim.name, f"Elementwise {prim.name}, in the dtype of `x`.")
    def fn(x: Any, *, accuracy: Any = None) -> Array:
        del accuracy
        return checked(prim, to_array(x, prim.name))

    return fn


def _binary(prim: Any, name: str | None = None) -> Callable:
    name = name or prim.name
    fitting = "operands of equal dtypes, and equal ranks or rank 0; axes of size 1 are repeated"

    @named(name, f"Elementwise {name} of {fitting}.")
    def fn(x: Any, y: Any) -> Array:
        return checked(prim, *_stretched(*operands(name, x, y)))

    return fn


neg = _unary(ops.neg)
sign = _unary(ops.sign)
floor = _unary(ops.floor)
abs = _unary(ops.abs_)
is_finite = _unary(ops.is_finite)
ceil = _unary(ops.ceil)
square = _unary(ops.square)
real = _unary(ops.real)
imag = _unary(ops.imag)
asin = _unary(ops.asin)
acos = _unary(ops.acos)
atan = _unary(ops.atan)
sinh = _unary(ops.sinh)
cosh = _unary(ops.cosh)
asinh = _unary(ops.asinh)
acosh = _unary(ops.acosh)
atanh = _unary(ops.atanh)
erf = _unary(special.erf)
erfc = _unary(special.erfc)
erf_inv = _unary(special.erf_inv)
lgamma = _unary(special.lgamma)
digamma = _unary(special.digamma)
bessel_i0e = _unary(special.bessel_i0e)
bessel_i1e = _unary(special.bessel_i1e)
population_count = _unary(ops.population_count)
clz = _unary(ops.clz)
bitwise_not = _unary(choose.not_, "bitwise_not")

exp = _accurate(ops.exp)
exp2 = _accurate(ops.exp2)
expm1 = _accurate(ops.expm1)
log = _accurate(ops.log)
log1p = _accurate(ops.log1p)
logistic = _accurate(ops.logistic)
sin = _accurate(ops.sin)
cos = _accurate(ops.cos)
tan = _accurate(ops.tan)
tanh = _accurate(ops.tanh)
sqrt = _accurate(ops.sqrt)
rsqrt = _accurate(ops.rsqrt)
cbrt = _accurate(ops.cbrt)

add = _binary(ops.add)
sub = _binary(ops.sub)
div = _binary(ops.div)
rem = _binary(ops.rem)
atan2 = _binary(ops.atan2)
nextafter = _binary(ops.nextafter)
max = _binary(ops.max_)
min = _binary(ops.min_)
eq = _binary(choose.eq)
ne = _binary(choose.ne)
lt = _binary(choose.lt)
le = _binary(choose.le)
gt = _binary(choose.gt)
ge = _binary(choose.ge)
bitwise_and = _binary(choose.and_, "bitwise_and")
bitwise_or = _binary(choose.or_, "bitwise_or")
bitwise_xor = _binary(choose.xor, "bitwise_xor")
shift_left = _binary(ops.shift_left)
shift_right_arithmetic = _binary(ops.shift_right_arithmetic)
shift_right_logical = _binary(ops.shift_right_logical)
complex = _binary(ops.complex_)
igamma = _binary(special.igamma)
igammac = _binary(special.igammac)
igamma_grad_a = _binary(special.igamma_grad_a)
polygamma = _binary(special.polygamma)
zeta = _binary(special.zeta)
random_gamma_grad = _binary(special.random_gamma_grad)


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Array:
    """Products of operands of equal dtypes, or in another dtype, `out_dtype`."""
    x, y = operands("mul", x, y)
    if out_dtype is not None:
        if x.dtype != y.dtype:
            raise TypeMismatch(f"mul of operands of dtypes {x.dtype} and {y.dtype}; expected equal")
        x, y = (_convert(v, dtypes.canonical(out_dtype)) for v in (x, y))
    return checked(ops.mul, *_stretched(x, y))


def mulhi(x: Any, y: Any, /) -> Array:
    """The upper half of the bits of products of integers, which do not fit into their dtype."""
    x, y = _stretched(*operands("mulhi", x, y))
    dtype = x.dtype
    if not dtypes.is_integer(dtype) or y.dtype != dtype:
        raise TypeMismatch(f"mulhi of dtypes {dtype} and {y.dtype}; expected equal integer dtypes")
    bits = 8 * dtype.itemsize
    if bits < 64:
        wide = np.dtype(f"{dtype.kind}8")
        product = ops.mul(_convert(x, wide), _convert(y, wide))
        shift = ops.shift_right_logical if dtype.kind == "u" else ops.shift_right_arithmetic
        return _convert(shift(product, constant(bits, wide, False)), dtype)
    if dtype.kind == "i":
        # As unsigned numbers negative ones are 2**64 too large.
        zero, last = constant(0, dtype, False), constant(63, dtype, False)
        u = np.dtype("u8")
        high = BitcastConvertType(dtype)(mulhi(*(BitcastConvertType(u)(v) for v in (x, y))))
        for a, b in ((x, y), (y, x)):
            high = ops.sub(high, ops.mul(ops.sub(zero, ops.shift_right_arithmetic(a, last)), b))
        return high
    half, mask = constant(32, dtype, False), constant((1 << 32) - 1, dtype, False)
    low = lambda v: choose.and_(v, mask)
    up = lambda v: ops.shift_right_logical(v, half)
    a, b, c, d = up(x), low(x), up(y), low(y)
    middle = ops.add(ops.mul(a, d), up(ops.mul(b, d)))
    rest = ops.add(ops.mul(b, c), low(middle))
    return ops.add(ops.add(ops.mul(a, c), up(middle)), up(rest))


def conj(x: Any) -> Array:
    """The complex conjugate; a real `x` becomes complex."""
    x = to_array(x, "conj")
    if not dtypes.is_complex(x.dtype):
        x = ops.complex_(x, ops.sub(x, x))
    return ops.conj(x)


def reciprocal(x: Any) -> Array:
    """1 / x."""
    x = to_array(x, "reciprocal")
    return ops.div(constant(1, x.dtype), x)


def pow(x: Any, y: Any) -> Array:
    """x to the power y; y may be an integer array beside an inexact x."""
    if type(y) in PYTHON and type(x) not in PYTHON:
        x = to_array(x, "pow")
        y = constant(y, x.dtype) if type(y) is not int else to_array(y, "pow", 1)
    x, y = to_array(x, "pow"), to_array(y, "pow", 1)
    return checked(ops.pow_, *_stretched(x, y))


def integer_pow(x: Any, y: int) -> Array:
    """x to the static integer power y."""
    return ops.IntegerPow(int(y))(to_array(x, "integer_pow"))


def betainc(a: Any, b: Any, x: Any) -> Array:
    """The regularized incomplete beta function."""
    return checked(special.regularized_incomplete_beta, *_stretched(*operands("betainc", a, b, x)))


def round(x: Any, rounding_method: int = 0) -> Array:
    """To an integer: halves away from zero (0) or to the even one (1)."""
    return ops.Round(int(rounding_method))(to_array(x, "round"))


def clamp(min: Any, x: Any, max: Any) -> Array:
    """x where it lies between min and max, else the nearer of them."""
    low, x, high = operands("clamp", min, x, max)
    return checked(choose.clamp, low, x, high)


def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """`on_true` where `pred` holds, else `on_false`; of equal dtypes and shapes."""
    on_true, on_false = operands("select", on_true, on_false)
    return checked(choose.select_n, _which(pred, "select", 2), on_false, on_true)


def _which(which: Any, name: str, cases: int) -> Array:
    """The number of a case; between two of them, any integer but 0 is the second."""
    x = to_array(which, name)
    if x.dtype.kind not in "iu":
        return x
    return (
        choose.ne(x, constant(0, x.dtype)) if cases == 2 else convert_element_type(x, dtypes.int32)
    )


def select_n(which: Any, *cases: Any) -> Array:
    """`cases[which]`, element by element; `which` is of bool or integers."""
    if not cases:
        raise InvalidValue("select_n needs at least one case")
    return checked(
        choose.select_n, _which(which, "select_n", len(cases)), *operands("select_n", *cases)
    )


def convert_element_type(operand: Any, new_dtype: Any) -> Array:
    """The values in another dtype, as C converts numbers."""
    from fnx.numpy.util import convert

    dtype = dtypes.canonical(new_dtype)
    x = to_array(operand, "convert_element_type")
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype):
        x = ops.real(x)
    return convert(x, dtype)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Array:
    """The same bits in another dtype; a wider or narrower one takes or gives a last axis."""
    x = to_array(operand, "bitcast_convert_type")
    dtype = dtypes.canonical(new_dtype)
    return x if x.dtype == dtype else BitcastConvertType(dtype)(x)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Array:
    """The values rounded to a float format with so many bits."""
    return ReducePrecision(int(exponent_bits), int(mantissa_bits))(
        to_array(operand, "reduce_precision")
    )


def stop_gradient(x: Any) -> Any:
    """The leaves of a pytree with derivatives zero.

    >>> fnx.grad(lambda x: x * fnx.lax.stop_gradient(x))(3.0)
    Array(3., dtype=float64)
    """
    from fnx import tree_util

    def stop(leaf: Any) -> Any:
        if isinstance(leaf, (Array, np.ndarray)):
            leaf = to_array(leaf, "stop_gradient")
            return ops.stop_gradient(leaf) if dtypes.is_inexact(leaf.dtype) else leaf
        if callable(leaf):
            raise TypeMismatch(f"stop_gradient of a function, {leaf!r:.60}; expected arrays")
        return leaf

    return tree_util.tree_map(stop, x)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Array:
    """An array of one value."""
    del sharding
    x = to_array(fill_value, "full")
    if dtype is not None:
        x = _convert(x, dtypes.canonical(dtype))
        x = ConvertElementType(x.dtype)(x) if x.aval.weak_type else x
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return broadcast_to(x, shape)


def full_like(
    x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, sharding: Any = None
) -> Array:
    """An array of one value with the shape and dtype of `x`, unless they are given."""
    del sharding
    dtype = x.dtype if dtype is None else dtype
    return full(x.shape if shape is None else shape, constant(fill_value, dtypes.canonical(dtype), False)
                if type(fill_value) in PYTHON else fill_value, dtype)  # fmt: skip


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
    "betainc",
    "bitcast_convert_type",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clamp",
    "clz",
    "complex",
    "conj",
    "convert_element_type",
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
    "full",
    "full_like",
    "ge",
    "gt",
    "igamma",
    "igamma_grad_a",
    "igammac",
    "imag",
    "integer_pow",
    "is_finite",
    "le",
    "lgamma",
    "log",
    "log1p",
    "logistic",
    "lt",
    "max",
    "min",
    "mul",
    "mulhi",
    "ne",
    "neg",
    "nextafter",
    "polygamma",
    "population_count",
    "pow",
    "random_gamma_grad",
    "real",
    "reciprocal",
    "reduce_precision",
    "rem",
    "round",
    "rsqrt",
    "select",
    "select_n",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "stop_gradient",
    "sub",
    "tan",
    "tanh",
    "zeta",
]
