"""The table of library recipes: which routine makes native code of each, and on which dtypes.

A module of routines is imported when a program first has a recipe of its: most programs have none.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from fnx.core import recipe
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Value

Routine = Callable[[Generation, recipe.Library, list[Value]], None]
Module = Callable[[], Any]  # imports a module, whose ROUTINES has the routine
_ANY_DTYPE: dict[str, Module] = {
    "dot_general": lambda: import_module("fnx.lowering.cpu.routines.dot_general"),
    "fft": lambda: import_module("fnx.lowering.cpu.routines.fft"),
    "exchange": lambda: import_module("fnx.lowering.cpu.routines.exchange"),
    "constant": lambda: import_module("fnx.lowering.cpu.routines.constant"),
    "same_bytes": lambda: import_module("fnx.lowering.routines.batched_matrices"),
    "sort": lambda: import_module("fnx.lowering.routines.sort"),
    "top_k": lambda: import_module("fnx.lowering.routines.sort"),
}
_LAPACK: dict[str, Module] = {
    **dict.fromkeys(
        "cholesky lu lu_solve lu_pivots_to_permutation solve triangular_solve cholesky_tangent "
        "cholesky_cotangent".split(),
        lambda: import_module("fnx.lowering.cpu.routines.triangular"),
    ),
    **dict.fromkeys(
        "eig eigh qr schur svd".split(),
        lambda: import_module("fnx.lowering.cpu.routines.eigen"),
    ),
    **dict.fromkeys(
        "gehrd geqrf sytrd".split(),
        lambda: import_module("fnx.lowering.cpu.routines.householder"),
    ),
    "tridiagonal_solve": lambda: import_module("fnx.lowering.routines.tridiagonal"),
}
_UNROLLED = frozenset(
    "cholesky lu lu_pivots_to_permutation lu_solve solve triangular_solve".split()
)
_INTEGERS = frozenset({"lu_pivots_to_permutation"})
_OWN = frozenset({"cholesky_tangent", "cholesky_cotangent"})  # that LAPACK does not have


def known(r: recipe.Library) -> bool:
    """Whether there is native code for it; if not, the primitive's impl is called on the host."""
    if r.name == "fft":
        from . import fft

        return fft.known()
    if r.name in _ANY_DTYPE or r.name in _INTEGERS:
        return True
    if r.name in _OWN:
        from fnx.lowering.cpu.llvm import ir_vectors

        return ir_vectors.exists(r.operands[0].dtype)
    if r.name not in _LAPACK:
        return False
    from fnx.lowering.routines.batched_matrices import LETTER

    return all(h.dtype in LETTER or h.dtype == "int32" for h in r.operands)


def functions(r: recipe.Library, outs: list[Value]) -> Any:
    """The results by index, where they are few operations: of each of many small matrices."""
    if r.name == "dot_general":
        from . import dot_general

        return dot_general.elements(r, outs)
    if r.name in _UNROLLED:
        from fnx.lowering.routines import unrolled_batched

        return unrolled_batched.ELEMENTS[r.name](r, outs)
    return None


def total(r: recipe.Library, outs: list[Value]) -> recipe.Fold | None:
    """The result as a reduction, where it is one."""
    if r.name != "dot_general" or outs[0].dtype != r.params[1]:
        return None
    from . import dot_general

    return dot_general.as_sum(r)


def computes_matrix(r: recipe.Library) -> bool:
    """Whether the reduction of `total` saves storing what it reduces."""
    from . import dot_general

    return dot_general.computes_matrix(r)


def library(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Emit the statements of a library recipe."""
    module = _ANY_DTYPE.get(r.name) or _LAPACK[r.name]
    module().ROUTINES[r.name](builder, r, outs)
