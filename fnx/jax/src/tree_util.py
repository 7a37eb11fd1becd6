"""`jax._src.tree_util`: the registry of node classes as a mapping."""

from collections.abc import Callable
from typing import Any, NamedTuple

import optree

from fnx.pytree.registry import SPACE
from fnx.tree_util import *


class _Node(NamedTuple):
    to_iter: Callable[[Any], tuple]
    from_iter: Callable[[Any, Any], Any]


class _Registry:
    """The classes that are nodes, and how each is taken apart and made."""

    def get(self, cls: type, default: Any = None) -> Any:
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
