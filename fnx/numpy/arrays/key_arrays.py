"""Functions that only move elements, for arrays of random keys too.

An array of keys is an array of words with one axis more. What moves elements moves each word alike,
so it is mapped over that axis.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from fnx.core.errors import TypeMismatch
from fnx.numpy.arrays.util import transformation
from fnx.pytree.operations import tree_flatten, tree_map, tree_unflatten

MOVES = frozenset(
    "append array asarray atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_in_dim "
    "broadcast_to column_stack compress concat concatenate copy delete "
    "dynamic_index_in_dim dynamic_slice dynamic_slice_in_dim dynamic_update_index_in_dim "
    "dynamic_update_slice dynamic_update_slice_in_dim empty_like expand_dims flip full full_like "
    "gather hstack index_in_dim index_take insert matrix_transpose moveaxis pad permute_dims ravel "
    "repeat reshape resize rev roll rollaxis rot90 select select_n slice slice_in_dim split squeeze "
    "stack swapaxes take take_along_axis tile transpose tril triu unstack vsplit vstack where "
    "zeros_like".split()
)


# Functions that compare, and what they make of the words of a key.
COMPARISONS = {
    "equal": "all", "eq": "all", "isclose": "all", "not_equal": "any", "ne": "any",
    "array_equal": "", "array_equiv": "", "allclose": "",
}  # fmt: skip


def is_keys(x: Any) -> bool:
    """Whether a value is an array of keys; `fnx.random` need not be imported to tell."""
    return getattr(type(x), "holds_keys", False)


def of_keys(f: Callable, *args: Any, **kwargs: Any) -> Any:
    """`f`, word by word: its results are arrays of keys."""
    leaves, structure = tree_flatten((args, kwargs), is_leaf=is_keys)
    keys = [k for k, x in enumerate(leaves) if is_keys(x)]
    make = type(leaves[keys[0]])

    def of_words(*words: Any) -> Any:
        given = list(leaves)
        for k, w in zip(keys, words, strict=True):
            given[k] = w
        positional, named = tree_unflatten(structure, given)
        return f(*positional, **named)

    words = [leaves[k].words for k in keys]
    results = transformation("vmap")(of_words, in_axes=-1, out_axes=-1)(*words)
    return tree_map(make, results)


def serve(module: dict[str, Any]) -> None:
    """Let the functions of a module that move elements take keys, at no cost to other arrays."""
    for name in MOVES & module.keys():
        module[name] = _also_of_keys(module[name])
        module[name].__module__ = module["__name__"]  # where pickle finds it
    for name in COMPARISONS.keys() & module.keys():
        module[name] = _also_compares_keys(module[name], COMPARISONS[name])
        module[name].__module__ = module["__name__"]


def _also_of_keys(f: Callable) -> Callable:
    @wraps(f)
    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except TypeMismatch:
            if any(map(is_keys, tree_flatten((args, kwargs), is_leaf=is_keys)[0])):
                dtype = kwargs.pop("dtype", None)
                if dtype is not None and not getattr(dtype, "extended", None):
                    raise
                return of_keys(f, *args, **kwargs)
            raise

    return either


def _also_compares_keys(f: Callable, joined: str) -> Callable:
    @wraps(f)
    def either(*args: Any, **kwargs: Any) -> Any:
        try:
            return f(*args, **kwargs)
        except TypeMismatch:
            if len(args) < 2 or not all(map(is_keys, args[:2])):
                raise
            found = f(args[0].words, args[1].words, *args[2:], **kwargs)
            return getattr(found, joined)(axis=-1) if joined else found

    return either
