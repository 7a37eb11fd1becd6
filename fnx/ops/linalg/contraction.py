"""dot_general: sums of products over any axes, with any batch axes."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from fnx.core import dtypes, policy, scalar
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Fold, Library, Operand, Recipe
from fnx.core.scalar import Expr
from fnx.core.threads.fork_safety import cached_property
from fnx.ops.base.permute import Transpose
from fnx.ops.base.sharding_rule import Factors
from fnx.ops.structure.basic import add_any, convert

Shape = tuple[int, ...]
Dims = tuple[tuple[Shape, Shape], tuple[Shape, Shape]]
_BLAS = frozenset("float32 float64 complex64 complex128".split())
_EXACT = frozenset(d for d in dtypes.ALL if not dtypes.is_float(d) or d.itemsize > 2)


_matmul = np.matmul


class Layout:
    """How a dot_general of operands of given ranks becomes one matmul.

    Operands are permuted to (batch, free, contracted) and (batch, contracted, free); the result has
    the axes (batch, free of lhs, free of rhs).
    """

    def __init__(self, dims: Dims, lhs_ndim: int, rhs_ndim: int):
        (self.lc, self.rc), (self.lb, self.rb) = dims
        self.lf = tuple(a for a in range(lhs_ndim) if a not in self.lc and a not in self.lb)
        self.rf = tuple(a for a in range(rhs_ndim) if a not in self.rc and a not in self.rb)
        self.lhs_perm = (*self.lb, *self.lf, *self.lc)
        self.rhs_perm = (*self.rb, *self.rc, *self.rf)
        # The common cases, x @ y and its two derivatives, need no reshape, and x.T is free in BLAS.
        self.plain = (
            lhs_ndim == rhs_ndim == 2 and not self.lb and len(self.lc) == 1 and len(self.rc) == 1
        )
        self.lhs_t = self.plain and self.lc == (0,)
        self.rhs_t = self.plain and self.rc == (1,)
        self.matmul = (  # batched matmul of leading batch axes, in NumPy's own layout
            lhs_ndim == rhs_ndim >= 2
            and self.lb == self.rb == tuple(range(lhs_ndim - 2))
            and self.lc == (lhs_ndim - 1,)
            and self.rc == (lhs_ndim - 2,)
        ) or (
            not self.lb
            and max(lhs_ndim, rhs_ndim) <= 2
            and self.lc == (lhs_ndim - 1,)
            and self.rc == (0,)
        )

    def shape(self, lhs: Shape, rhs: Shape) -> Shape:
        return (
            *(lhs[a] for a in self.lb), *(lhs[a] for a in self.lf), *(rhs[a] for a in self.rf)
        )  # fmt: skip

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if self.plain:
            return _matmul(x.T if self.lhs_t else x, y.T if self.rhs_t else y)
        if self.matmul:
            return _matmul(x, y)
        shape = self.shape(x.shape, y.shape)
        batch = [x.shape[a] for a in self.lb]
        inner = prod([x.shape[a] for a in self.lc])
        rows = prod([x.shape[a] for a in self.lf])
        columns = prod([y.shape[a] for a in self.rf])
        x = x.transpose(self.lhs_perm).reshape(*batch, rows, inner)
        y = y.transpose(self.rhs_perm).reshape(*batch, inner, columns)
        return _matmul(x, y).reshape(shape)


layout = lru_cache(maxsize=4096)(Layout)


def canonical_dims(dims: Any) -> Dims:
    """Dimension numbers as nested tuples of ints."""
    (lc, rc), (lb, rb) = dims
    return (
        (tuple(map(int, lc)), tuple(map(int, rc))),
        (tuple(map(int, lb)), tuple(map(int, rb))),
    )


@dataclass(frozen=True)
class DotGeneral(Primitive):
    """Sums of products over contracted axes, element by element along batch axes.

    `dimension_numbers` are ((lhs contracted, rhs contracted), (lhs batch, rhs batch)); the result
    has the batch axes, then lhs's other axes, then rhs's. `preferred_element_type` is the dtype in
    which is summed, and of the result; half precision and small integers without it are summed in
    float32 and in their own dtype.
    """

    dimension_numbers: Dims
    preferred_element_type: np.dtype | None = None
    name = "dot_general"

    def public_params(self) -> dict[str, Any]:
        return super().public_params() | {"precision": None, "out_sharding": None}

    def abstract(self, x: ShapedArray, y: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if x.dtype != y.dtype:
            raise TypeMismatch(
                f"dot_general needs operands of one dtype, not {x.dtype} and {y.dtype}; convert one "
                "with .astype"
            )
        shape = self._shapes.get((x.shape, y.shape))
        if shape is None:
            shape = self._shapes[x.shape, y.shape] = self._shape(x, y)
        dtype = self.preferred_element_type or x.dtype
        return (ShapedArray(shape, dtype, x.weak_type and y.weak_type),)

    def _shape(self, x: ShapedArray, y: ShapedArray) -> Shape:
        (lc, rc), (lb, rb) = self.dimension_numbers
        for what, a, b in (("contracted", lc, rc), ("batch", lb, rb)):
            ok = (
                len(a) == len(b)
                and all(0 <= k < x.ndim for k in a)
                and all(0 <= k < y.ndim for k in b)
            )
            if not ok or [x.shape[k] for k in a] != [y.shape[k] for k in b]:
                raise ShapeError(
                    f"dot_general cannot pair {what} axes {a} of shape {x.shape} with axes {b} of "
                    f"shape {y.shape}; expected as many axes, of equal lengths"
                )
        if len({*lc, *lb}) != len(lc) + len(lb) or len({*rc, *rb}) != len(rc) + len(rb):
            raise ShapeError(
                f"dot_general: an axis appears twice among {self.dimension_numbers}; contracted and "
                "batch axes must be distinct"
            )
        return layout(self.dimension_numbers, x.ndim, y.ndim).shape(x.shape, y.shape)

    @cached_property
    def _shapes(self) -> dict[tuple[Shape, Shape], Shape]:
        return {}  # of results, by the shapes of the operands

    @cached_property
    def _layouts(self) -> dict[tuple[Shape, Shape], Layout]:
        return {}  # by the shapes of operands that were found to fit

    def _layout(self, x: np.ndarray, y: np.ndarray) -> Layout:
        self.abstract(ShapedArray(x.shape, x.dtype), ShapedArray(y.shape, y.dtype))
        if len(self._layouts) > 1000:
            self._layouts.clear()
        found = self._layouts[x.shape, y.shape] = layout(self.dimension_numbers, x.ndim, y.ndim)
        return found

    def impl(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:  # type: ignore[override]
        dot = self._layouts.get((x.shape, y.shape)) or self._layout(x, y)
        dtype, preferred = x.dtype, self.preferred_element_type
        if dtype in _EXACT and (preferred is None or preferred == dtype):
            return dot(x, y)
        out = preferred or dtype
        inner = accumulator(dtype, out)
        return dot(x.astype(inner), y.astype(inner)).astype(out)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        (x, y), (tx, ty) = primals, tangents
        t = None if tx is None else self(tx, y)
        if ty is not None:
            other = self(x, ty)
            t = other if t is None else add_any(t, other)
        return (self(x, y),), (t,)

    def transpose(self, cts: tuple, x: Any, y: Any) -> tuple:  # type: ignore[override]
        ct = cts[0]
        if isinstance(x, Undefined):
            dot, perm = _transposed_lhs(self.dimension_numbers, x.ndim, y.ndim)
            return _finish(dot(*_same_dtype(ct, y)), perm, x.dtype), None
        dot, perm = _transposed_rhs(self.dimension_numbers, x.ndim, y.ndim)
        return None, _finish(dot(*_same_dtype(x, ct)), perm, y.dtype)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (x, y), (ax, ay) = args, axes
        (lc, rc), (lb, rb) = self.dimension_numbers
        if ax is not None and ay is not None:
            lc, lb = _skip(lc, ax), (ax, *_skip(lb, ax))
            rc, rb = _skip(rc, ay), (ay, *_skip(rb, ay))
            out = 0
        elif ax is not None:
            lc, lb = _skip(lc, ax), _skip(lb, ax)
            out = len(lb) + sum(a not in lc and a not in lb for a in range(ax))
        else:
            rc, rb = _skip(rc, ay), _skip(rb, ay)
            out = len(rb) + x.ndim - len(lc) - len(lb)
            out += sum(a not in rc and a not in rb for a in range(ay))
        new = DotGeneral(((lc, rc), (lb, rb)), self.preferred_element_type)
        return (new(x, y),), (out,)

    def sharding(self, x: ShapedArray, y: ShapedArray) -> Factors:
        (lc, rc), (lb, rb) = self.dimension_numbers
        xs: list = [("x", k) for k in range(x.ndim)]
        ys: list = [("y", k) for k in range(y.ndim)]
        for a, b in zip((*lc, *lb), (*rc, *rb)):
            ys[b] = xs[a]
        batch = [xs[k] for k in lb]
        free = [xs[k] for k in range(x.ndim) if k not in (*lc, *lb)]
        free += [ys[k] for k in range(y.ndim) if k not in (*rc, *rb)]
        return Factors((tuple(xs), tuple(ys)), ((*batch, *free),), {xs[k]: ("sum", 0) for k in lc})

    def lower(self, x: Operand, y: Operand) -> Recipe:  # type: ignore[override]
        dot = layout(self.dimension_numbers, len(x.shape), len(y.shape))
        out = (self.preferred_element_type or dtypes.canonical(x.dtype)).name
        shape = dot.shape(x.shape, y.shape)
        inner = tuple(x.shape[a] for a in dot.lc)
        sums = accumulator(dtypes.canonical(x.dtype), dtypes.canonical(out)).name
        large = (
            prod(shape) * prod(inner) > policy.FOLDED_PRODUCT or prod(shape) > policy.FOLDED_RESULTS
        )
        if sums != out or sums == "bool" or large and (dot.rf or dot.lf and sums in _BLAS):
            return Library("dot_general", (x, y), (self.dimension_numbers, sums))
        return _fold(dot, x, y, shape, inner, sums)


def accumulator(dtype: np.dtype, out: np.dtype) -> np.dtype:
    """The dtype in which is multiplied and summed."""
    wide = dtype
    if dtype != out:  # small dtypes are not promoted by themselves
        wide = dtypes.result_dtype(*[dtypes.SMALL.get(d, d) for d in (dtype, out)])
    return dtypes.float32 if dtypes.is_float(wide) and wide.itemsize < 4 else wide


def _fold(dot: Layout, x: Operand, y: Operand, shape: Shape, inner: Shape, dtype: str) -> Fold:
    nb, nl, n = len(dot.lb), len(dot.lf), len(shape)

    def fn(*index: Expr) -> tuple[Expr, ...]:
        batch, left, right, k = index[:nb], index[nb : nb + nl], index[nb + nl : n], index[n:]
        at_x, at_y = (
            _place(dot.lhs_perm, (*batch, *left, *k)),
            _place(dot.rhs_perm, (*batch, *k, *right)),
        )
        return (scalar.mul(scalar.cast(x(*at_x), dtype), scalar.cast(y(*at_y), dtype)),)

    return Fold(
        shape=(*shape, *inner),
        axes=tuple(range(n, n + len(inner))),
        init=(scalar.const(0, dtype),),
        fn=fn,
        combine=lambda acc, new: (scalar.add(acc[0], new[0]),),
        reassociate=True,
    )


def _place(perm: Shape, index: Sequence[Expr]) -> tuple[Expr, ...]:
    """The index in an array of the index in its permutation."""
    at = dict(zip(perm, index, strict=True))
    return tuple(at[a] for a in range(len(perm)))


def _skip(axes: Shape, new: int) -> Shape:
    """Axes as they are called after an axis `new` was inserted."""
    return tuple([a + (a >= new) for a in axes])


def _inverse(perm: Sequence[int]) -> Shape | None:
    found = tuple(sorted(range(len(perm)), key=perm.__getitem__))
    return None if found == tuple(range(len(perm))) else found


@lru_cache(maxsize=4096)
def _transposed_lhs(dims: Dims, lhs_ndim: int, rhs_ndim: int) -> tuple[DotGeneral, Shape | None]:
    """dot(ct, rhs), whose axes are (batch, lhs free, contracted); the permutation to lhs's order."""
    at = Layout(dims, lhs_ndim, rhs_ndim)
    nb, nl, nr = len(at.lb), len(at.lf), len(at.rf)
    batch = tuple(range(nb))
    dot = DotGeneral(((tuple(range(nb + nl, nb + nl + nr)), at.rf), (batch, at.rb)))
    contracted = [at.lc[at.rc.index(a)] for a in sorted(at.rc)]
    return dot, _inverse((*at.lb, *at.lf, *contracted))


@lru_cache(maxsize=4096)
def _transposed_rhs(dims: Dims, lhs_ndim: int, rhs_ndim: int) -> tuple[DotGeneral, Shape | None]:
    """dot(lhs, ct), whose axes are (batch, contracted, rhs free); the permutation to rhs's order."""
    at = Layout(dims, lhs_ndim, rhs_ndim)
    nb, nl = len(at.lb), len(at.lf)
    batch = tuple(range(nb))
    dot = DotGeneral(((at.lf, tuple(range(nb, nb + nl))), (at.lb, batch)))
    contracted = [at.rc[at.lc.index(a)] for a in sorted(at.lc)]
    return dot, _inverse((*at.rb, *contracted, *at.rf))


def _same_dtype(a: Any, b: Any) -> tuple[Any, Any]:
    if a.dtype == b.dtype:
        return a, b
    wide = dtypes.result_dtype(a.dtype, b.dtype)
    return convert(a, wide), convert(b, wide)


def _finish(x: Any, perm: Shape | None, dtype: np.dtype) -> Any:
    if perm is not None:
        x = Transpose(perm)(x)
    return x if x.dtype == dtype else convert(x, dtype)
