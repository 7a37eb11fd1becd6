"""Arithmetic and rounding, element by element: they promote, broadcast and bind a few primitives."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import FnxError, TypeMismatch, hide_frames, of_both
from fnx.numpy.arrays.util import (
    constant,
    convert,
    fit,
    named,
    promote,
    promote_inexact,
    result_dtype,
    select,
    to_array,
    to_arrays,
    ufunc_operands,
)
from fnx.ops.base.broadcast import full
from fnx.ops.elementwise import arithmetic as ops


def binary(name: str, prim: Any, doc: str, bool_prim: Any = None, many: bool = False) -> Callable:
    def apply(x1: Any, x2: Any) -> Array:
        x, y = fit(name, promote(name, x1, x2))
        if bool_prim is not None and x.dtype == dtypes.bool_:
            return bool_prim(x, y)
        return prim(x, y)

    @named(name, doc)
    def of_two(x1, x2, /):
        try:
            return apply(x1, x2)
        except FnxError as error:
            hide_frames(error)
            raise

    @named(name, doc)
    def of_many(*args, out=None, where=None):
        try:
            return apply(*ufunc_operands(name, args, 2, out, where))
        except FnxError as error:
            hide_frames(error)
            raise

    return of_many if many else of_two


def float_binary(name: str, prim: Any, doc: str) -> Callable:
    @named(name, doc)
    def fn(x1, x2, /):
        try:
            return prim(*fit(name, promote_inexact(name, x1, x2)))
        except FnxError as error:
            hide_frames(error)
            raise

    return fn


def zero(x: Array) -> ConcreteArray:
    """0 in the dtype of x."""
    return constant(0, x.dtype)


def one(x: Array) -> ConcreteArray:
    """1 in the dtype of x."""
    return constant(1, x.dtype)


def times(x: Array, value: Any) -> Array:
    """x times a number."""
    return ops.mul(x, constant(value, x.dtype, not x.shape))


def without_complex(name: str, *xs: Array) -> None:
    """Raises TypeMismatch, a ValueError too, for complex numbers, of which `name` is not defined.

    NumPy and SciPy, which evaluate some functions, have an order of them, or drop imaginary parts.
    """
    for x in xs:
        if dtypes.is_complex(x.dtype):
            wrong = f"{name} of dtype {x.dtype} is not defined; expected real numbers"
            raise of_both(TypeMismatch, ValueError, wrong)


def truth(x: Any, name: str = "function") -> Array:
    """Whether elements are not zero."""
    x = to_array(x, name)
    return x if x.dtype == dtypes.bool_ else ops.ne(x, ops.constant(0, x))


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
subtract = binary(
    "subtract",
    ops.sub,
    """x1 - x2, element by element.

    >>> jnp.subtract(jnp.arange(3), 1)
    Array([-1,  0,  1], dtype=int64)
    """,
    many=True,
)
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
true_divide = float_binary(
    "divide",
    ops.div,
    """x1 / x2, in floating point.

    >>> jnp.divide(jnp.array([1, 6]), 4)
    Array([0.25, 1.5 ], dtype=float64)
    """,
)
divide = true_divide


def negative(*args, out=None, where=None):
    """-x.

    TypeError for bools.

    >>> jnp.negative(jnp.array([1, -2]))
    Array([-1,  2], dtype=int64)
    """
    x = to_array(*ufunc_operands("negative", args, 1, out, where), "negative")
    if x.dtype == dtypes.bool_:
        raise TypeMismatch("negative of a bool array; use ~x, or convert it with .astype(int)")
    return ops.neg(x)


def positive(x, /):
    """+x.

    >>> jnp.positive(jnp.array([1, -2]))
    Array([ 1, -2], dtype=int64)
    """
    return to_array(x, "positive")


def sign(x, /):
    """-1, 0 or 1 by the sign of x; x / |x| for complex numbers.

    TypeError for bools.

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
    return x if dtypes.kind(x.dtype) in "bu" else ops.abs_(x)


abs = absolute


def fabs(x, /):
    """The absolute value as a float.

    >>> jnp.fabs(jnp.array([1, -2]))
    Array([1., 2.], dtype=float64)
    """
    (x,) = promote_inexact("fabs", x)
    without_complex("fabs", x)
    return ops.abs_(x)


def square(x, /):
    """x * x.

    >>> jnp.square(3.0)
    Array(9., dtype=float64, weak_type=True)
    """
    x = to_array(x, "square")
    return ops.square(convert(x, dtypes.int32) if x.dtype == dtypes.bool_ else x)


def reciprocal(x, /):
    """1 / x, in floating point.

    >>> jnp.reciprocal(jnp.array([2, 8]))
    Array([0.5  , 0.125], dtype=float64)
    """
    (x,) = promote_inexact("reciprocal", x)
    return ops.IntegerPow(-1)(x)


def float_power(x, y, /):
    """x ** y, with integers made floats.

    >>> jnp.float_power(jnp.array([2, 4]), -1)
    Array([0.5 , 0.25], dtype=float64)
    """
    return power(*promote_inexact("float_power", x, y))


def power(x1, x2, /):
    """x1 ** x2; one integer that is known as exponent is multiplied out, and x1 keeps its dtype.

    >>> jnp.power(2.0, 3)
    Array(8., dtype=float64, weak_type=True)
    >>> jnp.power(jnp.array([3], "int8"), jnp.asarray(2, "int64"))
    Array([9], dtype=int8)
    """
    if _is_known_integer(x2):
        return _integer_power(to_array(x1, "power"), int(x2))
    if type(x2) is float:
        special = _float_exponent(x1, x2)
        if special is not None:
            return special
    given = x1, x2  # of which Python's numbers become constants of the other's dtype
    x1, x2 = to_arrays("power", x1, x2)
    if not dtypes.is_inexact(x1.dtype) and not dtypes.is_inexact(x2.dtype):
        x, y = fit("power", promote("power", x1, x2))  # floats, of uint64 and a signed integer
        return ops.pow_(x, y) if dtypes.is_inexact(x.dtype) else _int_int_power(x, y)
    if dtypes.is_inexact(x1.dtype) and dtypes.is_integer(x2.dtype):
        result_dtype(x1, x2)  # raises where dtypes may not differ
        kept = promote("power", x1, x2)[0] if x1.weak_type else x1
        return ops.pow_(*fit("power", [kept, x2]))
    return ops.pow_(*fit("power", promote_inexact("power", *given)))


pow = power


def _is_known_integer(x: Any) -> bool:
    if isinstance(x, (int, np.integer)):
        return True
    return type(x) in (ConcreteArray, np.ndarray) and x.ndim == 0 and dtypes.is_integer(x.dtype)


def _integer_power(x: Array, n: int) -> Array:
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
    if x.weak_type:  # derivatives of a power are never weak
        return None
    if n == 0.5:
        return ops.sqrt(x)
    return ops.rsqrt(x) if n == -0.5 else _integer_power(x, int(n))


def _int_int_power(x: Array, y: Array) -> Array:
    # By squaring. Exponents of more than 7 bits overflow for all bases but -1, 0 and 1, for which a
    # smaller one with the same last bit will do.
    if x.dtype == dtypes.bool_:
        x, y = convert(x, dtypes.int32), convert(y, dtypes.int32)
    if y.dtype.itemsize > 1:
        last = ops.and_(y, one(y))
        y = select(ops.gt(y, constant(127, y.dtype)), ops.add(constant(126, y.dtype), last), y)
    # 0 to a power that is not 0 is 0, of negative ones too, whose last bits may be zeros.
    total = convert(ops.or_(*fit("power", [ops.ne(x, zero(x)), ops.eq(y, zero(y))])), x.dtype)
    for _ in range(7):
        odd = ops.ne(ops.and_(y, one(y)), zero(y))
        total = select(*fit("power", [odd, ops.mul(total, x), total]))
        x = ops.mul(x, x)
        y = ops.shift_right_logical(y, one(y))
    return total


def real(val, /):
    """The real part.

    >>> jnp.real(jnp.array([1 + 2j, 3j]))
    Array([1., 0.], dtype=float64)
    """
    x = to_array(val, "real")
    return ops.real(x) if dtypes.is_complex(x.dtype) else x


def imag(val, /):
    """The imaginary part; 0 for real numbers.

    >>> jnp.imag(jnp.array([1 + 2j, 3j]))
    Array([2., 3.], dtype=float64)
    """
    x = to_array(val, "imag")
    return (
        ops.imag(x)
        if dtypes.is_complex(x.dtype)
        else full(x.shape, zero(x) if x.weak_type else 0, x.dtype)
    )


def conjugate(x, /):
    """The complex conjugate.

    >>> jnp.conjugate(jnp.array([1 + 2j, 3j]))
    Array([1.-2.j, 0.-3.j], dtype=complex128)
    """
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
    "fabs",
    "float_power",
    "imag",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "positive",
    "pow",
    "power",
    "real",
    "reciprocal",
    "sign",
    "square",
    "subtract",
    "true_divide",
]
