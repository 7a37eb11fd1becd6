"""Pytrees: nested containers of arrays. Tuples, lists, dicts, None and registered classes are nodes.

None is a node without leaves, and dicts are walked, and rebuilt, in the order of their sorted keys, as
in JAX; inside nodes of registered classes rebuilt ones keep the order that they had.
"""

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from keyword import iskeyword
from typing import Any, TypeVar

import optree
from optree import PyTreeSpec as PyTreeDef

from fnx.core.errors import InvalidValue
from fnx.core.treecode import Registered
from fnx.tree_keys import DictKey as DictKey
from fnx.tree_keys import FlattenedIndexKey as FlattenedIndexKey
from fnx.tree_keys import GetAttrKey as GetAttrKey
from fnx.tree_keys import KeyPath as KeyPath
from fnx.tree_keys import SequenceKey as SequenceKey
from fnx.tree_keys import key_of
from fnx.tree_keys import keystr as keystr

_SPACE = "fnx"
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
    return treedef.unflatten(leaves)


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
    columns = [treedef.flatten_up_to(r) for r in rest]
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
    outer_treedef: PyTreeDef, inner_treedef: PyTreeDef | None, pytree_to_transpose: Any
) -> Any:
    """A tree of trees, turned inside out.

    >>> pair, triple = fnx.tree.structure((0, 0)), fnx.tree.structure({"a": 0, "b": 0})
    >>> fnx.tree.transpose(pair, triple, ({"a": 1, "b": 2}, {"a": 3, "b": 4}))
    {'a': (1, 3), 'b': (2, 4)}
    """
    leaves, treedef = tree_flatten(pytree_to_transpose)
    outer = outer_treedef.num_leaves
    if inner_treedef is None:
        inner_treedef = outer_treedef.flatten_up_to(pytree_to_transpose)
        inner_treedef = tree_structure(inner_treedef[0])
    inner = inner_treedef.num_leaves
    if treedef.num_leaves != outer * inner or outer_treedef.compose(inner_treedef) != treedef:
        raise TypeError(
            f"a tree of structure {treedef} was to be transposed; expected the structure "
            f"{outer_treedef} of trees of structure {inner_treedef}"
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
    """Whether instances of a class are nodes of pytrees.

    >>> fnx.tree_util.is_tree_node(dict), fnx.tree_util.is_tree_node(int)
    (True, False)
    """
    found = optree.register_pytree_node.get(typ, namespace=_SPACE)
    return found is not None or optree.is_namedtuple_class(typ)


def flatten_one_level(tree: Any) -> tuple[list, Any]:
    """The children of a node, and what else it is made of; ValueError for leaves.

    >>> fnx.tree_util.flatten_one_level({"b": 1, "a": (2, 3)})
    ([(2, 3), 1], ('a', 'b'))
    """
    if not is_tree_node(type(tree)):
        raise InvalidValue(f"a {type(tree).__name__} is a leaf, not a node: {tree!r:.60}")
    if isinstance(tree, (tuple, list)) and not hasattr(tree, "_fields"):
        return list(tree), None
    if type(tree) is dict:
        names = sorted(tree)
        return [tree[k] for k in names], tuple(names)
    children, data, *_ = optree.tree_flatten_one_level(tree, namespace=_SPACE)
    return list(children), data


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
    return optree.tree_broadcast_prefix(prefix_tree, full_tree, is_leaf, namespace=_SPACE)


def broadcast_prefix(prefix_tree: Any, full_tree: Any, is_leaf: IsLeaf = None) -> list:
    """The leaves of a tree prefix, each as often as `full_tree` has leaves below it.

    >>> fnx.tree_util.broadcast_prefix({"a": 1, "b": 2}, {"a": [0, 0], "b": 0})
    [1, 1, 2]
    """
    return optree.broadcast_prefix(prefix_tree, full_tree, is_leaf, namespace=_SPACE)


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
    paths = [tuple(map(key_of, accessor)) for accessor in accessors]
    return list(zip(paths, leaves, strict=True)), _sorted(treedef)


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


# --- classes that are nodes --------------------------------------------------------------------


def register_pytree_node(
    nodetype: type,
    flatten_func: Callable[[Any], tuple[Iterable, Any]],
    unflatten_func: Callable[[Any, Iterable], Any],
    flatten_with_keys_func: Callable[[Any], tuple[Iterable, Any]] | None = None,
) -> None:
    """Make a class a node: `flatten_func(x)` gives children and static data.

    `unflatten_func(data, children)` must accept any objects as children. The static data are
    compared with == and hashed. ValueError if the class is registered already.

    >>> class Pair:
    ...     def __init__(self, x, y):
    ...         self.x, self.y = x, y
    >>> register = fnx.tree_util.register_pytree_node
    >>> register(Pair, lambda p: ((p.x, p.y), None), lambda _, children: Pair(*children))
    >>> fnx.tree.map(lambda x: 2 * x, Pair(1, 2)).y
    4
    """
    if flatten_with_keys_func is None:
        flatten: Callable = flatten_func
    else:

        def flatten(x: Any) -> tuple:
            pairs, data = flatten_with_keys_func(x)
            pairs = tuple(pairs)
            return [child for _, child in pairs], data, tuple(key for key, _ in pairs)

    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "PyTree type .* is a subclass of"
        )  # namedtuples: so be it
        optree.register_pytree_node(nodetype, flatten, unflatten_func, namespace=_SPACE)


def register_pytree_node_class(cls: C) -> C:
    """Make a class with `tree_flatten()` and classmethod `tree_unflatten(data, children)` a node.

    >>> @fnx.tree_util.register_pytree_node_class
    ... class Circle:
    ...     def __init__(self, radius):
    ...         self.radius = radius
    ...     def tree_flatten(self):
    ...         return (self.radius,), None
    ...     @classmethod
    ...     def tree_unflatten(cls, data, children):
    ...         return cls(*children)
    >>> fnx.tree.leaves(Circle(3.0))
    [3.0]
    """
    register_pytree_node(cls, lambda x: x.tree_flatten(), cls.tree_unflatten)  # type: ignore
    return cls


def register_pytree_with_keys(
    nodetype: type,
    flatten_with_keys: Callable[[Any], tuple[Iterable, Any]],
    unflatten_func: Callable[[Any, Iterable], Any],
    flatten_func: Callable | None = None,
) -> None:
    """As `register_pytree_node`, where flattening gives pairs of key and child.

    >>> key = fnx.tree_util.GetAttrKey("real")
    >>> class Real:
    ...     def __init__(self, real):
    ...         self.real = real
    >>> flatten = lambda r: (((key, r.real),), None)
    >>> fnx.tree_util.register_pytree_with_keys(Real, flatten, lambda _, c: Real(*c))
    >>> fnx.tree_util.keystr(fnx.tree.leaves_with_path(Real(1.0))[0][0])
    '.real'
    """
    register_pytree_node(nodetype, flatten_func or _bare, unflatten_func, flatten_with_keys)


def _bare(x: Any) -> tuple:
    raise NotImplementedError


def register_pytree_with_keys_class(cls: C) -> C:
    """As `register_pytree_node_class`, for a class with `tree_flatten_with_keys()`.

    >>> @fnx.tree_util.register_pytree_with_keys_class
    ... class Height:
    ...     def __init__(self, metres):
    ...         self.metres = metres
    ...     def tree_flatten_with_keys(self):
    ...         return ((fnx.tree_util.GetAttrKey("metres"), self.metres),), None
    ...     @classmethod
    ...     def tree_unflatten(cls, data, children):
    ...         return cls(*children)
    >>> fnx.tree_util.keystr(fnx.tree.leaves_with_path(Height(1.0))[0][0])
    '.metres'
    """
    register_pytree_with_keys(
        cls,
        lambda x: x.tree_flatten_with_keys(),
        cls.tree_unflatten,  # type: ignore[attr-defined]
    )
    return cls


def register_dataclass(
    nodetype: C,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> C:
    """Make a dataclass a node whose children are `data_fields`; `meta_fields` are static.

    Without lists, fields are children unless their metadata say `static=True`.

    >>> import dataclasses
    >>> @fnx.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Spring:
    ...     stiffness: float
    ...     name: str = dataclasses.field(metadata={"static": True})
    >>> fnx.tree.leaves(Spring(2.0, "left"))
    [2.0]
    """
    if data_fields is None or meta_fields is None:
        if not is_dataclass(nodetype):
            raise TypeError(
                f"register_dataclass of {nodetype.__name__}, which is not a dataclass; expected one, "
                "or the lists data_fields and meta_fields"
            )
        own = [f for f in fields(nodetype) if f.name not in drop_fields]
        lost = [f.name for f in own if not f.init]
        if lost:
            raise InvalidValue(
                f"register_dataclass of {nodetype.__name__}: the fields {lost} have init=False, and would "
                "be lost; name them in drop_fields if they may be"
            )
        meta_fields = [f.name for f in own if f.metadata.get("static", False)]
        data_fields = [f.name for f in own if f.name not in meta_fields]
    elif set(data_fields) & set(meta_fields):
        raise InvalidValue(
            f"data_fields and meta_fields of {nodetype.__name__} both name "
            f"{sorted(set(data_fields) & set(meta_fields))}; expected each field in one of them"
        )
    elif is_dataclass(nodetype):
        _check_fields(nodetype, {*data_fields, *meta_fields}, set(drop_fields))
    data, meta = tuple(data_fields), tuple(meta_fields)
    keys = tuple(map(GetAttrKey, data))

    def flatten(x: Any) -> tuple:
        return (
            [getattr(x, name) for name in data],
            tuple([getattr(x, name) for name in meta]),
            keys,
        )

    def unflatten(static: tuple, children: Iterable) -> Any:
        return nodetype(**dict(zip(meta, static)), **dict(zip(data, children)))

    optree.register_pytree_node(nodetype, flatten, unflatten, namespace=_SPACE)
    _fields[nodetype] = data, meta
    return nodetype


_fields: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {}  # of classes registered by them


def registered(kind: type) -> Registered | None:
    """How objects of a registered class are taken apart and rebuilt; None for other classes."""
    entry = optree.register_pytree_node.get(kind, namespace=_SPACE)
    if entry is None or entry.kind != optree.PyTreeKind.CUSTOM:
        return None
    names = _fields.get(kind)
    plain = names is not None and all(n.isidentifier() and not iskeyword(n) for n in sum(names, ()))
    return Registered(entry.flatten_func, entry.unflatten_func, names if plain else None)


def _check_fields(nodetype: type, given: set[str], dropped: set[str]) -> None:
    expected = {f.name for f in fields(nodetype) if f.init} - dropped
    if expected != given:
        raise InvalidValue(
            f"data_fields and meta_fields of {nodetype.__name__} name {sorted(given)}; expected all "
            f"its fields, {sorted(expected)}"
        )


def register_static(cls: C) -> C:
    """Make a class a node without leaves: its objects, which must be hashable, are static data.

    >>> @fnx.tree_util.register_static
    ... class Mode(str):
    ...     pass
    >>> fnx.tree.leaves((Mode("fast"), 1.0))
    [1.0]
    """
    register_pytree_node(cls, lambda x: ((), x), lambda x, _: x)
    return cls


class Partial(functools.partial):
    """functools.partial that is a pytree: its arguments are children, the function is static.

    The arguments of a functools.partial that it is made of stay that function's own.

    >>> from operator import add
    >>> fnx.tree_util.tree_map(lambda x: 10 * x, fnx.tree_util.Partial(add, 1))(2)
    12
    """

    def __new__(cls, func: Callable, /, *args: Any, **kwargs: Any) -> "Partial":
        # functools would take over the arguments of a partial function, which are not children.
        kept = _Kept(func) if isinstance(func, functools.partial) else func
        return super().__new__(cls, kept, *args, **kwargs)


@dataclass(frozen=True)
class _Kept:
    """A partial function that functools does not take apart; equal to one of equal parts."""

    of: functools.partial

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.of(*args, **kwargs)

    def __eq__(self, other: Any) -> bool:
        other = other.of if isinstance(other, _Kept) else other
        return isinstance(other, functools.partial) and _parts(self.of) == _parts(other)

    def __hash__(self) -> int:
        return hash(_parts(self.of))


def _parts(f: functools.partial) -> tuple:
    return f.func, f.args, tuple(sorted(f.keywords.items()))


def _flatten_partial(p: Partial) -> tuple:
    return (p.args, p.keywords), p.func, (GetAttrKey("args"), GetAttrKey("keywords"))


optree.register_pytree_node(
    Partial,
    _flatten_partial,
    lambda func, children: Partial(func, *children[0], **children[1]),
    namespace=_SPACE,
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
    missing = [p for p in paths_a if p not in paths_b]
    extra = [p for p in paths_b if p not in paths_a]
    parts = [f"{word} {', '.join(repr(p) for p in ps[:3])}" for word, ps in
             (("lacks the leaf", missing), ("has the leaf", extra)) if ps]  # fmt: skip
    return "; it " + " and ".join(parts) if parts else ""
