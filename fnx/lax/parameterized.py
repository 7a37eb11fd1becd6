"""Elementwise functions of fnx.lax with static parameters, or of more than one primitive."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.source import warn_user
from fnx.lax.elementwise import checked, operands, stretched
from fnx.numpy.arrays.util import PYTHON, constant, integer, integers, to_array
from fnx.ops.base.broadcast import scalar_like
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.elementwise import select as choose
from fnx.ops.elementwise import special
from fnx.ops.elementwise.convert import BitcastConvertType, ConvertElementType, ReducePrecision
from fnx.ops.elementwise.convert import convert as _convert
from fnx.ops.structure.basic import broadcast_to


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Array:
    """Products of operands of equal dtypes, or of any in another dtype, `out_dtype`.

    TypeError for different dtypes without `out_dtype`.

    >>> lax.mul(jnp.array([1.0, 2.0]), 3.0)
    Array([3., 6.], dtype=float64)
    """
    x, y = operands("mul", x, y)
    if out_dtype is not None:
        x, y = (_convert(v, dtypes.canonical(out_dtype)) for v in (x, y))
    return checked(ops.mul, *stretched(x, y))


def mulhi(x: Any, y: Any, /) -> Array:
    """The upper half of the bits of products of integers, which do not fit into their dtype.

    TypeError for different dtypes, and for such as are not integers.

    >>> lax.mulhi(jnp.array([2**40]), jnp.array([2**40]))
    Array([65536], dtype=int64)
    """
    x, y = stretched(*operands("mulhi", x, y))
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
    """The complex conjugate; a real `x` becomes complex.

    >>> lax.conj(jnp.array([1 + 2j]))
    Array([1.-2.j], dtype=complex128)
    """
    x = to_array(x, "conj")
    if not dtypes.is_complex(x.dtype):
        return checked(ops.complex_, x, scalar_like(0, x))
    return ops.conj(x)


def reciprocal(x: Any) -> Array:
    """1 / x.

    >>> lax.reciprocal(jnp.array([4.0]))
    Array([0.25], dtype=float64)
    """
    x = to_array(x, "reciprocal")
    return ops.IntegerPow(-1)(x) if dtypes.is_inexact(x.dtype) else ops.div(ops.one(x), x)


def pow(x: Any, y: Any) -> Array:
    """x to the power y; y may be an integer array beside an inexact x.

    >>> lax.pow(jnp.array([2.0, 9.0]), 0.5) ** 2
    Array([2., 9.], dtype=float64)
    """
    if type(y) in PYTHON and type(x) not in PYTHON:
        x = to_array(x, "pow")
        y = constant(y, x.dtype) if type(y) is not int else to_array(y, "pow", 1)
    x, y = to_array(x, "pow"), to_array(y, "pow", 1)
    return checked(ops.pow_, *stretched(x, y))


def integer_pow(x: Any, y: int) -> Array:
    """x to the static integer power y.

    >>> lax.integer_pow(jnp.array([2.0, 3.0]), -1)
    Array([0.5       , 0.33333333], dtype=float64)
    """
    return checked(ops.IntegerPow(integer(y, "y")), to_array(x, "integer_pow"))


def betainc(a: Any, b: Any, x: Any) -> Array:
    """The regularized incomplete beta function.

    >>> lax.betainc(1.0, 1.0, jnp.array([0.25]))
    Array([0.25], dtype=float64)
    """
    return checked(special.regularized_incomplete_beta, *stretched(*operands("betainc", a, b, x)))


def round(x: Any, rounding_method: int = 0) -> Array:
    """To an integer: halves away from zero (0) or to the even one (1).

    >>> lax.round(jnp.array([0.5, 1.5])), lax.round(jnp.array([0.5, 1.5]), 1)
    (Array([1., 2.], dtype=float64), Array([0., 2.], dtype=float64))
    """
    method = integer(rounding_method, "rounding_method")
    if method not in (0, 1):
        raise InvalidValue(
            f"round with rounding_method={method}; expected 0 (away from zero) or 1 (to even)"
        )
    return checked(ops.Round(method), to_array(x, "round"))


def clamp(min: Any, x: Any, max: Any) -> Array:
    """x where it lies between min and max, else the nearer of them.

    >>> lax.clamp(0.0, jnp.array([-1.0, 0.5, 2.0]), 1.0)
    Array([0. , 0.5, 1. ], dtype=float64)
    """
    low, x, high = operands("clamp", min, x, max)
    return checked(choose.clamp, low, x, high)


def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """`on_true` where `pred` holds, else `on_false`; of equal dtypes and shapes.

    >>> lax.select(jnp.array([True, False]), jnp.array([1, 2]), jnp.array([10, 20]))
    Array([ 1, 20], dtype=int64)
    """
    on_true, on_false = _cases("select", on_true, on_false)
    return checked(choose.select_n, _which(pred, "select", 2), on_false, on_true)


def _cases(name: str, *cases: Any) -> list[Array]:
    """Cases as arrays of one shape."""
    found = operands(name, *cases)
    ranks = {bool(x.shape) for x in found}
    if len(ranks) > 1:  # which the primitive would broadcast
        raise ShapeError(
            f"{name} of cases of shapes {[x.shape for x in found]}; expected equal shapes, not numbers of "
            "rank 0 among arrays: lax.full_like"
        )
    return found


def _which(which: Any, name: str, cases: int) -> Array:
    """The number of a case; between two of them, any integer but 0 is the second."""
    x = to_array(which, name)
    if x.dtype.kind not in "iu":
        return x
    return (
        choose.ne(x, constant(0, x.dtype)) if cases == 2 else convert_element_type(x, dtypes.int32)
    )


def select_n(which: Any, *cases: Any) -> Array:
    """`cases[which]`, element by element; `which` is of bool or integers.

    ValueError without cases; ShapeError and TypeError for cases that differ.

    >>> lax.select_n(jnp.array([0, 2]), jnp.array([1, 2]), jnp.array([3, 4]), jnp.array([5, 6]))
    Array([1, 6], dtype=int64)
    """
    if not cases:
        raise InvalidValue("select_n needs at least one case")
    return checked(
        choose.select_n, _which(which, "select_n", len(cases)), *_cases("select_n", *cases)
    )


def convert_element_type(operand: Any, new_dtype: Any) -> Array:
    """The values in another dtype, as C converts numbers.

    >>> lax.convert_element_type(jnp.array([1.7, -1.7]), jnp.int32)
    Array([ 1, -1], dtype=int32)
    """
    from fnx.numpy.arrays.util import convert, strong

    dtype = dtypes.canonical(new_dtype)
    if type(operand) is int and dtypes.is_inexact(dtype):
        operand = float(operand)  # which may be more than 64 bits hold
    x = to_array(operand, "convert_element_type")
    if dtypes.is_complex(x.dtype) and not dtypes.is_complex(dtype):
        text = f"complex numbers become {dtype} without their imaginary parts; take lax.real first"
        warn_user(text, np.exceptions.ComplexWarning)
        x = ops.real(x)
    return strong(convert(x, dtype))


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Array:
    """The same bits in another dtype; a wider or narrower one takes or gives a last axis.

    >>> lax.bitcast_convert_type(jnp.float32(1.0), jnp.uint32)
    Array(1065353216, dtype=uint32)
    """
    x = to_array(operand, "bitcast_convert_type")
    dtype = dtypes.canonical(new_dtype)
    return x if x.dtype == dtype else BitcastConvertType(dtype)(x)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Array:
    """The values rounded to a float format with so many bits.

    >>> lax.reduce_precision(jnp.array([1.01]), exponent_bits=8, mantissa_bits=2)
    Array([1.], dtype=float64)
    """
    bits = integers((exponent_bits, mantissa_bits), "exponent_bits and mantissa_bits")
    if bits[0] < 1 or bits[1] < 0:
        raise InvalidValue(
            f"reduce_precision to {bits} exponent and mantissa bits; expected at least (1, 0)"
        )
    return ReducePrecision(*bits)(to_array(operand, "reduce_precision"))


def stop_gradient(x: Any) -> Any:
    """The leaves of a pytree with derivatives zero.

    TypeError for a function.

    >>> fnx.grad(lambda x: x * fnx.lax.stop_gradient(x))(3.0)
    Array(3., dtype=float64, weak_type=True)
    """
    from fnx.pytree import operations

    def stop(leaf: Any) -> Any:
        if isinstance(leaf, (Array, np.ndarray, float, complex)):
            leaf = to_array(leaf, "stop_gradient")
            return ops.stop_gradient(leaf) if dtypes.is_inexact(leaf.dtype) else leaf
        if callable(leaf):
            raise TypeMismatch(f"stop_gradient of a function, {leaf!r:.60}; expected arrays")
        return leaf

    return operations.tree_map(stop, x)


def full(shape: Any, fill_value: Any, dtype: Any = None, *, sharding: Any = None) -> Array:
    """An array of one value.

    >>> lax.full((2,), 7.0)
    Array([7., 7.], dtype=float64, weak_type=True)
    """
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
    """An array of one value with the shape and dtype of `x`, unless they are given.

    >>> lax.full_like(jnp.arange(2), 7)
    Array([7, 7], dtype=int64)
    """
    del sharding
    x = x if hasattr(x, "weak_type") else to_array(x, "full_like")
    weak = dtype is None and x.weak_type
    out = full(x.shape if shape is None else shape, fill_value, x.dtype if dtype is None else dtype)
    return ConvertElementType(out.dtype, True)(out) if weak and not out.weak_type else out


__all__ = [
    "betainc",
    "bitcast_convert_type",
    "clamp",
    "conj",
    "convert_element_type",
    "full",
    "full_like",
    "integer_pow",
    "mul",
    "mulhi",
    "pow",
    "reciprocal",
    "reduce_precision",
    "round",
    "select",
    "select_n",
    "stop_gradient",
]
