"""Branches: cond and switch."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.control_flow.bodies import (
    MANY_ITERATIONS,
    Traced,
    evaluates_known_values,
    trace_body,
)
from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray, as_array
from fnx.core.aval import ShapedArray
from fnx.core.errors import (
    InvalidValue,
    TypeMismatch,
    entrance,
)
from fnx.core.interpreter import Tracer, public_runner
from fnx.core.jaxpr import Jaxpr, Var, eval_jaxpr, made_once, subjaxprs
from fnx.core.source import brief
from fnx.interpreters.control_flow import ScanRecord
from fnx.interpreters.primitives.cond import Cond
from fnx.interpreters.primitives.jit import Jit
from fnx.interpreters.trace import CapturedRefs, trace
from fnx.interpreters.variation import along, said
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.select import ne
from fnx.ops.structure.basic import convert, scalar
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays, name_of
from fnx.transforms.jit import BACKEND
from fnx.transforms.mutable_refs import RefGiven, carrying, taken_out, write

Tree = Any


@entrance
def cond(
    pred: Any, true_fun: Callable, false_fun: Callable, *operands: Tree, **kwargs: Any
) -> Tree:
    """`true_fun(*operands)` if `pred`, else `false_fun(*operands)`; only one of them runs.

    Both are traced and must give equal types. Under vmap with a `pred` that differs between lanes both
    run. TypeError for a predicate that is not a scalar, and for branches of different types.

    >>> lax.cond(3 > 2, lambda x: x + 1, lambda x: x - 1, 10.0)
    Array(11., dtype=float64, weak_type=True)
    """
    if "operand" in kwargs:
        operands = (*operands, kwargs.pop("operand"))
    kwargs.pop("linear", None)
    if kwargs:
        raise TypeMismatch(f"cond got unexpected arguments {', '.join(kwargs)}")
    if not callable(true_fun) and len(operands) == 2 and callable(operands[1]):
        # The old form: pred, true_operand, true_fun, false_operand, false_fun.
        true_operand, on_true, false_operand, on_false = true_fun, false_fun, *operands
        return cond(
            pred, lambda a, b: on_true(a), lambda a, b: on_false(b), true_operand, false_operand
        )
    if isinstance(pred, Callable):  # type: ignore[arg-type]
        raise TypeMismatch(
            "cond got a function as predicate; expected a bool of rank 0, then functions"
        )
    test = as_array(pred)
    if test.shape != ():
        raise TypeMismatch(
            f"cond by a predicate of type {test.aval.str_short()}; expected rank 0. Reduce it with jnp.all "
            "or jnp.any, choose element by element with jnp.where, or use vmap."
        )
    if dtypes.kind(test.dtype) not in "biuf":
        raise TypeMismatch(f"cond by a predicate of type {test.aval.str_short()}; expected a bool")
    if config.disable_jit.value and _is_known(test):
        return true_fun(*operands) if test else false_fun(*operands)
    if test.dtype != dtypes.bool_:
        test = ne(test, scalar(0, test.dtype))
    return _branch(convert(test, dtypes.int32), (false_fun, true_fun), operands, "cond")


@entrance
def switch(index: Any, branches: Sequence[Callable], *operands: Tree, operand: Any = None) -> Tree:
    """`branches[index](*operands)`, with the index clamped to the range.

    TypeError for an index that is not a scalar integer, and for branches of different types.

    >>> lax.switch(1, [lambda x: x, lambda x: -x], 2.0)
    Array(-2., dtype=float64, weak_type=True)
    """
    if operand is not None:
        operands = (*operands, operand)
    where = as_array(index)
    if where.shape != () or not dtypes.is_integer(where.dtype):
        raise TypeMismatch(
            f"switch by an index of type {where.aval.str_short()}; expected an integer of rank 0"
        )
    if not np.iterable(branches):
        raise TypeMismatch(f"the branches of switch must be functions, not {brief(branches)}")
    branches = tuple(branches)
    if not branches:
        raise InvalidValue("switch between no branches; expected at least one")
    if not all(callable(b) for b in branches):
        raise TypeMismatch("switch between objects that are not functions")
    if len(branches) == 1 or (config.disable_jit.value and _is_known(where)):
        k = 0 if len(branches) == 1 else int(np.clip(int(where), 0, len(branches) - 1))
        return branches[k](*operands)
    if where.dtype != dtypes.int32:
        where = convert(where, dtypes.int32)
    return _branch(where, branches, operands, "switch")


def _is_known(x: Array | None) -> bool:
    """Whether Python can branch on a value, itself or below derivatives."""
    while isinstance(x, Tracer):
        x = x.owner.concrete(x)
    return x is not None


def _branch(index: Array, funs: Sequence[Callable], operands: tuple, what: str) -> Tree:
    try:
        return _plain_branch(index, funs, operands, what)
    except RefGiven:
        given, others, joined = taken_out(operands, what)
        if not given:
            raise
        without = [lambda *xs, f=f: f(*joined(given, xs)) for f in funs]
        return _branch(index, without, tuple(others), what)
    except CapturedRefs as found:
        refs = found.refs
    carried = [carrying(f, refs) for f in funs]
    values, out = _branch(index, carried, ([r.value for r in refs], *operands), what)
    write(refs, values)
    return out


def _plain_branch(index: Array, funs: Sequence[Callable], operands: tuple, what: str) -> Tree:
    arrays, treedef = flatten_arrays(operands, f"operands of {what}")
    avals = [x.aval for x in arrays]
    made = [trace_body(f, treedef, avals, f"the branch {name_of(f)} of {what}") for f in funs]
    types = _branch_types(made, funs, what)
    jaxprs = [_converted(m.jaxpr, tuple(types)) for m in made]
    if type(index) is ConcreteArray:
        k = min(max(int(index), 0), len(funs) - 1)
        outs = _taken(jaxprs[k], [*made[k].consts, *arrays])
    else:
        consts = {id(c): c for m in made for c in m.consts}
        branches = tuple([_with_consts(j, m, consts) for j, m in zip(jaxprs, made)])
        outs = list(Cond(branches, BACKEND)(index, *consts.values(), *arrays))
    return operations.tree_unflatten(made[0].structure, outs)


def _taken(jaxpr: Jaxpr, args: Sequence[Array]) -> list[Array]:
    """Results of a known branch. One with long loops is compiled: their counters would be arrays.

    So is what is looked at, of which only results count.
    """
    if public_runner() is not None:
        return list(Jit(jaxpr, jaxpr.name, BACKEND)(*args))
    if _has_long_loops(jaxpr) and evaluates_known_values():
        return list(Jit(jaxpr, jaxpr.name, BACKEND).apply(*args))
    return eval_jaxpr(jaxpr, args)


@made_once
def _has_long_loops(jaxpr: Jaxpr) -> bool:
    return any(
        (isinstance(e.prim, ScanRecord) and e.prim.length > MANY_ITERATIONS)
        or any(map(_has_long_loops, subjaxprs(e.prim)))
        for e in jaxpr.eqns
    )


def _branch_types(
    made: Sequence[Traced], funs: Sequence[Callable], what: str
) -> list[tuple[np.dtype, bool]]:
    """Dtypes of results, and whether they are weak. Raises unless branches agree.

    Weak ones give way to others. Of one dtype, results are weak where those of the first branch (of cond:
    the one for False) are, as in JAX.
    """
    pairs = list(zip(made, funs))
    if what == "cond":  # true first, as the user wrote them
        pairs.reverse()
    first, name = pairs[0][0], name_of(pairs[0][1])
    for m, f in pairs[1:]:
        names = f"{what}: the branches {name} and {name_of(f)}"
        if m.structure != first.structure:
            raise TypeMismatch(
                f"{names} return {first.structure} and {m.structure}; "
                f"{what} branch outputs must have the same pytree structure"
            )
        for a, b in zip(first.out_avals, m.out_avals):
            if a.shape != b.shape or not _agree(a, b):
                raise TypeMismatch(
                    f"{names} return {a.str_short()} and {b.str_short()}; expected equal shapes and "
                    "dtypes. Convert with .astype or jnp.broadcast_to in one of them."
                )
            if along(a) != along(b):
                raise TypeMismatch(
                    f"{names} return what varies along the mesh axes {said(along(a))} and "
                    f"{said(along(b))}; expected the same: use lax.pcast(x, names, to='varying')"
                )
    return [_joint_type(column) for column in zip(*[m.out_avals for m in made])]


def _agree(a: ShapedArray, b: ShapedArray) -> bool:
    """Whether dtypes are equal, or one is of Python numbers of the other's kind."""
    kinds = {"i" if k == "u" else k for k in (dtypes.kind(a.dtype), dtypes.kind(b.dtype))}
    return a.dtype == b.dtype or ((a.weak_type or b.weak_type) and len(kinds) == 1)


def _joint_type(avals: Sequence[ShapedArray]) -> tuple[np.dtype, bool]:
    """The type of a result, of what each branch returns."""
    if all(a.dtype == avals[0].dtype for a in avals):
        return avals[0].dtype, avals[0].weak_type
    return dtypes.promote(tuple([(a.dtype, a.weak_type) for a in avals]))


@made_once
def _converted(jaxpr: Jaxpr, types: tuple[tuple[np.dtype, bool], ...]) -> Jaxpr:
    """The same results in other dtypes."""
    if all((a.dtype, a.weak_type) == t for a, t in zip(jaxpr.out_avals, types)):
        return jaxpr

    def run(*xs: Array) -> list[Array]:
        ys = eval_jaxpr(jaxpr, xs)
        return [
            y if (y.dtype, y.weak_type) == t else ConvertElementType(*t)(y)
            for y, t in zip(ys, types)
        ]

    return trace(run, jaxpr.in_avals, name=jaxpr.name)[0]


def _with_consts(jaxpr: Jaxpr, made: Traced, consts: dict[int, Array]) -> Jaxpr:
    """With all branches' constants as inputs."""
    n = len(made.consts)
    own = dict(zip([id(c) for c in made.consts], jaxpr.inputs[:n]))
    if list(own) == list(consts):
        return jaxpr
    heads = [own.get(k) or Var(c.aval) for k, c in consts.items()]
    return Jaxpr([*heads, *jaxpr.inputs[n:]], jaxpr.eqns, jaxpr.outs, len(heads), jaxpr.name)
