"""Factorizations that leave Householder's reflections packed beside their results, as LAPACK does.

Reflection k is I - tau v v^H; v is 1 at its first place, and the rest of it stands in the packed
matrix, below the diagonal (`geqrf`) or one row further (`gehrd`, `sytrd`).
"""

import numpy as np

from fnx.core import dtypes
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.recipe import Library, Operand, Recipe
from fnx.ops.linalg import matrix as m
from fnx.ops.linalg.triangular import Stacked, each, lapack


class Packed(Stacked):
    """One matrix in, a packed matrix of its shape and vectors out; no derivative."""

    multiple_results = True

    def impl(self, a: np.ndarray) -> tuple:  # type: ignore[override]
        avals = self.abstract(ShapedArray(a.shape, a.dtype))
        if not a.size:
            return (a, *(np.zeros(x.shape, x.dtype) for x in avals[1:]))
        return tuple(each(self.one, a, ranks=(2,)))

    def one(self, a: np.ndarray) -> tuple:
        """The results for one matrix."""
        raise NotImplementedError

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library(self.name, (a,))


@dataclass(frozen=True)
class Geqrf(Packed):
    """R above and reflections below the diagonal, and their taus: their product Q has Q R = A."""

    name = "geqrf"

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a)
        *lead, rows, columns = a.shape
        return a.strong(), ShapedArray((*lead, min(rows, columns)), a.dtype)

    def one(self, a: np.ndarray) -> tuple:
        return lapack("geqrf", a.dtype)(a)[:2]


@dataclass(frozen=True)
class Gehrd(Packed):
    """The Hessenberg matrix Q^H A Q, the reflections that make Q below it, and their taus."""

    name = "gehrd"

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a, square=True)
        *lead, n, _ = a.shape
        return a.strong(), ShapedArray((*lead, max(n - 1, 0)), a.dtype)

    def one(self, a: np.ndarray) -> tuple:
        if a.shape[0] == 1:
            return a, np.zeros(0, a.dtype)
        return lapack("gehrd", a.dtype)(a)[:2]


@dataclass(frozen=True)
class Sytrd(Packed):
    """Q^H A Q, tridiagonal, of a Hermitian A: packed, its diagonals d and e, and the taus."""

    lower_triangle: bool = True
    name = "sytrd"

    def params(self) -> dict:
        return {"lower": self.lower_triangle}

    def abstract(self, a: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        m.check_matrices(self.name, a, square=True)
        *lead, n, _ = a.shape
        real, less = dtypes.real_of(a.dtype), (*lead, max(n - 1, 0))
        d, e = ShapedArray((*lead, n), real), ShapedArray(less, real)
        return a.strong(), d, e, ShapedArray(less, a.dtype)

    def lower(self, a: Operand) -> Recipe:  # type: ignore[override]
        return Library(self.name, (a,), self.lower_triangle)

    def one(self, a: np.ndarray) -> tuple:
        routine = "hetrd" if dtypes.is_complex(a.dtype) else "sytrd"
        return lapack(routine, a.dtype)(a, lower=self.lower_triangle)[:4]


__all__ = ["Gehrd", "Geqrf", "Sytrd"]
