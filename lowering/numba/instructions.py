"""What Numba takes long to compile, as single instructions: calls that replace them in what it gets.

A choice of Python is four blocks of a program, a call of NumPy on a number goes through the machinery of
ufuncs, and arithmetic of 32 bits is widened and then cast. Each is a call here that takes one instruction,
or a few. Programs are printed without them (`shortened.py`), so nobody reads or runs them as Python.
"""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature
from numba.extending import lower_builtin, type_callable

_DEFINED: dict[str, Any] = {}
_BITS = {f"{u}int{n}": n for u in ("", "u") for n in (8, 16, 32, 64)} | {
    "float32": 32,
    "float64": 64,
}
RING = ("add", "sub", "mul", "and_", "or_", "xor", "shl", "shr")
FLOATING = ("add", "sub", "mul", "div")
UNARY = ("abs", "sqrt", "floor", "ceil", "trunc", "rint")


def get(name: str) -> Any:
    """What a name stands for in a program; None where there is nothing."""
    return _DEFINED.get(name)


def _define(name: str, typed: Callable, lower: Callable) -> None:
    """A function of a name: `typed` gives the result's and the operands' types, `lower` the code."""

    def function(*args: Any) -> Any:
        raise NotImplementedError(name)

    def typer(context: Any) -> Callable:
        def of(a, b=None, c=None):  # type: ignore[no-untyped-def]
            given = [types.unliteral(x) for x in (a, b, c) if x is not None]
            found = typed(context, *given)
            return None if found is None else signature(*found)

        return of

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return lower(context, builder, sig, *args)

    function.__name__ = name
    type_callable(function)(typer)
    lower_builtin(function, types.VarArg(types.Any))(emit)
    _DEFINED[name] = function


# --- a choice --------------------------------------------------------------------------------------


def _chosen(context: Any, c: Any, a: Any, b: Any) -> Any:
    common = context.unify_types(a, b)
    return None if common is None else (common, types.boolean, common, common)


def _choose(context: Any, b: Any, sig: Any, c: Any, x: Any, y: Any) -> Any:
    return b.select(c, x, y)


# --- the bits of a number --------------------------------------------------------------------------


def _view(source: str, target: str) -> None:
    of, to = getattr(types, source), getattr(types, target)
    width = ir.IntType(_BITS[target])
    kinds = {"float32": ir.FloatType(), "float64": ir.DoubleType()}
    kind = kinds.get(target, width)
    _define(
        f"view_{source}_{target}",
        lambda context, x: (to, of),
        lambda context, b, sig, x: x if x.type == kind else b.bitcast(x, kind),
    )


# --- arithmetic ------------------------------------------------------------------------------------


def _ring(op: str, dtype: str) -> None:
    """Arithmetic whose last bits count: on 64 bits, of which LLVM keeps what is needed."""
    result = getattr(types, dtype)

    def typed(context: Any, x: Any, y: Any) -> Any:
        if not all(isinstance(t, (types.Integer, types.Boolean)) for t in (x, y)):
            return None
        signed = getattr(x, "signed", False)
        wide = types.int64 if signed else types.uint64
        return result, wide, wide

    def lower(context: Any, b: Any, sig: Any, x: Any, y: Any) -> Any:
        if op == "shr":
            found = b.ashr(x, y) if sig.args[0].signed else b.lshr(x, y)
        else:
            found = getattr(b, op)(x, y)
        return context.cast(b, found, sig.args[0], result)

    _define(f"{op}_{dtype}", typed, lower)


def _floating(op: str) -> None:
    """Arithmetic of float32; whatever is not, is computed as Python would, and rounded."""

    def typed(context: Any, x: Any, y: Any) -> Any:
        both = x == y == types.float32
        wide = types.float32 if both else types.float64
        return types.float32, wide, wide

    def lower(context: Any, b: Any, sig: Any, x: Any, y: Any) -> Any:
        found = getattr(b, f"f{op}")(x, y)
        return context.cast(b, found, sig.args[0], types.float32)

    _define(f"{op}_float32", typed, lower)


# --- functions of one number -----------------------------------------------------------------------


def _intrinsic(b: Any, name: str, x: Any) -> Any:
    full = f"llvm.{name}.{'f32' if x.type == ir.FloatType() else 'f64'}"
    function = b.module.globals.get(full)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(x.type, [x.type]), full)
    return b.call(function, [x])


def _unary(op: str) -> None:
    def typed(context: Any, x: Any) -> Any:
        signed = isinstance(x, types.Integer) and x.signed and op == "abs"
        return (x, x) if signed or x in (types.float32, types.float64) else None

    def lower(context: Any, b: Any, sig: Any, x: Any) -> Any:
        if isinstance(sig.args[0], types.Integer):
            return b.select(b.icmp_signed("<", x, x.type(0)), b.neg(x), x)
        return _intrinsic(b, "fabs" if op == "abs" else op, x)

    _define(op, typed, lower)


def _is_finite(context: Any, b: Any, sig: Any, x: Any) -> Any:
    return b.fcmp_ordered("<", _intrinsic(b, "fabs", x), x.type(float("inf")))


_define("choose", _chosen, _choose)
_define(
    "isfinite",
    lambda context, x: (types.boolean, x) if isinstance(x, types.Float) else None,
    _is_finite,
)
for _op in UNARY:
    _unary(_op)
for _op in FLOATING:
    _floating(_op)
for _dtype, _width in _BITS.items():
    for _other in [d for d, n in _BITS.items() if n == _width]:
        _view(_dtype, _other)
    for _op in RING:
        if "int" in _dtype:
            _ring(_op, _dtype)
