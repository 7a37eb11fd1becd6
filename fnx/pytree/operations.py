"""Pytrees: nested containers of arrays. Tuples, lists, dicts, None and registered classes are nodes.

None is a node without leaves, and dicts are walked, and rebuilt, in the order of their sorted keys, as
in JAX; inside nodes of registered classes rebuilt ones keep the order that they had.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import optree
from optree import PyTreeSpec as PyTreeDef

from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.pytree.key_paths import DictKey as DictKey
from fnx.pytree.key_paths import FlattenedIndexKey as FlattenedIndexKey
from fnx.pytree.key_paths import GetAttrKey as GetAttrKey
from fnx.pytree.key_paths import KeyPath as KeyPath
from fnx.pytree.key_paths import SequenceKey as SequenceKey
from fnx.pytree.key_paths import key_of
from fnx.pytree.key_paths import keystr as keystr
from fnx.pytree.registry import SPACE as _SPACE
from fnx.pytree.registry import Partial as Partial
from fnx.pytree.registry import register_dataclass as register_dataclass
from fnx.pytree.registry import register_pytree_node as register_pytree_node
from fnx.pytree.registry import register_pytree_node_class as register_pytree_node_class
from fnx.pytree.registry import register_pytree_with_keys as register_pytree_with_keys
from fnx.pytree.registry import register_pytree_with_keys_class as register_pytree_with_keys_class
from fnx.pytree.registry import register_static as register_static
from fnx.pytree.registry import with_keys

# Types that are nodes here and leaves in JAX: a tree may have arrays where another has such.
# For each there is a builtin function that knows its objects, since it is asked of every node.
leaves_elsewhere: dict[type, Callable[[Any], bool]] = {}
_flatten = optree.tree_flatten
C = TypeVar("C", bound=type)
IsLeaf = Callable[[Any], bool] | None


class _Unspecified:
    """What an argument is that was not given, where None means something."""

    def __repr__(self) -> str:
        return "<unspecified>"


_UNSPECIFIED = _Unspecified()

# --- flatten, unflatten, map --------------------------------------------------------------------


def tree_flatten(tree: Any, is_leaf: IsLeaf = None) -> tuple[list, PyTreeDef]:
    """The leaves of a tree, and its structure.

    >>> leaves, treedef = fnx.tree_util.tree_flatten({"b": 2, "a": (1, None)})
    >>> leaves
    [1, 2]
    >>> fnx.tree_util.tree_unflatten(treedef, [10, 20])
    {'a': (10, None), 'b': 20}
    """
    leaves, treedef = _flatten(tree, is_leaf, namespace=_SPACE)
    return leaves, treedef if treedef.num_nodes == 1 else _sorted(treedef)


_known_sorted: dict[PyTreeDef, PyTreeDef] = {}


def _sorted(treedef: PyTreeDef) -> PyTreeDef:
    """The equal structure whose dicts are rebuilt in the order of their sorted keys.

    Structures are equal whatever the order of keys, so that each kind is made once. Data of registered
    classes may be equal and yet differ (1 and True), and are none of the table's keys.
    """
    if treedef.namespace:
        return treedef
    found = _known_sorted.get(treedef)
    if found is None:
        if len(_known_sorted) > 4096:
            _known_sorted.clear()
        found = _known_sorted[treedef] = optree.treespec_transform(treedef, _sorted_node)
    return found


def _sorted_node(node: PyTreeDef) -> PyTreeDef:
    if node.type is dict or node.type is defaultdict:
        parts = dict(zip(node.entries(), node.children(), strict=True))
        if node.type is dict:
            return optree.treespec_dict(parts)
        factory = node.unflatten([None] * node.num_leaves).default_factory
        return optree.treespec_defaultdict(factory, parts)
    return node


def tree_unflatten(treedef: PyTreeDef, leaves: Iterable) -> Any:
    """The tree of a structure with these leaves; ValueError unless there are as many as it has.

    >>> fnx.tree_util.tree_unflatten(fnx.tree_util.tree_structure({"a": 0}), [5])
    {'a': 5}
    """
    try:
        return treedef.unflatten(leaves)
    except AttributeError:
        raise TypeMismatch(
            f"{treedef!r:.60} is no structure of a tree, as tree_structure gives it"
        ) from None


def tree_leaves(tree: Any, is_leaf: IsLeaf = None) -> list:
    """The leaves of a tree, from left to right.

    >>> fnx.tree_util.tree_leaves({"a": 1, "b": [2, 3]})
    [1, 2, 3]
    """
    return optree.tree_leaves(tree, is_leaf, namespace=_SPACE)


def tree_structure(tree: Any, is_leaf: IsLeaf = None) -> PyTreeDef:
    """The structure of a tree: what is left of it without its leaves.

    >>> fnx.tree_util.tree_structure((1, [2])).num_leaves
    2
    """
    return _sorted(optree.tree_structure(tree, is_leaf, namespace=_SPACE))


def tree_map(f: Callable, tree: Any, *rest: Any, is_leaf: IsLeaf = None) -> Any:
    """The tree of `f(leaf, ...)`; the trees in `rest` must have `tree` as a prefix.

    >>> fnx.tree_util.tree_map(lambda x, y: x + y, {"a": 1, "b": [2]}, {"a": 10, "b": [20]})
    {'a': 11, 'b': [22]}
    """
    leaves, treedef = tree_flatten(tree, is_leaf)
    try:
        columns = [treedef.flatten_up_to(r) for r in rest]
    except ValueError:
        whole = lambda x: type(x) in leaves_elsewhere or (is_leaf is not None and is_leaf(x))
        leaves, again = tree_flatten(tree, whole)
        if again == treedef:
            raise
        treedef, columns = again, [again.flatten_up_to(r) for r in rest]
    return treedef.unflatten(map(f, leaves, *columns))


def tree_reduce(
    function: Callable, tree: Any, initializer: Any = _UNSPECIFIED, is_leaf: IsLeaf = None
) -> Any:
    """Fold the leaves from the left: `function(function(initializer, leaf0), leaf1)` and so on.

    >>> fnx.tree_util.tree_reduce(lambda total, x: total + x, [1, (2, 3)])
    6
    """
    leaves = tree_leaves(tree, is_leaf)
    if initializer is _UNSPECIFIED:
        return functools.reduce(function, leaves)
    return functools.reduce(function, leaves, initializer)


def tree_reduce_associative(
    operation: Callable, tree: Any, *, identity: Any = _UNSPECIFIED, is_leaf: IsLeaf = None
) -> Any:
    """Fold the leaves in a balanced tree of pairs; `operation` must be associative.

    ValueError for a tree without leaves and no identity.

    >>> fnx.tree.reduce_associative(lambda a, b: a + b, {"a": 1, "b": [2, 3]})
    6
    """
    level = tree_leaves(tree, is_leaf)
    if not level:
        if identity is _UNSPECIFIED:
            raise InvalidValue("reduction of a tree without leaves; expected a leaf or an identity")
        return identity
    while len(level) > 1:
        pairs = [operation(*level[k : k + 2]) for k in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


def tree_all(tree: Any, *, is_leaf: IsLeaf = None) -> bool:
    """Whether all leaves are true.

    >>> fnx.tree.all({"a": True, "b": [True, False]})
    False
    """
    return all(tree_leaves(tree, is_leaf))


def tree_transpose(
    outer_treedef: PyTreeDef,
    inner_treedef: PyTreeDef | None,
    pytree_to_transpose: Any,
    is_leaf: IsLeaf = None,
) -> Any:
    """A tree of trees, turned inside out.

    TypeError for a tree of another number of leaves.

    >>> pair, triple = fnx.tree.structure((0, 0)), fnx.tree.structure({"a": 0, "b": 0})
    >>> fnx.tree.transpose(pair, triple, ({"a": 1, "b": 2}, {"a": 3, "b": 4}))
    {'a': (1, 3), 'b': (2, 4)}
    """
    leaves, treedef = tree_flatten(pytree_to_transpose, is_leaf)
    outer = outer_treedef.num_leaves
    if inner_treedef is None:
        inner_treedef = outer_treedef.flatten_up_to(pytree_to_transpose)
        inner_treedef = tree_structure(inner_treedef[0], is_leaf)
    inner = inner_treedef.num_leaves
    # Not the structures: those of nodes may tell of all that is below them.
    if treedef.num_leaves != outer * inner:
        raise TypeError(
            f"a tree of structure {shown(treedef)} was to be transposed; expected the structure "
            f"{shown(outer_treedef)} of trees of structure {shown(inner_treedef)}"
        )
    rows = [leaves[k * inner : (k + 1) * inner] for k in range(outer)]
    columns = [outer_treedef.unflatten([row[k] for row in rows]) for k in range(inner)]
    return inner_treedef.unflatten(columns)


def all_leaves(iterable: Iterable, is_leaf: IsLeaf = None) -> bool:
    """Whether no element is a node.

    >>> fnx.tree_util.all_leaves([1, 2.0]), fnx.tree_util.all_leaves([1, (2, 3)])
    (True, False)
    """
    return optree.all_leaves(iterable, is_leaf, namespace=_SPACE)


def is_tree_node(typ: type) -> bool:
    """Whether instances of a class are nodes of pytrees."""
    found = optree.register_pytree_node.get(typ, namespace=_SPACE)
    return found is not None or optree.is_namedtuple_class(typ)


def flatten_one_level(tree: Any) -> tuple[list, Any]:
    """The children of a node, and what else it is made of; ValueError for leaves."""
    if not is_tree_node(type(tree)):
        raise InvalidValue(f"a {type(tree).__name__} is a leaf, not a node: {tree!r:.60}")
    if isinstance(tree, (tuple, list)) and not hasattr(tree, "_fields"):
        return list(tree), None
    if type(tree) is dict:
        names = sorted(tree)
        return [tree[k] for k in names], tuple(names)
    children, data, *_ = optree.tree_flatten_one_level(tree, namespace=_SPACE)
    return list(children), data


def flatten_one_level_with_keys(tree: Any) -> tuple[list, Any]:
    """As `flatten_one_level`, but with pairs of key and child.

    >>> fnx.tree_util.flatten_one_level_with_keys([5])
    ([(SequenceKey(idx=0), 5)], None)
    """
    data = flatten_one_level(tree)[1]
    pairs, _ = tree_flatten_with_path(tree, lambda x: x is not tree)
    return [(path[0], child) for path, child in pairs], data


def treedef_is_leaf(treedef: PyTreeDef) -> bool:
    """Whether a structure is that of a single leaf.

    >>> fnx.tree_util.treedef_is_leaf(fnx.tree.structure(1.0))
    True
    """
    return treedef.num_nodes == 1 and treedef.num_leaves == 1


def treedef_children(treedef: PyTreeDef) -> list[PyTreeDef]:
    """The structures of a node's children.

    >>> [child.num_leaves for child in fnx.tree_util.treedef_children(fnx.tree.structure((1, [2, 3])))]
    [1, 2]
    """
    return treedef.children()


def treedef_tuple(treedefs: Iterable[PyTreeDef]) -> PyTreeDef:
    """The structure of a tuple of trees.

    >>> leaf = fnx.tree.structure(0)
    >>> fnx.tree_util.treedef_tuple([leaf, leaf]) == fnx.tree.structure((1, 2))
    True
    """
    return optree.treespec_tuple(treedefs, namespace=_SPACE)


def tree_broadcast(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> Any:
    """`full_tree`'s structure, where each leaf is the one of `prefix_tree` above it.

    >>> fnx.tree.broadcast({"a": 1, "b": 2}, {"a": [0, 0], "b": 0})
    {'a': [1, 1], 'b': 2}
    """
    return tree_structure(full_tree).unflatten(broadcast_prefix(prefix_tree, full_tree, is_leaf))


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list:
    """The leaves of a tree prefix, each as often as `full_tree` has leaves below it.

    >>> fnx.tree_util.broadcast_prefix({"a": 1, "b": 2}, {"a": [0, 0], "b": 0})
    [1, 1, 2]
    """
    # What is a leaf of the prefix, None say, is for all that none of the full tree.
    leaves, prefix = optree.tree_flatten(prefix_tree, is_leaf, namespace=_SPACE)
    below = [tree_structure(tree).num_leaves for tree in prefix.flatten_up_to(full_tree)]
    return [leaf for leaf, count in zip(leaves, below, strict=True) for _ in range(count)]


# --- paths -------------------------------------------------------------------------------------


def tree_flatten_with_path(
    tree: Any, is_leaf: Callable | None = None, is_leaf_takes_path: bool = False
) -> tuple[list[tuple[KeyPath, Any]], PyTreeDef]:
    """Pairs of path and leaf, and the structure.

    >>> pairs, structure = fnx.tree.flatten_with_path({"a": 1, "b": [2, 3]})
    >>> [(fnx.tree_util.keystr(path), leaf) for path, leaf in pairs]
    [("['a']", 1), ("['b'][0]", 2), ("['b'][1]", 3)]
    """
    if is_leaf_takes_path and is_leaf is not None:
        return _flatten_by_path(tree, is_leaf)
    accessors, leaves, treedef = optree.tree_flatten_with_accessor(tree, is_leaf, namespace=_SPACE)
    if any([e.type in with_keys for accessor in accessors for e in accessor]):
        return list(_walked_with_keys(tree, is_leaf)), _sorted(treedef)
    paths = [
        tuple([key_of(e) for e in accessor if e.type not in leaves_elsewhere])
        for accessor in accessors
    ]
    return list(zip(paths, leaves, strict=True)), _sorted(treedef)


def _walked_with_keys(tree: Any, is_leaf: IsLeaf) -> Iterator[tuple[KeyPath, Any]]:
    """Pairs of path and leaf, a node at a time, so that objects are asked for their keys."""
    ends = is_leaf is not None and is_leaf(tree)
    if type(tree) in with_keys and not ends:
        pairs: Any = [((key,), child) for key, child in with_keys[type(tree)](tree)[0]]
    else:
        pairs, _ = tree_flatten_with_path(tree, lambda x: ends or x is not tree)
    for step, child in pairs:
        if child is tree:
            yield step, child
        else:
            for path, leaf in _walked_with_keys(child, is_leaf):
                yield (*step, *path), leaf


def _flatten_by_path(tree: Any, is_leaf: Callable) -> tuple[list, PyTreeDef]:
    stopped: set[int] = (
        set()
    )  # ids of objects that the rule calls leaves; the tree keeps them alive

    def walk(path: KeyPath, node: Any) -> None:
        if is_leaf(path, node):
            stopped.add(id(node))
            return
        pairs, _ = tree_flatten_with_path(node, lambda x: x is not node)
        for step, child in pairs:
            if child is not node:
                walk((*path, *step), child)

    walk((), tree)
    return tree_flatten_with_path(tree, lambda x: id(x) in stopped)


def tree_leaves_with_path(
    tree: Any, is_leaf: Callable | None = None, is_leaf_takes_path: bool = False
) -> list[tuple[KeyPath, Any]]:
    """Pairs of path and leaf.

    >>> [fnx.tree_util.keystr(path) for path, _ in fnx.tree.leaves_with_path({"a": 1, "b": [2]})]
    ["['a']", "['b'][0]"]
    """
    return tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)[0]


def tree_map_with_path(
    f: Callable, tree: Any, *rest: Any, is_leaf: Callable | None = None,
    is_leaf_takes_path: bool = False,
) -> Any:  # fmt: skip
    """As `tree_map`, of a function that gets the leaf's path first.

    >>> fnx.tree.map_with_path(lambda path, x: (len(path), x), {"a": 1, "b": [2]})
    {'a': (1, 1), 'b': [(2, 2)]}
    """
    pairs, treedef = tree_flatten_with_path(tree, is_leaf, is_leaf_takes_path)
    columns = [treedef.flatten_up_to(r) for r in rest]
    return treedef.unflatten([f(path, x, *xs) for (path, x), *xs in zip(pairs, *columns)])


def shown(treedef: PyTreeDef) -> str:
    """A structure as messages have it: containers, with a star for each leaf."""
    if treedef_is_leaf(treedef):
        return "an array"
    return (
        str(treedef).removeprefix("PyTreeSpec(").removesuffix(")").removesuffix(", namespace='fnx'")
    )


def describe_difference(expected: Any, found: Any) -> str:
    """Where the structures of two trees first differ, in words; '' if they are equal.

    >>> fnx.tree_util.describe_difference((1, 2), (1, [2]))
    "; it lacks the leaf '[1]' and has the leaf '[1][0]'"
    """
    a, b = tree_structure(expected), tree_structure(found)
    if a == b:
        return ""
    paths_a = [keystr(p) for p, _ in tree_leaves_with_path(expected)]
    paths_b = [keystr(p) for p, _ in tree_leaves_with_path(found)]
    missing = [
        p for p in paths_a if p and p not in paths_b
    ]  # the path of what is no container is ""
    extra = [p for p in paths_b if p and p not in paths_a]
    parts = [f"{word} {', '.join(repr(p) for p in ps[:3])}" for word, ps in
             (("lacks the leaf", missing), ("has the leaf", extra)) if ps]  # fmt: skip
    return "; it " + " and ".join(parts) if parts else ""
