"""Comparisons, logic, and choices between elements."""

from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.cost import SELECTION
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Undefined
from fnx.ops.base.broadcast import Broadcast, Sum, scalar_like, typed_zeros
from fnx.ops.elementwise.pointwise import (
    ANY,
    INTEGRAL,
    Dtypes,
    Elementwise,
    Pointwise,
    common_shape,
    dtype_table,
)


def _truth(kinds: str) -> Dtypes:
    return dtype_table(kinds, lambda d: dtypes.bool_)


def _two(name: str, impl: Any, accepts: Dtypes) -> Elementwise:
    return Elementwise(name, impl, accepts, (None, None), (), name)


eq = _two("eq", np.equal, _truth("biufc"))
ne = _two("ne", np.not_equal, _truth("biufc"))
lt = _two("lt", np.less, _truth("biuf"))
le = _two("le", np.less_equal, _truth("biuf"))
gt = _two("gt", np.greater, _truth("biuf"))
ge = _two("ge", np.greater_equal, _truth("biuf"))

and_ = _two("and", np.bitwise_and, INTEGRAL)
or_ = _two("or", np.bitwise_or, INTEGRAL)
xor = _two("xor", np.bitwise_xor, INTEGRAL)
not_ = Elementwise("not", np.invert, INTEGRAL, (None,), (), "not")


# --- the total order: -nan < -inf < ... < -0 < 0 < ... < inf < nan -----------------------------


def _ordered(x: np.ndarray) -> np.ndarray:
    """Integers in the total order of floats."""
    if not dtypes.is_float(x.dtype):
        return x
    bits = x.view(f"i{x.dtype.itemsize}")
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _ordered_expr(a: expr.Expr) -> expr.Expr:
    if "float" not in a.dtype:
        return a
    width = {"float16": 16, "bfloat16": 16, "float32": 32, "float64": 64}[a.dtype]
    name = f"int{width}"
    bits = expr.bitcast(a, name)
    flipped = expr.apply("xor", bits, expr.const((1 << (width - 1)) - 1, name))
    return expr.select(expr.compare("lt", bits, expr.const(0, name)), flipped, bits)


def _total(name: str, ufunc: Any, op: str) -> Elementwise:
    return Elementwise(
        name,
        lambda x, y: ufunc(_ordered(x), _ordered(y)),
        _truth("biuf"),
        (None, None),
        (),
        lambda a, b: expr.compare(op, _ordered_expr(a), _ordered_expr(b)),
    )


eq_to = _total("eq_to", np.equal, "eq")
lt_to = _total("lt_to", np.less, "lt")
le_to = _total("le_to", np.less_equal, "le")


# --- choices -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SelectN(Pointwise):
    """`cases[which]`, element by element; `which` is bool (two cases) or int32."""

    name = "select_n"
    cost = SELECTION
    accepts = ANY
    typed_by = slice(1, None)  # type: ignore[assignment]

    def abstract(self, which: ShapedArray, *cases: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if which.dtype != dtypes.int32 and (which.dtype != dtypes.bool_ or len(cases) > 2):
            raise TypeMismatch(
                f"select_n between {len(cases)} cases by dtype {which.dtype}; expected bool for two "
                "cases, int32 for any number"
            )
        if any(c.dtype != cases[0].dtype for c in cases):
            raise self.dtype_error(cases)
        shape = common_shape(self.name, (which, *cases))
        weak = all([c.weak_type for c in cases])
        return (ShapedArray(shape, cases[0].dtype, weak),)

    def impl(self, which: np.ndarray, *cases: np.ndarray) -> Any:  # type: ignore[override]
        if which.dtype.kind == "b":
            return np.where(which, cases[-1], cases[0])
        out = cases[0]
        for k, case in enumerate(cases[1:], 1):
            out = np.where(which >= k, case, out)
        return np.where(which, out, out) if out.shape != which.shape else out

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        which = primals[0]
        out = self(*primals)
        zero = typed_zeros(ShapedArray((), out.dtype, out.weak_type))
        tangent = self(which, *[zero if t is None else t for t in tangents[1:]])
        if not tangent.shape and out.shape:
            tangent = Broadcast(out.shape, ())(tangent)
        return (out,), (tangent,)

    def transpose(self, cts: tuple, which: Any, *cases: Any) -> list:  # type: ignore[override]
        ct = cts[0]
        zero = typed_zeros(ShapedArray((), ct.dtype, ct.weak_type))
        outs: list = [None]
        for k, case in enumerate(cases):
            if type(case) is not Undefined:
                outs.append(None)
                continue
            g = self(which, *[ct if j == k else zero for j in range(len(cases))])
            if g.shape and not case.aval.shape:
                g = Sum(tuple(range(len(g.shape))))(g)
            outs.append(g)
        return outs

    def scalar_fn(self, which: str, *names: str) -> Any:  # type: ignore[override]
        def fn(index: expr.Expr, *cases: expr.Expr) -> expr.Expr:
            if which == "bool":
                return expr.select(index, cases[-1], cases[0])
            out = cases[0]
            for k, case in enumerate(cases[1:], 1):
                out = expr.select(expr.compare("ge", index, expr.const(k, which)), case, out)
            return out

        return fn


select_n = SelectN()


def select(pred: Array, on_true: Array, on_false: Array) -> Array:
    """`on_true` where `pred`, else `on_false`."""
    return select_n(pred, on_false, on_true)


def _where(pred: Array, t: Array) -> Array:
    return select(pred, t, scalar_like(0, t))


clamp = Elementwise(
    "clamp",
    lambda low, x, high: np.minimum(np.maximum(x, low), high),
    dtype_table("biuf"),
    (
        lambda t, o, low, x, high: _where(and_(gt(low, x), lt(low, high)), t),
        lambda t, o, low, x, high: _where(and_(gt(x, low), lt(x, high)), t),
        lambda t, o, low, x, high: _where(lt(high, x), t),
    ),
    (),
    lambda low, x, high: expr.apply("min", expr.apply("max", x, low), high),
)
