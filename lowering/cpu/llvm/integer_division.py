"""Quotients and remainders of integers as LLVM instructions, without traps.

Division by zero gives -1 and the dividend; the least number by -1 wraps. By a known number LLVM multiplies
and shifts (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994), but
64 bits in scalar registers alone: no vector instruction gives the upper half of a product. So loops that
become vectors get that product in parts of 32 bits.
"""

from collections.abc import Callable

from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor import features

from .emitter import Emitter
from .types import REGISTER, Operand

_LONG = ("int64", "uint64")


def printer(op: str) -> Callable[[str], Callable[[Emitter, Expr], Operand]]:
    """How "div" or "rem" is printed, by dtype."""

    def of(dtype: str) -> Callable[[Emitter, Expr], Operand]:
        t, signed = REGISTER[dtype], dtype[0] == "i"
        head = f"{'s' if signed else 'u'}{op} {t} "

        def emit(code: Emitter, e: Expr) -> Operand:
            a, b = code.memo[e.args[0]], code.memo[e.args[1]]
            divisor = e.args[1]
            if _is_safe(divisor):
                # Known when compiled: a multiplication or a mask in place of a slow instruction.
                b = str(divisor.attr) if divisor.op == "literal" else b
                if dtype in _LONG and divisor.op != "size" and _in_vectors(code, divisor.attr):
                    return _by_parts(code, op, a, divisor.attr, signed)
                return code.op(f"{head}{a}, {b}")
            zero = unsafe = code.op(f"icmp eq {t} {b}, 0")
            if signed:
                minus = code.op(f"icmp eq {t} {b}, -1")
                unsafe = code.op(f"or i1 {zero}, {minus}")
            safe = code.op(f"select i1 {unsafe}, {t} 1, {t} {b}")
            result = code.op(f"{head}{a}, {safe}")
            if signed:
                other = code.op(f"sub {t} 0, {a}") if op == "div" else "0"
                result = code.op(f"select i1 {minus}, {t} {other}, {t} {result}")
            by_zero = "-1" if op == "div" else a
            return code.op(f"select i1 {zero}, {t} {by_zero}, {t} {result}")

        return emit

    return of


def _is_safe(e: Expr) -> bool:
    if e.op == "size":
        return e.attr > 0
    return e.op in ("const", "literal") and e.attr not in (0, -1)


def _in_vectors(code: Emitter, divisor: int) -> bool:
    """Whether parts pay: where vectors of int64 have products and arithmetic shifts."""
    size = abs(divisor)
    return code.in_vector and features.vector_bits() == 512 and bool(size & (size - 1))


def _by_parts(code: Emitter, op: str, n: str, divisor: int, signed: bool) -> str:
    size = abs(divisor)
    quotient = (_signed if signed else _unsigned)(code, n, size)
    if op == "div":
        return quotient if divisor > 0 else code.op(f"sub i64 0, {quotient}")
    return code.op(f"sub i64 {n}, {code.op(f'mul i64 {quotient}, {size}')}")


def magic(divisor: int, bits: int) -> tuple[int, int]:
    """(m, s) with n // divisor = n m >> 64 + s for all n below 2**bits."""
    for s in range(65):
        m = (1 << 64 + s) // divisor + 1
        if m * divisor - (1 << 64 + s) <= 1 << 64 + s - bits:
            return m, s
    raise AssertionError(divisor)


def _signed(code: Emitter, n: str, divisor: int) -> str:
    """n / divisor, cut off: one more than the floor of a negative quotient."""
    m, s = magic(divisor, 63)
    negative = code.op(f"ashr i64 {n}, 63")
    less = code.op(f"and i64 {negative}, {m}")  # as if n were larger by 2**64
    high = code.op(f"sub i64 {_upper(code, n, m)}, {less}")
    floor = code.op(f"ashr i64 {high}, {s}") if s else high
    return code.op(f"sub i64 {floor}, {negative}")


def _unsigned(code: Emitter, n: str, divisor: int) -> str:
    m, s = magic(divisor, 64)
    high = _upper(code, n, m & (1 << 64) - 1)
    if m >> 64:  # n is to be added, and the sum may have a bit more
        half = code.op(f"lshr i64 {code.op(f'sub i64 {n}, {high}')}, 1")
        high, s = code.op(f"add i64 {half}, {high}"), s - 1
    return code.op(f"lshr i64 {high}, {s}") if s else high


def _upper(code: Emitter, n: str, m: int) -> str:
    """The upper 64 bits of the product with a number below 2**64."""
    half = (1 << 32) - 1
    low, high = code.op(f"and i64 {n}, {half}"), code.op(f"lshr i64 {n}, 32")
    (ll, lh), (hl, hh) = (
        [code.op(f"mul i64 {x}, {part}") for part in (m & half, m >> 32)] for x in (low, high)
    )
    middle = code.op(f"add i64 {hl}, {code.op(f'lshr i64 {ll}, 32')}")
    rest = code.op(f"add i64 {lh}, {code.op(f'and i64 {middle}, {half}')}")
    top = code.op(f"add i64 {hh}, {code.op(f'lshr i64 {middle}, 32')}")
    return code.op(f"add i64 {top}, {code.op(f'lshr i64 {rest}, 32')}")
