"""What kernels call, and what LLVM calls for it: registers, libdevice, exchanges of lanes, atomics."""

import ast
from collections.abc import Callable
from typing import Any

from .types import (
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    Type,
    Unsupported,
    Value,
    compared,
    joined,
    number,
)

BLOCK = 1024  # threads of a block, at most
REGISTERS = {
    f"cuda.{name}.{axis}": f"{register}.{axis}"
    for axis in "xyz"
    for name, register in (
        ("threadIdx", "tid"),
        ("blockIdx", "ctaid"),
        ("blockDim", "ntid"),
        ("gridDim", "nctaid"),
    )
}
_MATH = frozenset(
    "acos acosh asin asinh atan atan2 atanh cos cosh erf erfc exp expm1 fmod log log10 log1p log2 pow "
    "sin sinh sqrt tan tanh".split()
)
_UNARY = "cbrt ceil exp2 floor rint trunc".split()
_LIBDEVICE: dict[
    str, tuple[Type, int, Type]
] = {  # the type of the operands, how many, and the result's
    **dict.fromkeys(_UNARY, (FLOAT64, 1, FLOAT64)),
    **{f"{name}f": (FLOAT32, 1, FLOAT32) for name in _UNARY},
    "dmul_rn": (FLOAT64, 2, FLOAT64),
    "fmul_rn": (FLOAT32, 2, FLOAT32),
    "fma": (FLOAT64, 3, FLOAT64),
    "fmaf": (FLOAT32, 3, FLOAT32),
    "double_as_longlong": (FLOAT64, 1, INT64),
    "longlong_as_double": (INT64, 1, FLOAT64),
    "float_as_int": (FLOAT32, 1, INT32),
    "int_as_float": (INT32, 1, FLOAT32),
    "popcll": (INT64, 1, INT32),
    "clzll": (INT64, 1, INT32),
}


def library(p: Any, name: str, args: list[Value]) -> Value:
    """A function of libdevice's, under the name of it or of Python's mathematics."""
    room, _, name = name.partition(".")
    if room == "libdevice" and name in _LIBDEVICE:
        source, count, result = _LIBDEVICE[name]
        if len(args) == count and all(a.type == source for a in args):
            return p.call(f"__nv_{name}", result, *args)
    if room == "math" and all(a.type == args[0].type and a.type.kind == "f" for a in args):
        single = args[0].type == FLOAT32
        if name in _MATH:
            return p.call(f"__nv_{name}{'f' if single else ''}", args[0].type, *args)
        if name == "isfinite":
            found = p.call("__nv_finitef" if single else "__nv_isfinited", INT32, *args)
            return p.test("icmp ne", found, number(0, INT32))
    raise Unsupported(f"{room}.{name} of {[a.type for a in args]}")


# --- functions of their own, whose operands are given as texts ---------------------------------------


def _grid(p: Any, axis: ast.expr) -> Value:
    place, count, block = (p.cast(p.register(f"{n}.x"), INT64) for n in ("tid", "ntid", "ctaid"))
    found = p.operation("add", p.operation("mul", count, block), place)
    return found.below(count.bound * block.bound + place.bound)


def _grid_size(p: Any, axis: ast.expr) -> Value:
    counts = (p.cast(p.register(f"{n}.x"), INT64) for n in ("ntid", "nctaid"))
    a, b = counts
    return p.operation("mul", a, b).below(a.bound * b.bound)


def _choice(p: Any, condition: ast.expr, a: ast.expr, b: ast.expr) -> Value:
    chosen, x, y = p.value(condition), p.value(a), p.value(b)
    if x.type != y.type or chosen.type.kind != "b":
        raise Unsupported(f"a choice of {x.type} and {y.type}")
    return p.select(chosen, x, y)


def _abs(p: Any, e: ast.expr) -> Value:
    x = p.value(e)
    if x.type.kind == "f":
        return p.call("__nv_fabsf" if x.type == FLOAT32 else "__nv_fabs", x.type, x)
    if x.type.kind == "u":
        return x
    if x.type.kind != "i":
        raise Unsupported(f"abs of {x.type}")
    zero = number(0, x.type)
    negative = p.test("icmp slt", x, zero)
    return p.select(negative, p.operation("sub", zero, x), x)


def _extreme(name: str) -> Callable[..., Value]:
    def largest(p: Any, a: ast.expr, b: ast.expr) -> Value:
        x, y = p.value(a), p.value(b)
        t = compared(x.type, y.type)
        if t.kind not in "iu":
            raise Unsupported(f"the extreme of {x.type} and {y.type}")
        x, y = p.cast(x, t), p.cast(y, t)
        sign = "s" if t.kind == "i" else "u"
        found = p.select(p.test(f"icmp {sign}{name}", y, x), y, x)
        both = x.bound and y.bound
        return found.below((min if name == "lt" else max)(x.bound, y.bound) if both else 0)

    return largest


def _complex(p: Any, a: ast.expr, b: ast.expr) -> Value:
    x, y = p.value(a), p.value(b)
    t = joined(x.type, y.type)
    if t.kind != "f":
        raise Unsupported("a complex number of integers")
    return p.complex(p.cast(x, t), p.cast(y, t))


def _exchanged(p: Any, mask: ast.expr, value: ast.expr, distance: ast.expr) -> Value:
    """The value of another lane of the warp; one of 64 bits in two halves."""
    lanes, x, apart = p.casted(mask, INT32), p.value(value), p.casted(distance, INT32)
    if x.type.kind not in "iuf" or x.type.bits not in (32, 64):
        raise Unsupported(f"an exchange of {x.type}")
    word = Type("i", x.type.bits)
    bits = (
        x if x.type.kind != "f" else p.new(word, f"bitcast {x.type.llvm} {x.text} to {word.llvm}")
    )
    bits = Value(word, bits.text)
    if word == INT32:
        found = _from_lane(p, lanes, bits, apart)
    else:
        upper = p.cast(p.operation("lshr", bits, number(32, word)), INT32)
        low, high = (_from_lane(p, lanes, v, apart) for v in (p.cast(bits, INT32), upper))
        low, high = (p.new(word, f"zext i32 {v.text} to i64") for v in (low, high))
        found = p.operation("or", p.operation("shl", high, number(32, word)), low)
    if x.type.kind == "f":
        return p.new(x.type, f"bitcast {word.llvm} {found.text} to {x.type.llvm}")
    return Value(x.type, found.text)


def _from_lane(p: Any, lanes: Value, x: Value, apart: Value) -> Value:
    name, pair = "llvm.nvvm.shfl.sync.i32", "{i32, i1}"
    p.declared[name] = f"declare {pair} @{name}(i32, i32, i32, i32, i32)"
    given = f"i32 {lanes.text}, i32 3, i32 {x.text}, i32 {apart.text}, i32 31"
    both = p.new(INT32, f"call {pair} @{name}({given})")
    return p.new(INT32, f"extractvalue {pair} {both.text}, 0")


def _barrier(p: Any) -> None:
    p.declared["llvm.nvvm.barrier0"] = "declare void @llvm.nvvm.barrier0()"
    p.put("call void @llvm.nvvm.barrier0()")


def _warp_barrier(p: Any, mask: ast.expr) -> None:
    name = "llvm.nvvm.bar.warp.sync"
    p.declared[name] = f"declare void @{name}(i32)"
    p.put(f"call void @{name}(i32 {p.casted(mask, INT32).text})")


def _atomic(name: str) -> Callable[..., None]:
    def update(p: Any, array: ast.expr, index: ast.expr, value: ast.expr) -> None:
        if not isinstance(array, ast.Name) or array.id not in p.arrays:
            raise Unsupported(ast.unparse(array))
        element, place = p.element(array.id, p.value(index))
        if element.kind not in "iu" or element.bits < 32:
            raise Unsupported(f"an atomic operation on {element}")
        signed = "u" if element.kind == "u" and name != "add" else ""
        t, x = element.llvm, p.casted(value, element)
        p.new(element, f"atomicrmw {signed}{name} {t}* {place}, {t} {x.text} monotonic")

    return update


FORMS: dict[str, Callable[..., Any]] = {
    "abs": _abs,
    "complex": _complex,
    "cuda.atomic.add": _atomic("add"),
    "cuda.atomic.max": _atomic("max"),
    "cuda.atomic.min": _atomic("min"),
    "cuda.grid": _grid,
    "cuda.gridsize": _grid_size,
    "cuda.selp": _choice,
    "cuda.shfl_xor_sync": _exchanged,
    "cuda.syncthreads": _barrier,
    "cuda.syncwarp": _warp_barrier,
    "max": _extreme("gt"),
    "min": _extreme("lt"),
}
