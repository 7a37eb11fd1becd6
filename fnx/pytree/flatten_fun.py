"""Users' functions of pytrees as functions of flat lists of arrays, and checks of their arguments."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from fnx.core.array import Array, as_array, boxed, is_array_like, kind_of
from fnx.core.aval import ShapedArray
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.source import brief
from fnx.core.source import name_of as name_of
from fnx.interpreters.jvp import JVPTracer
from fnx.pytree import operations


def wraps(fun: Callable) -> Callable[[Callable], Callable]:
    """functools.wraps, also for objects whose __name__ and the like are no such things."""

    def decorate(wrapper: Callable) -> Callable:
        # Attributes of objects are their own: a jitted function's are its programs.
        updated = ("__dict__",) if isinstance(fun, FunctionType) else ()
        functools.update_wrapper(wrapper, fun, (), updated)
        for key in functools.WRAPPER_ASSIGNMENTS:
            with contextlib.suppress(AttributeError, TypeError):
                setattr(wrapper, key, getattr(fun, key))
        return wrapper

    return decorate


def signature_of(fun: Callable) -> inspect.Signature | None:
    try:
        return inspect.signature(fun)
    except (TypeError, ValueError):
        return None


def check_callable(fun: Any, what: str) -> None:
    if not callable(fun):
        raise TypeMismatch(f"{what} needs a function, got {type(fun).__name__}: {brief(fun, 80)}")


def aval_like(x: Any) -> ShapedArray:
    """The aval of an array, or of anything with a shape and a dtype."""
    if issubclass(type(x), Array):
        return x.aval
    if is_array_like(x):
        return as_array(x).aval
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        weak = getattr(x, "weak_type", False)
        return ShapedArray(tuple(x.shape), x.dtype, weak)
    return as_array(x).aval  # raises


def flatten_arrays(
    tree: Any, what: str, make: Callable[[Any], Array] = as_array
) -> tuple[list[Array], Any]:
    """The leaves of a pytree as arrays, by `make`, and its structure."""
    leaves, treedef = operations.tree_flatten(tree)
    out = []
    for leaf in leaves:
        if not is_array_like(leaf):
            raise TypeMismatch(
                f"{what} must be arrays, numbers, or pytrees of them; got a leaf of type "
                f"{type(leaf).__name__}: {brief(leaf, 80)}. Close over other objects, or mark them static."
            )
        out.append(make(leaf))
    return out, treedef


def flat_function(fun: Callable, treedef: Any, out: list) -> Callable:
    """`fun(*args)` as a function of leaves to leaves; the structure of the result goes into `out`."""

    def flat(*leaves: Array) -> list[Array]:
        result = fun(*operations.tree_unflatten(treedef, leaves))
        arrays, structure = flatten_arrays(result, f"results of {name_of(fun)}", boxed)
        out.append(structure)
        return arrays

    return flat


def canonical_argnums(argnums: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    found = []
    for k in (argnums,) if isinstance(argnums, int) else argnums:
        if not isinstance(k, (int, np.integer)):
            raise TypeMismatch(f"{what}: argnums must be integers, got {k!r}")
        if not -count <= k < count:
            raise ShapeError(  # a TypeError, as calls with too few arguments are, and a ValueError
                f"{what}: argnums={k} names an argument that is not there: the function was called "
                f"with {count} positional arguments. Pass by position what is differentiated."
            )
        found.append(int(k) % count)
    return tuple(found)


def split_args(fun: Callable, argnums: Any, args: tuple, kwargs: dict, what: str) -> tuple:
    """A function of the chosen arguments alone, and those arguments."""
    numbers = canonical_argnums(argnums, len(args), what)

    def chosen(*picked: Any) -> Any:
        full = list(args)
        for k, x in zip(numbers, picked, strict=True):
            full[k] = x
        return fun(*full, **kwargs)

    chosen.__name__ = name_of(fun)
    return chosen, tuple(args[k] for k in numbers)


class Aux:
    """Splits (result, aux) and keeps aux, which is not differentiated."""

    def __init__(self, fun: Callable, has_aux: bool):
        self.fun, self.has_aux, self.value = fun, has_aux, None
        self.__name__ = name_of(fun)

    def __call__(self, *args: Any) -> Any:
        out = self.fun(*args)
        if not self.has_aux:
            return out
        if not isinstance(out, (tuple, list)) or len(out) != 2:
            raise TypeMismatch(
                f"has_aux=True: {self.__name__} must return a pair (result, aux), got "
                f"{kind_of(out)}"
            )
        self.value = out[1]
        return out[0]

    def lowered(self) -> Any:
        """The aux values, with the tracers of the ended transformation replaced by their primals."""

        def lower(x: Any) -> Any:
            while isinstance(x, JVPTracer) and x.owner.ended:
                x = x.primal
            return x

        return operations.tree_map(lower, self.value)


class Differentiated:
    """A call as a flat function of the leaves of those arguments that are differentiated."""

    def __init__(
        self, fun: Callable, argnums: Any, has_aux: bool, args: tuple, kwargs: dict, what: str
    ):
        chosen, self.picked = split_args(fun, argnums, args, kwargs, what)
        self.aux = Aux(chosen, has_aux)
        self.leaves, self.treedef = flatten_arrays(
            self.picked, f"differentiated arguments of {what}"
        )
        self.alone = isinstance(argnums, int)
        self.structures: list = []  # those of the results, once there are any
        self.flat = flat_function(self.aux, self.treedef, self.structures)

    def like_arguments(self, leaves: list) -> Any:
        """Leaves in the structure of the arguments, or of the one argument."""
        tree = operations.tree_unflatten(self.treedef, leaves)
        return tree[0] if self.alone else tree
