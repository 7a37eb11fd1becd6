"""Typed scalar expressions: what one element of an array is computed from.

An expression is an immutable node of a graph: `Expr(op, dtype, args, attr)`. Nodes are interned, so
that equal expressions are the same object and sharing is free. Primitives build them in their
`lower` rules with the functions below; lowering prints them as LLVM IR or as Numba Python.

Conventions:
- dtypes are NumPy names: "bool", "int64", "float32", "bfloat16", "complex128", ...
- operands of a binary operation have equal dtypes; nothing is promoted.
- integer arithmetic wraps; integer `div` truncates toward zero and `rem` has the sign of the
  dividend; division by zero gives -1 (all ones), remainder by zero gives the dividend, as in XLA.
- `max` and `min` propagate NaN; comparisons with NaN are false, but for `ne`.
- indices are int64. `size` marks a number that comes from a shape: small ones are baked into the
  code, others become run-time parameters, so that code is shared by all sizes. `literal` does the
  same for numbers of the user's program.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

from fnx.core.dtypes import COMPUTED


class Expr:
    """A scalar value: operation, dtype, operands, and a static attribute."""

    __slots__ = ("args", "attr", "bounds", "dtype", "op", "reads")

    def __init__(self, op: str, dtype: str, args: tuple, attr: Any):
        self.op, self.dtype, self.args, self.attr = op, dtype, args, attr
        self.bounds: Bounds | None = None  # of an integer, once they are asked for
        self.reads: frozenset | None = None  # the buffers that it loads from, likewise

    def __repr__(self) -> str:
        if self.op in ("const", "size", "literal"):
            return repr(self.attr)
        if self.op == "var":
            return f"%{self.attr}"
        inner = ", ".join(map(repr, self.args))
        attr = "" if self.attr is None else f"[{self.attr}]"
        return f"{self.op}{attr}({inner})"


_interned: dict[tuple, Expr] = {}  # a cache: equal keys give the same node
_sizes: dict[int, Expr] = {}  # those of shapes, which are asked for most


def node(op: str, dtype: str, args: tuple = (), attr: Any = None) -> Expr:
    """The interned node; the only constructor."""
    key = (op, dtype, attr, *map(id, args))
    found = _interned.get(key)
    if found is None:
        found = _interned[key] = Expr(op, dtype, args, attr)
    return found


def forget() -> None:
    """Empty the interning table; expressions made before stay valid, but share no more."""
    _interned.clear()
    _sizes.clear()


# --- leaves ------------------------------------------------------------------------------------


class _Bits(float):
    """A float compared by its bits, so that -0.0 is not 0.0 and nan is itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and self.hex() == other.hex()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.hex())


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, complex):
        return (_Bits(value.real), _Bits(value.imag))
    return _Bits(value) if isinstance(value, float) else value


def const(value: Any, dtype: str) -> Expr:
    """A number that is part of the code (masks, polynomial coefficients, initial values)."""
    return node("const", dtype, (), _plain(_as_kind(value, dtype)))


def literal(value: Any, dtype: str) -> Expr:
    """A number of the user's program: code does not depend on it, unless it is a simple one."""
    return node("literal", dtype, (), _plain(_as_kind(value, dtype)))


def _as_kind(value: Any, dtype: str) -> Any:
    if dtype == "bool":
        return bool(value)
    if dtype.startswith("complex"):
        return complex(value)
    return float(value) if "float" in dtype else int(value)


def size(n: int) -> Expr:
    """An int64 that comes from a shape (extent, stride, offset, bound)."""
    found = _sizes.get(n)
    if found is None:
        found = _sizes[int(n)] = node("size", "int64", (), int(n))
    return found


_fresh = iter(range(1 << 62)).__next__


def var(dtype: str, name: str = "v") -> Expr:
    """A new variable: a loop index, a value carried by a loop, the result of a statement."""
    return Expr("var", dtype, (), f"{name}{_fresh()}")


def counter(name: str, n: int) -> Expr:
    """A new int64 variable that is never negative and less than `n`."""
    found = var("int64", name)
    found.bounds = (0, max(n - 1, 0))
    return found


def load(buffer: Any, index: Expr, dtype: str) -> Expr:
    """Element `index` (row-major, linear) of a buffer of the Kernel IR."""
    return node("load", dtype, (index,), buffer)


# --- bounds of integers -------------------------------------------------------------------------

Bounds = tuple[float, float]  # both included
_ANY = (-math.inf, math.inf)
_LIMITS = {f"int{k}": (-(1 << k - 1), (1 << k - 1) - 1) for k in (32, 64)}


def bounds(e: Expr) -> Bounds:
    """Between which numbers an integer is known to lie; infinite where nothing is known."""
    if e.bounds is None:
        found = _bounds(e) if e.dtype in _LIMITS else _ANY
        if e.op in _WRAPS and e.dtype in _LIMITS:  # it may have wrapped
            low, high = _LIMITS[e.dtype]
            found = found if low <= found[0] and found[1] <= high else _ANY
        e.bounds = found
    return e.bounds


_WRAPS = frozenset(("add", "sub", "mul", "neg", "cast"))


def _bounds(e: Expr) -> Bounds:
    if e.op in ("const", "size", "literal"):
        return e.attr, e.attr
    if e.op == "select":
        (a, b), (c, d) = bounds(e.args[1]), bounds(e.args[2])
        return min(a, c), max(b, d)
    if e.op in ("div", "rem"):
        (low, high), n = bounds(e.args[0]), _number(e.args[1])
        if n is None or n <= 0 or low < 0 or high == math.inf:
            return _ANY
        return (low // n, high // n) if e.op == "div" else (0, min(high, n - 1))
    if e.op == "cast" and e.args[0].dtype in _LIMITS:
        return bounds(e.args[0])
    if e.op not in ("add", "sub", "mul", "min", "max"):
        return _ANY
    (a, b), (c, d) = map(bounds, e.args)
    if e.op == "min":
        return min(a, c), min(b, d)
    if e.op == "max":
        return max(a, c), max(b, d)
    if math.inf in (-a, b, -c, d):
        return _ANY
    if e.op == "mul":
        ends = (a * c, a * d, b * c, b * d)
        return min(ends), max(ends)
    return (a + c, b + d) if e.op == "add" else (a - d, b - c)


def _compared(op: str, x: Expr, y: Expr) -> bool | None:
    """The result of a comparison, where the bounds tell."""
    if x.dtype not in _LIMITS:
        return None
    (a, b), (c, d) = bounds(x), bounds(y)
    if op in ("gt", "le"):
        less, not_less = b <= c, a > d
        return None if not (less or not_less) else less == (op == "le")
    if op in ("lt", "ge"):
        less, not_less = b < c, a >= d
        return None if not (less or not_less) else less == (op == "lt")
    return op == "ne" if b < c or a > d else None


# --- index arithmetic: int64, folded as it is built --------------------------------------------


def _number(e: Expr) -> int | None:
    return e.attr if e.op in ("size", "const") and e.dtype == "int64" else None


def add(a: Expr, b: Expr) -> Expr:
    if a.dtype == "int64":
        m, n = _number(a), _number(b)
        if m is not None and n is not None:
            return size(m + n)
        if m == 0:
            return b
        if n == 0:
            return a
    return node("add", a.dtype, (a, b))


def sub(a: Expr, b: Expr) -> Expr:
    if a.dtype == "int64":
        m, n = _number(a), _number(b)
        if m is not None and n is not None:
            return size(m - n)
        if n == 0:
            return a
    return node("sub", a.dtype, (a, b))


def mul(a: Expr, b: Expr) -> Expr:
    if a.dtype == "int64":
        m, n = _number(a), _number(b)
        if m is not None and n is not None:
            return size(m * n)
        if m == 0 or n == 1:
            return a
        if n == 0 or m == 1:
            return b
    return node("mul", a.dtype, (a, b))


def compare(op: str, a: Expr, b: Expr) -> Expr:
    """`op` is one of eq ne lt le gt ge; the result is a bool."""
    m, n = _number(a), _number(b)
    if m is not None and n is not None:
        return const(_COMPARE[op](m, n), "bool")
    known = _compared(op, a, b)
    return node(op, "bool", (a, b)) if known is None else const(known, "bool")


_COMPARE = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def select(pred: Expr, on_true: Expr, on_false: Expr) -> Expr:
    if pred.op == "const":
        return on_true if pred.attr else on_false
    if on_true is on_false:
        return on_true
    return node("select", on_true.dtype, (pred, on_true, on_false))


def logical_and(a: Expr, b: Expr) -> Expr:
    """And of two bools, folded."""
    for x, y in ((a, b), (b, a)):
        if x.op == "const":
            return y if x.attr else x
    return node("and", "bool", (a, b))


def clamp(low: Expr, x: Expr, high: Expr) -> Expr:
    """min(max(x, low), high) on int64 indices, folded when all are known."""
    m, n, k = _number(low), _number(x), _number(high)
    if m is not None and n is not None and k is not None:
        return size(min(max(n, m), k))
    (a, b), (_, c), (d, _) = bounds(x), bounds(low), bounds(high)
    if b <= bounds(low)[0] and c <= d:
        return low
    if a < c:
        x = node("max", "int64", (x, low))
    return x if b <= d and c <= d else node("min", "int64", (x, high))


# --- everything else: one function, a table of what exists -------------------------------------

FUNCTIONS = frozenset(
    "cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh "
    "atanh logistic erf erfc erf_inv lgamma digamma pow atan2".split()
)  # elementary and special: many instructions each
UNARY = (FUNCTIONS - {"pow", "atan2"}) | frozenset(
    "neg abs sign floor ceil round_even trunc sqrt rsqrt is_finite not population_count clz real "
    "imag conj square integer_pow".split()
)  # integer_pow: the exponent is attr, an int; `not` is bitwise; round_even: half to even
BINARY = frozenset(
    "add sub mul div rem fmod pow atan2 max min nextafter and or xor shift_left "
    "shift_right_arithmetic shift_right_logical complex eq ne lt le gt ge".split()
)  # complex(re, im); shifts by the width or more give 0 (or the sign); fmod: a float `rem` by C's
TERNARY = frozenset({"fma"})  # fma(a, b, c) = a * b + c, rounded once
_TO_REAL = {"complex64": "float32", "complex128": "float64"}
_TO_COMPLEX = {"float32": "complex64", "float64": "complex128"}

_FOLDED = {"add": add, "sub": sub, "mul": mul}


def apply(op: str, *args: Expr, attr: Any = None) -> Expr:
    """Any operation of UNARY, BINARY or TERNARY; folds nothing but index arithmetic."""
    if op in _FOLDED:
        return _FOLDED[op](*args)
    if op in _COMPARE:
        return compare(op, *args)
    dtype = args[0].dtype
    if op == "is_finite":
        dtype = "bool"
    elif op in ("real", "imag", "abs"):
        dtype = _TO_REAL.get(dtype, dtype)
    elif op == "complex":
        dtype = _TO_COMPLEX[dtype]
    return node(op, dtype, args, attr)


def special(name: str, *args: Expr, part: int = 0) -> Expr:
    """A function of scipy.special on floats or complex numbers: one of its results, of their dtype.

    16-bit floats are computed in float32; the function must have loops for the dtypes otherwise.
    """
    dtype = args[0].dtype
    if dtype in ("float16", "bfloat16"):
        wide = special(name, *[cast(a, "float32") for a in args], part=part)
        return cast(wide, dtype)
    return node("special", dtype, args, (name, part))


class Function:
    """A long formula that code without vectors contains once, however often it is called.

    `build` makes its expression of operands of `dtypes`; `work` is the number of its operations.
    """

    def __init__(self, name: str, dtypes: tuple[str, ...], build: Callable[..., Expr], work: int):
        self.name, self.dtypes, self.build, self.work = name, dtypes, build, work

    def __repr__(self) -> str:
        return self.name

    def __call__(self, dtype: str, *args: Expr) -> Expr:
        """Its value, of a dtype, for operands."""
        return node("call", dtype, args, self)


def extremum(op: str, a: Expr, b: Expr) -> Expr:
    """`max` or `min` that gives either of two zeros of different sign: cheaper, for reductions."""
    return node(op, a.dtype, (a, b), "either zero" if "float" in a.dtype else None)


def logaddexp(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b)), without overflow."""
    high, low = apply("max", a, b), apply("min", a, b)
    # of equal infinities the difference is not a number
    gap = select(compare("eq", high, low), const(0, a.dtype), sub(low, high))
    return add(high, apply("log1p", apply("exp", gap)))


def cast(x: Expr, dtype: str) -> Expr:
    """Conversion of value: as C's for numbers (float to int saturates, nan to 0); `!= 0` to bool."""
    if x.dtype == dtype:
        return x
    if dtype in COMPUTED or x.dtype in COMPUTED:  # which round
        return node("cast", dtype, (x,))
    if x.op in ("const", "literal") and not dtype.startswith("complex"):
        value = x.attr
        if not isinstance(value, tuple) and not (isinstance(value, float) and "int" in dtype):
            if "int" not in dtype or x.op == "const" and math.isfinite(value) and 0 <= value < 128:
                return node(x.op, dtype, (), _plain(_as_kind(value, dtype)))
    return node("cast", dtype, (x,))


def bitcast(x: Expr, dtype: str) -> Expr:
    """The same bits as another dtype of the same width."""
    return x if x.dtype == dtype else node("bitcast", dtype, (x,))


def divmod_size(x: Expr, n: int) -> tuple[Expr, Expr]:
    """Quotient and remainder of a non-negative index by a size."""
    value = _number(x)
    if value is not None:
        return size(value // n), size(value % n)
    if n == 1:
        return x, size(0)
    divisor = size(n)
    return node("div", "int64", (x, divisor)), node("rem", "int64", (x, divisor))


def linear_index(index: tuple[Expr, ...], shape: tuple[int, ...]) -> Expr:
    """Row-major position of `index` in an array of `shape`."""
    total, stride = size(0), 1
    for i, n in zip(reversed(index), reversed(shape), strict=True):
        if n != 1:
            total = add(mul(i, size(stride)), total)
        stride *= n
    return total
