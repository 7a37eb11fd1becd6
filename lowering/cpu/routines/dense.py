"""Calls of fnx's own routines for dense real matrices in rows: triangular systems and factors."""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.kernels import factorizations, routine_names
from fnx.lowering.cpu.loader import symbols
from fnx.lowering.generate.generation import Generation
from fnx.lowering.ir.kernel import CallLibrary, Ref


def _space(builder: Generation, m: int, n: int, dtype: str) -> Ref:
    return Ref(builder.new_buffer(dtype, factorizations.work_elements(m, n, dtype)), scalar.size(0))


def _call(
    routine: str, args: list[int | bool | Ref], writes: list[Ref], result: Expr | None = None
) -> CallLibrary:
    dtype = writes[0].buffer.dtype
    passed = [a if isinstance(a, Ref) else scalar.size(int(a)) for a in args]
    symbol = f"fnx:{routine_names.name(routine, dtype)}"
    symbols.soon(symbol)
    return CallLibrary(symbol, passed, [w.buffer for w in writes], result=result)


def solve(
    builder: Generation,
    a: Ref,
    strides: tuple[int, int],
    lower: bool,
    unit: bool,
    b: Ref,
    shape: tuple[int, int],
    left: bool,
) -> CallLibrary:
    """T X = B, or X T = B, in place of B, for a triangle with these strides, lower as it is read."""
    work = _space(builder, *shape, b.buffer.dtype)
    side = "left" if left else "right"
    args = [*shape, a, *strides, b, shape[1], unit, lower != left, work]
    return _call(f"solve_{side}", args, [b, work])


def cholesky(builder: Generation, a: Ref, n: int) -> tuple[CallLibrary, Expr]:
    """The lower factor in place of a lower triangle, and whether there is none."""
    work, failed = _space(builder, n, n, a.buffer.dtype), scalar.var("int64", "f")
    call = _call("cholesky", [n, a, n, work], [a, work], failed)
    return call, scalar.compare("ne", failed, scalar.size(0))


def lu(builder: Generation, a: Ref, rows: int, cols: int, pivots: Ref) -> CallLibrary:
    """L and U in place of a matrix; pivots from 0."""
    work = _space(builder, rows, cols, a.buffer.dtype)
    return _call("lu", [rows, cols, a, cols, pivots, work], [a, pivots, work])


def slope(builder: Generation, routine: str, l: Ref, t: Ref, n: int) -> CallLibrary:
    """The tangent of a Cholesky factor in place of the matrix's, or its cotangent's transpose."""
    dtype = t.buffer.dtype
    space, work = (
        Ref(builder.new_buffer(dtype, n * n), scalar.size(0)),
        _space(builder, n, n, dtype),
    )
    return _call(routine, [n, l, n, t, n, space, work], [t, space, work])
