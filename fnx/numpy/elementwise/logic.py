"""Tests, comparisons, logic and bits, element by element."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    constant,
    convert,
    fit,
    named,
    no_out,
    promote,
    promote_inexact,
    select,
    shown,
    to_array,
    ufunc_operands,
)
from fnx.numpy.elementwise.arithmetic import (
    absolute,
    add,
    binary,
    imag,
    multiply,
    truth,
    where3,
    without_complex,
)
from fnx.numpy.elementwise.division import numbers
from fnx.ops.base.broadcast import full
from fnx.ops.elementwise import arithmetic as ops

# --- tests, comparisons, logic ------------------------------------------------------------------


def isfinite(x, /):
    """Whether x is neither infinite nor nan.

    >>> jnp.isfinite(jnp.array([1.0, jnp.inf]))
    Array([ True, False], dtype=bool)
    """
    x = to_array(x, "isfinite")
    kind = dtypes.kind(x.dtype)
    if kind == "f":
        return ops.is_finite(x)
    if kind == "c":
        return ops.and_(ops.is_finite(ops.real(x)), ops.is_finite(ops.imag(x)))
    return full(x.shape, True, dtypes.bool_)


def isnan(x, /):
    """Whether x is nan.

    >>> jnp.isnan(jnp.array([1.0, jnp.nan]))
    Array([False,  True], dtype=bool)
    """
    x = to_array(x, "isnan")
    return ops.ne(x, x) if dtypes.is_inexact(x.dtype) else full(x.shape, False, dtypes.bool_)


def isinf(x, /):
    """Whether x is an infinity.

    >>> jnp.isinf(jnp.array([1.0, -jnp.inf, jnp.nan]))
    Array([False,  True, False], dtype=bool)
    """
    x = to_array(x, "isinf")
    kind = dtypes.kind(x.dtype)
    if kind == "f":
        return ops.eq(ops.abs_(x), constant(math.inf, x.dtype, False))
    if kind == "c":
        return ops.or_(isinf(ops.real(x)), isinf(ops.imag(x)))
    return full(x.shape, False, dtypes.bool_)


def isposinf(x, /, out=None):
    """Whether x is plus infinity.

    >>> jnp.isposinf(jnp.array([jnp.inf, -jnp.inf]))
    Array([ True, False], dtype=bool)
    """
    no_out("isposinf", out)
    x = to_array(x, "isposinf")
    without_complex("isposinf", x)
    if not dtypes.is_inexact(x.dtype):
        return full(x.shape, False, dtypes.bool_)
    return ops.eq(x, constant(math.inf, x.dtype, False))


def isneginf(x, /, out=None):
    """Whether x is minus infinity.

    >>> jnp.isneginf(jnp.array([jnp.inf, -jnp.inf]))
    Array([False,  True], dtype=bool)
    """
    no_out("isneginf", out)
    x = to_array(x, "isneginf")
    without_complex("isneginf", x)
    if not dtypes.is_inexact(x.dtype):
        return full(x.shape, False, dtypes.bool_)
    return ops.eq(x, constant(-math.inf, x.dtype, False))


def isreal(x):
    """Whether the imaginary part is 0.

    >>> jnp.isreal(jnp.array([1.0, 1j]))
    Array([ True, False], dtype=bool)
    """
    y = imag(x)
    return ops.eq(y, ops.constant(0, y))


def iscomplex(x):
    """Whether the imaginary part is not 0.

    >>> jnp.iscomplex(jnp.array([1.0, 1j]))
    Array([False,  True], dtype=bool)
    """
    y = imag(x)
    return ops.ne(y, ops.constant(0, y))


def _comparison(name: str, prim: Any, strict: Any, what: str, gives: str) -> Callable:
    @named(name, shown(what, f"jnp.{name}(jnp.arange(3), 1)", gives, "bool"))
    def fn(x, y, /):
        x, y = fit(name, promote(name, x, y))
        if strict is not None and dtypes.is_complex(x.dtype):
            same = ops.eq(ops.real(x), ops.real(y))
            later = prim(ops.imag(x), ops.imag(y))
            return select(same, later, strict(ops.real(x), ops.real(y)))
        return prim(x, y)

    return fn


equal = _comparison("equal", ops.eq, None, "x == y, element by element.", "[False,  True, False]")
not_equal = _comparison(
    "not_equal", ops.ne, None, "x != y, element by element.", "[ True, False,  True]"
)
less = _comparison(
    "less",
    ops.lt,
    ops.lt,
    "x < y; complex numbers by real, then imaginary part.",
    "[ True, False, False]",
)
less_equal = _comparison(
    "less_equal", ops.le, ops.lt, "x <= y, as `less`.", "[ True,  True, False]"
)
greater = _comparison("greater", ops.gt, ops.gt, "x > y, as `less`.", "[False, False,  True]")
greater_equal = _comparison(
    "greater_equal", ops.ge, ops.gt, "x >= y, as `less`.", "[False,  True,  True]"
)


def fmax(x1, x2):
    """The larger of x1 and x2; the other one where one is nan.

    >>> jnp.fmax(jnp.array([1.0, jnp.nan]), 2.0)
    Array([2., 2.], dtype=float64)
    """
    x, y = fit("fmax", promote("fmax", x1, x2))
    return where3(_or_nan(greater(x, y), x, y), x, y)


def fmin(x1, x2):
    """The smaller of x1 and x2; the other one where one is nan.

    >>> jnp.fmin(jnp.array([1.0, jnp.nan]), 2.0)
    Array([1., 2.], dtype=float64)
    """
    x, y = fit("fmin", promote("fmin", x1, x2))
    return where3(_or_nan(less(x, y), x, y), x, y)


def _or_nan(first: Array, x: Array, y: Array) -> Array:
    """Where fmax and fmin take their first operand; of equal ones they take the second, with its slope."""
    if dtypes.is_complex(x.dtype):  # one part of which may be nan
        first = ops.and_(first, ops.eq(x, x))
    return ops.or_(first, ops.ne(y, y)) if dtypes.is_inexact(y.dtype) else first


def _logical(name: str, prim: Any, what: str, gives: str) -> Callable:
    @named(name, shown(what, f"jnp.{name}(jnp.array([0, 1, 2]), True)", gives, "bool"))
    def fn(*args, out=None, where=None):
        x, y = ufunc_operands(name, args, 2, out, where)
        return prim(*fit(name, [truth(x, name), truth(y, name)]))

    return fn


logical_and = _logical(
    "logical_and", ops.and_, "Whether both are true (not 0).", "[False,  True,  True]"
)
logical_or = _logical(
    "logical_or", ops.or_, "Whether one is true (not 0).", "[ True,  True,  True]"
)
logical_xor = _logical(
    "logical_xor", ops.xor, "Whether exactly one is true (not 0).", "[ True, False, False]"
)


def logical_not(x, /):
    """Whether x is 0.

    >>> jnp.logical_not(jnp.array([True, False]))
    Array([False,  True], dtype=bool)
    """
    return ops.not_(truth(x, "logical_not"))


bitwise_and = binary(
    "bitwise_and",
    ops.and_,
    shown("The bits set in both.", "jnp.bitwise_and(jnp.array([6, 5]), 3)", "[2, 1]", "int64"),
    many=True,
)
bitwise_or = binary(
    "bitwise_or",
    ops.or_,
    shown("The bits set in one.", "jnp.bitwise_or(jnp.array([6, 5]), 3)", "[7, 7]", "int64"),
    many=True,
)
bitwise_xor = binary(
    "bitwise_xor",
    ops.xor,
    shown(
        "The bits set in exactly one.", "jnp.bitwise_xor(jnp.array([6, 5]), 3)", "[5, 6]", "int64"
    ),
    many=True,
)


def left_shift(x, y, /):
    """Bits moved up by y.

    >>> jnp.left_shift(jnp.array([1, 3]), 2)
    Array([ 4, 12], dtype=int64)
    """
    return ops.shift_left(*fit("left_shift", numbers("left_shift", x, y)))


bitwise_left_shift = left_shift


def invert(x, /):
    """All bits flipped.

    >>> jnp.invert(jnp.array([0, 5]))
    Array([-1, -6], dtype=int64)
    """
    return ops.not_(to_array(x, "invert"))


bitwise_not = bitwise_invert = invert


def right_shift(x1, x2, /):
    """Bits moved down by x2; signed integers keep their sign.

    >>> jnp.right_shift(jnp.array([8, -8]), 2)
    Array([ 2, -2], dtype=int64)
    """
    x, y = fit("right_shift", numbers("right_shift", x1, x2))
    signed = dtypes.kind(x.dtype) == "i"
    return (ops.shift_right_arithmetic if signed else ops.shift_right_logical)(x, y)


bitwise_right_shift = right_shift


def bitwise_count(x, /):
    """The number of bits set in |x|.

    >>> jnp.bitwise_count(jnp.array([7, 8]))
    Array([3, 1], dtype=uint8)
    """
    x = to_array(x, "bitwise_count")
    if x.dtype == dtypes.bool_:
        return convert(x, np.dtype("u1"))
    return convert(ops.population_count(absolute(x)), np.dtype("u1"))


@replayed("a", "b", "rtol", "atol")
def isclose(a, b, rtol=1e-05, atol=1e-08, equal_nan=False):
    """Whether |a - b| <= atol + rtol * |b|.

    >>> jnp.isclose(jnp.array([1.0, 1.1]), 1.0 + 1e-9)
    Array([ True, False], dtype=bool)
    """
    x, y = fit("isclose", promote("isclose", a, b))
    if not dtypes.is_inexact(x.dtype):
        x, y = promote_inexact("isclose", x, y)
    real_dtype = dtypes.real_of(x.dtype)
    bound = add(convert(atol, real_dtype), multiply(convert(rtol, real_dtype), absolute(y)))
    near = less_equal(absolute(ops.sub(x, y)), bound)
    both = logical_and(isfinite(x), isfinite(y))
    out = logical_or(logical_and(both, near), ops.eq(x, y))
    if equal_nan:
        out = logical_or(out, logical_and(isnan(x), isnan(y)))
    return out


__all__ = [
    "bitwise_and",
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "fmax",
    "fmin",
    "greater",
    "greater_equal",
    "invert",
    "isclose",
    "iscomplex",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "not_equal",
    "right_shift",
]
