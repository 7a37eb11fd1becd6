"""Functions of flat lists of arrays from functions of pytrees, under the names of `jax.api_util`."""

from collections.abc import Callable
from typing import Any

from fnx.core.aval import ShapedArray
from fnx.extend.linear_util import WrappedFun, transformation_with_aux
from fnx.pytree import operations
from fnx.pytree.flatten_fun import aval_like

__all__ = ["debug_info", "flatten_fun", "flatten_fun_nokwargs", "safe_map", "shaped_abstractify"]


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
