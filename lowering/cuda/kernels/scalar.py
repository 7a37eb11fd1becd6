"""Scalar expressions in the dialect of Python that becomes one flat kernel: no functions of our own.

Every number has its dtype, every result is cast to its own. `math` and `libdevice` are the vendor's
elementary functions; what they lack is written out where it stands (lowering/math). The simulator runs
the same text with functions of NumPy's under these names (`simulator.py`). A choice between two values
is an instruction (`selp`), not a branch: for the hundreds of choices of a complex function, blocks of
code would take Numba longer than all else, and the threads of a warp apart. A product is rounded as it is
on a CPU: NVIDIA's compilers else make one operation of it and a sum, at some places and not at others.
"""

from collections.abc import Callable

from fnx.core.scalar import Expr
from fnx.lowering.ir.number_formats import BYTES, KIND, PART
from fnx.lowering.math import expand
from fnx.lowering.numba import scalar as ns
from fnx.lowering.numba.expression_printer import bare
from fnx.lowering.numba.scalar import NUMPY, STORED

Form = Callable

# Functions of the vendor's: Python's names of them, and those for float64, which end in f for float32.
_MATH = {
    op: op
    for op in "sqrt exp expm1 log log1p log2 log10 sin cos tan sinh cosh tanh asin acos atan asinh acosh "
    "atanh erf erfc atan2 pow".split()
}
_MATH |= {"rem": "fmod", "is_finite": "isfinite"}
_LIBDEVICE = {op: op for op in "floor ceil trunc fma exp2 cbrt".split()} | {"round_even": "rint"}
_BITS = {
    ("float64", "int64"): "double_as_longlong",
    ("int64", "float64"): "longlong_as_double",
    ("float32", "int32"): "float_as_int",
    ("int32", "float32"): "int_as_float",
}


_CHOSEN = frozenset("int16 uint16 int32 uint32 int64 uint64 float32 float64".split())


def choice(p, condition: str, a: str, b: str, dtype: str) -> str:
    """The text of one of two values of a dtype, both of which are computed."""
    if dtype in PART:
        real = PART[dtype]
        a, b = p.assigned(a), p.assigned(b)
        parts = [choice(p, condition, f"{a}.{x}", f"{b}.{x}", real) for x in ("real", "imag")]
        return f"{NUMPY[dtype]}(complex({', '.join(parts)}))"
    t = NUMPY[dtype]
    kind = t.removeprefix("np.")
    if kind in _CHOSEN:
        return f"cuda.selp({bare(condition)}, {bare(a)}, {bare(b)})"
    if dtype == "bool":
        return f"(cuda.selp({bare(condition)}, np.int32({bare(a)}), np.int32({bare(b)})) != 0)"
    wide = kind.replace("8", "16")
    return f"{t}(cuda.selp({bare(condition)}, np.{wide}({bare(a)}), np.{wide}({bare(b)})))"


def _select(p, e: Expr) -> str:
    condition, a, b = p.operands(e, bare=False)
    if e.dtype in PART:
        condition = p.assigned(condition)
    return choice(p, condition, a, b, e.dtype)


def _library(p, e: Expr) -> str:
    name = f"libdevice.{_LIBDEVICE[e.op]}{'' if e.dtype == 'float64' else 'f'}"
    return f"{name}({', '.join(p.operands(e, bare=False))})"


def _math(p, e: Expr) -> str:
    return f"math.{_MATH[e.op]}({', '.join(p.operands(e, bare=False))})"


def _mul(p, e: Expr) -> str:
    """A product that no compiler makes one operation with a sum, but where the order is free, too."""
    a, b = p.operands(e, bare=p.contracts > 0)
    if p.contracts:
        return f"{'' if e.dtype == 'float64' else NUMPY[e.dtype]}({a} * {b})"
    return _rounded_product(a, b, e.dtype)


def _rounded_product(a: str, b: str, dtype: str) -> str:
    return f"libdevice.{'d' if dtype == 'float64' else 'f'}mul_rn({bare(a)}, {bare(b)})"


def _complex_mul(p, e: Expr) -> str:
    if p.contracts:
        return ns.form("mul", e.dtype, e.dtype)(p, e)
    a, b = (p.assigned(x) for x in p.operands(e, bare=False))
    times = lambda k, m: _rounded_product(f"{a}.{k}", f"{b}.{m}", PART[e.dtype])
    real = f"{times('real', 'real')} - {times('imag', 'imag')}"
    imag = f"{times('real', 'imag')} + {times('imag', 'real')}"
    if PART[e.dtype] == "float32":
        real, imag = f"np.float32({real})", f"np.float32({imag})"
    return f"{NUMPY[e.dtype]}(complex({real}, {imag}))"


def _abs(p, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    return x if KIND[e.dtype] in "ub" else f"{NUMPY[e.dtype]}(abs({x}))"


def _extreme(p, e: Expr) -> str:
    """NaN if one is NaN; of two zeros the one whose sign counts."""
    last = float("-inf" if e.op == "max" else "inf")
    for x, other in (e.args, e.args[::-1]):
        if x.op in ("const", "literal") and x.attr == last:  # with which a maximum begins
            return p.inline(other)
    a, b = p.named(e)
    t = NUMPY[e.dtype]
    zero, beyond = (f"{a} + {b}", ">") if e.op == "max" else (f"-(-{a} + -{b})", "<")
    zero = p.assigned(f"({zero})" if e.dtype == "float64" else f"({t}({zero}))")
    rest = choice(p, f"({a} == {b}) & ({a} == {t}(0.0))", zero, b, e.dtype)
    return choice(p, f"({a} != {a}) | ({a} {beyond} {b})", a, rest, e.dtype)


def _int_extreme(p, e: Expr) -> str:
    if e.dtype == "int64":  # indices: few words, which take long to compile
        return f"{e.op}({', '.join(p.operands(e))})"
    a, b = p.named(e)
    return choice(p, f"{a} {'>' if e.op == 'max' else '<'} {b}", a, b, e.dtype)


def _division(p, e: Expr) -> str:
    """Towards zero; by zero gives all ones, and the remainder the dividend."""
    divisor = e.args[1]
    if divisor.op == "size" and divisor.attr > 0 and p.is_index(e.args[0]):
        a, b = p.operands(e)
        return f"({a} {'//' if e.op == 'div' else '%'} {b})"
    a, b = p.named(e)
    t = NUMPY[e.dtype]
    known = divisor.op in ("size", "const") and divisor.attr != 0
    safe = b if known else p.assigned(choice(p, f"{b} != {t}(0)", b, f"{t}(1)", e.dtype))
    quotient = p.assigned(f"{t}({a} // {safe})")
    if e.dtype[0] == "i":
        inexact = f"({t}({quotient} * {safe}) != {a}) & (({a} < {t}(0)) != ({safe} < {t}(0)))"
        quotient = p.assigned(f"{t}({quotient} + {t}({inexact}))")
    if e.op == "rem":
        rest = f"{t}({a} - {t}({quotient} * {safe}))"
        return rest if known else choice(p, f"{b} != {t}(0)", rest, a, e.dtype)
    ones = f"{t}({-1 if e.dtype[0] == 'i' else (1 << 8 * BYTES[e.dtype]) - 1})"
    return quotient if known else choice(p, f"{b} != {t}(0)", quotient, ones, e.dtype)


def _shift(p, e: Expr) -> str:
    a, b = p.named(e)
    t, width = NUMPY[e.dtype], 8 * BYTES[e.dtype]
    unsigned, signed = f"uint{width}", f"int{width}"
    known = e.args[1].op == "const" and 0 <= e.args[1].attr < width
    if e.op == "shift_right_arithmetic":
        if e.dtype == "int64" and known:
            return f"({a} >> {e.args[1].attr})"
        if e.dtype[0] == "u":
            a = f"np.{signed}({a})"
        amount = f"np.{signed}({b})"
        if not known:
            top = f"np.{signed}({width - 1})"
            amount = choice(p, _in_range(b, e.dtype, width), amount, top, signed)
        return f"{t}({a} >> {amount})"
    symbol = "<<" if e.op == "shift_left" else ">>"
    amount = f"np.{unsigned}({b})"
    shifted = f"{t}(np.{unsigned}(np.{unsigned}({a}) {symbol} {{}}))"
    if known:
        return shifted.format(amount)
    inside = p.assigned(f"({_in_range(b, e.dtype, width)})")
    amount = choice(p, inside, amount, f"np.{unsigned}(0)", unsigned)
    return choice(p, inside, shifted.format(amount), f"{t}(0)", e.dtype)


def _in_range(b: str, dtype: str, width: int) -> str:
    t = NUMPY[dtype]
    low = "" if dtype[0] == "u" else f"({b} >= {t}(0)) & "
    return f"{low}({b} < {t}({width}))"


def _wide(x: str, dtype: str) -> str:
    """The bits of an integer, as the last ones of an int64."""
    return f"np.int64(np.uint{8 * BYTES[dtype]}({x}))"


def _popcount(p, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    return f"{NUMPY[e.dtype]}(libdevice.popcll({_wide(x, e.dtype)}))"


def _clz(p, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    width = 8 * BYTES[e.dtype]
    return (
        f"{NUMPY[e.dtype]}(np.int64(libdevice.clzll({_wide(x, e.dtype)})) - np.int64({64 - width}))"
    )


def _cast(p, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    source, target = e.args[0].dtype, e.dtype
    a, b = KIND[source], KIND[target]
    t = NUMPY[target]
    if b == "b":
        return f"({x} != {NUMPY[source]}(0))" if a != "b" else x
    if b == "h":
        return to_half(p, e.args[0], x, target)
    if a in "fh" and b in "iu":
        return _from_float(p, e, x)
    if a == "h" and target == "float32":
        return x
    if a == "b":
        return f"{t}({x})" if b in "iu" else choice(p, x, f"{t}(1)", f"{t}(0)", target)
    return f"{t}({x})"


def _from_float(p, e: Expr, x: str) -> str:
    """The integer next to zero; numbers out of range give the last one, NaN zero."""
    target = e.dtype
    t, width, signed = NUMPY[target], 8 * BYTES[target], target[0] == "i"
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    f = NUMPY[e.args[0].dtype]
    x = p.assigned(x if x[0] == "(" else f"({x})")
    least, beyond = f"{x} <= {f}({float(low)!r})", f"{x} >= {f}({float(high + 1)!r})"
    # What is out of range is not converted: there GPUs differ from one another's compilers.
    out = p.assigned(f"(({x} != {x}) | ({least}) | ({beyond}))")
    source = NUMPY[e.args[0].dtype].removeprefix("np.")
    inside = choice(p, out, f"{f}(0.0)", x, source)
    lowest = f"{t}({low + 1}) - {t}(1)" if signed and width == 64 else f"{t}({low})"
    found = choice(p, beyond, f"{t}({high})", f"{t}({inside})", target)
    return choice(p, least, lowest, found, target)


def to_half(p, e: Expr, x: str, dtype: str) -> str:
    """A float32 rounded to a 16-bit format, as float32."""
    if e.dtype == "bool":
        return choice(p, x, "np.float32(1.0)", "np.float32(0.0)", "float32")
    return p.formula("half_value" if dtype == "float16" else "bfloat_value", to_bits(p, x, dtype))


def to_bits(p, x: str, dtype: str) -> str:
    return p.formula("half_bits" if dtype == "float16" else "bfloat_bits", x)


def from_bits(p, x: str, dtype: str) -> str:
    return p.formula("half_value" if dtype == "float16" else "bfloat_value", x)


def _bitcast(p, e: Expr) -> str:
    (x,) = p.operands(e, bare=False)
    source, target = e.args[0].dtype, e.dtype
    if source == target or KIND[source] == KIND[target] == "s":
        return x
    if KIND[source] == "h":
        x, source = to_bits(p, x, source), "uint16"
    if KIND[target] == "h":
        return from_bits(p, x if source == "uint16" else f"np.uint16({x})", target)
    if target == "bool":
        return f"({x} != {NUMPY[source]}(0))"
    if source == "bool":
        return f"{NUMPY[target]}({x})"
    if KIND[source] == "f":
        signed = f"int{8 * BYTES[source]}"
        x = f"libdevice.{_BITS[source, signed]}({x})"
        return x if target == signed else f"{NUMPY[target]}({x})"
    if KIND[target] == "f":
        signed = f"int{8 * BYTES[target]}"
        x = x if source == signed else f"np.{signed}({x})"
        return f"libdevice.{_BITS[signed, target]}({x})"
    return f"{NUMPY[target]}({x})"


def _load(p, e: Expr) -> str:
    text = f"{p.buffer(e.attr)}[{p.operands(e)[0]}]"
    if e.dtype == "bool":
        return f"({text} != 0)"
    return from_bits(p, text, e.dtype) if KIND[e.dtype] == "h" else text


def _function(p, e: Expr) -> str:
    return p.inline(expand.body(e.op, e.args[0].dtype, list(e.args)))


def _derived(p, e: Expr) -> str:
    return p.inline(expand.derived(e))


_FORMS: dict[str, dict[str, Form]] = {
    **{op: {"f": _math} for op in _MATH},
    **{op: {"f": _library} for op in _LIBDEVICE},
    **{op: {"fh": _library} for op in ("floor", "ceil", "trunc", "round_even")},
    "mul": {"f": _mul, "c": _complex_mul},
    "div": {"iu": _division},
    "rem": {"f": _math, "iu": _division},
    "abs": {"biufh": _abs},
    "max": {"fh": _extreme, "iu": _int_extreme},
    "min": {"fh": _extreme, "iu": _int_extreme},
    **{
        op: {"iu": _shift} for op in ("shift_left", "shift_right_logical", "shift_right_arithmetic")
    },
    "population_count": {"iu": _popcount},
    "clz": {"iu": _clz},
    "is_finite": {"fh": _math},
    "bitcast": {"biufhs": _bitcast},
}
_SHARED = frozenset(
    "add sub mul div neg floor ceil trunc round_even max min and or xor not real imag complex conj "
    "eq ne lt le gt ge".split()
)


def form(op: str, dtype: str, result: str) -> Form:
    """How an operation on operands of a dtype is printed."""
    if op == "load":
        return _load
    if op == "select":
        return _select
    if op == "cast":
        if dtype in PART or result in PART or "s" in (KIND[dtype], KIND[result]):
            return _derived
        if KIND[result] == "h" and dtype != "float32" and KIND[dtype] not in "bh":
            return _derived
        return _cast
    found = ns.chosen(_FORMS, op, dtype, _function, _derived)
    if found is not None:
        return found
    if op in _SHARED:
        return ns.form(op, dtype, result)
    raise NotImplementedError(f"there is no code for {op} on {dtype} for CUDA")


__all__ = ["NUMPY", "STORED", "form", "to_bits"]
