"""The table of library recipes: which routine makes native code of each, and on which dtypes."""

from collections.abc import Callable

from fnx.core import recipe
from fnx.lowering.cpu.llvm import ir_vectors
from fnx.lowering.cpu.routines.constant import constant
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Value
from fnx.lowering.routines import sort, tridiagonal, unrolled_batched
from fnx.lowering.routines.batched_matrices import LETTER, same_bytes

from . import dot_general, eigen, exchange, fft, householder, triangular

Routine = Callable[[Generation, recipe.Library, list[Value]], None]
_ANY_DTYPE: dict[str, Routine] = {
    **dot_general.ROUTINES,
    **sort.ROUTINES,
    **fft.ROUTINES,
    **exchange.ROUTINES,
    "same_bytes": same_bytes,
    "constant": constant,
}
_LAPACK: dict[str, Routine] = {
    **triangular.ROUTINES,
    **eigen.ROUTINES,
    **householder.ROUTINES,
    **tridiagonal.ROUTINES,
}
_ELEMENTS: dict[str, Callable[[recipe.Library, list[Value]], unrolled_batched.Functions | None]] = {
    "dot_general": dot_general.elements,
    **unrolled_batched.ELEMENTS,
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
        return ir_vectors.exists(r.operands[0].dtype)
    return r.name in _LAPACK and all(h.dtype in LETTER or h.dtype == "int32" for h in r.operands)


def functions(r: recipe.Library, outs: list[Value]) -> unrolled_batched.Functions | None:
    """The results by index, where they are few operations: of each of many small matrices."""
    make = _ELEMENTS.get(r.name)
    return make and make(r, outs)


def total(r: recipe.Library, outs: list[Value]) -> recipe.Fold | None:
    """The result as a reduction, where it is one."""
    same = r.name == "dot_general" and outs[0].dtype == r.params[1]
    return dot_general.as_sum(r) if same else None


def computes_matrix(r: recipe.Library) -> bool:
    """Whether the reduction of `total` saves storing what it reduces."""
    return dot_general.computes_matrix(r)


def library(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    """Emit the statements of a library recipe."""
    (_ANY_DTYPE.get(r.name) or _LAPACK[r.name])(builder, r, outs)
