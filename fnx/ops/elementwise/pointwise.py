"""The rules that all elementwise primitives share.

Operands have one shape, or rank 0 beside that shape: a rank-0 operand meets every element.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.cost import ELEMENTARY, SIMPLE, Cost
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import Interpreter, Tracer, evaluate, use
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Host, Operand, Point, Recipe
from fnx.ops.base.broadcast import Broadcast, Sum, broadcast_axis
from fnx.ops.base.permute import move_axis
from fnx.ops.base.sharding_rule import Factors, axis_by_axis
from fnx.ops.elementwise.native import implements, native

Dtypes = Mapping[np.dtype, np.dtype]


def dtype_table(kinds: str, to: Callable[[np.dtype], np.dtype] | None = None) -> Dtypes:
    """The dtypes of some kinds ('b', 'i', 'u', 'f', 'c'), each with that of the result."""
    return {d: to(d) if to else d for d in dtypes.ALL if dtypes.kind(d) in kinds}


ANY = dtype_table("biufc")
NUMBER = dtype_table("iufc")
INTEGER = dtype_table("iu")
INTEGRAL = dtype_table("biu")
FLOAT = dtype_table("f")
INEXACT = dtype_table("fc")


_LINEAR = ("add", "sub", "complex")  # in all operands together: tangents are added as values are


def common_shape(name: str, avals: tuple) -> tuple[int, ...]:
    """The shape of operands that are of equal shapes, or rank 0."""
    shape: tuple[int, ...] = ()
    for a in avals:
        if a.shape and a.shape != shape:
            if shape:
                raise ShapeError(
                    f"{name} of operands of shapes {', '.join(str(a.shape) for a in avals)}; expected "
                    "equal shapes, or rank 0. Broadcast them first (fnx.numpy's functions do)."
                )
            shape = a.shape
    return shape


@dataclass(frozen=True)
class Pointwise(Primitive):
    """Element by element. What members differ in are these attributes, and `impl`."""

    elementwise = True
    cost = SIMPLE
    accepts = ANY  # which dtypes operands may have, with the dtype of the result
    jvps = ()  # per operand, (tangent, result, *operands) -> tangent of the result, or None
    pulls = ()  # per operand in which it is linear, (cotangent, None, *operands) -> cotangent
    expr = None  # the scalar operation, a name or a function; None: only `impl` knows
    in_others = None  # of one that JAX lacks: the same, a function of the operands, in those it has

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        if self.jvps and len(avals) != len(self.jvps):
            raise TypeMismatch(f"{self.name} of {len(avals)} operands; expected {len(self.jvps)}")
        x = avals[0]
        dtype = self.accepts.get(x.dtype)
        shape, weak = x.shape, x.weak_type
        for a in avals[1:]:
            if a.dtype != x.dtype:
                raise self.dtype_error(avals)
            if a.shape != shape:
                shape = common_shape(self.name, avals)
            weak = weak and a.weak_type
        if dtype is None:
            raise self.dtype_error(avals)
        if dtype is x.dtype and shape is x.shape and weak == x.weak_type:
            return (x,)
        return (ShapedArray(shape, dtype, weak),)

    def dtype_error(self, avals: tuple) -> TypeMismatch:
        given = ", ".join(dtypes.NAME.get(a.dtype, str(a.dtype)) for a in avals)
        accepted = ", ".join(dtypes.NAME[d] for d in self.accepts)
        differ = len({a.dtype for a in avals}) > 1
        equal = "equal dtypes, " if differ else ""
        hint = "Convert them first (fnx.numpy's functions promote)." if differ else "Convert first."
        return TypeMismatch(
            f"{self.name} of operands of dtypes {given}; expected {equal}one of {accepted}. {hint}"
        )

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        out = self(*primals)
        total, sum_ = None, add if self.name in _LINEAR else add_any
        for rule, t in zip(self.jvps, tangents):
            if t is not None and rule is not None:
                term = rule(t, out, *primals)
                total = term if total is None else sum_(total, term)
        if total is not None and not total.shape and out.shape:
            total = Broadcast(out.shape, ())(total)
        return (out,), (total,)

    def transpose(self, cts: tuple, *args: Any) -> list:
        ct = cts[0]
        outs: list = []
        for k, x in enumerate(args):
            if type(x) is not Undefined:
                outs.append(None)
                continue
            rule = self.pulls[k] if self.pulls else None
            if rule is None:
                raise self._missing("transpose", "reverse-mode differentiation (grad, vjp)")
            g = rule(ct, None, *args)
            if g.shape and not x.aval.shape:
                g = Sum(tuple(range(len(g.shape))))(g)
            outs.append(g)
        return outs

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (self(*align(size, args, axes)),), (result_axis(args, axes),)

    def handed_to(self, trace: Interpreter, args: tuple) -> Any:
        """With operands of one shape, as in JAX; in primitives that it has."""
        if self.in_others is not None:
            with use(trace):
                return self.in_others(*args)
        shape = max([a.shape for a in args], key=len)
        return super().handed_to(trace, tuple([_full(trace, a, shape) for a in args]))

    def sharding(self, *avals: ShapedArray) -> Factors:
        ranks = [len(a.shape) for a in avals]
        return axis_by_axis(max(ranks), *ranks)

    def lower(self, *operands: Operand) -> Recipe:
        fn = self.scalar_fn(*[x.dtype for x in operands])
        if fn is None:
            return Host()
        return Point(lambda *ix: fn(*[x(*ix) if x.shape else x() for x in operands]))

    def scalar_fn(self, *names: str) -> Callable | None:
        """From operands' elements to the result's, or None where only `impl` will do."""
        op = self.expr
        if isinstance(op, str):
            return lambda *xs: expr.apply(op, *xs)
        return op


def _full(trace: Interpreter, x: Array, shape: tuple[int, ...]) -> Array:
    if x.shape == shape:
        return x
    with use(trace if isinstance(x, Tracer) else evaluate):
        return Broadcast(shape, ())(x)


def result_axis(args: tuple, axes: tuple) -> int:
    """The batch axis of the result: that of the first batched operand of full rank."""
    rank = max([len(x.shape) - (k is not None) for x, k in zip(args, axes)])
    for x, k in zip(args, axes):
        if k is not None and len(x.shape) > rank:
            return k
    return 0


def align(size: int, args: tuple, axes: tuple) -> list[Array]:
    """Operands with batch axes, made to fit: of equal shapes with one batch axis, or rank 0."""
    rank = max([len(x.shape) - (k is not None) for x, k in zip(args, axes)])
    to = result_axis(args, axes)
    # One array may be there twice, with a batch axis and without: what has the full rank is found by place.
    at = next(i for i, k in enumerate(axes) if len(args[i].shape) - (k is not None) == rank)
    full, fk = args[at].shape, axes[at]
    outs = []
    for x, k in zip(args, axes):
        if k is None:
            outs.append(broadcast_axis(x, size, to) if x.shape else x)
        elif len(x.shape) > rank:
            outs.append(x if k == to else move_axis(x, k, to))
        else:
            inner = full if fk is None else (*full[:fk], *full[fk + 1 :])
            outs.append(Broadcast((*inner[:to], size, *inner[to:]), (to,))(x))
    return outs


@dataclass(frozen=True, eq=False)
class Elementwise(Pointwise):
    """A member of the family, by its data; members are compared by identity."""

    name: str = field()
    impl: Callable = field(repr=False)  # type: ignore[assignment]
    accepts: Dtypes = field(repr=False, default_factory=lambda: ANY)
    jvps: tuple = field(repr=False, default=())
    pulls: tuple = field(repr=False, default=())
    expr: str | Callable | None = field(repr=False, default=None)
    cost: Cost = field(repr=False, default=SIMPLE)
    in_others: Callable | None = field(repr=False, default=None)  # type: ignore[assignment]

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        implements(self.impl, self)

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.name


def unary(
    name: str,
    impl: Callable,
    accepts: Dtypes,
    jvp: Callable | None = None,
    expr: Any = "",
    cost: Cost = SIMPLE,
    in_others: Callable | None = None,
) -> Elementwise:
    """A primitive of one operand; `jvp(t, out, x)`. Its scalar operation has its name."""
    expr = name if expr == "" else expr
    return Elementwise(name, impl, accepts, (jvp,), (), expr, cost, in_others)


def linear(
    name: str,
    impl: Callable,
    accepts: Dtypes,
    push: Callable,
    pull: Callable | None = None,
    cost: Cost = SIMPLE,
) -> Elementwise:
    """A linear primitive of one operand: `push(t, out, x)` and `pull(ct, None, x)`."""
    return Elementwise(name, impl, accepts, (push,), (pull or push,), name, cost)


def binary(
    name: str,
    impl: Callable,
    accepts: Dtypes,
    jvps: tuple = (None, None),
    pulls: tuple = (),
    expr: Any = "",
    cost: Cost = SIMPLE,
) -> Elementwise:
    """A primitive of two operands; `jvps[k](t, out, x, y)`."""
    return Elementwise(name, impl, accepts, jvps, pulls, name if expr == "" else expr, cost)


def exact_on_reals(ufunc: Callable) -> Callable:
    """NumPy's function, which rounds correctly but for complex numbers."""
    return native(ufunc, exact=dict.fromkeys(dtype_table("iuf"), ufunc))


def elementary(
    name: str,
    reference: Callable,
    accepts: Dtypes,
    jvp: Callable,
    in_others: Callable | None = None,
) -> Elementwise:
    """A primitive of one operand that no library rounds correctly."""
    return unary(name, native(reference), accepts, jvp, cost=ELEMENTARY, in_others=in_others)


def identity(t: Array, out: Any, *xs: Any) -> Array:
    """The tangent itself."""
    return t


add = Elementwise("add", np.add, NUMBER, (identity, identity), (identity, identity), "add")


@dataclass(frozen=True)
class AddWeak(Pointwise):
    """x + y, as weak as x."""

    name = "add_any"
    accepts = NUMBER
    typed_by = slice(0, 1)  # type: ignore[assignment]
    jvps = (identity, identity)
    pulls = (identity, identity)
    expr = "add"
    impl = staticmethod(np.add)

    def abstract(self, x: ShapedArray, y: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        (out,) = super().abstract(x, y)
        return (out.update(weak_type=x.weak_type),)


add_weak = AddWeak()


def add_any(x: Array, y: Array) -> Array:
    """The sum of two parts of a derivative, as weak as the first, as in JAX."""
    return add_weak(x, y) if x.weak_type and not y.weak_type else add(x, y)
