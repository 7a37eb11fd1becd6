"""Names of the vector functions: what exists, how many lanes, and how LLVM is told.

A program that uses sin fifty times would have LLVM optimise its hundred instructions fifty times.
Instead it calls `fnx_v_sin_float64`, and the attribute "vector-function-abi-variant" tells LLVM's
loop vectoriser that `fnx_v_sin_float64_w8` computes eight at once. The functions are in vector_library.py.
"""

from functools import cache

from fnx.core import scalar
from fnx.lowering.cpu.processor.features import vector_bits

_WIDTH = {"float32": 4, "float64": 2}  # lanes in 128 bits
TYPE = {"float32": "float", "float64": "double"}
BRANCHING = {"sin", "cos", "tan", "rem"}  # have a cheaper way for usual arguments (vmath.USUAL)


def widths(dtype: str) -> list[int]:
    """Lanes of the vector variants on this machine: of its widest vectors, and half as many."""
    least = _WIDTH[dtype]
    return [least * k for k in (1, 2, 4) if vector_bits() // 2 <= 128 * k <= vector_bits()]


@cache
def exists(op: str, dtype: str) -> bool:
    """Whether an operation has vector variants."""
    from fnx.lowering.math import VMATH

    return (op, dtype) in VMATH and dtype in TYPE


def name(op: str, dtype: str) -> str:
    return f"fnx_v_{op}_{dtype}"


def parse(symbol: str) -> tuple[str, str, int] | None:
    """Operation, dtype and lanes (0: scalar) of a function's name; None for other names."""
    for dtype in TYPE:
        op, found, end = symbol.removeprefix("fnx_v_").partition(f"_{dtype}")
        if not found or not symbol.startswith("fnx_v_"):
            continue
        for lanes in (0, *widths(dtype)):
            if end == (f"_w{lanes}" if lanes else "") or end == "_rare":
                return op, dtype, lanes
    return None


def arity(op: str) -> int:
    """How many arguments a function takes; also a part of one, as `sin.usual`."""
    return 2 if op.partition(".")[0] in scalar.BINARY else 1


def declaration(op: str, dtype: str) -> tuple[list[str], str, list[str]]:
    """Declarations of a function and its variants, the first one's attribute, and their names."""
    t, base, n = TYPE[dtype], name(op, dtype), arity(op)
    lines = [f"declare {t} @{base}({', '.join([t] * n)})"]
    names, variants = [base], []
    for w in widths(dtype):
        args = ", ".join([f"<{w} x {t}>"] * n)
        lines.append(f"declare <{w} x {t}> @{base}_w{w}({args})")
        names.append(f"{base}_w{w}")
        variants.append(f"_ZGV_LLVM_N{w}{'v' * n}_{base}({base}_w{w})")
    return lines, f'"vector-function-abi-variant"="{",".join(variants)}"', names
