"""Factorizations by reflections that stay packed beside their results, by LAPACK."""

from math import prod
from typing import Any

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.routines.fortran import Asked, call
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Value
from fnx.lowering.ir.kernel import Ref, Stmt
from fnx.lowering.routines.batched_matrices import (
    REAL,
    columns,
    const,
    each,
    info,
    is_complex,
    nth,
    result,
    symbol,
    transposed,
    work,
)

ZERO = scalar.size(0)


def _packed(
    builder: Generation,
    r: recipe.Library,
    outs: list[Value],
    routine: str,
    before: list,
    shape: list,
) -> None:
    """A routine that overwrites a matrix and gives vectors: `before` and `shape` are its arguments."""
    a: Value = r.operands[0]  # type: ignore[assignment]
    *lead, rows, cols = a.shape
    dtype, count = a.dtype, prod(lead)
    if not a.size:
        for out in outs:
            result(builder, out, lambda *ix, out=out: const(0, out.dtype), r.name)
        return
    matrix, failed = columns(builder, a), info(builder)
    kinds = [REAL.get(dtype, dtype)] * (len(outs) - 2) + [dtype]
    vectors = [
        work(builder, kind, count * max(out.shape[-1], 1))
        for kind, out in zip(kinds, outs[1:], strict=True)
    ]

    def one(t: Expr) -> list[Stmt]:
        args: list[Any] = [*before, *shape, nth(matrix, t, rows * cols), rows]
        args += [nth(v, t, out.shape[-1]) for v, out in zip(vectors, outs[1:], strict=True)]
        args += [Asked(dtype), Ref(failed, ZERO)]
        written = [matrix.buffer, *[v.buffer for v in vectors], failed]
        return [call(builder, symbol(routine, dtype), args, written)]

    each(builder, count, one)
    result(builder, outs[0], transposed(matrix, (*lead, cols, rows)), r.name)
    for v, out in zip(vectors, outs[1:], strict=True):
        result(builder, out, _elements(v, out.shape), r.name)


def _elements(stored: Materialized, shape: tuple[int, ...]) -> Any:
    return lambda *ix: stored.read(shape, ix)


def geqrf(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    rows, cols = r.operands[0].shape[-2:]
    _packed(builder, r, outs, "geqrf", [], [rows, cols])


def gehrd(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    n = r.operands[0].shape[-1]
    _packed(builder, r, outs, "gehrd", [], [n, min(n, 1), n])


def sytrd(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    a = r.operands[0]
    routine = "hetrd" if is_complex(a.dtype) else "sytrd"
    _packed(builder, r, outs, routine, ["L" if r.params else "U"], [a.shape[-1]])


ROUTINES = {"geqrf": geqrf, "gehrd": gehrd, "sytrd": sytrd}
