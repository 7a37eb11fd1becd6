"""Jacobians and Hessians: derivatives of all results with respect to all arguments, by vmap."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import entrance
from fnx.interpreters import batching
from fnx.interpreters import jvp as jvp_
from fnx.interpreters import linearize as linearize_
from fnx.interpreters.variation import like, pulled
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.basic import reshape, slice_axis
from fnx.pytree import operations
from fnx.pytree.flatten_fun import Differentiated, check_callable, wraps
from fnx.transforms.grad import check_differentiable


def _basis(leaves: list[Array]) -> list[Array]:
    """For each leaf its block of the identity, [sum of sizes, *shape]."""
    total = sum(x.size for x in leaves)
    blocks: list[Array] = []
    at = 0
    for x in leaves:
        block = np.zeros((total, x.size), x.dtype)
        block[np.arange(at, at + x.size), np.arange(x.size)] = 1
        blocks.append(ConcreteArray(block.reshape(total, *x.shape), x.weak_type))
        at += x.size
    return blocks


def _blocks(x: Array, leaves: list[Array], axis: int, weak: bool) -> list[Array]:
    """Split an axis of `sum of sizes` into one of each leaf's shape, weak or not."""
    parts, at = [], 0
    for leaf in leaves:
        part = x if len(leaves) == 1 else slice_axis(x, at, at + leaf.size, axis)
        part = reshape(part, (*x.shape[:axis], *leaf.shape, *x.shape[axis + 1 :]))
        same = part.weak_type == weak
        parts.append(part if same else ConvertElementType(part.dtype, weak)(part))
        at += leaf.size
    return parts


def jacfwd(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:
    """The Jacobian of a function, column by column, by forward mode.

    The result has the structure of `fun`'s result, each leaf a pytree like the arguments, with
    shape (*result, *argument).

    >>> fnx.jacfwd(lambda x: x**2)(jnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float64)
    """
    check_callable(fun, "jacfwd")

    @wraps(fun)
    @entrance
    def jacfwd_f(*args: Any, **kwargs: Any) -> Any:
        call = Differentiated(fun, argnums, has_aux, args, kwargs, "jacfwd")
        leaves = call.leaves
        check_differentiable(leaves, "jacfwd", holomorphic, False, call.picked)

        kinds: list[bool] = []

        def push(*tangents: Array) -> list[Array]:
            outs, touts = jvp_.jvp(call.flat, leaves, tangents, what="jacfwd")
            kinds.extend([o.weak_type for o in outs])
            return [typed_zeros(o.aval) if t is None else t for o, t in zip(outs, touts)]

        size = sum(x.size for x in leaves)
        outs, axes = batching.batch(push, size, _basis(leaves), [0] * len(leaves))
        columns = [
            batching.place_axis(size, x, k, x.ndim - (k is not None))
            for x, k in zip(outs, axes, strict=True)
        ]
        rows = [
            call.like_arguments(_blocks(x, leaves, x.ndim - 1, weak))
            for x, weak in zip(columns, kinds, strict=True)
        ]
        result = operations.tree_unflatten(call.structures[0], rows)
        return (result, _lowered_aux(call.aux.value)) if has_aux else result

    return jacfwd_f


def _lowered_aux(aux: Any) -> Any:
    def lower(x: Any) -> Any:
        while getattr(getattr(x, "owner", None), "ended", False):
            x = x.primal if isinstance(x, jvp_.JVPTracer) else x.value
        return x

    return operations.tree_map(lower, aux)


def jacrev(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable:
    """The Jacobian of a function, row by row, by reverse mode; the result as in `jacfwd`.

    >>> fnx.jacrev(lambda x: x**2)(jnp.array([1.0, 2.0]))
    Array([[2., 0.],
           [0., 4.]], dtype=float64)
    """
    check_callable(fun, "jacrev")

    @wraps(fun)
    @entrance
    def jacrev_f(*args: Any, **kwargs: Any) -> Any:
        call = Differentiated(fun, argnums, has_aux, args, kwargs, "jacrev")
        leaves = call.leaves
        check_differentiable(leaves, "jacrev", holomorphic, allow_int, call.picked, real=False)
        nonzero = [dtypes.is_inexact(x.dtype) for x in leaves]
        outs, tape = linearize_.linearize(call.flat, leaves, nonzero, "jacrev")
        check_differentiable(outs, "jacrev: the result; it", holomorphic, False)

        types = [y.aval for y in outs], [x.aval for x in leaves]

        def pull(*cts: Array) -> list[Array]:
            back = pulled(lambda given: tape.pull(given, leaves), cts, *types, tape.eqns)
            known = zip(back, leaves, nonzero)
            return [
                like(typed_zeros(x.aval), x.aval) if g is None else g for g, x, has in known if has
            ]

        size = sum(y.size for y in outs)
        grads, axes = batching.batch(pull, size, _basis(outs), [0] * len(outs))
        rows = [batching.place_axis(size, g, k, 0) for g, k in zip(grads, axes, strict=True)]
        given = [x for x, has in zip(leaves, nonzero) if has]
        found = iter([_blocks(r, outs, 0, x.weak_type) for r, x in zip(rows, given, strict=True)])
        split: list[list] = [
            next(found) if has else [np.zeros((*y.shape, *x.shape), dtypes.float0) for y in outs]
            for x, has in zip(leaves, nonzero)
        ]
        trees = [call.like_arguments([parts[k] for parts in split]) for k in range(len(outs))]
        result = operations.tree_unflatten(call.structures[0], trees)
        return (result, call.aux.lowered()) if has_aux else result

    return jacrev_f


jacobian = jacrev


def hessian(
    fun: Callable,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
) -> Callable:
    """The matrix of second derivatives, forward over reverse.

    >>> fnx.hessian(lambda x: x**3)(2.0)
    Array(12., dtype=float64, weak_type=True)
    """
    inner = jacrev(fun, argnums, has_aux=has_aux, holomorphic=holomorphic)
    return jacfwd(inner, argnums, has_aux=has_aux, holomorphic=holomorphic)
