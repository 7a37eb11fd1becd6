"""Arithmetic and rounding, element by element: they promote, broadcast and bind a few primitives."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.numpy.util import (
    broadcast_arrays,
    constant,
    convert,
    eager,
    fit,
    named,
    promote,
    promote_inexact,
    select,
    to_array,
    to_arrays,
    transformation,
    ufunc_operands,
)
from fnx.ops import elementwise as ops
from fnx.ops.broadcast import full
from fnx.ops.reduction import ReduceOr


def binary(name: str, prim: Any, doc: str, bool_prim: Any = None, many: bool = False) -> Callable:
    def apply(x1: Any, x2: Any) -> Array:
        x, y = fit(name, promote(name, x1, x2))
        if bool_prim is not None and x.dtype == dtypes.bool_:
            return bool_prim(x, y)
        return prim(x, y)

    if not many:
        return named(name, doc)(lambda x1, x2, /: apply(x1, x2))

    @named(name, doc)
    def fn(*args, out=None, where=None):
        return apply(*ufunc_operands(name, args, 2, out, where))

    return fn


def float_binary(name: str, prim: Any, doc: str) -> Callable:
    @named(name, doc)
    def fn(x1, x2, /):
        return prim(*fit(name, promote_inexact(name, x1, x2)))

    return fn


def zero(x: Array) -> ConcreteArray:
    """0 in the dtype of x."""
    return constant(0, x.dtype)


def one(x: Array) -> ConcreteArray:
    """1 in the dtype of x."""
    return constant(1, x.dtype)


def times(x: Array, value: Any) -> Array:
    """x times a number."""
    return ops.mul(x, constant(value, x.dtype))


def truth(x: Any, name: str = "function") -> Array:
    """Whether elements are not zero."""
    x = to_array(x, name)
    return x if x.dtype == dtypes.bool_ else ops.ne(x, zero(x))


def where3(mask: Array, on_true: Any, on_false: Any) -> Array:
    """Elements of one array or of another, promoted and broadcast."""
    x, y = promote("where", on_true, on_false)
    mask, x, y = fit("where", [mask, x, y])
    return select(mask, x, y)


# --- arithmetic --------------------------------------------------------------------------------

add = binary(
    "add",
    ops.add,
    """x1 + x2, element by element.

    >>> jnp.add(jnp.arange(3), 0.5)
    Array([0.5, 1.5, 2.5], dtype=float64, weak_type=True)
    """,
    ops.or_,
    many=True,
)
multiply = binary(
    "multiply",
    ops.mul,
    """x1 * x2, element by element.

    >>> jnp.multiply(jnp.arange(3), 2)
    Array([0, 2, 4], dtype=int64)
    """,
    ops.and_,
    many=True,
)
subtract = binary("subtract", ops.sub, "x1 - x2, element by element.", many=True)
maximum = binary(
    "maximum",
    ops.max_,
    """The larger of x1 and x2; nan where either is nan.

    >>> jnp.maximum(jnp.array([1.0, 3.0]), 2.0)
    Array([2., 3.], dtype=float64)
    """,
    many=True,
)
minimum = binary(
    "minimum",
    ops.min_,
    """The smaller of x1 and x2; nan where either is nan.

    >>> jnp.minimum(jnp.array([1.0, 3.0]), 2.0)
    Array([1., 2.], dtype=float64)
    """,
    many=True,
)
true_divide = float_binary("divide", ops.div, "x1 / x2, in floating point.")
divide = true_divide


def negative(*args, out=None, where=None):
    """-x."""
    x = to_array(*ufunc_operands("negative", args, 1, out, where), "negative")
    if x.dtype == dtypes.bool_:
        raise TypeMismatch("negative of a bool array; use ~x, or convert it with .astype(int)")
    return ops.neg(x)


def positive(x, /):
    """+x."""
    return to_array(x, "positive")


def sign(x, /):
    """-1, 0 or 1 by the sign of x; x / |x| for complex numbers.

    >>> jnp.sign(jnp.array([-2.0, 0.0, 5.0]))
    Array([-1.,  0.,  1.], dtype=float64)
    """
    x = to_array(x, "sign")
    if x.dtype == dtypes.bool_:
        raise TypeMismatch("sign of a bool array; convert it with .astype(int)")
    return ops.sign(x)


def absolute(x, /):
    """The absolute value, or magnitude of complex numbers.

    >>> jnp.abs(jnp.array([-1.5, 2.0]))
    Array([1.5, 2. ], dtype=float64)
    """
    x = to_array(x, "absolute")
    return x if x.dtype.kind in "bu" else ops.abs_(x)


abs = absolute


def fabs(x, /):
    """The absolute value as a float."""
    (x,) = promote_inexact("fabs", x)
    return ops.abs_(x)


def square(x, /):
    """x * x.

    >>> jnp.square(3.0)
    Array(9., dtype=float64, weak_type=True)
    """
    x = to_array(x, "square")
    return ops.square(convert(x, dtypes.int32) if x.dtype == dtypes.bool_ else x)


def reciprocal(x, /):
    """1 / x, in floating point."""
    (x,) = promote_inexact("reciprocal", x)
    return ops.div(one(x), x)


def float_power(x, y, /):
    """x ** y in float64 or complex128."""
    x, y = promote("float_power", x, y)
    wide = dtypes.complex128 if dtypes.is_complex(x.dtype) else dtypes.float64
    return power(convert(x, wide), convert(y, wide))


def power(x1, x2, /):
    """x1 ** x2; a Python integer as exponent is multiplied out.

    >>> power(2.0, 3)
    Array(8., dtype=float64, weak_type=True)
    """
    kind = type(x2)
    if kind is int or (isinstance(x2, np.integer) and not isinstance(x2, np.bool_)):
        return _integer_power(to_array(x1, "power"), int(x2), x2)
    if kind is float:
        special = _float_exponent(x1, x2)
        if special is not None:
            return special
    x1, x2 = to_arrays("power", x1, x2)
    if not dtypes.is_inexact(x1.dtype) and not dtypes.is_inexact(x2.dtype):
        x, y = fit("power", promote("power", x1, x2))  # floats, of uint64 and a signed integer
        return ops.pow_(x, y) if dtypes.is_inexact(x.dtype) else _int_int_power(x, y)
    if dtypes.is_inexact(x1.dtype) and dtypes.is_integer(x2.dtype):
        kept = promote("power", x1, x2)[0] if x1.weak_type else x1
        return ops.pow_(*fit("power", [kept, x2]))
    return ops.pow_(*fit("power", promote_inexact("power", x1, x2)))


pow = power


def _integer_power(x: Array, n: int, given: Any) -> Array:
    if type(given) is not int:
        x = promote("power", x, given)[0]
    if x.dtype == dtypes.bool_:
        x = convert(x, dtypes.int32)
    if n < 0 and not dtypes.is_inexact(x.dtype):
        raise TypeMismatch(
            f"an array of dtype {x.dtype} to the power {n}: integers have no negative powers; use a "
            f"float exponent, {float(n)}, or convert the array"
        )
    return ops.square(x) if n == 2 else x if n == 1 else ops.IntegerPow(n)(x)


def _float_exponent(x: Any, n: float) -> Array | None:
    # Exponents whose powers have quicker primitives than pow.
    if n not in (0.5, -0.5, 1.0, 2.0, 3.0, -1.0):
        return None
    x, _ = promote_inexact("power", x, n)
    if n == 0.5:
        return ops.sqrt(x)
    return ops.rsqrt(x) if n == -0.5 else _integer_power(x, int(n), int(n))


def _int_int_power(x: Array, y: Array) -> Array:
    # By squaring. Exponents of more than 7 bits overflow for all bases but -1, 0 and 1, for which a
    # smaller one with the same last bit will do.
    if x.dtype == dtypes.bool_:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    if y.dtype.itemsize > 1:
        last = ops.and_(y, one(y))
        y = select(ops.gt(y, constant(127, y.dtype)), ops.add(constant(126, y.dtype), last), y)
    total = full(x.shape or y.shape, 1, x.dtype)
    for _ in range(7):
        odd = ops.ne(ops.and_(y, one(y)), zero(y))
        total = select(*fit("power", [odd, ops.mul(total, x), total]))
        x = ops.mul(x, x)
        y = ops.shift_right_logical(y, one(y))
    return total


def floor_divide(x1, x2, /):
    """The largest integer not above x1 / x2."""
    x, y = fit("floor_divide", numbers("floor_divide", x1, x2))
    kind = dtypes.kind(x.dtype)
    if kind == "u":
        return ops.div(x, y)
    if kind == "i":
        q = ops.div(x, y)
        inexact = ops.ne(ops.rem(x, y), zero(x))
        below = ops.and_(ops.ne(ops.sign(x), ops.sign(y)), inexact)
        return select(below, ops.sub(q, one(q)), q)
    if kind == "c":
        raise TypeMismatch("floor_divide is not defined for complex numbers")
    return _float_divmod(x, y)[0]


def numbers(name: str, *xs: Any) -> list[Array]:
    xs = promote(name, *xs)
    return [convert(x, dtypes.int32) for x in xs] if xs[0].dtype == dtypes.bool_ else xs


def _float_divmod(x: Array, y: Array) -> tuple[Array, Array]:
    r = ops.rem(x, y)
    q = ops.div(select(ops.eq(y, zero(y)), x, ops.sub(x, r)), y)
    wrong = ops.and_(ops.ne(r, zero(r)), ops.ne(ops.sign(y), ops.sign(r)))
    r = select(wrong, ops.add(r, y), r)
    q = select(wrong, ops.sub(q, one(q)), q)
    return ops.Round(0)(q), r


def remainder(x1, x2, /):
    """x1 - x2 * floor(x1 / x2): has the sign of x2."""
    x, y = fit("remainder", numbers("remainder", x1, x2))
    kind = dtypes.kind(x.dtype)
    if kind in "iu":
        y = select(ops.eq(y, zero(y)), one(y), y)
    r = ops.rem(x, y)
    if kind == "u":
        return r
    other = ops.ne(ops.lt(r, zero(r)), ops.lt(y, zero(y)))
    return select(ops.and_(other, ops.ne(r, zero(r))), ops.add(r, y), r)


mod = remainder


def fmod(x1, x2, /):
    """The remainder of x1 / x2 with the sign of x1."""
    x, y = fit("fmod", numbers("fmod", x1, x2))
    if dtypes.is_integer(x.dtype):
        y = select(ops.eq(y, zero(y)), one(y), y)
    return ops.rem(x, y)


def divmod(x1, x2, /):
    """(floor_divide(x1, x2), remainder(x1, x2))."""
    x, y = fit("divmod", numbers("divmod", x1, x2))
    if dtypes.is_float(x.dtype):
        return _float_divmod(x, y)
    return floor_divide(x, y), remainder(x, y)


def fmax(x1, x2):
    """The larger of x1 and x2; the other one where one is nan."""
    x, y = fit("fmax", promote("fmax", x1, x2))
    larger = ops.max_(x, y)
    return _skip_nan(larger, x, y)


def fmin(x1, x2):
    """The smaller of x1 and x2; the other one where one is nan."""
    x, y = fit("fmin", promote("fmin", x1, x2))
    return _skip_nan(ops.min_(x, y), x, y)


def _skip_nan(out: Array, x: Array, y: Array) -> Array:
    if not dtypes.is_inexact(x.dtype):
        return out
    return where3(ops.ne(x, x), y, where3(ops.ne(y, y), x, out))


# --- integers ----------------------------------------------------------------------------------


def gcd(x1, x2):
    """The greatest common divisor."""
    x, y = fit("gcd", promote("gcd", x1, x2))
    _need_integers("gcd", x)
    x, y = ops.abs_(x) if x.dtype.kind == "i" else x, ops.abs_(y) if y.dtype.kind == "i" else y
    x, y = broadcast_arrays("gcd", [x, y])

    def step(pair: tuple) -> tuple:  # of Euclid's algorithm
        x, y = pair
        done = ops.eq(y, zero(y))
        return select(done, x, y), select(done, y, ops.rem(x, select(done, one(y), y)))

    if not (isinstance(x, Tracer) or isinstance(y, Tracer)) and eager():
        while y._value.any():  # type: ignore[attr-defined]
            x, y = step((x, y))
        return x
    left = lambda pair: ReduceOr(tuple(range(y.ndim)))(ops.ne(pair[1], zero(pair[1])))
    if not y.ndim:
        left = lambda pair: ops.ne(pair[1], zero(pair[1]))
    return transformation("while_loop")(left, step, (x, y))[0]


def lcm(x1, x2):
    """The least common multiple."""
    x, y = fit("lcm", promote("lcm", x1, x2))
    divisor = gcd(x, y)
    safe = select(ops.eq(divisor, zero(divisor)), one(divisor), divisor)
    return ops.mul(absolute(x), ops.div(absolute(y), safe))  # overflows as NumPy's does


def _need_integers(name: str, x: Array) -> None:
    if not dtypes.is_integer(x.dtype):
        raise TypeMismatch(f"{name} needs integers, not dtype {x.dtype}")


def real(val, /):
    """The real part."""
    x = to_array(val, "real")
    return ops.real(x) if dtypes.is_complex(x.dtype) else x


def imag(val, /):
    """The imaginary part; 0 for real numbers."""
    x = to_array(val, "imag")
    return ops.imag(x) if dtypes.is_complex(x.dtype) else full(x.shape, 0, x.dtype)


def conjugate(x, /):
    """The complex conjugate."""
    x = to_array(x, "conj")
    return ops.conj(x) if dtypes.is_complex(x.dtype) else x


conj = conjugate


__all__ = [
    "abs",
    "absolute",
    "add",
    "conj",
    "conjugate",
    "divide",
    "divmod",
    "fabs",
    "float_power",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "imag",
    "lcm",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "positive",
    "pow",
    "power",
    "real",
    "reciprocal",
    "remainder",
    "sign",
    "square",
    "subtract",
    "true_divide",
]
