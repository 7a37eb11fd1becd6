"""The table of library recipes: which routine makes native code of each, and on which dtypes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from fnx.core import recipe
from fnx.lowering.build.values import Handle
from fnx.lowering.runtime import irvectors

from . import fft, gemm, reflections, small_lanes, sort, spectral, triangular, tridiagonal
from .stacks import LETTER, constant, same_bytes

if TYPE_CHECKING:
    from fnx.lowering.build.builder import Builder

Routine = Callable[["Builder", recipe.Library, list[Handle]], None]
_ANY_DTYPE: dict[str, Routine] = {
    **gemm.ROUTINES,
    **sort.ROUTINES,
    **fft.ROUTINES,
    "same_bytes": same_bytes,
    "constant": constant,
}
_LAPACK: dict[str, Routine] = {
    **triangular.ROUTINES,
    **spectral.ROUTINES,
    **reflections.ROUTINES,
    **tridiagonal.ROUTINES,
}
_ELEMENTS: dict[str, Callable[[recipe.Library, list[Handle]], small_lanes.Functions | None]] = {
    "dot_general": gemm.elements,
    **small_lanes.ELEMENTS,
}
_INTEGERS = frozenset({"lu_pivots_to_permutation"})
_OWN = frozenset({"cholesky_tangent", "cholesky_cotangent"})  # that LAPACK does not have


def known(r: recipe.Library) -> bool:
    """Whether there is native code for it; if not, the primitive's impl is called on the host."""
    if r.name in fft.ROUTINES:
        return fft.known()
    if r.name in _ANY_DTYPE or r.name in _INTEGERS:
        return True
    if r.name in _OWN:
        return irvectors.exists(r.operands[0].dtype)
    return r.name in _LAPACK and all(h.dtype in LETTER or h.dtype == "int32" for h in r.operands)


def functions(r: recipe.Library, outs: list[Handle]) -> small_lanes.Functions | None:
    """The results by index, where they are few operations: of each of many small matrices."""
    make = _ELEMENTS.get(r.name)
    return make and make(r, outs)


def total(r: recipe.Library, outs: list[Handle]) -> recipe.Fold | None:
    """The result as a reduction, where it is one."""
    same = r.name == "dot_general" and outs[0].dtype == r.params[1]
    return gemm.as_sum(r) if same else None


def computes_matrix(r: recipe.Library) -> bool:
    """Whether the reduction of `total` saves storing what it reduces."""
    return gemm.computes_matrix(r)


def library(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    """Emit the statements of a library recipe."""
    (_ANY_DTYPE.get(r.name) or _LAPACK[r.name])(builder, r, outs)
