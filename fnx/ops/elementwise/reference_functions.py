"""What elementwise primitives compute where NumPy has no function of that meaning."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr

_UNSIGNED = {np.dtype(f"i{k}"): np.dtype(f"u{k}") for k in (1, 2, 4, 8)}


def div(x: np.ndarray, y: np.ndarray) -> Any:
    """Of integers, truncated; -1 (all bits) where y is 0."""
    dtype = x.dtype
    if dtype.kind not in "iu":
        return np.divide(x, y)
    quotient = np.floor_divide(x, y)
    if dtype.kind == "i":
        # floor is one less than truncation where it is inexact and negative
        quotient = quotient + ((quotient < 0) & (quotient * y != x))
    return np.where(y == 0, np.array(-1).astype(dtype), quotient)


def rem(x: np.ndarray, y: np.ndarray) -> Any:
    """With the sign of x; of integers, x where y is 0."""
    out = np.fmod(x, y)
    return np.where(y == 0, x, out) if x.dtype.kind in "iu" else out


def integer_pow(x: np.ndarray, n: int) -> Any:
    """By repeated squaring; the reciprocal for negative n."""
    if n == 0:
        return np.ones_like(x)
    power, factor, k = None, x, abs(n)
    while True:
        if k & 1:
            power = factor if power is None else np.multiply(power, factor)
        k >>= 1
        if not k:
            break
        factor = np.multiply(factor, factor)
    return np.divide(x.dtype.type(1), power) if n < 0 else power


def round_away(x: np.ndarray) -> Any:
    """To the nearest integer, halves away from zero."""
    whole = np.trunc(x)
    # x - whole is exact, unlike x + 0.5
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(x.dtype.type(1), x), whole)


def round_away_expr(a: expr.Expr, dtype: str) -> expr.Expr:
    """The same, as an expression."""
    whole = expr.apply("trunc", a)
    far = expr.compare("ge", expr.apply("abs", expr.sub(a, whole)), expr.const(0.5, dtype))
    return expr.select(far, expr.add(whole, expr.apply("sign", a)), whole)


def rsqrt(x: np.ndarray) -> Any:
    return np.divide(x.dtype.type(1), np.sqrt(x))


def cbrt(x: np.ndarray) -> Any:
    return np.cbrt(x)


def exp2(x: np.ndarray) -> Any:
    if x.dtype.kind != "c":
        return np.exp2(x)
    octave = x.real.dtype.type(np.log(2.0))  # times each part: infinities make no NaN
    return np.exp(complex_(x.real * octave, x.imag * octave))


def expm1(x: np.ndarray) -> Any:
    near = np.expm1(x)
    if x.dtype.kind != "c":
        return near
    # NumPy multiplies infinities with zeros
    return np.where(abs(x.real) < 1, near, np.exp(x) - x.dtype.type(1))


def log10(x: np.ndarray) -> Any:
    """In float64: NumPy's float32 is not exact at powers of ten."""
    return np.log10(x, dtype=np.float64).astype(x.dtype)


def log1p(x: np.ndarray) -> Any:
    far = np.log1p(x)
    if x.dtype.kind != "c":
        return far
    a, b = x.real, x.imag
    small = (abs(a) < 0.5) & (abs(b) < 0.5)  # of these NumPy rounds 1 + x first
    near = 0.5 * np.log1p(np.where(small, a * (2 + a) + b * b, 0))
    return np.asarray(complex_(np.where(small, near, far.real).astype(a.dtype), far.imag))


def logistic(x: np.ndarray) -> Any:
    one = x.dtype.type(1)
    return np.divide(one, np.add(one, np.exp(np.negative(x))))


def real(x: np.ndarray) -> Any:
    return x.real.copy()


def imag(x: np.ndarray) -> Any:
    return x.imag.copy()


def complex_(x: np.ndarray, y: np.ndarray) -> Any:
    out = np.empty(x.shape or y.shape, dtypes.complex_of(x.dtype))
    out.real = x
    out.imag = y
    return out


def shift_right_arithmetic(x: np.ndarray, y: np.ndarray) -> Any:
    """The sign is shifted in, for unsigned integers too; by the width or more, all of it."""
    signed = np.dtype(f"i{x.dtype.itemsize}")
    return np.asarray(np.right_shift(x.view(signed), y.view(signed))).view(x.dtype)


def shift_right_logical(x: np.ndarray, y: np.ndarray) -> Any:
    """Zeros are shifted in."""
    unsigned = _UNSIGNED.get(x.dtype, x.dtype)
    return np.asarray(np.right_shift(x.view(unsigned), y.view(unsigned))).view(x.dtype)


def population_count(x: np.ndarray) -> Any:
    return np.bitwise_count(x.view(_UNSIGNED.get(x.dtype, x.dtype))).astype(x.dtype)


def clz(x: np.ndarray) -> Any:
    """The number of zero bits above the highest one."""
    bits = x.view(_UNSIGNED.get(x.dtype, x.dtype))
    width, shift = x.dtype.itemsize * 8, 1
    while shift < width:
        bits = bits | (bits >> bits.dtype.type(shift))
        shift *= 2
    return (width - np.bitwise_count(bits)).astype(x.dtype)
