"""The short names of `fnx.tree_util`: `fnx.tree.map`, `fnx.tree.leaves` and so on."""

from fnx.tree_classes import static as static
from fnx.tree_util import tree_all as all
from fnx.tree_util import tree_broadcast as broadcast
from fnx.tree_util import tree_flatten as flatten
from fnx.tree_util import tree_flatten_with_path as flatten_with_path
from fnx.tree_util import tree_leaves as leaves
from fnx.tree_util import tree_leaves_with_path as leaves_with_path
from fnx.tree_util import tree_map as map
from fnx.tree_util import tree_map_with_path as map_with_path
from fnx.tree_util import tree_reduce as reduce
from fnx.tree_util import tree_reduce_associative as reduce_associative
from fnx.tree_util import tree_structure as structure
from fnx.tree_util import tree_transpose as transpose
from fnx.tree_util import tree_unflatten as unflatten

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
