"""Operations that Python lacks, for printed programs: Python functions, and a few instructions of LLVM.

The Python functions are those that `scalar.py` prints for programs which stand alone; Numba compiles calls
of them in place, which takes a twentieth of the time that compiling one more function does.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.typing import signature
from numba.extending import lower_builtin, type_callable

from fnx.lowering.ir.number_formats import BYTES

from . import scalar

_COMPILED: dict[str, Any] = {}  # by name: functions for the globals of a program
Lower = Callable[[Any, bool, list], Any]  # of a builder, whether it is signed, operands


def get(name: str) -> Any:
    """The function of a name."""
    return _COMPILED[name]


def __getattr__(name: str) -> Any:
    try:
        return _COMPILED[name]
    except KeyError:
        raise AttributeError(name) from None


# --- instructions ----------------------------------------------------------------------------------


def _is_zero(b: Any, x: Any) -> Any:
    return b.icmp_unsigned("==", x, x.type(0))


def _div(b: Any, signed: bool, args: list) -> Any:
    x, y = args
    one, ones = y.type(1), y.type(-1)
    none = _is_zero(b, y)
    if not signed:
        return b.select(none, ones, b.udiv(x, b.select(none, one, y)))
    minus = b.icmp_unsigned("==", y, ones)  # where the least number would overflow
    q = b.sdiv(x, b.select(b.or_(none, minus), one, y))
    return b.select(none, ones, b.select(minus, b.neg(x), q))


def _rem(b: Any, signed: bool, args: list) -> Any:
    x, y = args
    none, zero = _is_zero(b, y), y.type(0)
    if not signed:
        return b.select(none, x, b.urem(x, b.select(none, y.type(1), y)))
    easy = b.or_(none, b.icmp_unsigned("==", y, y.type(-1)))
    r = b.srem(x, b.select(easy, y.type(1), y))
    return b.select(none, x, b.select(easy, zero, r))


def _within(b: Any, amount: Any) -> Any:
    return b.icmp_unsigned("<", amount, amount.type(amount.type.width))


def _shift(kind: str) -> Lower:
    def lower(b: Any, signed: bool, args: list) -> Any:
        x, n = args
        fits = _within(b, n)
        if kind == "ashr":
            return b.ashr(x, b.select(fits, n, n.type(n.type.width - 1)))
        return b.select(fits, getattr(b, kind)(x, b.select(fits, n, n.type(0))), x.type(0))

    return lower


def _call(b: Any, name: str, result: Any, *args: Any) -> Any:
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [a.type for a in args]), name)
    return b.call(function, args)


def _population_count(b: Any, signed: bool, args: list) -> Any:
    (x,) = args
    return _call(b, f"llvm.ctpop.i{x.type.width}", x.type, x)


def _clz(b: Any, signed: bool, args: list) -> Any:
    (x,) = args
    return _call(b, f"llvm.ctlz.i{x.type.width}", x.type, x, ir.IntType(1)(0))


def _extreme(order: str) -> Lower:
    def lower(b: Any, signed: bool, args: list) -> Any:
        x, y = args
        zeros = b.and_(b.fcmp_ordered("==", x, y), b.fcmp_ordered("==", x, x.type(0.0)))
        if order == ">":  # of two zeros: -0 only if both are, or 0 only if both are
            zero = b.fadd(x, y)
        else:
            zero = b.fneg(b.fsub(b.fneg(x), y))
        first = b.or_(b.fcmp_unordered("uno", x, x), b.fcmp_ordered(order, x, y))
        return b.select(first, x, b.select(zeros, zero, y))

    return lower


def _fma(b: Any, signed: bool, args: list) -> Any:
    return b.fma(*args)


_NAME_OF = {"float": "f32", "double": "f64"}


def _from_float(width: int, unsigned: bool) -> Lower:
    def lower(b: Any, signed: bool, args: list) -> Any:
        (x,) = args
        kind, result = _NAME_OF[str(x.type)], ir.IntType(width)
        how = "fptoui" if unsigned else "fptosi"
        return _call(b, f"llvm.{how}.sat.i{width}.{kind}", result, x)

    return lower


# --- functions -------------------------------------------------------------------------------------


def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once; exact fractions outside of compiled code."""
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if not exact:
        return a * b + c  # for the sign of the zero
    return _nearest(exact, type(a))


def _nearest(exact: Fraction, kind: type) -> Any:
    """A fraction, rounded to a float type once."""
    try:
        wide = float(exact)
    except OverflowError:
        return kind(math.inf if exact > 0 else -math.inf)
    if kind is not np.float32:
        return kind(wide)
    # to odd in double precision, so that the second rounding is right
    if wide != exact and np.float64(wide).view(np.int64) % 2 == 0:
        up = exact > Fraction(wide)
        wide = math.nextafter(wide, math.inf if up else -math.inf)
    return np.float32(wide)


def _register(name: str, function: Callable, typed: Callable, lower: Lower) -> None:
    """Let Numba compile calls of a function: `typed` gives the types that operands are cast to."""

    def typer(context: Any) -> Callable:
        def of(a, b=None, c=None):  # type: ignore[no-untyped-def]
            return typed(*[x for x in (a, b, c) if x is not None])

        return of

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return lower(builder, getattr(sig.args[0], "signed", False), list(args))

    type_callable(function)(typer)
    lower_builtin(function, types.VarArg(types.Any))(emit)
    _COMPILED[name] = function


def _of_one_type(dtype: Any) -> Callable:
    return lambda *args: signature(dtype, *[dtype] * len(args))


def _rounding(dtype: Any) -> Callable:
    return lambda x: signature(dtype, x if isinstance(x, types.Float) else types.float64)


_LOWER: dict[str, Lower] = {
    "div": _div,
    "rem": _rem,
    "max": _extreme(">"),
    "min": _extreme("<"),
    "shift_left": _shift("shl"),
    "shift_right_arithmetic": _shift("ashr"),
    "shift_right_logical": _shift("lshr"),
    "population_count": _population_count,
    "clz": _clz,
}


class _Texts:
    """Takes the functions that `scalar.helper` prints."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}

    def has_function(self, name: str) -> bool:
        return name in self.functions

    def add_function(self, name: str, text: str) -> None:
        self.functions[name] = text


def _define_all() -> None:
    """Every helper as a Python function, registered with Numba."""
    space: dict[str, Any] = {"np": np, "math": math}
    texts = _Texts()
    for name, dtype in scalar.HELPERS.values():
        scalar.helper(texts, name, dtype)  # type: ignore[arg-type]
    for text in texts.functions.values():
        exec(text, space)
    for full, (name, dtype) in scalar.HELPERS.items():
        kind = getattr(types, dtype)
        if name == "from_float":
            lower = _from_float(8 * BYTES[dtype], dtype[0] == "u")
            _register(full, space[full], _rounding(kind), lower)
        else:
            _register(full, space[full], _of_one_type(kind), _LOWER[name])
    _register("fma", fma, lambda a, b, c: signature(a, a, a, a), _fma)


_define_all()
