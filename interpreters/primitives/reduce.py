"""Reduction with an operation of the user's: a jaxpr."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core import scalar as expr
from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Jaxpr, Var, eval_jaxpr
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Fold, Operand, Point
from fnx.interpreters.batching import batch_jaxpr
from fnx.interpreters.jvp import jvp
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.broadcast import (
    Broadcast,
    Shape,
    batched_axes,
    broadcast_axis,
    check_axes,
    without,
)
from fnx.ops.base.permute import Reshape, Transpose, move_axis
from fnx.ops.base.sharding_rule import Factors, all_but
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice


def run(jaxpr: Jaxpr, args: Sequence[Any]) -> list:
    """A jaxpr on scalars, applied to arrays of one shape: elementwise primitives take any."""
    shape = args[0].shape
    if not shape or scalar_function(jaxpr) is not None:
        return eval_jaxpr(jaxpr, args)
    size = prod(shape)
    batched, _ = batch_jaxpr(jaxpr, size, (True,) * len(args), True)
    return [Reshape(shape)(o) for o in eval_jaxpr(batched, [Reshape((size,))(x) for x in args])]


def scalar_function(jaxpr: Jaxpr) -> Any:
    """A jaxpr of elementwise equations as a function of expressions; None if it is not one."""

    def fn(*values: expr.Expr) -> list[expr.Expr]:
        env: dict[Var, expr.Expr] = dict(zip(jaxpr.inputs, values, strict=True))

        def read(atom: Any) -> expr.Expr:
            if type(atom) is Var:
                return env[atom]
            return expr.literal(atom.value._value, dtypes.NAME[atom.aval.dtype])

        for eqn in jaxpr.eqns:
            if any(x.aval.shape for x in (*eqn.inputs, *eqn.outs)):
                raise NotImplementedError(eqn.prim.name)
            operands = [_Element(read(a)) for a in eqn.inputs]
            recipe = eqn.prim.lower(*operands)
            if not isinstance(recipe, Point):
                raise NotImplementedError(eqn.prim.name)
            env[eqn.outs[0]] = recipe.fn()
        return [read(a) for a in jaxpr.outs]

    try:
        fn(*[expr.var(dtypes.NAME[v.aval.dtype]) for v in jaxpr.inputs])
    except NotImplementedError:
        return None
    return fn


class _Element:
    """A pull array of rank 0."""

    shape: Shape = ()

    def __init__(self, value: expr.Expr):
        self.value = value
        self.dtype = value.dtype

    def __call__(self, *index: expr.Expr) -> expr.Expr:
        return self.value


@dataclass(frozen=True)
class Reduce(Primitive):
    """Folds `jaxpr`, (accumulators, values) -> accumulators, over `dimensions`.

    Operands, then as many initial values of rank 0. The order of combination is not defined: the
    operation should be associative, and the initial value its identity.
    """

    dimensions: Shape
    jaxpr: Jaxpr
    name = "reduce"
    multiple_results = True

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        n = len(avals) // 2
        xs, inits = avals[:n], avals[n:]
        if len(avals) % 2 or any(x.shape != xs[0].shape for x in xs) or any(i.shape for i in inits):
            raise ShapeError(
                f"reduce of shapes {[a.shape for a in avals]}; expected operands of equal shapes, then "
                "as many initial values of rank 0"
            )
        check_axes("reduce", self.dimensions, xs[0].shape)
        shape = without(xs[0].shape, self.dimensions)
        return tuple([ShapedArray(shape, x.dtype, x.weak_type) for x in xs])

    def sharding(self, *avals: ShapedArray) -> Factors:
        n, rank = len(avals) // 2, avals[0].ndim
        axes = all_but(rank, self.dimensions).results[0]
        kept = tuple([k for k in range(rank) if k not in self.dimensions])
        return Factors((axes,) * n + ((),) * n, (kept,) * n)

    def impl(self, *values: np.ndarray) -> tuple:
        with use(evaluate):
            outs = self.tree(tuple([ConcreteArray(v) for v in values]))
        return tuple([o._value for o in outs])

    def tree(self, args: tuple) -> list:
        """Halves against halves, with primitives, so that it can be differentiated."""
        n = len(args) // 2
        xs, inits = list(args[:n]), args[n:]
        if self.dimensions:
            xs = [_one_axis(x, self.dimensions) for x in xs]
            while xs[0].shape[0] > 1:
                xs = self._halve(xs)
            shape = xs[0].shape[1:]
            empty = not xs[0].shape[0]
            xs = [] if empty else [Reshape(shape)(x) for x in xs]
        else:
            shape = xs[0].shape
        # initial values have rank 0, or their batch along the first axis
        firsts = [Broadcast(shape, tuple(range(len(i.shape))))(i) if shape else i for i in inits]
        return run(self.jaxpr, [*firsts, *xs]) if xs else firsts

    def _halve(self, xs: list) -> list:
        half, odd = divmod(xs[0].shape[0], 2)
        low, high = ([_rows(x, k * half, (k + 1) * half) for x in xs] for k in (0, 1))
        outs = run(self.jaxpr, [*low, *high])
        if odd:
            outs = [
                Concatenate(0)(o, _rows(x, 2 * half, 2 * half + 1))
                for o, x in zip(outs, xs, strict=True)
            ]
        return outs

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        outs, touts = jvp(lambda *args: self.tree(args), primals, tangents)
        return tuple(outs), tuple(touts)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        n = len(args) // 2
        xs = [
            broadcast_axis(x, size, 0) if k is None else move_axis(x, k, 0)
            for x, k in zip(args[:n], axes[:n])
        ]
        moved, _ = batched_axes(self.dimensions, 0)
        prim, inits = Reduce(moved, self.jaxpr), args[n:]
        if all(k is None for k in axes[n:]):
            return prim(*xs, *inits), (0,) * n
        inits = [broadcast_axis(i, size, 0) if not i.shape else i for i in inits]
        return tuple(prim.tree((*xs, *inits))), (0,) * n

    def lower(self, *operands: Operand) -> Any:
        n = len(operands) // 2
        xs, inits = operands[:n], operands[n:]
        fn = scalar_function(self.jaxpr)
        if fn is None:
            avals = [ShapedArray(x.shape, dtypes.canonical(x.dtype)) for x in operands]
            return Call(trace_closed(lambda *args: self.tree(args), avals))
        return Fold(
            xs[0].shape,
            self.dimensions,
            tuple([i() for i in inits]),
            lambda *ix: tuple([x(*ix) for x in xs]),
            lambda acc, new: tuple(fn(*acc, *new)),
        )


def _rows(x: Any, start: int, stop: int) -> Any:
    return Slice((start, *(0,) * (len(x.shape) - 1)), (stop, *x.shape[1:]))(x)


def _one_axis(x: Any, axes: Shape) -> Any:
    """`axes` made one, the first."""
    kept = [k for k in range(len(x.shape)) if k not in axes]
    moved = Transpose((*axes, *kept))(x)
    n = 1
    for k in axes:
        n *= x.shape[k]
    return Reshape((n, *[x.shape[k] for k in kept]))(moved)
