"""Classes that are nodes of pytrees: what users register, and functions whose arguments are children."""

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields, is_dataclass
from keyword import iskeyword
from typing import Any, TypeVar

import optree

from fnx.core.errors import InvalidValue
from fnx.core.fast_dataclasses import dataclass
from fnx.pytree.flatten_codegen import Registered
from fnx.pytree.key_paths import GetAttrKey

SPACE = "fnx"  # where optree keeps them
C = TypeVar("C", bound=type)


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
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", "PyTree type .* is a subclass of"
        )  # namedtuples: so be it
        optree.register_pytree_node(nodetype, flatten_func, unflatten_func, namespace=SPACE)
    if flatten_with_keys_func is not None:
        with_keys[nodetype] = flatten_with_keys_func


# How objects say their keys, of classes that are also flattened without them: trees are flattened far
# more often than paths are asked for.
with_keys: dict[type, Callable[[Any], tuple[Iterable, Any]]] = {}


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
    if flatten_func is not None:
        register_pytree_node(nodetype, flatten_func, unflatten_func, flatten_with_keys)
        return

    def flatten(x: Any) -> tuple:
        pairs, data = flatten_with_keys(x)
        pairs = tuple(pairs)
        return [child for _, child in pairs], data, tuple(key for key, _ in pairs)

    register_pytree_node(nodetype, flatten, unflatten_func)


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


def static(**options: Any) -> Any:
    """A field of a dataclass that is no child when the class becomes a node; as `dataclasses.field`.

    >>> import dataclasses
    >>> @fnx.tree_util.register_dataclass
    ... @dataclasses.dataclass
    ... class Spring:
    ...     stiffness: float
    ...     name: str = fnx.tree.static(default="left")
    >>> fnx.tree.leaves(Spring(2.0))
    [2.0]
    """
    return field(**options | {"metadata": {"static": True, **(options.get("metadata") or {})}})


def register_dataclass(
    nodetype: C,
    data_fields: Sequence[str] | None = None,
    meta_fields: Sequence[str] | None = None,
    drop_fields: Sequence[str] = (),
) -> C:
    """Make a dataclass a node whose children are `data_fields`; `meta_fields` are static.

    Without lists, fields are children unless their metadata say `static=True`.

    TypeError for a class that is no dataclass; ValueError for fields that both name, or that
    would be lost.

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

    optree.register_pytree_node(nodetype, flatten, unflatten, namespace=SPACE)
    _fields[nodetype] = data, meta
    return nodetype


_fields: dict[type, tuple[tuple[str, ...], tuple[str, ...]]] = {}  # of classes registered by them


def registered(kind: type) -> Registered | None:
    """How objects of a registered class are taken apart and rebuilt; None for other classes."""
    entry = optree.register_pytree_node.get(kind, namespace=SPACE)
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
    namespace=SPACE,
)
