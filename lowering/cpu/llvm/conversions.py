"""Conversions between scalar types as LLVM instructions: casts, bit casts, 16-bit formats."""

from fnx.core.scalar import Expr
from fnx.lowering.ir.number_formats import BYTES, KIND, wrapped

from .emitter import Emitter
from .types import REGISTER, Operand, float_text


def round_half(code: Emitter, x: str) -> str:
    """A float, rounded to float16."""
    if code.module.has_half:
        return code.op(f"fpext half {code.op(f'fptrunc float {x} to half')} to float")
    return widen_bits(code, narrow_bits(code, x, "float16"), "float16")


def _round_bfloat(code: Emitter, x: str) -> str:
    """A float, rounded to bfloat16, ties to even; NaN stays NaN."""
    raw = code.op(f"bitcast float {x} to i32")
    odd = code.op(f"and i32 {code.op(f'lshr i32 {raw}, 16')}, 1")
    up = code.op(f"add i32 {code.op(f'add i32 {raw}, 32767')}, {odd}")
    cut = code.op(f"and i32 {up}, -65536")
    nan = code.op(f"fcmp uno float {x}, 0.0")
    kept = code.op(f"select i1 {nan}, i32 2143289344, i32 {cut}")
    return code.op(f"bitcast i32 {kept} to float")


def narrow_bits(code: Emitter, x: str, dtype: str) -> str:
    """The 16 bits of a register value of a 16-bit format."""
    if dtype == "bfloat16":
        raw = code.op(f"bitcast float {x} to i32")
        return code.op(f"trunc i32 {code.op(f'lshr i32 {raw}, 16')} to i16")
    if code.module.has_half:
        return code.op(f"bitcast half {code.op(f'fptrunc float {x} to half')} to i16")
    return code.call_helper("half_bits", ("float",), "i16", (x,))


def widen_bits(code: Emitter, x: str, dtype: str) -> str:
    """The register value of 16 bits of a 16-bit format."""
    if dtype == "bfloat16":
        wide = code.op(f"shl i32 {code.op(f'zext i16 {x} to i32')}, 16")
        return code.op(f"bitcast i32 {wide} to float")
    if code.module.has_half:
        return code.op(f"fpext half {code.op(f'bitcast i16 {x} to half')} to float")
    return code.call_helper("half_value", ("i16",), "float", (x,))


def bitcast(code: Emitter, e: Expr) -> Operand:
    source, x = e.args[0].dtype, code.memo[e.args[0]]
    if source in ("float16", "bfloat16"):
        x, t = narrow_bits(code, x, source), "i16"
    elif source == "bool":
        x, t = code.op(f"zext i1 {x} to i8"), "i8"
    else:
        t = REGISTER[source]
    if e.dtype in ("float16", "bfloat16"):
        return widen_bits(code, x, e.dtype)
    if e.dtype == "bool":
        return code.op(f"icmp ne i8 {x}, 0")
    target = REGISTER[e.dtype]
    return x if t == target else code.op(f"bitcast {t} {x} to {target}")


def _saturating(code: Emitter, x: str, s: str, target: str) -> str:
    """A float as an integer; by comparisons, since LLVM does not vectorise its own fptosi.sat."""
    t, width, signed = REGISTER[target], 8 * BYTES[target], KIND[target] == "i"
    low, high = (-(1 << (width - 1)), 1 << (width - 1)) if signed else (0, 1 << width)
    least, beyond = (float_text(float(v).hex(), "float64") for v in (low, high))
    inside = code.op(f"fcmp oge {s} {x}, {least}")
    inside = code.op(f"and i1 {inside}, {code.op(f'fcmp olt {s} {x}, {beyond}')}")
    safe = code.op(f"select i1 {inside}, {s} {x}, {s} 0.0")
    result = code.op(f"fpto{'s' if signed else 'u'}i {s} {safe} to {t}")
    if signed:
        under = code.op(f"fcmp olt {s} {x}, {least}")
        result = code.op(f"select i1 {under}, {t} {low}, {t} {result}")
    over = code.op(f"fcmp oge {s} {x}, {beyond}")
    return code.op(f"select i1 {over}, {t} {wrapped(high - 1, target)}, {t} {result}")


def cast(code: Emitter, e: Expr) -> Operand:
    source, target, x = e.args[0].dtype, e.dtype, code.memo[e.args[0]]
    s, t, a, b = REGISTER[source], REGISTER[target], KIND[source], KIND[target]
    if b == "h" and s == "float":
        return round_half(code, x) if target == "float16" else _round_bfloat(code, x)
    if b == "b":
        return code.op(f"fcmp une {s} {x}, 0.0" if a in "fh" else f"icmp ne {s} {x}, 0")
    if s == t:
        return x
    if a in "fh" and b in "iu":
        return _saturating(code, x, s, target)
    if b in "fh":
        if a in "fh":
            return code.op(f"{'fpext' if t == 'double' else 'fptrunc'} {s} {x} to {t}")
        if s == "i1":
            return code.op(f"select i1 {x}, {t} 1.0, {t} 0.0")
        return code.op(f"{'s' if a == 'i' else 'u'}itofp {s} {x} to {t}")
    if BYTES[target] < BYTES[source]:
        return code.op(f"trunc {s} {x} to {t}")
    return code.op(f"{'s' if a == 'i' else 'z'}ext {s} {x} to {t}")
