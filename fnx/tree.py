"""The short names of `fnx.tree_util`: `fnx.tree.map`, `fnx.tree.leaves` and so on."""

from fnx.pytree.operations import tree_unflatten as unflatten
from fnx.pytree.public import tree_all as all
from fnx.pytree.public import tree_broadcast as broadcast
from fnx.pytree.public import tree_flatten as flatten
from fnx.pytree.public import tree_flatten_with_path as flatten_with_path
from fnx.pytree.public import tree_leaves as leaves
from fnx.pytree.public import tree_leaves_with_path as leaves_with_path
from fnx.pytree.public import tree_map as map
from fnx.pytree.public import tree_map_with_path as map_with_path
from fnx.pytree.public import tree_reduce as reduce
from fnx.pytree.public import tree_reduce_associative as reduce_associative
from fnx.pytree.public import tree_structure as structure
from fnx.pytree.public import tree_transpose as transpose
from fnx.pytree.registry import static as static

__all__ = [
    "all",
    "broadcast",
    "flatten",
    "flatten_with_path",
    "leaves",
    "leaves_with_path",
    "map",
    "map_with_path",
    "reduce",
    "reduce_associative",
    "static",
    "structure",
    "transpose",
    "unflatten",
]
