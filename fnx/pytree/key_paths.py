"""Paths in trees: a key for each step from a node to a child, and how paths are written."""

from typing import Any

import optree

from fnx.core.fast_dataclasses import dataclass

KeyPath = tuple[Any, ...]


@dataclass(frozen=True)
class SequenceKey:
    """The place of a child in a list or tuple.

    >>> fnx.tree.leaves_with_path([5])[0][0]
    (SequenceKey(idx=0),)
    """

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"


@dataclass(frozen=True)
class DictKey:
    """The place of a child in a dict.

    >>> fnx.tree.leaves_with_path({"a": 5})[0][0]
    (DictKey(key='a'),)
    """

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"


@dataclass(frozen=True)
class GetAttrKey:
    """The place of a child in an object: its attribute.

    >>> fnx.tree_util.keystr((fnx.tree_util.GetAttrKey("x"),))
    '.x'
    """

    name: str

    def __str__(self) -> str:
        return f".{self.name}"


@dataclass(frozen=True)
class FlattenedIndexKey:
    """The place of a child of a class registered without keys.

    >>> fnx.tree_util.keystr((fnx.tree_util.FlattenedIndexKey(0),))
    '[<flat index 0>]'
    """

    key: Any

    def __str__(self) -> str:
        return f"[<flat index {self.key}>]"


_KEYS = (SequenceKey, DictKey, GetAttrKey, FlattenedIndexKey)


def key_of(entry: optree.PyTreeEntry) -> Any:
    if isinstance(
        entry.entry, _KEYS
    ):  # from a class that was registered with keys, a mapping maybe
        return entry.entry
    if isinstance(entry, optree.NamedTupleEntry):
        return GetAttrKey(entry.field)
    if isinstance(entry, optree.SequenceEntry):
        return SequenceKey(entry.entry)
    if isinstance(entry, optree.MappingEntry):
        return DictKey(entry.entry)
    if not isinstance(entry.entry, int):
        return entry.entry  # from a class that was registered with keys
    return FlattenedIndexKey(entry.entry)


def keystr(keys: KeyPath, *, simple: bool = False, separator: str = "") -> str:
    """A path in a pytree as text: its keys as Python writes them, or `simple` ones with a separator.

    >>> path = (fnx.tree_util.DictKey("a"), fnx.tree_util.SequenceKey(0))
    >>> fnx.tree_util.keystr(path)
    "['a'][0]"
    >>> fnx.tree_util.keystr(path, simple=True, separator="/")
    'a/0'
    """
    return separator.join(map(_simple if simple else str, keys))


def _simple(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if isinstance(key, _KEYS) and hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
