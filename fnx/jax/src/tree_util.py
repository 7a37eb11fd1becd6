"""`jax._src.tree_util`: the registry of node classes as a mapping."""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import optree

from fnx.core.errors import ShapeError
from fnx.pytree.registry import SPACE
from fnx.tree_util import *
from fnx.tree_util import (
    DictKey,
    FlattenedIndexKey,
    GetAttrKey,
    SequenceKey,
    all_leaves,
    flatten_one_level_with_keys,
    keystr,
)

BuiltInKeyEntry = SequenceKey | DictKey | GetAttrKey | FlattenedIndexKey  # haliax


class _Node(NamedTuple):
    to_iter: Callable[[Any], tuple]
    from_iter: Callable[[Any, Any], Any]


def _sorted(keys: Any) -> tuple:
    try:
        return tuple(sorted(keys))
    except TypeError:
        return tuple(keys)


# The keys of dictionaries are static data that can be hashed.
_DICTS: dict[type, _Node] = {
    dict: _Node(
        lambda x: (tuple([x[k] for k in _sorted(x)]), _sorted(x)),
        lambda keys, xs: dict(zip(keys, xs)),
    ),
    OrderedDict: _Node(
        lambda x: (tuple(x.values()), tuple(x)), lambda keys, xs: OrderedDict(zip(keys, xs))
    ),
    defaultdict: _Node(
        lambda x: (tuple([x[k] for k in _sorted(x)]), (x.default_factory, _sorted(x))),
        lambda data, xs: defaultdict(data[0], zip(data[1], xs)),
    ),
}


class _Registry:
    """The classes that are nodes, and how each is taken apart and made."""

    def get(self, cls: type, default: Any = None) -> Any:
        if cls in _DICTS:
            return _DICTS[cls]
        entry = optree.register_pytree_node.get(cls, namespace=SPACE)  # type: ignore[attr-defined]
        if entry is None:
            return default
        return _Node(lambda x: tuple(entry.flatten_func(x))[:2], entry.unflatten_func)

    def __contains__(self, cls: type) -> bool:
        return self.get(cls) is not None

    def __getitem__(self, cls: type) -> _Node:
        found = self.get(cls)
        if found is None:
            raise KeyError(cls)
        return found


_registry = _Registry()  # flax, jaxlie


def prefix_errors(  # flax's tests
    prefix_tree: Any, full_tree: Any, is_leaf: Callable | None = None
) -> list[Callable[[str], ValueError]]:
    """Why one tree is no prefix of another: functions of the name of the first that make errors."""
    return list(_prefix_errors((), prefix_tree, full_tree, is_leaf))


def _prefix_errors(
    path: tuple, prefix: Any, full: Any, is_leaf: Callable | None
) -> Iterator[Callable[[str], ValueError]]:
    if all_leaves([prefix], is_leaf):
        return
    if type(prefix) is not type(full):
        why = f"types {type(prefix).__name__} and, in the full tree, {type(full).__name__}"
    else:
        (own, data), (others, other_data) = map(flatten_one_level_with_keys, (prefix, full))
        if len(own) == len(others) and data == other_data:
            for (key, child), (_, other) in zip(own, others):
                yield from _prefix_errors((*path, key), child, other, is_leaf)
            return
        if len(own) != len(others):
            why = f"lengths {len(own)} and, in the full tree, {len(others)}"
        else:
            why = f"metadata {data!r} and, in the full tree, {other_data!r}"
    where = keystr(path)
    yield lambda name: ShapeError(
        f"pytree structure error: different {why} at key path {name}{where}"
    )
