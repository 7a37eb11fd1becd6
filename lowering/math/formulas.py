"""What the library's formulas are written with: formats, bits, polynomials, exact sums and products."""

import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fnx.core import scalar
from fnx.core.formula import (  # noqa: F401 (its words are this library's too)
    Number,
    V,
    at_least,
    at_most,
    constant,
    double,
    floor,
    fma,
    rint,
    single,
    sqrt,
    trunc,
    where,
)
from fnx.core.scalar import Expr

# --- formats and their bits --------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """An IEEE format: names, field widths, and the number whose addition rounds to an integer."""

    dtype: str
    integer: str
    fraction: int  # bits of the significand that are stored
    bias: int
    sign: int  # the mask of the sign bit, as a signed integer

    @property
    def magic(self) -> float:
        """1.5 * 2**fraction: x + magic - magic rounds x to the nearest integer, ties to even."""
        return 1.5 * 2.0**self.fraction

    @property
    def tiny(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def epsilon(self) -> float:
        return 2.0**-self.fraction


SINGLE = Format("float32", "int32", 23, 127, -(1 << 31))
DOUBLE = Format("float64", "int64", 52, 1023, -(1 << 63))
FORMAT = {"float32": SINGLE, "float64": DOUBLE, "int32": SINGLE, "int64": DOUBLE}


def bits(x: V) -> V:
    return V(scalar.bitcast(x.e, FORMAT[x.dtype].integer))


def from_bits(n: V) -> V:
    return V(scalar.bitcast(n.e, FORMAT[n.dtype].dtype))


def pattern(value: float, dtype: str) -> int:
    """The bits of a number as a signed integer."""
    code = {"float32": ("<f", "<i"), "float64": ("<d", "<q")}[dtype]
    return struct.unpack(code[1], struct.pack(code[0], value))[0]


def sign_bit(x: V) -> V:
    """The sign of x, as the bits of 0.0 or -0.0."""
    return bits(x) & FORMAT[x.dtype].sign


def flip_sign(x: V, sign: V) -> V:
    """x, negated where the sign bit of the integer `sign` is set."""
    return from_bits(bits(x) ^ sign)


def copy_sign(x: V, sign: V) -> V:
    """x, which is not negative, with the sign of the float `sign`."""
    return from_bits(bits(x) | sign_bit(sign))


# --- polynomials -------------------------------------------------------------------------------


def horner(x: V, coefficients: Iterable[Number]) -> V:
    """sum c[k] x**k, lowest first: the fewest operations."""
    *rest, last = coefficients
    result = constant(last, x)
    for c in reversed(rest):
        result = fma(result, x, c)
    return result


def estrin(x: V, coefficients: Iterable[Number]) -> V:
    """As horner, by pairs of coefficients, pairs of pairs and so on: more powers of x, less latency.

    For polynomials whose rounding does not matter, and long enough that waiting does.
    """
    c = list(coefficients)
    if len(c) < 6:
        return horner(x, c)
    terms, power = [constant(value, x) for value in c], x
    while len(terms) > 1:
        odd = terms[len(terms) & ~1 :]
        terms = [fma(power, b, a) for a, b in zip(terms[::2], terms[1::2], strict=False)] + odd
        power = power * power
    return terms[0]


def poly(x: V, coefficients: Iterable[Number]) -> V:
    """As estrin, but the lowest two coefficients are added last, so that rounding is as in horner."""
    first, second, *rest = coefficients
    return fma(fma(estrin(x, rest), x, second), x, first)


# --- sums and products with their errors -------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """An unevaluated sum hi + lo, |lo| at most half an ulp of hi."""

    hi: V
    lo: V


def fast_two_sum(a: V, b: Number) -> Pair:
    """a + b exactly, when |a| >= |b| or a is zero (Dekker)."""
    s = a + b
    return Pair(s, b - (s - a))


def two_sum(a: V, b: V) -> Pair:
    """a + b exactly (Knuth)."""
    s = a + b
    t = s - a
    return Pair(s, (a - (s - t)) + (b - t))


def two_product(a: V, b: Number) -> Pair:
    """a * b exactly."""
    p = a * b
    return Pair(p, fma(a, b, -p))


def divide(a: Pair, b: Pair) -> Pair:
    """a / b, good to about twice the working precision less a few bits."""
    inverse = 1.0 / b.hi
    q = a.hi * inverse
    rest = fma(-q, b.hi, a.hi) + fma(-q, b.lo, a.lo)
    return Pair(q, rest * inverse)


# --- the tables --------------------------------------------------------------------------------

Function = Callable[..., Expr]
VMATH: dict[tuple[str, str], Function] = {}
# Cheaper ways for usual arguments: where ("sin.is_usual", dtype) is true, ("sin.usual", dtype) gives
# the bits of VMATH["sin", dtype]. Code may branch on whether all its elements are usual.
USUAL: dict[tuple[str, str], Function] = {}


def _of_expressions(f: Callable[..., V]) -> Function:
    return lambda *args: f(*map(V, args)).e


def function(op: str, *dtypes: str) -> Callable[[Callable[..., V]], Callable[..., V]]:
    """Enters a function of values into the table, as one of expressions."""

    def enter(f: Callable[..., V]) -> Callable[..., V]:
        for dtype in dtypes or ("float32", "float64"):
            VMATH[op, dtype] = _of_expressions(f)
        return f

    return enter


def two_ways(
    op: str, is_usual: Callable[..., V], usual: Callable[..., V], always: Callable[..., V]
) -> None:
    """Enters a function that has a cheaper way for usual arguments."""
    for dtype in ("float32", "float64"):
        VMATH[op, dtype] = _of_expressions(always)
        USUAL[op + ".is_usual", dtype] = _of_expressions(is_usual)
        USUAL[op + ".usual", dtype] = _of_expressions(usual)


def with_usual(
    op: str, is_usual: Callable[[V], V], usual: Callable, reduce: Callable
) -> Callable[[Callable[..., V]], None]:
    """Enters a function of x and of what a reduction of x gives: by `usual`, and by `reduce`."""

    def enter(f: Callable[..., V]) -> None:
        two_ways(op, is_usual, lambda x: f(x, *usual(x)), lambda x: f(x, *reduce(x)))

    return enter
