"""Scalar expressions as LLVM instructions: one printer per operation.

What is not printed here directly is rewritten by `expand` in terms of what is, or becomes a call of a
function that is printed once per module.
"""

from collections.abc import Callable
from functools import lru_cache
from math import frexp, inf, isnan, nan

from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor.features import has_fma
from fnx.lowering.ir.number_formats import BYTES, KIND, PART, rounded
from fnx.lowering.math import division_by_constant, expand

from . import integer_division, special
from .conversions import bitcast, cast
from .emitter import Emitter
from .types import INTRINSIC_TYPE, REGISTER, Operand, bits, constant, is_simple, types, whole

# --- leaves ------------------------------------------------------------------------------------


def _const(code: Emitter, e: Expr) -> Operand:
    return constant(e.attr, e.dtype)


def _size(code: Emitter, e: Expr) -> Operand:
    if -16 <= e.attr <= 16:
        return str(e.attr)
    return code.number(("size", e.attr), e.attr, "i64", positive=e.attr > 0)


def _literal(code: Emitter, e: Expr) -> Operand:
    return constant(e.attr, e.dtype) if is_simple(e.attr, e.dtype) else parameter(code, e)


def parameter(code: Emitter, e: Expr) -> Operand:
    """A number that LLVM does not know."""
    dtype = PART.get(e.dtype, e.dtype)
    values = e.attr if e.dtype in PART else (e.attr,)
    numbers = [bits(v, dtype) for v in values]
    return whole([code.number((dtype, n), n, REGISTER[dtype]) for n in numbers])


def _load(code: Emitter, e: Expr) -> Operand:
    return code.load(e.attr, code.memo[e.args[0]])


_NUMBERS = ("const", "literal")
_POSITIVE = ("abs", "square", "exp")  # what they give is never -0.0


# --- instructions ------------------------------------------------------------------------------

Printer = Callable[[Emitter, Expr], Operand]


def _integer(instruction: str) -> Callable[[str], Printer]:
    def of(dtype: str) -> Printer:
        head = f"{instruction} {REGISTER[dtype]} "

        def emit(code: Emitter, e: Expr) -> Operand:
            memo, (a, b) = code.memo, e.args
            return code.op(f"{head}{memo[a]}, {memo[b]}")

        return emit

    return of


def _float(instruction: str) -> Callable[[str], Printer]:
    def of(dtype: str) -> Printer:
        t = REGISTER[dtype]

        def emit(code: Emitter, e: Expr) -> Operand:
            memo, (a, b) = code.memo, e.args
            flags = code.flags if e not in code.fast else " reassoc nsz contract"
            return code.op(f"{instruction}{flags} {t} {memo[a]}, {memo[b]}")

        return emit

    return of


def _exact_float(instruction: str) -> Callable[[str], Printer]:
    """A float operation that never gets fast-math flags."""
    return _integer(instruction)


def _quotient(dtype: str) -> Printer:
    """A division; by a number of the user's, two multiplications (division units are slow)."""
    t, divide = REGISTER[dtype], _exact_float("fdiv")(dtype)
    full = f"@llvm.fma.{INTRINSIC_TYPE[t]}"
    declared = f"declare {t} {full}({t}, {t}, {t})"

    def emit(code: Emitter, e: Expr) -> Operand:
        x, divisor = e.args
        if divisor.op != "literal" or not has_fma():
            return divide(code, e)
        found = division_by_constant.parts(rounded(divisor.attr, dtype), dtype)
        if found is None or (is_simple(divisor.attr, dtype) and frexp(divisor.attr)[0] == 0.5):
            return divide(code, e)  # or LLVM sees a power of two
        numbers = [bits(n, dtype) for n in found]
        high, low = (code.number((dtype, n), n, t) for n in numbers)
        code.module.declare(full, declared)
        rest = code.op(f"fmul {t} {code.memo[x]}, {low}")
        return code.op(f"call {t} {full}({t} {code.memo[x]}, {t} {high}, {t} {rest})")

    return emit


def _remainder(dtype: str) -> Printer:
    """C's fmod; by a power of two it is x less a whole multiple, which is exact."""
    t = REGISTER[dtype]
    suffix = INTRINSIC_TYPE[t]
    declared = {
        f"@llvm.trunc.{suffix}": f"declare {t} @llvm.trunc.{suffix}({t})",
        f"@llvm.copysign.{suffix}": f"declare {t} @llvm.copysign.{suffix}({t}, {t})",
    }
    trunc, copysign = declared

    def emit(code: Emitter, e: Expr) -> Operand:
        divisor = e.args[1]
        size = abs(float(rounded(divisor.attr, dtype))) if divisor.op in _NUMBERS else 0.0
        if not _is_large_power_of_two(size):
            return _function(code, e)
        for name, text in declared.items():
            code.module.declare(name, text)
        x = code.memo[e.args[0]]
        quotient = code.op(f"fmul {t} {x}, {constant(1 / size, dtype)}")
        whole_ = code.op(f"call {t} {trunc}({t} {quotient})")
        rest = code.op(f"fsub {t} {x}, {code.op(f'fmul {t} {whole_}, {constant(size, dtype)}')}")
        return code.op(f"call {t} {copysign}({t} {rest}, {t} {x})")

    return emit


def _is_large_power_of_two(size: float) -> bool:
    """Whether quotients do not overflow; those that underflow are cut off to zero anyway."""
    return 1.0 <= size < inf and frexp(size)[0] == 0.5


def _call(name: str, extra: str = "") -> Callable[[str], Printer]:
    """A call of an intrinsic whose operands have the type of its result."""

    def of(dtype: str) -> Printer:
        t = REGISTER[dtype]
        full = f"@llvm.{name}.{INTRINSIC_TYPE[t]}"
        cache: dict[int, str] = {}

        def emit(code: Emitter, e: Expr) -> Operand:
            n = len(e.args)
            if n not in cache:
                types = ", ".join([t] * n + (["i1"] if extra else []))
                cache[n] = f"declare {t} {full}({types})"
            code.module.declare(full, cache[n])
            operands = ", ".join([f"{t} {code.memo[a]}" for a in e.args])
            positive = name == "maximum" and all([a.op in _POSITIVE for a in e.args])
            flags = "nsz " if e.attr == "either zero" or positive else ""
            return code.op(f"call {flags}{t} {full}({operands}{extra})")

        return emit

    return of


def _extreme(name: str) -> Callable[[str], Printer]:
    """The smaller or the larger of two numbers, NaN if one is; beside a known number, a selection.

    On x86 that is one instruction, which gives its second operand where one is NaN.
    """
    test = {"minimum": "olt", "maximum": "ogt"}[name]

    def of(dtype: str) -> Printer:
        t, full = REGISTER[dtype], _call(name)(dtype)

        def emit(code: Emitter, e: Expr) -> Operand:
            x, bound = e.args if e.args[1].op in _NUMBERS else reversed(e.args)
            value = rounded(bound.attr, dtype) if bound.op in _NUMBERS else nan
            # Which zero the result is may matter.
            if isnan(value) or (not value and e.attr != "either zero"):
                return full(code, e)
            b = code.memo[bound]
            first = code.op(f"fcmp {test} {t} {b}, {code.memo[x]}")
            return code.op(f"select i1 {first}, {t} {b}, {t} {code.memo[x]}")

        return emit

    return of


def _not(dtype: str) -> Printer:
    ones = "true" if dtype == "bool" else "-1"
    return lambda code, e: code.op(f"xor {REGISTER[dtype]} {code.memo[e.args[0]]}, {ones}")


def _neg_int(dtype: str) -> Printer:
    return lambda code, e: code.op(f"sub {REGISTER[dtype]} 0, {code.memo[e.args[0]]}")


def _neg_float(dtype: str) -> Printer:
    # Flagged, or LLVM would drop those of a product that it negates instead.
    return lambda code, e: code.op(f"fneg{code.flags} {REGISTER[dtype]} {code.memo[e.args[0]]}")


def _same(dtype: str) -> Printer:
    return lambda code, e: code.memo[e.args[0]]


def _shift(instruction: str) -> Callable[[str], Printer]:
    def of(dtype: str) -> Printer:
        t, width = REGISTER[dtype], 8 * BYTES[dtype]

        def emit(code: Emitter, e: Expr) -> Operand:
            a, b = code.memo[e.args[0]], code.memo[e.args[1]]
            if e.args[1].op == "const" and 0 <= e.args[1].attr < width:
                return code.op(f"{instruction} {t} {a}, {b}")
            inside = code.op(f"icmp ult {t} {b}, {width}")
            limit = str(width - 1) if instruction == "ashr" else "0"
            safe = code.op(f"select i1 {inside}, {t} {b}, {t} {limit}")
            result = code.op(f"{instruction} {t} {a}, {safe}")
            if instruction == "ashr":
                return result
            return code.op(f"select i1 {inside}, {t} {result}, {t} 0")

        return emit

    return of


_FCMP = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def _compare(op: str) -> Callable[[str], Printer]:
    def of(dtype: str) -> Printer:
        kind, t = KIND[dtype], REGISTER[dtype]
        if kind in "fh":
            head = f"fcmp {_FCMP[op]} {t} "
        elif op in ("eq", "ne"):
            head = f"icmp {op} {t} "
        else:
            head = f"icmp {'s' if kind == 'i' else 'u'}{op} {t} "
        return lambda code, e: code.op(f"{head}{code.memo[e.args[0]]}, {code.memo[e.args[1]]}")

    return of


def _is_finite(dtype: str) -> Printer:
    t = REGISTER[dtype]
    fabs = _call("fabs")(dtype)
    return lambda code, e: code.op(f"fcmp olt {t} {fabs(code, e)}, 0x7FF0000000000000")


def _select(code: Emitter, e: Expr) -> Operand:
    pred, *values = (code.memo[a] for a in e.args)
    if type(values[0]) is tuple:
        t = types(e.dtype)[0]
        pairs = zip(*values, strict=True)
        return tuple(code.op(f"select i1 {pred}, {t} {a}, {t} {b}") for a, b in pairs)
    t = REGISTER[e.dtype]
    chance = ", !unpredictable !{}" if _tests_bits(e.args[0]) else ""
    return code.op(f"select i1 {pred}, {t} {values[0]}, {t} {values[1]}{chance}")


def _tests_bits(pred: Expr) -> bool:
    """Whether bits of a number decide, as in a checksum: a branch would be guessed wrong half the time."""
    while pred.dtype == "bool" and pred.op in ("not", "eq", "ne"):
        pred = pred.args[0]
    return pred.op in ("and", "xor") and KIND[pred.dtype] in "iu"


def _real(code: Emitter, e: Expr) -> Operand:
    return code.memo[e.args[0]][0]


def _imag(code: Emitter, e: Expr) -> Operand:
    return code.memo[e.args[0]][1]


def _complex(code: Emitter, e: Expr) -> Operand:
    return code.memo[e.args[0]], code.memo[e.args[1]]


# --- the table: operation -> kind of its first operand -> printer of a dtype -------------------

_OPS: dict[str, dict[str, Callable[[str], Printer]]] = {
    "add": {"iu": _integer("add"), "f": _float("fadd"), "b": _integer("or")},
    "sub": {"iu": _integer("sub"), "f": _float("fsub"), "b": _integer("xor")},
    "mul": {"iu": _integer("mul"), "f": _float("fmul"), "b": _integer("and")},
    "div": {"iu": integer_division.printer("div"), "f": _quotient},
    "rem": {"iu": integer_division.printer("rem"), "f": _remainder},
    "fmod": {"f": _exact_float("frem")},
    "neg": {"iu": _neg_int, "fh": _neg_float, "b": _same},
    "abs": {"i": _call("abs", ", i1 false"), "ub": _same, "fh": _call("fabs")},
    "max": {
        "i": _call("smax"),
        "u": _call("umax"),
        "fh": _extreme("maximum"),
        "b": _integer("or"),
    },
    "min": {
        "i": _call("smin"),
        "u": _call("umin"),
        "fh": _extreme("minimum"),
        "b": _integer("and"),
    },
    "floor": {"fh": _call("floor"), "iu": _same},
    "ceil": {"fh": _call("ceil"), "iu": _same},
    "trunc": {"fh": _call("trunc"), "iu": _same},
    "round_even": {"fh": _call("roundeven"), "iu": _same},
    "sqrt": {"f": _call("sqrt")},
    "fma": {"f": _call("fma")},
    "and": {"iub": _integer("and")},
    "or": {"iub": _integer("or")},
    "xor": {"iub": _integer("xor")},
    "not": {"iub": _not},
    "shift_left": {"iu": _shift("shl")},
    "shift_right_logical": {"iu": _shift("lshr")},
    "shift_right_arithmetic": {"iu": _shift("ashr")},
    "population_count": {"iu": _call("ctpop")},
    "clz": {"iu": _call("ctlz", ", i1 false")},
    "is_finite": {"fh": _is_finite},
    "bitcast": {"iufhbs": lambda dtype: bitcast},
    "cast": {"iufhb": lambda dtype: cast},
    "real": {"c": lambda dtype: _real, "fh": _same},
    "imag": {"c": lambda dtype: _imag},
    "complex": {"f": lambda dtype: _complex},
    **{op: {"biufh": _compare(op)} for op in _FCMP},
}
_LEAVES: dict[str, Printer] = {"const": _const, "size": _size, "literal": _literal, "load": _load}


def _expanded(code: Emitter, e: Expr) -> Operand:
    flags = code.flags
    if e in code.fast:
        code.flags = " reassoc nsz contract"
    try:
        return code.value(expand.derived(e))
    finally:
        code.flags = flags


def _function(code: Emitter, e: Expr) -> Operand:
    return code.call_function(e)


def _called(code: Emitter, e: Expr) -> Operand:
    """A call, but where LLVM makes vectors, which it does not of calls."""
    return _expanded(code, e) if code.in_vector else code.call_function(e)


@lru_cache(maxsize=4096)
def printer(op: str, dtype: str, result: str) -> Printer:
    """How an operation on operands of a dtype is printed."""
    if op in _LEAVES:
        return _LEAVES[op]
    if op == "select":
        return _select
    if op == "special":
        return special.call
    if op == "call":
        return _called
    if op == "cast" and (dtype in PART or result in PART or "s" in (KIND[dtype], KIND[result])):
        return _expanded
    if op == "cast" and KIND[result] == "h" and dtype != "float32" and KIND[dtype] not in "bh":
        return _expanded
    for kinds, of in _OPS.get(op, {}).items():
        if KIND[dtype] in kinds:
            return of(dtype)
    if expand.is_function(op, dtype):
        return _function
    if expand.is_derived(op, dtype):
        return _expanded
    raise NotImplementedError(f"there is no native code for {op} on {dtype}")
