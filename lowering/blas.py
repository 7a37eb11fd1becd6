"""Library recipes: which routine, with which layout, as statements of the Kernel IR."""

from typing import TYPE_CHECKING, Any

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.kernel import CallLibrary, Fill, Loop, Ref, Stmt
from fnx.lowering.values import Handle, Stored

if TYPE_CHECKING:
    from fnx.lowering.build import Builder

_LETTER = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


def known(r: recipe.Library) -> bool:
    """Whether there is native code for it; if not, the primitive's impl is called on the host."""
    return r.name in _ROUTINES and all(h.dtype in _LETTER for h in r.operands)


def library(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    _ROUTINES[r.name](builder, r, outs)


# --- matrix products ------------------------------------------------------------------------------------


def _prod(shape: Any) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


def _matrix(
    builder: "Builder", h: Handle, contract: tuple[int, ...], batch: tuple[int, ...]
) -> tuple[Stored, bool]:
    """The operand as stored matrices [batch, rows, contracted], or transposed (True)."""
    free = tuple(k for k in range(h.ndim) if k not in contract and k not in batch)
    axes = tuple(range(h.ndim))
    if axes == (*batch, *free, *contract):
        return builder.store(h), False
    if axes == (*batch, *contract, *free):
        return builder.store(h), True
    order = (*batch, *free, *contract)
    moved = Handle(tuple(h.shape[k] for k in order), h.dtype)
    place = builder.new_stored(moved)
    inverse = [order.index(k) for k in range(h.ndim)]
    source = h

    def fn(*index: Expr) -> Expr:
        return source(*(index[k] for k in inverse))

    moved.target = place
    builder.join(moved, fn, "transpose")
    return builder.store(moved), False


def _gemm(builder: "Builder", r: recipe.Library, outs: list[Handle]) -> None:
    """dot_general by gemm; row-major C = A B is column-major C' = B' A'."""
    lhs, rhs = r.operands
    ((lc, rc), (lb, rb)), _ = r.params
    (out,) = outs
    a, a_t = _matrix(builder, lhs, tuple(lc), tuple(lb))  # type: ignore[arg-type]
    b, b_t = _matrix(builder, rhs, tuple(rc), tuple(rb))  # type: ignore[arg-type]
    k = _prod(lhs.shape[i] for i in lc)
    batch = _prod(lhs.shape[i] for i in lb)
    m = _prod(lhs.shape) // max(k * batch, 1) if k * batch else _free(lhs, lc, lb)
    n = _prod(rhs.shape) // max(k * batch, 1) if k * batch else _free(rhs, rc, rb)
    place = out.target or builder.new_stored(out)
    out.state = place
    zero = scalar.const(0, out.dtype)
    if not (m and n and batch):
        return
    if not k:
        builder.emit(Fill(Ref(place.buffer, place.base), scalar.size(out.size), zero))
        return

    def call(t: Expr) -> Stmt:
        def ref(s: Stored, size: int) -> Ref:
            return Ref(s.buffer, scalar.add(s.base, scalar.mul(t, scalar.size(size))))

        def i32(v: int) -> Expr:
            return scalar.cast(scalar.size(v), "int32")

        # Column-major: the first operand is B', n by k; leading dimensions are row lengths.
        return CallLibrary(
            _LETTER[out.dtype] + "gemm",
            [
                _char("T" if _second_transposed(b_t) else "N"),
                _char("T" if a_t else "N"),
                i32(n),
                i32(m),
                i32(k),
                scalar.const(1, out.dtype),
                ref(b, k * n),
                i32(n if not _second_transposed(b_t) else k),
                ref(a, m * k),
                i32(m if a_t else k),
                zero,
                ref(place, m * n),
                i32(n),
            ],
            [place.buffer],
            by_reference=True,
        )

    if batch == 1:
        builder.emit(call(scalar.size(0)))
        return
    t = scalar.var("int64", "g")
    builder.emit(Loop(t, scalar.size(batch), [call(t)]))


def _second_transposed(stored_as_free_contract: bool) -> bool:
    # `_matrix` gives the right operand as [free, contracted] (False) or [contracted, free] (True);
    # the row-major [contracted, free] is the untransposed right factor.
    return not stored_as_free_contract


def _free(h: Any, contract: Any, batch: Any) -> int:
    return _prod(n for i, n in enumerate(h.shape) if i not in contract and i not in batch)


def _char(letter: str) -> Expr:
    return scalar.const(ord(letter), "int8")


_ROUTINES = {"gemm": _gemm}
