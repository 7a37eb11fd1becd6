"""Structures of pytrees in files: containers of Python, keys, and classes that were registered for it."""

import base64
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from fnx.core.errors import InvalidValue
from fnx.numpy.arrays.key_arrays import is_keys, key_dtype_of
from fnx.pytree import operations
from fnx.pytree.registry import registered

T = TypeVar("T", bound=type)


class _Leaf:
    """What leaves are while a structure is written."""


class _Node(NamedTuple):
    """How nodes of a class are written; `make` gets data and children."""

    kind: type
    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]
    make: Callable[[Any, Any], Any] | None


_by_name: dict[str, _Node] = {}
_names: dict[type, str] = {}


def _register(name: str, node: _Node) -> None:
    if name in _by_name or node.kind in _names:
        raise InvalidValue(
            f"{node.kind.__name__} as {name!r}: the class or the name is registered for export already"
        )
    _by_name[name], _names[node.kind] = node, name


def register_namedtuple_serialization(nodetype: T, *, serialized_name: str) -> T:
    """Let exported functions have a named tuple in arguments and results, under this name in files.

    >>> from collections import namedtuple
    >>> Pair = namedtuple("Pair", "a b")
    >>> fnx.export.register_namedtuple_serialization(Pair, serialized_name="docs.Pair") is Pair
    True
    """
    if not (issubclass(nodetype, tuple) and hasattr(nodetype, "_fields")):
        raise InvalidValue(f"{nodetype.__name__} is no named tuple; expected one")
    make = lambda data, children: nodetype(*children)
    _register(serialized_name, _Node(nodetype, lambda d: b"", lambda b: None, make))
    return nodetype


def register_pytree_node_serialization(
    nodetype: T,
    *,
    serialized_name: str,
    serialize_auxdata: Callable[[Any], bytes],
    deserialize_auxdata: Callable[[bytes], Any],
    from_children: Callable[[Any, Any], Any] | None = None,
) -> T:
    """Let exported functions have nodes of a registered class in arguments and results.

    `serialize_auxdata` makes bytes of what flattening gives beside children; `from_children(data,
    children)` makes a node, by default as the class was registered.

    >>> @fnx.tree_util.register_pytree_node_class
    ... class Spring:
    ...     def __init__(self, stiffness):
    ...         self.stiffness = stiffness
    ...     def tree_flatten(self):
    ...         return (self.stiffness,), None
    ...     @classmethod
    ...     def tree_unflatten(cls, data, children):
    ...         return cls(*children)
    >>> _ = fnx.export.register_pytree_node_serialization(
    ...     Spring, serialized_name="docs.Spring", serialize_auxdata=lambda data: b"",
    ...     deserialize_auxdata=lambda b: None)
    >>> doubled = fnx.export.export(fnx.jit(lambda s: Spring(2 * s.stiffness)))(Spring(1.0))
    >>> float(fnx.export.deserialize(doubled.serialize()).call(Spring(4.0)).stiffness)
    8.0
    """
    if not operations.is_tree_node(nodetype):
        raise InvalidValue(f"{nodetype.__name__} is no node of pytrees; register it as one first")
    node = _Node(nodetype, serialize_auxdata, deserialize_auxdata, from_children)
    _register(serialized_name, node)
    return nodetype


def encode_tree(treedef: Any) -> Any:
    """A structure as lists: 0 for a leaf, None, or a list that begins with a tag."""
    return _encode(operations.tree_unflatten(treedef, [_Leaf() for _ in range(treedef.num_leaves)]))


def _encode(x: Any) -> Any:
    if x is None:
        return None
    if type(x) is _Leaf:
        return 0
    if type(x) in (tuple, list):
        return [type(x).__name__, *map(_encode, x)]
    if type(x) in (dict, OrderedDict):
        if not all(type(k) in (str, int) for k in x):
            raise InvalidValue(f"keys {list(x)!r:.80} of a dict; expected strings or integers")
        return [type(x).__name__, *[[k, _encode(v)] for k, v in x.items()]]
    if is_keys(x):
        return ["keys", x.dtype.impl]
    if type(x) not in _names:
        raise InvalidValue(
            f"a {type(x).__name__} in arguments or results cannot be serialized; register its class with "
            "fnx.export.register_pytree_node_serialization, or register_namedtuple_serialization"
        )
    name = _names[type(x)]
    children, data = operations.flatten_one_level(x)
    written = base64.b64encode(_by_name[name].write(data)).decode()
    return ["node", name, written, *map(_encode, children)]


def decode_tree(tree: Any) -> Any:
    """The structure of its lists."""
    return operations.tree_structure(_decode(tree))


def _decode(tree: Any) -> Any:
    if tree is None:
        return None
    if tree == 0:
        return _Leaf()
    tag, *parts = tree
    if tag in ("tuple", "list"):
        return (tuple if tag == "tuple" else list)(map(_decode, parts))
    if tag in ("dict", "OrderedDict"):
        return (dict if tag == "dict" else OrderedDict)([(k, _decode(v)) for k, v in parts])
    if tag == "keys":
        import fnx.random.key_array  # so that keys are nodes

        dtype = key_dtype_of(parts[0])
        return fnx.random.key_array.KeyArray(_Leaf(), dtype)
    name, written, *children = parts
    if name not in _by_name:
        raise InvalidValue(
            f"the file has nodes of the class {name!r:.80}, which is not registered in this process; call "
            "register_pytree_node_serialization, or register_namedtuple_serialization, as where it was made"
        )
    node = _by_name[name]
    data = node.read(base64.b64decode(written))
    return _made(node, data, [_decode(c) for c in children])


def _made(node: _Node, data: Any, children: list) -> Any:
    if node.make is not None:
        return node.make(data, children)
    how = registered(node.kind)
    if how is None:
        raise InvalidValue(f"{node.kind.__name__} is no node of pytrees; register it as one first")
    return how.unflatten(data, children)
