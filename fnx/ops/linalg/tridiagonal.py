"""Tridiagonal systems."""

import numpy as np

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Undefined
from fnx.core.recipe import Library, Operand, Recipe
from fnx.ops.elementwise.arithmetic import add, mul, neg, sub
from fnx.ops.linalg import matrix as m
from fnx.ops.linalg.triangular import Stacked
from fnx.ops.structure.basic import scalar
from fnx.ops.structure.movement import Pad


@dataclass(frozen=True)
class TridiagonalSolve(Stacked):
    """X with T X = B; T has the diagonals dl (from its second entry), d, du (but for its last).

    dl, d and du have shape (..., n), B (..., n, k). Gaussian elimination with partial pivoting.
    Native code: Library("tridiagonal_solve", (dl, d, du, b)).
    """

    name = "tridiagonal_solve"
    core_rank = 1
    columns_apart = True

    def abstract(self, dl: ShapedArray, d: ShapedArray, du: ShapedArray, b: ShapedArray) -> tuple:  # type: ignore[override]
        if not dl.shape == d.shape == du.shape or d.shape != b.shape[:-1] or not d.shape:
            raise ShapeError(
                f"tridiagonal_solve needs diagonals of one shape (..., n) and right-hand sides of "
                f"shape (..., n, k), not {dl.shape}, {d.shape}, {du.shape} and {b.shape}"
            )
        if any(x.dtype != b.dtype or x.dtype not in m.LAPACK for x in (dl, d, du)):
            raise TypeMismatch(
                "tridiagonal_solve needs operands of one dtype, float or complex of 32 or 64 bits, not "
                f"{dl.dtype}, {d.dtype}, {du.dtype} and {b.dtype}"
            )
        return (b.strong(),)

    def impl(self, dl: np.ndarray, d: np.ndarray, du: np.ndarray, b: np.ndarray) -> np.ndarray:  # type: ignore[override]
        n = d.shape[-1]
        # Rows of U are 1, c1, c2; row i + 1 waits in the same places until it is eliminated.
        c1, c2, x = d.copy(), du.copy(), b.copy()
        for i in range(n - 1):
            swap = abs(dl[..., i + 1]) > abs(c1[..., i])
            top = (c1[..., i], c2[..., i], np.zeros_like(d[..., i]))
            low = (dl[..., i + 1], d[..., i + 1], du[..., i + 1])
            (u0, u1, u2), (o0, o1, o2) = _sorted(swap, top, low)
            (y,), (rest,) = _sorted(swap[..., None], (x[..., i, :],), (x[..., i + 1, :],))
            f = o0 / u0
            c1[..., i], c2[..., i], x[..., i, :] = u1 / u0, u2 / u0, y / u0[..., None]
            c1[..., i + 1], c2[..., i + 1] = o1 - f * u1, o2 - f * u2
            x[..., i + 1, :] = rest - f[..., None] * y
        if n:
            x[..., -1, :] /= c1[..., -1, None]
        for i in range(n - 2, -1, -1):
            x[..., i, :] -= c1[..., i, None] * x[..., i + 1, :]
            if i + 2 < n:
                x[..., i, :] -= c2[..., i, None] * x[..., i + 2, :]
        return x

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        dl, d, du, _ = primals
        tl, td, tu, tb = tangents
        x = self(*primals)
        k = x.shape[-1]
        changes = []
        if tl is not None:
            changes.append(mul(m.repeat_columns(tl, k), _shift(x, 1)))
        if td is not None:
            changes.append(mul(m.repeat_columns(td, k), x))
        if tu is not None:
            changes.append(mul(m.repeat_columns(tu, k), _shift(x, -1)))
        if changes:
            total = changes[0]
            for c in changes[1:]:
                total = add(total, c)
            tb = neg(total) if tb is None else sub(tb, total)
        return (x,), (self(dl, d, du, tb),)

    def transpose(self, cts: tuple, dl: Array, d: Array, du: Array, b: Undefined) -> tuple:  # type: ignore[override]
        return None, None, None, self(_roll(du, 1), d, _roll(dl, -1), cts[0])

    def lower(self, *operands: Operand) -> Recipe:
        return Library("tridiagonal_solve", operands)


def _sorted(swap: np.ndarray, top: tuple, low: tuple) -> tuple[tuple, tuple]:
    """Two rows, exchanged where `swap` says so."""
    pairs = [(np.where(swap, b, a), np.where(swap, a, b)) for a, b in zip(top, low, strict=True)]
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def _shift(x: Array, by: int) -> Array:
    """Rows moved down by one (or up, by -1), zeros put in."""
    pad = ((0, 0, 0),) * (len(x.shape) - 2)
    return Pad((*pad, (by, -by, 0), (0, 0, 0)))(x, scalar(0, x.dtype))


def _roll(x: Array, by: int) -> Array:
    pad = ((0, 0, 0),) * (len(x.shape) - 1)
    return Pad((*pad, (by, -by, 0)))(x, scalar(0, x.dtype))


tridiagonal_solve = TridiagonalSolve()
