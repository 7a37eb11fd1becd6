"""The functions of trees as users call them: arrays of random keys are leaves, as in JAX.

To transformations such an array is a node, whose one leaf is the array of its words.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

from fnx.core.errors import InvalidValue
from fnx.pytree import operations
from fnx.pytree.operations import leaves_elsewhere
from fnx.pytree.registry import register_dataclass, register_pytree_node


def _joined(is_leaf: Callable | None) -> Callable | None:
    (whole,) = leaves_elsewhere.values()  # there is one such class
    if is_leaf is None:
        return whole
    return lambda *x: whole(x[-1]) or is_leaf(*x)  # perhaps of a path and a node


def _with_whole_leaves(f: Callable) -> Callable:
    """`f`, whose argument `is_leaf` says yes to keys, too."""
    code = f.__code__
    positional = code.co_varnames[: code.co_argcount]
    place = positional.index("is_leaf") if "is_leaf" in positional else None

    @wraps(f)
    def of_users(*args: Any, **kwargs: Any) -> Any:
        if leaves_elsewhere:
            if place is not None and len(args) > place:
                args = (*args[:place], _joined(args[place]), *args[place + 1 :])
            else:
                kwargs["is_leaf"] = _joined(kwargs.get("is_leaf"))
        return f(*args, **kwargs)

    of_users.__module__ = __name__  # where pickle finds it
    return of_users


tree_flatten = _with_whole_leaves(operations.tree_flatten)
tree_leaves = _with_whole_leaves(operations.tree_leaves)
tree_structure = _with_whole_leaves(operations.tree_structure)
tree_map = _with_whole_leaves(operations.tree_map)
tree_reduce = _with_whole_leaves(operations.tree_reduce)
tree_reduce_associative = _with_whole_leaves(operations.tree_reduce_associative)
tree_all = _with_whole_leaves(operations.tree_all)
all_leaves = _with_whole_leaves(operations.all_leaves)
tree_broadcast = _with_whole_leaves(operations.tree_broadcast)
broadcast_prefix = _with_whole_leaves(operations.broadcast_prefix)
tree_flatten_with_path = _with_whole_leaves(operations.tree_flatten_with_path)
tree_leaves_with_path = _with_whole_leaves(operations.tree_leaves_with_path)
tree_map_with_path = _with_whole_leaves(operations.tree_map_with_path)
tree_transpose = _with_whole_leaves(operations.tree_transpose)


def is_tree_node(typ: type) -> bool:
    """Whether instances of a class are nodes of pytrees.

    >>> fnx.tree_util.is_tree_node(dict), fnx.tree_util.is_tree_node(int)
    (True, False)
    """
    return typ not in leaves_elsewhere and operations.is_tree_node(typ)


def flatten_one_level(tree: Any) -> tuple[list, Any]:
    """The children of a node, and what else it is made of; ValueError for leaves.

    >>> fnx.tree_util.flatten_one_level({"b": 1, "a": (2, 3)})
    ([(2, 3), 1], ('a', 'b'))
    """
    if type(tree) in leaves_elsewhere:
        raise InvalidValue(f"an array of dtype {tree.dtype} is a leaf, not a node: {tree!r:.60}")
    return operations.flatten_one_level(tree)


class _Registry:
    """JAX's object for the classes that are nodes; there is one registry alone."""

    register_node = staticmethod(register_pytree_node)
    register_dataclass_node = staticmethod(register_dataclass)
    is_node = staticmethod(is_tree_node)
    flatten = staticmethod(tree_flatten)
    flatten_with_path = staticmethod(tree_flatten_with_path)

    def flatten_one_level(self, tree: Any) -> tuple[list, Any] | None:
        """The children of a node, and what else it is made of; None for a leaf.

        >>> fnx.tree_util.default_registry.flatten_one_level((5, [6]))
        ([5, [6]], None)
        """
        return flatten_one_level(tree) if is_tree_node(type(tree)) else None

    def flatten_one_level_with_keys(self, tree: Any) -> tuple[list, Any] | None:
        return operations.flatten_one_level_with_keys(tree) if is_tree_node(type(tree)) else None


default_registry = _Registry()
