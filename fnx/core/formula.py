"""Operators on scalar expressions, so that formulas read as formulas."""

from dataclasses import dataclass
from typing import Union

from fnx.core import scalar
from fnx.core.scalar import Expr

Number = Union["V", float, int]


@dataclass(frozen=True, slots=True, eq=False)
class V:
    """A value of the expression graph; Python numbers beside it become constants of its dtype."""

    e: Expr

    @property
    def dtype(self) -> str:
        return self.e.dtype

    def __add__(self, other: Number) -> "V":
        return _binary("add", self, other)

    def __radd__(self, other: Number) -> "V":
        return _binary("add", other, self)

    def __sub__(self, other: Number) -> "V":
        return _binary("sub", self, other)

    def __rsub__(self, other: Number) -> "V":
        return _binary("sub", other, self)

    def __mul__(self, other: Number) -> "V":
        return _binary("mul", self, other)

    def __rmul__(self, other: Number) -> "V":
        return _binary("mul", other, self)

    def __truediv__(self, other: Number) -> "V":
        return _binary("div", self, other)

    def __rtruediv__(self, other: Number) -> "V":
        return _binary("div", other, self)

    def __neg__(self) -> "V":
        return V(scalar.apply("neg", self.e))

    def __abs__(self) -> "V":
        return V(scalar.apply("abs", self.e))

    def __and__(self, other: Number) -> "V":
        return _binary("and", self, other)

    def __or__(self, other: Number) -> "V":
        return _binary("or", self, other)

    def __xor__(self, other: Number) -> "V":
        return _binary("xor", self, other)

    def __invert__(self) -> "V":
        return V(scalar.apply("not", self.e))

    def __lshift__(self, other: int) -> "V":
        return _binary("shift_left", self, other)

    def __rshift__(self, other: int) -> "V":
        """Logical: AVX2 has no arithmetic shift of 64-bit integers."""
        return _binary("shift_right_logical", self, other)

    def __lt__(self, other: Number) -> "V":
        return _binary("lt", self, other)

    def __le__(self, other: Number) -> "V":
        return _binary("le", self, other)

    def __gt__(self, other: Number) -> "V":
        return _binary("gt", self, other)

    def __ge__(self, other: Number) -> "V":
        return _binary("ge", self, other)

    def eq(self, other: Number) -> "V":
        return _binary("eq", self, other)

    def ne(self, other: Number) -> "V":
        return _binary("ne", self, other)


def constant(value: Number, like: V) -> V:
    return value if isinstance(value, V) else V(scalar.const(value, like.dtype))


def _binary(op: str, a: Number, b: Number) -> V:
    like = a if isinstance(a, V) else b
    assert isinstance(like, V)
    return V(scalar.apply(op, constant(a, like).e, constant(b, like).e))


def fma(a: V, b: Number, c: Number) -> V:
    """a * b + c, rounded once."""
    return V(scalar.apply("fma", a.e, constant(b, a).e, constant(c, a).e))


def sqrt(x: V) -> V:
    return V(scalar.apply("sqrt", x.e))


def rint(x: V) -> V:
    return V(scalar.apply("round_even", x.e))


def floor(x: V) -> V:
    return V(scalar.apply("floor", x.e))


def trunc(x: V) -> V:
    return V(scalar.apply("trunc", x.e))


def where(pred: V, a: Number, b: Number) -> V:
    like = a if isinstance(a, V) else b
    assert isinstance(like, V)
    return V(scalar.select(pred.e, constant(a, like).e, constant(b, like).e))


def at_most(x: V, bound: Number) -> V:
    """min(x, bound), NaN where x is; one instruction on x86, unlike the IEEE minimum."""
    return where(constant(bound, x) < x, bound, x)


def at_least(x: V, bound: Number) -> V:
    return where(constant(bound, x) > x, bound, x)


def single(x: V) -> V:
    return V(scalar.cast(x.e, "float32"))


def double(x: V) -> V:
    return V(scalar.cast(x.e, "float64"))
