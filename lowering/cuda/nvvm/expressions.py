"""Expressions of a kernel's source as instructions of LLVM, typed as Numba-CUDA types them.

Integers are computed with 64 bits; a cast to fewer of them computes with these only, which gives the same.
"""

import ast
from typing import Any

from . import functions
from .types import (
    BOOL,
    FLOAT64,
    INT64,
    TYPES,
    Type,
    Unsupported,
    Value,
    compared,
    joined,
    known,
    number,
)  # fmt: skip

_RING = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_BITS = {ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_LAST = _RING | _BITS  # operations of whose results the last bits are those of the operands
_ORDERS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
_EQUAL = {ast.Eq: "eq", ast.NotEq: "ne"}
_FORMS = {
    ast.BinOp: "_binary",
    ast.UnaryOp: "_unary",
    ast.Compare: "_compare",
    ast.BoolOp: "_boolean",
    ast.Call: "_call",
    ast.Attribute: "_attribute",
}
_CONSTANTS = {"nan": float("nan"), "inf": float("inf")}


class Expressions:
    """Instructions, and what variables are."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.globals: list[str] = []
        self.values: dict[str, Value] = {}  # of variables that are assigned once
        self.slots: dict[str, Type] = {}  # variables in memory
        self.bounds: dict[str, int] = {}  # of those that count, within their loops
        self.arrays: dict[str, tuple[Type, str]] = {}
        self.count = 0

    # --- instructions ----------------------------------------------------------------------------

    def put(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def new(self, t: Type, text: str) -> Value:
        """The value of an instruction."""
        self.count += 1
        self.put(f"%v{self.count} = {text}")
        return Value(t, f"%v{self.count}")

    def call(self, name: str, t: Type, *args: Value) -> Value:
        kinds = ", ".join(a.type.llvm for a in args)
        self.declared[name] = f"declare {t.llvm} @{name}({kinds})"
        given = ", ".join(f"{a.type.llvm} {a.text}" for a in args)
        return self.new(t, f"call {t.llvm} @{name}({given})")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        t = a.type.llvm
        text = f"select i1 {condition.text}, {t} {a.text}, {t} {b.text}"
        return self.new(a.type, text)

    def operation(self, name: str, a: Value, b: Value) -> Value:
        return self.new(a.type, f"{name} {a.type.llvm} {a.text}, {b.text}")

    def test(self, name: str, a: Value, b: Value) -> Value:
        return self.new(BOOL, f"{name} {a.type.llvm} {a.text}, {b.text}")

    # --- expressions -----------------------------------------------------------------------------

    def value(self, e: ast.expr) -> Value:
        """The value of an expression."""
        match e:
            case ast.Constant(value=bool() as x):
                return number(x, BOOL)
            case ast.Constant(value=int() as x):
                return number(x, INT64 if x < 1 << 63 else Type("u", 64))
            case ast.Constant(value=float() as x):
                return number(x, FLOAT64)
            case ast.Name(id=name):
                return self.variable(name)
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in _CONSTANTS:
                return number(_CONSTANTS[name], FLOAT64)
            case ast.Attribute(attr="real" | "imag" as name):
                return self.part(self.value(e.value), name == "imag")
            case ast.Subscript():
                element, place = self.place(e)
                t = element.stored
                return self.cast(self.new(t, f"load {t.llvm}, {t.llvm}* {place}"), element)
        form = _FORMS.get(type(e))
        if form is None:
            raise Unsupported(ast.unparse(e))
        return getattr(self, form)(e)

    def variable(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name not in self.slots:
            raise Unsupported(f"the variable {name}")
        t = self.slots[name]
        return self.new(t, f"load {t.llvm}, {t.llvm}* %{name}.at").below(self.bounds.get(name, 0))

    def place(self, e: ast.Subscript) -> tuple[Type, str]:
        """The type and the address of an element."""
        name = e.value.id if isinstance(e.value, ast.Name) else ""
        if name not in self.arrays:
            raise Unsupported(ast.unparse(e))
        return self.element(name, self.value(e.slice))

    def element(self, name: str, index: Value) -> tuple[Type, str]:
        element, pointer = self.arrays[name]
        if index.type.kind not in "iu":
            raise Unsupported(f"an index of {index.type}")
        t, index = element.stored.llvm, self.cast(index, Type(index.type.kind, 64))
        text = f"getelementptr {t}, {t}* {pointer}, i64 {index.text}"
        return element, self.new(element, text).text

    def part(self, x: Value, second: bool) -> Value:
        if x.type.kind != "c":
            raise Unsupported(f"a part of {x.type}")
        return self.new(x.type.part, f"extractvalue {x.type.llvm} {x.text}, {int(second)}")

    def complex(self, a: Value, b: Value) -> Value:
        t = Type("c", 2 * a.type.bits)
        first = self.new(t, f"insertvalue {t.llvm} undef, {a.type.llvm} {a.text}, 0")
        return self.new(t, f"insertvalue {t.llvm} {first.text}, {a.type.llvm} {b.text}, 1")

    # --- casts -----------------------------------------------------------------------------------

    def cast(self, x: Value, t: Type) -> Value:
        """A number as one of another type."""
        source = x.type
        if source == t:
            return x
        if t.kind == "b":
            zero = number(0, source)
            return self.test("fcmp une" if source.kind == "f" else "icmp ne", x, zero)
        if t.kind == "c":
            parts = (x, number(0, t.part))
            if source.kind == "c":
                parts = (self.part(x, False), self.part(x, True))
            return self.complex(*(self.cast(p, t.part) for p in parts))
        if source.kind == "c":
            raise Unsupported("a complex number as a real one")
        return self._converted(x, t)

    def _converted(self, x: Value, t: Type) -> Value:
        source, fixed = x.type, known(x)
        if fixed is not None:
            return number(fixed, t)
        if "f" in (source.kind, t.kind):
            if source.kind == t.kind:
                name = "fpext" if t.bits > source.bits else "fptrunc"
            elif t.kind == "f":
                name = "sitofp" if source.kind == "i" else "uitofp"
            else:
                name = "fptosi" if t.kind == "i" else "fptoui"
        elif source.bits == t.bits:
            return Value(t, x.text)
        elif source.bits > t.bits:
            name = "trunc"
        else:
            name = "sext" if source.kind == "i" else "zext"
        fits = x.bound if t.kind in "iu" and x.bound <= 1 << (t.bits - 1) else 0
        return self.new(t, f"{name} {source.llvm} {x.text} to {t.llvm}").below(fits)

    def casted(self, e: ast.expr, t: Type) -> Value:
        """The value of an expression as one of a type."""
        match e:
            case ast.Constant(value=bool() | int() | float() as x) if t.kind != "c":
                return number(x, t)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as x)):
                if t.kind != "c":
                    return number(-x, t)
        if t.kind in "iu" and t.bits < 64:
            before = len(self.lines)
            found = self._last_bits(e, t)
            if found is not None:
                return found
            del self.lines[before:]
        return self.cast(self.value(e), t)

    def _last_bits(self, e: ast.expr, t: Type) -> Value | None:
        """The last bits of an integer, which those of its operands decide; None if it is no integer."""
        if isinstance(e, ast.BinOp) and type(e.op) in _LAST:
            a = self._last_bits(e.left, t)
            b = self._last_bits(e.right, t)
            return None if a is None or b is None else self.operation(_LAST[type(e.op)], a, b)
        x = self.value(e)
        return self.cast(x, t) if x.type.kind in "iub" else None

    # --- operators -------------------------------------------------------------------------------

    def _binary(self, e: ast.BinOp) -> Value:
        return self.binary(e.op, self.value(e.left), self.value(e.right))

    def binary(self, op: ast.operator, a: Value, b: Value) -> Value:
        """An operation on two numbers."""
        t = joined(a.type, b.type)
        kind = type(op)
        if kind in _BITS and a.type == b.type == BOOL:
            return self.operation(_BITS[kind], a, b)
        if kind is ast.Div and t.kind in "iu":
            t = FLOAT64
        if kind in (ast.LShift, ast.RShift):
            t = INT64 if a.type.kind in "ib" else Type("u", 64)
        a, b = self.cast(a, t), self.cast(b, t)
        if t.kind == "c":
            return self._complex(kind, a, b)
        if kind in _RING:
            name = "f" + _RING[kind] if t.kind == "f" else _RING[kind]
            found = self.operation(name + (" nsw" if t.kind == "i" else ""), a, b)
            return found.below(_bound(kind, a.bound, b.bound))
        if t.kind == "f":
            if kind is not ast.Div:
                raise Unsupported(f"{kind.__name__} of {t}")
            return self.operation("fdiv", a, b)
        if kind in _BITS:
            return self.operation(_BITS[kind], a, b)
        if kind in (ast.LShift, ast.RShift):
            right = "ashr" if t.kind == "i" else "lshr"
            return self.operation("shl" if kind is ast.LShift else right, a, b)
        if kind in (ast.FloorDiv, ast.Mod):
            return self._quotient(kind is ast.Mod, a, b)
        raise Unsupported(kind.__name__)

    def _quotient(self, is_rest: bool, a: Value, b: Value) -> Value:
        """A quotient rounded down, or its rest; zero where the divisor is zero, or both overflow."""
        t, zero = a.type, number(0, a.type)
        divisor = known(b)
        if divisor is None:
            outside = self.test("icmp eq", b, zero)
            if t.kind == "i":
                least = self.test("icmp eq", a, number(-(1 << 63), t))
                beyond = self.test("icmp eq", b, number(-1, t))
                outside = self.operation("or", outside, self.operation("and", least, beyond))
            safe = self.select(outside, number(1, t), b)
            return self.select(outside, zero, self._divided(is_rest, a, safe))
        if divisor in (0, -1):
            raise Unsupported(f"a division by {divisor}")
        if a.bound and divisor > 0:
            return self._of_index(is_rest, a, divisor)
        return self._divided(is_rest, a, b)

    def _of_index(self, is_rest: bool, a: Value, divisor: int) -> Value:
        """The same of numbers that are not negative, with half the bits where these suffice."""
        t = Type("u", 32 if max(a.bound - 1, divisor) < 1 << 32 else 64)
        name = "urem" if is_rest else "udiv"
        found = self.operation(name, self.cast(a, t), number(divisor, t))
        bound = min(a.bound, divisor) if is_rest else (a.bound - 1) // divisor + 1
        return self.cast(found, Type("u", 64))._replace(type=a.type).below(bound)

    def _divided(self, is_rest: bool, a: Value, b: Value) -> Value:
        if a.type.kind == "u":
            return self.operation("urem" if is_rest else "udiv", a, b)
        zero, quotient = number(0, a.type), self.operation("sdiv", a, b)
        rest = self.operation("srem", a, b)
        differ = self.test("icmp slt", self.operation("xor", b, rest), zero)
        below = self.operation("and", self.test("icmp ne", rest, zero), differ)
        if is_rest:
            return self.select(below, self.operation("add", rest, b), rest)
        return self.select(below, self.operation("sub", quotient, number(1, a.type)), quotient)

    def _complex(self, kind: Any, a: Value, b: Value) -> Value:
        (c, d), (e, f) = ([self.part(x, k) for k in (False, True)] for x in (a, b))
        if kind in (ast.Add, ast.Sub):
            name = "f" + _RING[kind]
            return self.complex(self.operation(name, c, e), self.operation(name, d, f))
        if kind is not ast.Mult:
            raise Unsupported(f"{kind.__name__} of complex numbers")
        ce, df, cf, de = (self.operation("fmul", x, y) for x, y in ((c, e), (d, f), (c, f), (d, e)))
        return self.complex(self.operation("fsub", ce, df), self.operation("fadd", cf, de))

    def _unary(self, e: ast.UnaryOp) -> Value:
        x = self.value(e.operand)
        if isinstance(e.op, ast.Not):
            return self.operation("xor", self.cast(x, BOOL), number(1, BOOL))
        if isinstance(e.op, ast.USub):
            return self._negative(x)
        if isinstance(e.op, ast.Invert) and x.type.kind in "iub":
            wide = x.type if x.type == BOOL else joined(x.type, x.type)
            return self.operation("xor", self.cast(x, wide), number(-1, wide))
        raise Unsupported(ast.unparse(e))

    def _negative(self, x: Value) -> Value:
        t = x.type
        if t.kind == "c":
            return self.complex(*(self._negative(self.part(x, k)) for k in (False, True)))
        if t.kind == "f":
            return self.operation("fsub", number(-0.0, t), x)
        wide, fixed = joined(t, t), known(x)
        if fixed is not None and t.kind == "i":
            return number(-fixed, wide)
        x = self.cast(x, wide) if t.kind == "b" else x
        return self.cast(self.operation("sub", number(0, x.type), x), wide)

    def _compare(self, e: ast.Compare) -> Value:
        if len(e.ops) > 1:
            raise Unsupported(ast.unparse(e))
        a, b = self.value(e.left), self.value(e.comparators[0])
        op = type(e.ops[0])
        if a.type.kind == b.type.kind == "c" and op in _EQUAL:
            return self._equal_parts(op, a, b)
        t = compared(a.type, b.type)
        a, b = self.cast(a, t), self.cast(b, t)
        if op not in _ORDERS and op not in _EQUAL:
            raise Unsupported(ast.unparse(e))
        name = _EQUAL.get(op) or _ORDERS[op]
        if t.kind == "f":
            return self.test(f"fcmp {'une' if name == 'ne' else 'o' + name}", a, b)
        sign = "" if op in _EQUAL else "s" if t.kind == "i" else "u"
        return self.test(f"icmp {sign}{name}", a, b)

    def _equal_parts(self, op: Any, a: Value, b: Value) -> Value:
        t = joined(a.type, b.type)
        a, b = self.cast(a, t), self.cast(b, t)
        name = "fcmp oeq" if op is ast.Eq else "fcmp une"
        first, second = (self.test(name, self.part(a, k), self.part(b, k)) for k in (False, True))
        return self.operation("and" if op is ast.Eq else "or", first, second)

    def _boolean(self, e: ast.BoolOp) -> Value:
        """`and`, `or` of conditions without effects, of which none is left out."""
        found = self.cast(self.value(e.values[0]), BOOL)
        for x in e.values[1:]:
            name = "and" if isinstance(e.op, ast.And) else "or"
            found = self.operation(name, found, self.cast(self.value(x), BOOL))
        return found

    # --- calls -----------------------------------------------------------------------------------

    def _attribute(self, e: ast.Attribute) -> Value:
        register = functions.REGISTERS.get(dotted(e))
        if register is None:
            raise Unsupported(ast.unparse(e))
        return self.register(register)

    def register(self, name: str) -> Value:
        bound = (1 << 31) if "cta" in name else functions.BLOCK + 1
        return self.call(f"llvm.nvvm.read.ptx.sreg.{name}", Type("i", 32)).below(bound)

    def _call(self, e: ast.Call) -> Value:
        if e.keywords:
            raise Unsupported(ast.unparse(e))
        match e.func:
            case ast.Attribute(value=ast.Name(id="np"), attr=name) if name in TYPES:
                (x,) = e.args
                return self.casted(x, TYPES[name])
        name = dotted(e.func)
        if name in functions.FORMS:
            return functions.FORMS[name](self, *e.args)
        return functions.library(self, name, [self.value(x) for x in e.args])


def _bound(kind: type, a: int, b: int) -> int:
    """Below what a sum or a product of numbers is that are below others."""
    if not a or not b or kind is ast.Sub:
        return 0
    return a + b - 1 if kind is ast.Add else (a - 1) * (b - 1) + 1


def dotted(e: ast.expr) -> str:
    """A name with dots, as it is written."""
    if isinstance(e, ast.Attribute):
        return f"{dotted(e.value)}.{e.attr}"
    if isinstance(e, ast.Name):
        return e.id
    raise Unsupported(ast.unparse(e))
