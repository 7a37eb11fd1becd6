"""Rounding and clipping, element by element; nan replaced."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.numpy.arrays.traced_cache import replayed
from fnx.numpy.arrays.util import (
    constant,
    convert,
    floats,
    integer,
    named,
    no_out,
    select,
    strong,
    to_array,
    type_of_any,
)
from fnx.numpy.elementwise.arithmetic import maximum, minimum, where3, zero
from fnx.numpy.elementwise.logic import isneginf, isposinf
from fnx.ops.elementwise import arithmetic as ops

# --- rounding -----------------------------------------------------------------------------------


def _rounding(name: str, prim: Any, doc: str, ints_stay: bool = True) -> Callable:
    @named(name, doc)
    def fn(x, /):
        x = to_array(x, name)
        if ints_stay and not dtypes.is_inexact(x.dtype):
            return x
        x = floats(name, x)
        if dtypes.is_complex(x.dtype):
            if name in ("floor", "ceil"):
                raise TypeMismatch(f"{name} of dtype {x.dtype}; complex numbers have no order")
            return ops.complex_(prim(ops.real(x)), prim(ops.imag(x)))
        return prim(x)

    return fn


floor = _rounding(
    "floor",
    ops.floor,
    """The largest integer not above x.

    >>> jnp.floor(jnp.array([1.5, -1.5]))
    Array([ 1., -2.], dtype=float64)
    """,
)
ceil = _rounding(
    "ceil",
    ops.ceil,
    """The smallest integer not below x.

    >>> jnp.ceil(jnp.array([1.5, -1.5]))
    Array([ 2., -1.], dtype=float64)
    """,
)
rint = _rounding(
    "rint",
    ops.Round(1),
    """The nearest integer, halves to the even one.

    >>> jnp.rint(jnp.array([0.5, 1.5, 1.6]))
    Array([0., 2., 2.], dtype=float64)
    """,
    False,
)


def trunc(x):
    """x without its fraction.

    >>> jnp.trunc(jnp.array([1.5, -1.5]))
    Array([ 1., -1.], dtype=float64)
    """
    x = to_array(x, "trunc")
    if not dtypes.is_inexact(x.dtype):
        return x
    return select(ops.lt(x, zero(x)), ops.ceil(x), ops.floor(x))


fix = trunc


def round(a, decimals=0, out=None):
    """To `decimals` decimals, halves to the even digit.

    TypeError for bools; NotImplementedError for integers to tens and the like.

    >>> jnp.round(1.256, 2)
    Array(1.26, dtype=float64, weak_type=True)
    """
    no_out("round", out)
    x, decimals = to_array(a, "round"), integer(decimals, "decimals of round")
    if dtypes.is_integer(x.dtype):
        if decimals < 0:
            raise NotImplementedError("round of integers to tens, hundreds, ... is not implemented")
        return x
    if x.dtype == dtypes.bool_:
        raise TypeMismatch("round of a bool array; convert it first")
    if decimals == 0:
        return rint(x)
    if dtypes.is_complex(x.dtype):
        return ops.complex_(round(ops.real(x), decimals), round(ops.imag(x), decimals))
    wide = convert(x, dtypes.float32) if x.dtype.itemsize < 4 else x
    limit = int(np.log10(float(np.finfo(wide.dtype).max)))
    if decimals > limit:
        return x  # beyond all digits
    factor = constant(10.0 ** max(decimals, -limit), wide.dtype)
    large = ops.mul(wide, factor)
    rounded = ops.div(ops.Round(1)(large), factor)
    out = convert(select(ops.is_finite(large), rounded, wide), x.dtype)
    return strong(out) if out.shape else out


around = round


def clip(arr=None, /, min=None, max=None, *, a=None, a_min=None, a_max=None):
    """Values below `min` become `min`, above `max` become `max`.

    ValueError for complex numbers.

    >>> jnp.clip(5.0, 0.0, 2.0)
    Array(2., dtype=float64, weak_type=True)
    """
    arr = a if arr is None else arr
    min = a_min if min is None else min
    max = a_max if max is None else max
    x = to_array(arr, "clip")
    for given in (x, min, max):
        if given is not None and dtypes.is_complex(type_of_any(given)[0]):
            raise InvalidValue(
                "clip of complex numbers, which have no order; clip x.real and x.imag"
            )
    if min is not None:
        x = maximum(min, x)
    if max is not None:
        x = minimum(max, x)
    return x


# --- nan and closeness -------------------------------------------------------------------------


@replayed("nan", "posinf", "neginf")
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """nan becomes `nan`, infinities the largest finite numbers or what is given.

    One after the other, as in JAX: an infinite `nan` becomes finite with the other infinities.

    >>> jnp.nan_to_num(jnp.array([1.0, jnp.nan, jnp.inf]), posinf=9.0)
    Array([1., 0., 9.], dtype=float64)
    """
    del copy
    x = to_array(x, "nan_to_num")
    if not dtypes.is_inexact(x.dtype):
        return x
    if dtypes.is_complex(x.dtype):
        parts = [nan_to_num(p, True, nan, posinf, neginf) for p in (ops.real(x), ops.imag(x))]
        return ops.complex_(*parts)
    info = dtypes.finfo(x.dtype)
    high = float(info.max) if posinf is None else posinf
    low = float(info.min) if neginf is None else neginf
    out = where3(ops.ne(x, x), convert(nan, x.dtype), x)
    out = where3(isposinf(out), convert(high, x.dtype), out)
    return where3(isneginf(out), convert(low, x.dtype), out)


__all__ = ["around", "ceil", "clip", "fix", "floor", "nan_to_num", "rint", "round", "trunc"]
