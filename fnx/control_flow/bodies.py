"""Bodies of loops and branches: functions of pytrees as jaxprs, and how their types must agree."""

import weakref
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from fnx.core import config, dtypes
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import (
    TypeMismatch,
)
from fnx.core.interpreter import Interpreter, Tracer, current, evaluate
from fnx.core.jaxpr import Jaxpr
from fnx.core.source import brief
from fnx.interpreters.rewrite import counted
from fnx.interpreters.spmd import bound_axes
from fnx.interpreters.trace import trace
from fnx.interpreters.variation import along, said
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.pytree import operations
from fnx.pytree.flatten_fun import flatten_arrays, name_of
from fnx.pytree.surroundings import same, surroundings

Tree = Any
MANY_ITERATIONS = 10**5  # outside a trace an array with the number of each would be made


def evaluates_known_values() -> bool:
    """Whether what needs no traced value is computed at once: outside a trace, in eager derivatives too."""
    now: Interpreter | None = current.get()
    while now is not None and now is not evaluate:
        now = now.parent
    return now is evaluate


class Traced:
    """A function of pytrees as a jaxpr: the arrays that it closed over, and its result's structure."""

    def __init__(self, jaxpr: Jaxpr, consts: list[Array], structure: Any):
        self.jaxpr, self.consts, self.structure = jaxpr, consts, structure

    @property
    def out_avals(self) -> tuple[ShapedArray, ...]:
        return self.jaxpr.out_avals


# A cache: a function that is used again, on the same types and with the same surroundings (the
# values of its globals and of what it closed over), is not traced again; nor is an object that is one
# by its identity, whose attributes are what they were.
_traced: "weakref.WeakKeyDictionary[Callable, dict]" = weakref.WeakKeyDictionary()


def _is_remembered(owner: Callable) -> bool:
    kind = type(owner)
    return kind is FunctionType or (
        kind.__hash__ is object.__hash__ and kind.__eq__ is object.__eq__
        and hasattr(owner, "__dict__") and hasattr(owner, "__weakref__")
    )  # fmt: skip


def trace_body(
    fun: Callable,
    treedef: Any,
    avals: Sequence[ShapedArray],
    what: str,
    owner: Callable | None = None,
) -> Traced:
    """The jaxpr of a function, which `owner` (the user's function in it) remembers."""
    owner = owner or fun
    if not callable(owner):
        raise TypeMismatch(f"{what} must be a function, not {brief(owner)}")
    key = (
        treedef,
        tuple(avals),
        tuple([a.vma for a in avals]),
        what,
        config.of_traces(),
        *bound_axes().items(),
    )
    plain = _is_remembered(owner)
    around = surroundings(owner) if plain else []
    known = _traced.setdefault(owner, {}) if plain else {}
    if key in known and same(known[key][0], around):
        return known[key][1]
    structures: list = []

    def flat(*xs: Array) -> list[Array]:
        result = fun(*operations.tree_unflatten(treedef, xs))
        arrays, structure = flatten_arrays(result, f"results of {name_of(fun)}, {what},")
        structures.append(structure)
        return arrays

    jaxpr, consts = counted(*trace(flat, avals, what=what, name=name_of(fun)))
    made = Traced(jaxpr, consts, structures[0])
    if not any(isinstance(c, Tracer) for c in consts):
        known[key] = around, made
    return made


def promoted(init: list[Array], outs: Sequence[ShapedArray]) -> list[Array] | None:
    """First carries whose weak types gave way to those of the carries that follow, if any did."""
    half = config.default_float32.value
    new = [
        ConvertElementType(o.dtype)(x)  # strong, as JAX's
        if x.aval.weak_type
        and x.shape == o.shape
        and x.dtype != o.dtype
        and dtypes.promote_cached(((x.dtype, True), (o.dtype, False)), half)[0] == o.dtype
        else x
        for x, o in zip(init, outs)
    ]
    return new if any(a is not b for a, b in zip(new, init)) else None


def carry_error(
    what: str, init: Tree, treedef: Any, out: Any, ins: Sequence, outs: Sequence
) -> None:
    """Raise unless structure and types of the carry that a body returns are those that it got."""
    if treedef != out:
        found = operations.tree_unflatten(out, [0] * out.num_leaves)
        forgot = " Is a `return` missing?" if found is None else ""
        raise TypeMismatch(
            f"{what} got as carry {operations.shown(treedef)} and returned {operations.shown(out)}"
            f"{operations.describe_difference(init, found)}. Expected the same structure: return all parts "
            f"of the carry, updated or not, in the same containers.{forgot}"
        )
    paths = [operations.keystr(p) for p, _ in operations.tree_leaves_with_path(init)]
    bad = [
        f"carry{path} is {o.str_short()} but was {i.str_short()}"
        for path, i, o in zip(paths, ins, outs)
        if not i.like(o)
    ]
    if bad:
        raise TypeMismatch(
            f"{what} returned a carry of other types than it got: {'; '.join(bad)}. Expected equal "
            "shapes and dtypes: make the first carry what the body returns, for example with "
            "jnp.zeros(shape, dtype), or convert in the body with .astype."
        )
    check_variation(what, paths, ins, outs)


def check_variation(what: str, paths: Sequence[str], ins: Sequence, outs: Sequence) -> None:
    """Raise unless a carry varies along the same axes of a mesh when it is returned as when it was got."""
    for path, i, o in zip(paths, map(along, ins), map(along, outs)):
        if i != o:
            raise TypeMismatch(
                f"{what} got a carry that varies along the mesh axes {said(i)} in carry{path}, and "
                f"returned one that varies along {said(o)}; expected the same. Let the first carry "
                "vary: lax.pcast(x, names, to='varying')"
            )
