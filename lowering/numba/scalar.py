"""Scalar expressions as Python that Numba compiles and NumPy's scalars run alike.

Every result has its dtype by an explicit cast, so that Numba's promotion never widens. Operations
that Python lacks are small functions, printed into the source when they are used.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from fnx.core.scalar import Expr
from fnx.lowering.ir.number_formats import BYTES, KIND, PART, byte, rounded, wrapped
from fnx.lowering.math import expand

from .emitter import Emitter

NUMPY = {d: f"np.{d}" for d in KIND} | {"bool": "np.bool_"}
NUMPY |= {"float16": "np.float32", "bfloat16": "np.float32"}  # as they are computed
NUMPY |= {d: "np.uint8" for d, kind in KIND.items() if kind == "s"}
STORED = NUMPY | {"float16": "np.uint16", "bfloat16": "np.uint16"}  # as they lie in memory
_PLAIN = ("int64", "float64", "bool")  # dtypes of Python's own numbers

# --- functions that are printed when they are used: text by name; NP and D stand for the dtype ----

_HELPERS = {
    "div": """
def div_D(a, b):
    if b == 0:
        return NP(ONES)
    q = a // b
    if q * b != a and (a < 0) != (b < 0):
        q = NP(q + NP(1))
    return NP(q)
""",
    "rem": """
def rem_D(a, b):
    if b == 0:
        return NP(a)
    return NP(a - NP(div_D(a, b) * b))
""",
    "max": """
def max_D(a, b):
    if a != a or a > b:
        return a
    if a == b and a == 0:
        return a + b
    return b
""",
    "min": """
def min_D(a, b):
    if a != a or a < b:
        return a
    if a == b and a == 0:
        return -(-a + -b)
    return b
""",
    "shift_left": """
def shift_left_D(a, b):
    if b < 0 or b >= WIDTH:
        return NP(0)
    return NP(NP(a) << NP(b))
""",
    "shift_right_arithmetic": """
def shift_right_arithmetic_D(a, b):
    if b < 0 or b >= WIDTH:
        b = NP(WIDTH - 1)
    return NP(NP(a).view(SIGNED) >> NP(b).view(SIGNED)).view(NP)
""",
    "shift_right_logical": """
def shift_right_logical_D(a, b):
    if b < 0 or b >= WIDTH:
        return NP(0)
    return UNSIGNED(NP(a).view(UNSIGNED) >> NP(b).view(UNSIGNED)).view(NP)
""",
    "population_count": """
def population_count_D(a):
    rest, count = NP(a).view(UNSIGNED), 0
    while rest != 0:
        rest = UNSIGNED(rest & UNSIGNED(rest - UNSIGNED(1)))
        count += 1
    return NP(count)
""",
    "clz": """
def clz_D(a):
    rest, count = NP(a).view(UNSIGNED), WIDTH
    while rest != 0:
        rest = UNSIGNED(rest >> UNSIGNED(1))
        count -= 1
    return NP(count)
""",
    "from_float": """
def D_from_float(x):
    if x != x:
        return NP(0)
    if x <= LEAST:
        return NP(LOW)
    if x >= BEYOND:
        return NP(HIGH)
    return NP(x)
""",
}


_OF_KIND = {"max": "f", "min": "f"}
HELPERS = {
    f"{d}_from_float" if name == "from_float" else f"{name}_{d}": (name, d)
    for name in _HELPERS
    for d, kind in KIND.items()
    if kind in _OF_KIND.get(name, "iu")
}  # the names of all of them


def helper(printer: Emitter, name: str, dtype: str) -> str:
    """The name of a helper function for a dtype; its text is printed once."""
    full = f"{dtype}_from_float" if name == "from_float" else f"{name}_{dtype}"
    if printer.has_function(full):
        return full
    if name == "rem" and KIND[dtype] in "iu":
        helper(printer, "div", dtype)
    text = _HELPERS[name].strip("\n")
    words = {"NP": NUMPY[dtype]}
    if KIND[dtype] in "iu":
        width = 8 * BYTES[dtype]
        signed = KIND[dtype] == "i"
        low, high = (
            (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
        )
        words |= {"WIDTH": str(width), "ONES": str(-1 if signed else high)}
        words |= {"UNSIGNED": f"np.uint{width}", "SIGNED": f"np.int{width}"}
        words |= {"LEAST": repr(float(low)), "BEYOND": repr(float(high + 1))}
        words |= {"LOW": str(low), "HIGH": str(high)}
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, words[word])
    text = text.replace("_D(", f"_{dtype}(").replace("D_from", f"{dtype}_from")
    printer.add_function(full, text)
    return full


# --- numbers -----------------------------------------------------------------------------------


def _float(value: float) -> str:
    if math.isnan(value):
        return "np.nan"
    if math.isinf(value):
        return "np.inf" if value > 0 else "-np.inf"
    return float.__repr__(value)


def number(e: Expr, bare: bool) -> str:
    """A constant; `bare`: beside an operand that fixes the dtype, it needs none."""
    dtype, value = e.dtype, e.attr
    if dtype in PART:
        return f"{NUMPY[dtype]}(complex({_float(value[0])}, {_float(value[1])}))"
    if dtype == "bool":
        return str(bool(value)) if bare else f"np.bool_({bool(value)})"
    if KIND[dtype] == "s":
        text = str(byte(value, dtype))
    elif "float" in dtype:
        text = _float(float(rounded(value, dtype)))
    else:
        value = wrapped(value, dtype)
        text = str(value + (1 << 8 * BYTES[dtype]) if dtype[0] == "u" and value < 0 else value)
    if dtype in _PLAIN and bare and text != str(-(1 << 63)):
        return text
    return f"{NUMPY[dtype]}({text})"


# --- operations --------------------------------------------------------------------------------

Form = Callable[[Emitter, Expr], str]
_SYMBOL = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"}
_COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_NUMPY_CALL = {
    "floor": "np.floor",
    "ceil": "np.ceil",
    "trunc": "np.trunc",
    "round_even": "np.rint",
    "sqrt": "np.sqrt",
    "rem": "np.fmod",
}
_BOOL_SYMBOL = {"add": "|", "sub": "^", "mul": "&", "max": "|", "min": "&"}
_BOOL_SYMBOL |= {"and": "&", "or": "|", "xor": "^"}


def _typed(dtype: str, text: str) -> str:
    """A result of its dtype; float64 and int64 arithmetic keeps it by itself."""
    if dtype in ("float64", "int64", "bool", "complex128"):
        return text
    return f"{NUMPY[dtype]}{text}" if text[0] == "(" else f"{NUMPY[dtype]}({text})"


def _infix(p: Emitter, e: Expr) -> str:
    a, b = p.operands(e)
    symbol = _BOOL_SYMBOL[e.op] if e.dtype == "bool" else _SYMBOL[e.op]
    return _typed(e.dtype, f"({a} {symbol} {b})")


def _compare(p: Emitter, e: Expr) -> str:
    a, b = p.operands(e)
    return f"({a} {_COMPARE[e.op]} {b})"


def _call(p: Emitter, e: Expr) -> str:
    args = ", ".join(p.operands(e, bare=False))
    return _typed(e.dtype, f"{_NUMPY_CALL[e.op]}({args})")


def _helper(p: Emitter, e: Expr) -> str:
    name = helper(p, e.op, e.args[0].dtype)
    return f"{name}({', '.join(p.operands(e, bare=False))})"


def _extreme(p: Emitter, e: Expr) -> str:
    return _typed(e.dtype, f"{e.op}({', '.join(p.operands(e))})")


def _neg(p: Emitter, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    if KIND[e.dtype] == "u":
        return f"{NUMPY[e.dtype]}({NUMPY[e.dtype]}(0) - {x})"
    return x if e.dtype == "bool" else _typed(e.dtype, f"(-{x})")


def _abs(p: Emitter, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    return x if KIND[e.dtype] in "ub" else _typed(e.dtype, f"np.abs({x})")


def _not(p: Emitter, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    return f"(not {x})" if e.dtype == "bool" else _typed(e.dtype, f"(~{x})")


def _same(p: Emitter, e: Expr) -> str:
    return p.operands(e, bare=False)[0]


def _shift(p: Emitter, e: Expr) -> str:
    a, b = p.operands(e, bare=False)
    amount, t = e.args[1], NUMPY[e.dtype]
    known = amount.op == "const" and 0 <= amount.attr < 8 * BYTES[e.dtype]
    if known and (e.op == "shift_left" or e.dtype[0] == "u"):
        return f"{t}({a} {'<<' if e.op == 'shift_left' else '>>'} {b})"
    return f"{helper(p, e.op, e.dtype)}({a}, {b})"


def _integer_division(p: Emitter, e: Expr) -> str:
    divisor = e.args[1]
    if divisor.op == "size" and divisor.attr > 0 and p.is_index(e.args[0]):
        a, b = p.operands(e)
        return f"({a} {'//' if e.op == 'div' else '%'} {b})"
    return _helper(p, e)


def _select(p: Emitter, e: Expr) -> str:
    pred, a, b = p.operands(e, bare=False)
    return f"({a} if {pred} else {b})"


def _fma(p: Emitter, e: Expr) -> str:
    p.module.runtime.add("fma")
    return _typed(e.dtype, f"fma({', '.join(p.operands(e))})")


def _is_finite(p: Emitter, e: Expr) -> str:
    return f"np.isfinite({p.operands(e, bare=False)[0]})"


def _part(name: str) -> Form:
    return lambda p, e: f"{p.operands(e, bare=False)[0]}.{name}"


def _complex(p: Emitter, e: Expr) -> str:
    return f"{NUMPY[e.dtype]}(complex({', '.join(p.operands(e, bare=False))}))"


def _conj(p: Emitter, e: Expr) -> str:
    return _typed(e.dtype, f"np.conj({p.operands(e, bare=False)[0]})")


def _cast(p: Emitter, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    source, target = e.args[0].dtype, e.dtype
    a, b = KIND[source], KIND[target]
    if b == "b":
        return f"({x} != 0)"
    if b == "h":
        return x if a == "b" else to_half(p, x, target)
    if a in "fh" and b in "iu":
        return f"{helper(p, 'from_float', target)}({x})"
    if a == "h" and target == "float32":
        return x
    if a in "iu" and b in "iu":
        return narrow(x, source, target)
    return f"{NUMPY[target]}({x})"


def narrow(x: str, source: str, target: str) -> str:
    """An integer as another integer type, by its last bits."""
    if BYTES[target] > BYTES[source] and (source[0] == "u" or target[0] == "i"):
        return f"{NUMPY[target]}({x})"  # every value is in range
    width = 8 * BYTES[target]
    if BYTES[target] < BYTES[source]:
        # masked first: NumPy refuses Python integers out of range
        if source == "int64":
            x = f"np.int64({x})"
        mask = f"{NUMPY[source]}({(1 << width) - 1})"
        x = f"np.uint{width}({x} & {mask})"
    elif BYTES[target] > BYTES[source]:
        x = f"np.int{width}({x})"
        return f"{x}.view({NUMPY[target]})"
    else:
        x = f"{NUMPY[source]}({x})"
        return f"{x}.view({NUMPY[target]})"
    return x if target[0] == "u" else f"{x}.view({NUMPY[target]})"


def to_half(p: Emitter, x: str, dtype: str) -> str:
    """A float32 rounded to a 16-bit format, as float32."""
    return from_bits(p, to_bits(p, x, dtype), dtype)


def to_bits(p: Emitter, x: str, dtype: str) -> str:
    return f"{p.formula('half_bits' if dtype == 'float16' else 'bfloat_bits')}({x})"


def from_bits(p: Emitter, x: str, dtype: str) -> str:
    return f"{p.formula('half_value' if dtype == 'float16' else 'bfloat_value')}({x})"


def _bitcast(p: Emitter, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    source, target = e.args[0].dtype, e.dtype
    if KIND[source] == "h":
        x, source = to_bits(p, x, source), "uint16"
    if KIND[target] == "h":
        if source != "uint16":
            x = f"{NUMPY[source]}({x}).view(np.uint16)"
        return from_bits(p, x, target)
    if target == "bool":
        return f"({x} != 0)"
    if source == "bool":
        return f"{NUMPY[target]}({x})"
    same = NUMPY[source] == NUMPY[target]
    return x if same else f"{NUMPY[source]}({x}).view({NUMPY[target]})"


def _load(p: Emitter, e: Expr) -> str:
    text = f"{p.buffer(e.attr)}[{p.operands(e)[0]}]"
    return from_bits(p, text, e.dtype) if KIND[e.dtype] == "h" else text


def _function(p: Emitter, e: Expr) -> str:
    return f"{p.function(e.op, e.args[0].dtype)}({', '.join(p.operands(e, bare=False))})"


def _derived(p: Emitter, e: Expr) -> str:
    return p.inline(expand.derived(e))


def _special(p: Emitter, e: Expr) -> str:
    p.module.runtime.add("special")
    name, part = e.attr
    word = p.module.call(f"special:{name}/{''.join(_LETTER[a.dtype] for a in e.args)}")
    return f"special({word}, {part}, ({', '.join(p.operands(e, bare=False))},))"


_LETTER = {"float32": "f", "float64": "d", "complex64": "F", "complex128": "D", "int64": "l"}


_FORMS: dict[str, dict[str, Form]] = {
    "add": {"biufc": _infix},
    "sub": {"biufc": _infix},
    "mul": {"biufc": _infix},
    "div": {"f": _infix, "iu": _integer_division},
    "rem": {"f": _call, "iu": _integer_division},
    "neg": {"biufhc": _neg},
    "abs": {"biufh": _abs},
    "max": {"b": _infix, "fh": _helper, "iu": _extreme},
    "min": {"b": _infix, "fh": _helper, "iu": _extreme},
    **{op: {"fh": _call, "iu": _same} for op in ("floor", "ceil", "trunc", "round_even")},
    "sqrt": {"f": _call},
    "fma": {"f": _fma},
    "and": {"biu": _infix},
    "or": {"biu": _infix},
    "xor": {"biu": _infix},
    "not": {"biu": _not},
    "shift_left": {"iu": _shift},
    "shift_right_logical": {"iu": _shift},
    "shift_right_arithmetic": {"iu": _shift},
    "population_count": {"iu": _helper},
    "clz": {"iu": _helper},
    "is_finite": {"fh": _is_finite},
    "real": {"c": _part("real"), "fh": _same},
    "imag": {"c": _part("imag")},
    "complex": {"f": _complex},
    "conj": {"c": _conj},
    **{op: {"biufh": _compare, "c": _compare} for op in ("eq", "ne")},
    **{op: {"biufh": _compare} for op in ("lt", "le", "gt", "ge")},
    "bitcast": {"biufhs": _bitcast},
    "cast": {"biufh": _cast},
}


@lru_cache(maxsize=4096)
def form(op: str, dtype: str, result: str) -> Form:
    """How an operation on operands of a dtype is printed."""
    if op == "load":
        return _load
    if op == "select":
        return _select
    if op == "special":
        return _special
    if op == "cast" and (dtype in PART or result in PART or "s" in (KIND[dtype], KIND[result])):
        return _derived
    if op == "cast" and KIND[result] == "h" and dtype != "float32" and KIND[dtype] not in "bh":
        return _derived
    found = chosen(_FORMS, op, dtype, _function, _derived)
    if found is None:
        raise NotImplementedError(f"there is no Numba code for {op} on {dtype}")
    return found


def chosen(
    forms: dict[str, dict[str, Form]], op: str, dtype: str, function: Form, derived: Form
) -> Form | None:
    """How forms print an operation on a dtype, or what expands it; None where nothing does."""
    for kinds, how in forms.get(op, {}).items():
        if KIND[dtype] in kinds:
            return how
    if expand.is_function(op, dtype):
        return function
    return derived if expand.is_derived(op, dtype) else None
