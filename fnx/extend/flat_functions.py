"""Functions of flat lists of arrays from functions of pytrees, under the names of `jax.api_util`."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue
from fnx.extend.linear_util import WrappedFun, transformation2, transformation_with_aux
from fnx.pytree import operations
from fnx.pytree.flatten_fun import aval_like

__all__ = [
    "argnums_partial",
    "debug_info",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "safe_map",
    "shaped_abstractify",
]


def argnums_partial(
    f: WrappedFun,
    dyn_argnums: int | Sequence[int],
    args: Sequence[Any],
    require_static_args_hashable: bool = True,
) -> tuple[WrappedFun, tuple]:
    """The function of some of its arguments, with the others as they are; and those arguments.

    ValueError for positions that there are none of, and for others that cannot be hashed, if they must.

    >>> from fnx.extend.linear_util import wrap_init
    >>> minus, rest = fnx.api_util.argnums_partial(wrap_init(lambda x, y: x - y), 1, (5, 3))
    >>> minus.call_wrapped(1), rest
    (4, (3,))
    """
    given = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    if not all(-len(args) <= k < len(args) for k in given):
        raise InvalidValue(f"argnums {given} of a function of {len(args)} positional arguments")
    places = tuple([k % len(args) for k in given])
    for k, value in enumerate(args):
        if require_static_args_hashable and k not in places and not isinstance(value, Hashable):
            raise InvalidValue(
                f"argument {k}, of type {type(value).__name__}, is fixed and cannot be hashed; expected "
                "one that can, or its number among the argnums"
            )
    return _filled(f, places, tuple(args)), tuple([args[k] for k in places])


@transformation2
def _filled(f: Callable, places: tuple[int, ...], args: tuple, *dynamic: Any, **named: Any) -> Any:
    whole = list(args)
    for k, value in zip(places, dynamic, strict=True):
        whole[k] = value
    return f(*whole, **named)


def debug_info(traced_for: str, fun: Callable, args: Any, kwargs: Any, **_: Any) -> dict[str, Any]:
    """What a function is traced for, as `linear_util.wrap_init` takes it.

    >>> fnx.api_util.debug_info("jit", abs, (1.0,), {})
    {'traced_for': 'jit', 'func_name': 'abs'}
    """
    return {"traced_for": traced_for, "func_name": getattr(fun, "__name__", str(fun))}


def safe_map(f: Callable, *args: Any) -> list:
    """The list of `f` of each of the first, the second, ...; ValueError for different lengths.

    >>> fnx.api_util.safe_map(max, [1, 5], (2, 3))
    [2, 5]
    """
    return [f(*xs) for xs in zip(*args, strict=True)]


def shaped_abstractify(x: Any) -> ShapedArray:
    """The type of an array, or of what is like one.

    >>> fnx.api_util.shaped_abstractify(np.ones((2, 3), "float32"))
    ShapedArray(float32[2,3])
    """
    return aval_like(x)


@transformation_with_aux
def _flatten(in_tree: Any, with_names: bool, *leaves: Any) -> Any:
    tree = operations.tree_unflatten(in_tree, leaves)
    out = yield tree if with_names else (tree, {})
    yield operations.tree_flatten(out)


def flatten_fun(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable]:
    """The function of the leaves of (args, kwargs), to leaves; and the structure of its results.

    >>> from fnx.extend.linear_util import wrap_init
    >>> tree = fnx.tree.structure(((5,), {"by": 3}))
    >>> minus = wrap_init(lambda x, by: (x - by,))
    >>> flat, out_tree = fnx.api_util.flatten_fun(minus, tree)
    >>> flat.call_wrapped(5, 3), out_tree().num_leaves
    ([2], 1)
    """
    return _flatten(fun, in_tree, True)


def flatten_fun_nokwargs(fun: WrappedFun, in_tree: Any) -> tuple[WrappedFun, Callable]:
    """The function of the leaves of its arguments, to leaves; and the structure of its results.

    >>> from fnx.extend.linear_util import wrap_init
    >>> tree = fnx.tree.structure(({"a": 1, "b": 2},))
    >>> minus = wrap_init(lambda d: [d["a"] - d["b"]])
    >>> flat, out_tree = fnx.api_util.flatten_fun_nokwargs(minus, tree)
    >>> flat.call_wrapped(5, 3), out_tree().num_leaves
    ([2], 1)
    """
    return _flatten(fun, in_tree, False)
