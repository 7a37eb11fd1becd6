"""Division of integers and floats into quotient and remainder; common divisors and multiples."""

from typing import Any

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.numpy.arrays.public_calls import as_one
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    beside_constants,
    broadcast_arrays,
    convert,
    eager,
    fit,
    promote,
    select,
    transformation,
)
from fnx.numpy.elementwise.arithmetic import absolute, one, zero
from fnx.ops.elementwise import arithmetic as ops
from fnx.ops.reduction.reduction import ReduceOr


@replayed("x1", "x2")
@as_one
def floor_divide(x1, x2, /):
    """The largest integer not above x1 / x2.

    TypeError for complex numbers.

    >>> jnp.floor_divide(jnp.array([7, -7]), 2)
    Array([ 3, -4], dtype=int64)
    """
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
    """Where an operand is infinite the quotient is floor(x / y), as the array API standard has it."""
    r = ops.rem(x, y)
    multiple = ops.sub(x, r)
    multiple = select(ops.eq(multiple, zero(x)), ops.mul(x, zero(x)), multiple)  # 0 with x's sign
    direct = ops.or_(ops.ne(r, r), ops.not_(ops.is_finite(y)))
    q = ops.div(select(direct, x, multiple), y)
    below = ops.and_(_signs_differ(r, y), ops.not_(direct))
    return ops.Round(0)(select(below, ops.sub(q, one(q)), q)), _with_sign_of(r, y)


def _signs_differ(r: Array, y: Array) -> Array:
    return ops.and_(ops.ne(ops.lt(r, zero(r)), ops.lt(y, zero(y))), ops.ne(r, zero(r)))


def _with_sign_of(r: Array, y: Array) -> Array:
    """The remainder of a floored division, from that of a truncated one; zeros have y's sign.

    -0 + 0 is 0, and a derivative goes through that, so signs are those of a division by |y|.
    """
    sign = select(ops.lt(y, zero(y)), ops.neg(one(y)), one(y))
    back = select(_signs_differ(r, y), ops.mul(sign, y), zero(y))
    return ops.mul(sign, ops.add(ops.mul(sign, r), back))


@replayed("x1", "x2")
def remainder(x1, x2, /):
    """x1 - x2 * floor(x1 / x2): has the sign of x2, zeros too.

    >>> jnp.remainder(jnp.array([7, -7]), 3)
    Array([1, 2], dtype=int64)
    """
    x, y = fit("remainder", numbers("remainder", x1, x2))
    kind = dtypes.kind(x.dtype)
    if kind in "iu":
        y = select(ops.eq(y, zero(y)), one(y), y)
    r = ops.rem(x, y)
    if kind == "u":
        return r
    if kind == "f":
        return _with_sign_of(r, y)
    return select(_signs_differ(r, y), ops.add(r, y), r)


mod = remainder


def fmod(x1, x2, /):
    """The remainder of x1 / x2 with the sign of x1.

    >>> jnp.fmod(jnp.array([7, -7]), 3)
    Array([ 1, -1], dtype=int64)
    """
    x, y = fit("fmod", numbers("fmod", x1, x2))
    if dtypes.is_integer(x.dtype):
        y = select(ops.eq(y, zero(y)), one(y), y)
    return ops.rem(x, y)


@replayed("x1", "x2")
@as_one
def divmod(x1, x2, /):
    """(floor_divide(x1, x2), remainder(x1, x2)).

    >>> jnp.divmod(jnp.array([7, -7]), 3)
    (Array([ 2, -3], dtype=int64), Array([1, 2], dtype=int64))
    """
    x, y = fit("divmod", numbers("divmod", x1, x2))
    if dtypes.is_float(x.dtype):
        return _float_divmod(x, y)
    return floor_divide(x, y), remainder(x, y)


def _magnitude(x: Array) -> Array:
    """That of the least integer of a dtype is itself, and so are remainders by it negative."""
    return ops.abs_(x) if dtypes.kind(x.dtype) == "i" else x


def gcd(x1, x2):
    """The greatest common divisor.

    Raises TypeMismatch, a TypeError, for floats.

    >>> jnp.gcd(jnp.array([12, 20]), 8)
    Array([4, 4], dtype=int64)
    """
    x, y = fit("gcd", promote("gcd", x1, x2))
    _need_integers("gcd", x)
    x, y = broadcast_arrays("gcd", [_magnitude(x), _magnitude(y)])

    def step(pair: tuple) -> tuple:  # of Euclid's algorithm
        x, y = pair
        done = ops.eq(y, zero(y))
        return select(done, x, y), select(done, y, ops.rem(x, select(done, one(y), y)))

    if not (isinstance(x, Tracer) or isinstance(y, Tracer)) and eager():
        while y._value.any():  # type: ignore[attr-defined]
            x, y = step((x, y))
        return beside_constants(_magnitude(x))
    left = lambda pair: ReduceOr(tuple(range(y.ndim)))(ops.ne(pair[1], zero(pair[1])))
    if not y.ndim:
        left = lambda pair: ops.ne(pair[1], zero(pair[1]))
    return beside_constants(_magnitude(transformation("while_loop")(left, step, (x, y))[0]))


def lcm(x1, x2):
    """The least common multiple.

    Raises TypeMismatch, a TypeError, for floats.

    >>> jnp.lcm(jnp.array([4, 6]), 10)
    Array([20, 30], dtype=int64)
    """
    x, y = fit("lcm", promote("lcm", x1, x2))
    divisor = gcd(x, y)
    safe = select(ops.eq(divisor, zero(divisor)), one(divisor), divisor)
    # It overflows as NumPy's does.
    return beside_constants(ops.mul(absolute(x), ops.div(absolute(y), safe)))


def _need_integers(name: str, x: Array) -> None:
    if not dtypes.is_integer(x.dtype):
        raise TypeMismatch(f"{name} needs integers, not dtype {x.dtype}")


__all__ = [
    "divmod",
    "floor_divide",
    "fmod",
    "gcd",
    "lcm",
    "mod",
    "remainder",
]
