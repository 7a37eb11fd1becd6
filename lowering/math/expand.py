"""Operations in terms of simpler ones: what both printers rewrite instead of printing.

`derived` rewrites one node where it stands. `is_function` names the operations that become functions
of their own, printed once (`body`): vector mathematics, complex functions, powers of integers.
"""

from collections.abc import Callable
from functools import lru_cache

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.math import USUAL, VMATH

from . import complex_arithmetic, complex_elementary, small_formats

COMPLEX = complex_arithmetic.FUNCTIONS | complex_elementary.FUNCTIONS
WIDE = {"float16": "float32", "bfloat16": "float32", **small_formats.COMPUTED}
_FLOATS = ("float32", "float64")
_WIDTH = {f"{u}int{n}": n for n in (8, 16, 32, 64) for u in ("", "u")}


def f(op: str, *args: Expr) -> Expr:
    return scalar.apply(op, *args)


def same(value: float, like: Expr) -> Expr:
    return scalar.const(value, like.dtype)


# --- functions of their own --------------------------------------------------------------------


def is_function(op: str, dtype: str) -> bool:
    if dtype in _FLOATS:
        return (op, dtype) in VMATH
    if dtype in ("complex64", "complex128"):
        return op in COMPLEX
    return op == "pow" and dtype in _WIDTH


def body(op: str, dtype: str, args: list[Expr]) -> Expr:
    """The value of a function for variables `args`."""
    found = VMATH.get((op, dtype)) or USUAL.get((op, dtype))
    if found is not None:
        return found(*args)
    if op in COMPLEX and dtype.startswith("complex"):
        return COMPLEX[op](*args)
    return _int_pow(*args)


def _int_pow(x: Expr, n: Expr) -> Expr:
    """x**n by the bits of n; a negative n gives the truncated quotient 1 / x**-n."""
    one, zero = same(1, x), same(0, x)
    signed = x.dtype[0] == "i"
    result, power = one, x
    for k in range(_WIDTH[x.dtype] - signed):
        bit = f("and", f("shift_right_logical", n, same(k, n)), one)
        result = scalar.select(f("ne", bit, zero), f("mul", result, power), result)
        power = f("mul", power, power)
    if not signed:
        return result
    odd = f("ne", f("and", n, one), zero)
    unit = scalar.select(odd, x, one)
    is_unit = f("or", f("eq", x, one), f("eq", x, same(-1, x)))
    inverse = scalar.select(f("eq", x, zero), same(-1, x), scalar.select(is_unit, unit, zero))
    return scalar.select(f("lt", n, zero), inverse, result)


# --- rewriting in place ------------------------------------------------------------------------


def _sign(x: Expr) -> Expr:
    zero, one = same(0, x), same(1, x)
    if x.dtype[0] == "u":
        return scalar.select(f("eq", x, zero), zero, one)
    negative = scalar.select(f("lt", x, zero), same(-1, x), x)
    return scalar.select(f("gt", x, zero), one, negative)


def power(x: Expr, n: int) -> Expr:
    """x**n by squaring."""
    result, base, k = None, x, abs(n)
    while k:
        if k & 1:
            result = base if result is None else f("mul", result, base)
        k >>= 1
        if k:
            base = f("mul", base, base)
    result = same(1, x) if result is None else result
    return f("div", same(1, x), result) if n < 0 else result


def _nextafter(x: Expr, y: Expr) -> Expr:
    """The neighbour of x in the direction of y, by its bits."""
    width = {"float64": 64, "float32": 32}.get(x.dtype, 16)
    integer = f"int{width}"
    one, sign = scalar.const(1, integer), scalar.const(-(1 << (width - 1)), integer)
    bits, other = scalar.bitcast(x, integer), scalar.bitcast(y, integer)
    zero = same(0, x)
    up = f("eq", f("lt", x, y), f("gt", x, zero))  # away from zero
    moved = scalar.select(up, f("add", bits, one), f("sub", bits, one))
    moved = scalar.select(f("eq", x, zero), f("or", f("and", other, sign), one), moved)
    result = scalar.select(f("eq", x, y), y, scalar.bitcast(moved, x.dtype))
    nan = f("or", f("ne", x, x), f("ne", y, y))
    return scalar.select(nan, same(float("nan"), x), result)


def _logistic(x: Expr) -> Expr:
    one = same(1, x)
    return f("div", one, f("add", one, f("exp", f("neg", x))))


_DERIVED: dict[str, Callable[..., Expr]] = {
    "sign": _sign,
    "square": lambda x: f("mul", x, x),
    "rsqrt": lambda x: f("div", same(1, x), f("sqrt", x)),
    "nextafter": _nextafter,
    "logistic": _logistic,
}


def _round_to_odd(x: Expr) -> Expr:
    """A float64 as float32 whose last bit is sticky, so that a second rounding is right."""
    near = scalar.cast(x, "float32")
    back = scalar.cast(near, "float64")
    bits = scalar.bitcast(near, "int32")
    one = scalar.const(1, "int32")
    beyond = f("gt", f("abs", back), f("abs", x))
    bits = f("or", f("sub", bits, scalar.cast(beyond, "int32")), one)
    inexact = f("and", f("ne", back, x), f("eq", x, x))
    # an overflow is inexact too: one below infinity is the largest number, which is odd
    return scalar.select(inexact, scalar.bitcast(bits, "float32"), near)


def _cast(x: Expr, dtype: str) -> Expr:
    if x.dtype in small_formats.COMPUTED:
        return scalar.cast(small_formats.decoded(x), dtype)
    real, imag = scalar._TO_REAL.get(x.dtype), scalar._TO_REAL.get(dtype)
    if imag:
        if real:
            re, im = complex_arithmetic.parts(x)
        else:
            re, im = x, scalar.const(0, imag)
        return f("complex", scalar.cast(re, imag), scalar.cast(im, imag))
    if real:
        re, im = complex_arithmetic.parts(x)
        if dtype == "bool":
            return f("or", scalar.cast(re, dtype), scalar.cast(im, dtype))
        return scalar.cast(re, dtype)
    kept = small_formats.COMPUTED.get(dtype)
    if kept and (kept != "float32" or x.dtype == "float32"):
        return small_formats.encoded(x, dtype)
    if x.dtype == "float64":
        return scalar.cast(_round_to_odd(x), dtype)
    wide = "float32" if x.dtype in ("int8", "uint8", "int16", "uint16") else "float64"
    return scalar.cast(scalar.cast(x, wide), dtype)


def _widened(e: Expr) -> Expr:
    args = tuple(scalar.cast(a, WIDE.get(a.dtype, a.dtype)) for a in e.args)
    if e.dtype in WIDE:
        return scalar.cast(scalar.node(e.op, WIDE[e.dtype], args, e.attr), e.dtype)
    return scalar.node(e.op, e.dtype, args, e.attr)


@lru_cache(maxsize=4096)
def is_derived(op: str, dtype: str) -> bool:
    """Whether `derived` can rewrite it."""
    if op in ("nextafter", "call") or dtype in WIDE:
        return True
    if dtype.startswith("complex"):
        return op in complex_arithmetic.DERIVED or op in ("integer_pow", "cast")
    return op in _DERIVED or op in ("integer_pow", "cast")


def derived(e: Expr) -> Expr:
    """An equal expression of simpler operations."""
    if e.op == "cast":
        return _cast(e.args[0], e.dtype)
    if e.op == "call":
        return e.attr.build(*e.args)
    dtype = e.args[0].dtype
    if e.op == "integer_pow":  # of 16 bits too each product is rounded, as elsewhere
        return power(e.args[0], e.attr)
    if dtype in WIDE and e.op != "nextafter":
        return _widened(e)
    if dtype.startswith("complex") and e.op in complex_arithmetic.DERIVED:
        return complex_arithmetic.DERIVED[e.op](*e.args)
    return _DERIVED[e.op](*e.args)


# --- 16-bit formats by integers ----------------------------------------------------------------


def bfloat_bits(x: Expr) -> Expr:
    """The bits of a float32 rounded to bfloat16, ties to even, as uint16."""

    def n(value: int) -> Expr:
        return scalar.const(value, "uint32")

    raw = scalar.bitcast(x, "uint32")
    odd = f("and", f("shift_right_logical", raw, n(16)), n(1))
    up = f("add", f("add", raw, n(0x7FFF)), odd)
    kept = scalar.select(f("ne", x, x), n(0x7FC00000), up)
    return scalar.cast(f("shift_right_logical", kept, n(16)), "uint16")


def bfloat_value(x: Expr) -> Expr:
    """The float32 of the bits of a bfloat16."""
    wide = f("shift_left", scalar.cast(x, "uint32"), scalar.const(16, "uint32"))
    return scalar.bitcast(wide, "float32")


def half_bits(x: Expr) -> Expr:
    """The bits of a float32 rounded to float16, ties to even, as uint16."""

    def n(value: int) -> Expr:
        return scalar.const(value, "uint32")

    raw = scalar.bitcast(x, "uint32")
    sign = f("and", f("shift_right_logical", raw, n(16)), n(0x8000))
    size = f("and", raw, n(0x7FFFFFFF))
    value = scalar.bitcast(size, "float32")
    # normal: rebias the exponent, round at bit 13
    odd = f("and", f("shift_right_logical", size, n(13)), n(1))
    up = f("add", f("add", f("sub", size, n(112 << 23)), n(0xFFF)), odd)
    normal = f("shift_right_logical", up, n(13))
    # subnormal: the sum with 0.5 has the result in its last bits, rounded by the addition
    low = f("add", value, scalar.const(0.5, "float32"))
    small = f("sub", scalar.bitcast(low, "uint32"), n(0x3F000000))
    result = scalar.select(f("lt", size, n(113 << 23)), small, normal)
    # from 65520 on, infinity
    result = scalar.select(f("ge", size, n(0x477FF000)), n(0x7C00), result)
    result = scalar.select(f("gt", size, n(0x7F800000)), n(0x7E00), result)
    return scalar.cast(f("or", result, sign), "uint16")


def half_value(x: Expr) -> Expr:
    """The float32 of the bits of a float16."""

    def n(value: int) -> Expr:
        return scalar.const(value, "uint32")

    raw = scalar.cast(x, "uint32")
    sign = f("shift_left", f("and", raw, n(0x8000)), n(16))
    size = f("and", raw, n(0x7FFF))
    wide = f("shift_left", size, n(13))
    normal = f("add", wide, n(112 << 23))
    # a subnormal is the integer of its bits, times 2**-24
    small = f("mul", scalar.cast(size, "float32"), scalar.const(2.0**-24, "float32"))
    result = scalar.select(f("lt", size, n(0x400)), scalar.bitcast(small, "uint32"), normal)
    result = scalar.select(f("ge", size, n(0x7C00)), f("add", wide, n(224 << 23)), result)
    return scalar.bitcast(f("or", result, sign), "float32")
