"""Numbers of 2, 4 and 8 bits as the bytes that they are kept as, by integers.

What differs between the formats is read off `ml_dtypes`: how many bits exponent and mantissa have, and
what the bytes beyond the finite numbers stand for.
"""

from functools import lru_cache
from typing import NamedTuple

import ml_dtypes
import numpy as np

from fnx.core import scalar
from fnx.core.dtypes import COMPUTED as COMPUTED
from fnx.core.dtypes import byte, of_name
from fnx.core.scalar import Expr

_MANTISSA, _BIAS = 23, 127  # of float32


class Format(NamedTuple):
    """A small float: widths, and the bytes of what is no finite number."""

    mantissa: int
    bias: int
    sign: int  # the byte with this bit alone; 0: no number is negative
    largest: int  # the byte of the largest number
    beyond: int  # what larger ones become
    nan: int
    has_negative_zero: bool
    has_zero: bool


@lru_cache(maxsize=64)
def _format(name: str) -> Format:
    dtype = of_name(name)
    info = ml_dtypes.finfo(dtype)
    sign = 0 if name == "float8_e8m0fnu" else 1 << (info.bits - 1)
    zero = np.array(sign, np.uint8).view(dtype).astype(np.float32)
    return Format(
        mantissa=info.nmant,
        bias=1 - int(info.minexp) if sign else _BIAS,
        sign=sign,
        largest=byte(float(info.max), name),
        beyond=byte(np.inf, name),
        nan=byte(np.nan, name),
        has_negative_zero=bool(zero == 0 and np.signbit(zero)),
        has_zero=byte(0.0, name) == 0 and sign > 0,
    )


def _f(op: str, *args: Expr) -> Expr:
    return scalar.apply(op, *args)


def _n(value: int) -> Expr:
    return scalar.const(value, "uint32")


def decoded(x: Expr) -> Expr:
    """A number of a small format in the dtype in which it is computed."""
    wide, raw = COMPUTED[x.dtype], scalar.bitcast(x, "uint8")
    if wide == "float32":
        return _float_of(scalar.cast(raw, "uint32"), x.dtype)
    unused = scalar.const(8 - _bits(x.dtype), wide)
    shift = "shift_right_arithmetic" if wide == "int8" else "shift_right_logical"
    return _f(shift, _f("shift_left", scalar.bitcast(raw, wide), unused), unused)


def _bits(name: str) -> int:
    return int(name[-1])


def _float_of(raw: Expr, name: str) -> Expr:
    form = _format(name)
    m, bias = form.mantissa, form.bias
    size = _f("and", raw, _n(form.sign - 1)) if form.sign else raw
    wide = _f("shift_left", size, _n(_MANTISSA - m))
    normal = scalar.bitcast(_f("add", wide, _n((_BIAS - bias) << _MANTISSA)), "float32")
    if form.has_zero:  # below the normal numbers, a multiple of the smallest
        step = scalar.const(2.0 ** (1 - bias - m), "float32")
        small = _f("mul", scalar.cast(size, "float32"), step)
        value = scalar.select(_f("lt", size, _n(1 << m)), small, normal)
    else:
        value = scalar.select(_f("eq", size, _n(0)), scalar.const(2.0**-bias, "float32"), normal)
    above = _f("gt", size, _n(form.largest))
    infinite = form.beyond != form.nan and form.beyond != form.largest
    last = np.inf if infinite else np.nan
    value = scalar.select(above, scalar.const(last, "float32"), value)
    nan = scalar.const(np.nan, "float32")
    if infinite:
        value = scalar.select(_f("gt", size, _n(form.beyond)), nan, value)
    if form.sign:
        negative = _f("ne", _f("and", raw, _n(form.sign)), _n(0))
        value = scalar.select(negative, _f("neg", value), value)
        if not form.has_negative_zero:
            value = scalar.select(_f("eq", raw, _n(form.sign)), nan, value)
    return value


def encoded(x: Expr, name: str) -> Expr:
    """A number in a small format: integers wrap, floats saturate or become what stands for more.

    `x` is of any real dtype for the small integers, and a float32 for small floats.
    """
    wide = COMPUTED[name]
    if wide == "float32":
        return scalar.bitcast(scalar.cast(_byte_of(x, name), "uint8"), name)
    whole = scalar.cast(x, wide)
    if "float" in x.dtype:
        info = ml_dtypes.iinfo(of_name(name))
        whole = _f("min", whole, scalar.const(int(info.max), wide))
        if info.min:
            whole = _f("max", whole, scalar.const(int(info.min), wide))
    used = scalar.const((1 << _bits(name)) - 1, "uint8")
    return scalar.bitcast(_f("and", scalar.bitcast(whole, "uint8"), used), name)


def _byte_of(x: Expr, name: str) -> Expr:
    form = _format(name)
    m, bias, drop = form.mantissa, form.bias, _MANTISSA - form.mantissa
    raw = scalar.bitcast(x, "uint32")
    size = _f("and", raw, _n(0x7FFFFFFF))
    value = scalar.bitcast(size, "float32")
    # normal: the exponent rebiased, rounded at the last bit that stays
    odd = _f("and", _f("shift_right_logical", size, _n(drop)), _n(1))
    if not m:
        odd = _n(1)  # of two powers of two none is even
    rebased = _f("sub", size, _n((_BIAS - bias) << _MANTISSA))
    up = _f("add", _f("add", rebased, _n((1 << (drop - 1)) - 1)), odd)
    found = _f("shift_right_logical", up, _n(drop))
    if form.has_zero:
        # subnormal: the sum with this number has the result in its last bits, rounded by the addition
        magic = np.float32(2.0 ** (_MANTISSA - m - bias + 1))
        low = _f("add", value, scalar.const(float(magic), "float32"))
        small = _f("sub", scalar.bitcast(low, "uint32"), _n(int(magic.view(np.uint32))))
        least = scalar.const(2.0 ** (1 - bias), "float32")
        found = scalar.select(_f("lt", value, least), small, found)
    # Numbers are compared, not bytes: below the smallest exponent the difference above wraps.
    limit = np.array(form.largest, np.uint8).view(of_name(name)).astype(np.float64)
    above = _f("ge", value, scalar.const(float(min(2 * limit, 2.0**127)), "float32"))
    above = _f("or", above, _f("gt", found, _n(form.largest)))
    found = scalar.select(above, _n(form.beyond), found)
    found = scalar.select(_f("ne", x, x), _n(form.nan), found)
    negative = _f("ne", _f("and", raw, _n(0x80000000)), _n(0))
    if not form.sign:
        least = scalar.const(1.5 * 2.0**-bias, "float32")  # below: the smallest, of byte 0
        found = scalar.select(_f("lt", value, least), _n(0), found)
        outside = _f("or", negative, _f("eq", value, scalar.const(0.0, "float32")))
        return scalar.select(outside, _n(form.nan), found)
    signed = _f("or", found, _n(form.sign))
    if not form.has_negative_zero:
        signed = scalar.select(_f("eq", found, _n(0)), found, signed)
    return scalar.select(negative, signed, found)
