"""Carries that an associative operation combines: which one, and what changes nothing."""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import depends_on, replacing
from fnx.lowering.ir.kernel import Loop
from fnx.lowering.ir.number_formats import BYTES, KIND

_OPERATIONS = frozenset("add mul max min and or xor".split())
SHUFFLED = frozenset("int32 uint32 int64 uint64 float32 float64".split())  # between lanes of a warp
_EXACT = frozenset("max min and or xor".split())  # the same in any order, for floats too


def operations(loop: Loop) -> list[str] | None:
    """By what each carry is combined with terms that no carry is in; None if one is not, or not freely."""
    found = [_operation(loop, k) for k in range(len(loop.carries))]
    if not found or None in found:
        return None
    for op, c in zip(found, loop.carries, strict=True):
        is_exact = op in _EXACT or KIND[c.dtype] in "biu"
        if not is_exact and not loop.reassociate:
            return None
    return found  # type: ignore[return-value]


def associative(loop: Loop) -> list[str] | None:
    """The same of a loop whose order is free though its statements see partial results."""
    if loop.polled:
        return None
    found = [_operation(loop, k) for k in range(len(loop.carries))]
    return None if not found or None in found else found  # type: ignore[return-value]


def _operation(loop: Loop, k: int) -> str | None:
    carry, value = loop.carries[k], loop.yields[k]
    for inner in loop.body:
        if isinstance(inner, Loop) and any(value is c for c in inner.carries):
            j = next(j for j, c in enumerate(inner.carries) if value is c)
            if inner.init[j] is not carry:
                return None
            return _operation(inner, j)
    found = _parts(value, carry)
    return None if found is None or depends_on([found[1]], loop.carries) else found[0]


def _parts(value: Expr, carry: Expr) -> tuple[str, Expr] | None:
    """The operation that makes a value of a carry, and what it combines it with."""
    high = value.args[0] if value.op == "add" else value
    if high.op == "max" and high is not value:
        for term in high.args:
            if scalar.logaddexp(carry, term) is value:
                return "logaddexp", term
    others = [a for a in value.args if a is not carry]
    if value.op not in _OPERATIONS or len(value.args) != 2 or len(others) != 1:
        return None
    return value.op, others[0]


def terms(loop: Loop) -> list[Expr]:
    """What each carry of a loop is combined with, where nothing is between them."""
    found = [_parts(y, c) for y, c in zip(loop.yields, loop.carries, strict=True)]
    return [x[1] for x in found if x is not None]


def sees_carries(loop: Loop) -> bool:
    """Whether a statement inside reads partial results, other than to go on with them."""
    for s in traversal.statements(loop.body):
        roots = traversal.expressions(s)
        if isinstance(s, Loop):
            roots = [s.extent, *(e for e in s.init if e not in loop.carries)]
            if depends_on(roots, loop.carries):
                return True
            roots = [e for e, c in zip(s.yields, s.carries, strict=True)
                     if _operation(s, s.carries.index(c)) is None]  # fmt: skip
        if depends_on(roots, loop.carries):
            return True
    return False


def identity(op: str, dtype: str) -> Expr:
    """The number that changes nothing."""
    kind = KIND[dtype]
    if op in ("add", "or", "xor"):
        return scalar.const(0, dtype)
    if op == "mul":
        return scalar.const(1, dtype)
    if op == "and":
        return scalar.const(True if kind == "b" else -1, dtype)
    if kind == "b":
        return scalar.const(op == "min", dtype)
    if kind in "fhc":  # complex numbers are in lexicographic order
        last = float("inf" if op == "min" else "-inf")
        return scalar.const(complex(last, last) if kind == "c" else last, dtype)
    width = 8 * BYTES[dtype]
    low, high = (0, (1 << width) - 1) if kind == "u" else (-(1 << width - 1), (1 << width - 1) - 1)
    return scalar.const(low if op == "max" else high, dtype)


def combined(op: str, a: Expr, b: Expr) -> Expr:
    return scalar.logaddexp(a, b) if op == "logaddexp" else scalar.apply(op, a, b)


__all__ = [
    "associative",
    "combined",
    "identity",
    "operations",
    "replacing",
    "sees_carries",
    "terms",
]
