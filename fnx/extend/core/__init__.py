"""Primitives of users, and jaxprs for programs that read them, under the names of `jax.extend.core`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.errors import ConcretizationTypeError
from fnx.core.interpreter import Interpreter as Trace
from fnx.core.interpreter import Tracer, current, evaluate, use
from fnx.core.jaxpr import ClosedJaxpr as ClosedJaxpr
from fnx.core.jaxpr import DropVar as DropVar
from fnx.core.jaxpr import Eqn as JaxprEqn
from fnx.core.jaxpr import Jaxpr as Jaxpr
from fnx.core.jaxpr import Literal as Literal
from fnx.core.jaxpr import Var as Var
from fnx.core.jaxpr import check_jaxpr as check_jaxpr
from fnx.core.jaxpr import eval_jaxpr
from fnx.core.jaxpr import subjaxprs as _subjaxprs
from fnx.core.primitive import Undefined
from fnx.extend.core import primitives as primitives
from fnx.interpreters.primitives.user_primitives import Primitive as Primitive
from fnx.interpreters.primitives.user_primitives import Zero
from fnx.pytree.operations import register_pytree_node
from fnx.transforms.scopes import ensure_compile_time_eval as ensure_compile_time_eval

__all__ = [
    "ClosedJaxpr",
    "DropVar",
    "Effect",
    "Jaxpr",
    "JaxprEqn",
    "Literal",
    "Primitive",
    "TraceTag",
    "Var",
    "check_jaxpr",
    "concrete_or_error",
    "ensure_compile_time_eval",
    "eval_context",
    "find_top_trace",
    "get_opaque_trace_state",
    "is_constant_dim",
    "jaxpr_as_fun",
    "mapped_aval",
    "primitives",
    "set_current_trace",
    "subjaxprs",
    "take_current_trace",
    "unmapped_aval",
    "valid_jaxtype",
]

# In rules of users' primitives these stand where arrays would; as pytrees they have none.
register_pytree_node(Zero, lambda x: ((), x.aval), lambda aval, _: Zero(aval))
register_pytree_node(Undefined, lambda x: ((), x.aval), lambda aval, _: Undefined(aval))


def concrete_or_error(force: Callable | None, val: Any, context: str = "") -> Any:
    """`force(val)`, or the value itself; ConcretizationTypeError, with `context`, for traced ones.

    >>> fnx.extend.core.concrete_or_error(int, 2.5)
    2
    """
    if isinstance(val, Tracer):
        known = val.owner.concrete(val)
        if known is None:
            raise ConcretizationTypeError(
                f"a traced value of type {val.aval.str_short()} inside {val.owner.what}, where one that "
                f"is known is expected. {context}".strip()
            )
        val = known
    return val if force is None else force(val)


def jaxpr_as_fun(jaxpr: ClosedJaxpr) -> Callable[..., list[Array]]:
    """The function, from arrays to a list of arrays, that a closed jaxpr is.

    >>> double = fnx.make_jaxpr(lambda x: x * 2.0)(jnp.ones(2))
    >>> fnx.extend.core.jaxpr_as_fun(double)(jnp.array([3.0, 4.0]))
    [Array([6., 8.], dtype=float64)]
    """
    return lambda *args: eval_jaxpr(jaxpr.jaxpr, [*jaxpr.consts, *map(as_array, args)])


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The jaxprs that equations of a jaxpr carry.

    >>> closed = fnx.make_jaxpr(fnx.jit(lambda x: x * 2.0))(1.0)
    >>> [len(inner.eqns) for inner in fnx.extend.core.subjaxprs(closed.jaxpr)]
    [1]
    """
    for eqn in jaxpr.eqns:
        yield from _subjaxprs(eqn.prim)


def mapped_aval(size: int, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of one of the batch elements that lie along `axis` of values of type `aval`; None: no batch.

    >>> fnx.extend.core.mapped_aval(4, 0, fnx.typeof(jnp.ones((4, 3))))
    ShapedArray(float64[3])
    """
    del size
    if axis is None:
        return aval
    return aval.update(shape=aval.shape[:axis] + aval.shape[axis + 1 :])


def unmapped_aval(size: int, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of `size` batch elements, along `axis`, of values of type `aval`; None: no batch.

    >>> fnx.extend.core.unmapped_aval(4, 0, fnx.typeof(jnp.ones(3)))
    ShapedArray(float64[4,3])
    """
    if axis is None:
        return aval
    return aval.update(shape=(*aval.shape[:axis], size, *aval.shape[axis:]))


class TraceTag:
    """What traces of one transformation have in common: compared by identity.

    >>> tag = fnx.extend.core.TraceTag()
    >>> tag == tag, tag == fnx.extend.core.TraceTag()
    (True, False)
    """


class Effect:
    """Something that a primitive does besides computing: `def_effectful_abstract_eval` tells a set.

    >>> class Prints(fnx.extend.core.Effect):
    ...     pass
    """


def valid_jaxtype(x: Any) -> bool:
    """Whether a value is an array, or is taken for one.

    >>> [fnx.extend.core.valid_jaxtype(x) for x in (1.5, np.ones(2), "text", [1.0])]
    [True, True, False, False]
    """
    try:
        as_array(x)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


@contextmanager
def set_current_trace(trace: Trace) -> Iterator[None]:
    """Let an interpreter process what is bound for a while.

    >>> with fnx.extend.core.take_current_trace() as trace, fnx.extend.core.set_current_trace(trace):
    ...     x = jnp.ones(3)
    """
    with use(trace):
        yield


@contextmanager
def take_current_trace() -> Iterator[Trace]:
    """The interpreter at work, in whose place primitives are evaluated for a while.

    >>> def f(x):
    ...     with fnx.extend.core.take_current_trace() as trace:
    ...         print(trace.what, jnp.ones(2))
    ...     return x
    >>> _ = fnx.vmap(f)(jnp.zeros(3))
    vmap [1. 1.]
    """
    now = current.get()
    with use(evaluate):
        yield now


eval_context = ensure_compile_time_eval


def is_constant_dim(d: Any) -> bool:
    """Whether the size of an axis is a number, and no symbol of a shape that is to be exported.

    >>> fnx.extend.core.is_constant_dim(3)
    True
    """
    return isinstance(d, (int, np.integer))


def find_top_trace(args: Any = ()) -> Any:
    """The interpreter that processes what is bound now.

    >>> type(fnx.extend.core.find_top_trace()).__name__
    'Eval'
    """
    del args
    return current.get()


def get_opaque_trace_state(convention: str = "") -> Any:
    """What is equal as long as the same transformations are at work.

    >>> state = fnx.extend.core.get_opaque_trace_state()
    >>> state == fnx.extend.core.get_opaque_trace_state()
    True
    """
    del convention
    return current.get()
