"""Straight-line code for flattening and rebuilding one pytree structure.

A general flattener asks each object what it is. A call of a compiled function knows what its
arguments were the last time: code made for that structure looks them up at once, and says None as
soon as something is different. Tuples, lists, dicts, None, named tuples and registered classes are
known here.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

_LIMIT = 2000  # nodes; above that the general way is no worse


class Structure(Protocol):
    """What is asked of a pytree's structure (optree's PyTreeSpec has it)."""

    num_nodes: int
    num_leaves: int

    def walk(self, leaves: Any, /, f_node: Callable, f_leaf: Callable) -> Any: ...


class Node(NamedTuple):
    """A node of a structure: its class, what else it is made of (keys of a dict), its children."""

    kind: type
    data: Any
    children: "tuple[Node | None, ...]"  # None: a leaf


class Registered(NamedTuple):
    """How objects of a registered class are taken apart: by attributes where their names are known."""

    flatten: Callable[[Any], tuple]  # to children, data and perhaps more
    unflatten: Callable[[Any, Sequence], Any]  # data, children
    fields: tuple[tuple[str, ...], tuple[str, ...]] | None = None  # of the children, of the data


Classes = Callable[[type], Registered | None]


class _Code:
    """Lines of a function, and the objects that they name."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self.lines: list[str] = []
        self.names: dict[str, Any] = {"dict": dict, "list": list, "tuple": tuple}
        self.leaves: list[str] = []
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"x{self.count}"

    def known(self, thing: Any) -> str:
        name = f"k{len(self.names)}"
        self.names[name] = thing
        return name

    def unless(self, condition: str) -> None:
        self.lines.append(f"if {condition}: return None")

    # --- taking apart ---------------------------------------------------------------------------

    def take(self, node: Node | None, name: str) -> bool:
        """Lines that take `name` apart; False for a structure that is not known."""
        if node is None:
            self.leaves.append(name)
            return True
        if node.kind is type(None):
            self.unless(f"{name} is not None")
            return True
        parts = [self.fresh() for _ in node.children]
        if node.kind in (tuple, list, dict):
            self._take_builtin(node, name, parts)
        elif _is_namedtuple(node):
            self.unless(f"type({name}) is not {self.known(node.kind)}")
            if parts:
                self.lines.append(f"{', '.join(parts)}, = {name}")
        elif not self._take_registered(node, name, parts):
            return False
        return all(self.take(c, p) for c, p in zip(node.children, parts, strict=True))

    def arguments(self, node: Node, name: str) -> bool:
        """Lines that take the arguments of a call apart, a tuple or dict as is known."""
        parts = [self.fresh() for _ in node.children]
        self.unless(f"len({name}) != {len(parts)}" if parts else name)
        self._unpack(node, name, parts)
        return all(self.take(c, p) for c, p in zip(node.children, parts, strict=True))

    def _take_builtin(self, node: Node, name: str, parts: list[str]) -> None:
        self.unless(f"type({name}) is not {node.kind.__name__} or len({name}) != {len(parts)}")
        self._unpack(node, name, parts)

    def _unpack(self, node: Node, name: str, parts: list[str]) -> None:
        if parts and node.kind is dict:
            get = self.known(itemgetter(*node.data))
            self.lines.append(f"{', '.join(parts)} = {get}({name})")  # KeyError: another dict
        elif parts:
            self.lines.append(f"{', '.join(parts)}, = {name}")

    def _take_registered(self, node: Node, name: str, parts: list[str]) -> bool:
        how = self.classes(node.kind)
        if how is None:
            return False
        self.unless(f"type({name}) is not {self.known(node.kind)}")
        if how.fields is not None:
            own, static = how.fields
            for field, value in zip(static, node.data, strict=True):
                self._same(f"{name}.{field}", value)
            self.lines += [f"{part} = {name}.{field}" for part, field in zip(parts, own)]
            return True
        children, data = self.fresh(), self.fresh()
        self.lines.append(f"{children}, {data}, *_ = {self.known(how.flatten)}({name})")
        self._same(data, node.data)
        self.lines.append(f"{children} = tuple({children})")
        self.unless(f"len({children}) != {len(parts)}")
        if parts:
            self.lines.append(f"{', '.join(parts)}, = {children}")
        return True

    def _same(self, text: str, value: Any) -> None:
        """Static data are what they were if they are equal, as where a program is looked up."""
        found = self.fresh()
        self.lines.append(f"{found} = {text}")
        self.unless(f"{found} is not {self.known(value)} and {found} != {self.known(value)}")

    # --- rebuilding -----------------------------------------------------------------------------

    def give(self, node: Node | None) -> str | None:
        """The expression that rebuilds a structure from `self.leaves`."""
        if node is None:
            self.leaves.append(self.fresh())
            return self.leaves[-1]
        if node.kind is type(None):
            return "None"
        parts = [self.give(c) for c in node.children]
        if None in parts:
            return None
        text = "".join(f"{p}, " for p in parts)
        if node.kind is tuple:
            return f"({text})"
        if node.kind is list:
            return f"[{text}]"
        if node.kind is dict:
            keys = [self.known(k) for k in node.data]
            return "{" + ", ".join(f"{k}: {p}" for k, p in zip(keys, parts, strict=True)) + "}"
        if _is_namedtuple(node):
            return f"{self.known(node.kind)}({text})"
        how = self.classes(node.kind)
        if how is None:
            return None
        return f"{self.known(how.unflatten)}({self.known(node.data)}, ({text}))"

    def function(self, argument: str, result: str) -> Callable:
        body = "".join(f"    {line}\n" for line in [*self.lines, f"return {result}"])
        exec(f"def code({argument}):\n{body}", self.names)
        return self.names["code"]


def _is_namedtuple(node: Node) -> bool:
    return node.data is node.kind and issubclass(node.kind, tuple) and hasattr(node.kind, "_fields")


def _nodes(tree: Structure) -> Node | None:
    return tree.walk(range(tree.num_leaves), Node, lambda leaf: None)


def flattener(
    tree: Structure, classes: Classes
) -> Callable[[Sequence, dict], Sequence | None] | None:
    """A function from a call's arguments to their leaves; None (or KeyError) where those are others.

    `tree` is the structure of the pair of positional arguments and those by name.
    """
    pair = _nodes(tree) if tree.num_nodes <= _LIMIT else None
    if pair is None:
        return None
    code, (args, kwargs) = _Code(classes), pair.children
    assert args is not None
    assert kwargs is not None
    if not kwargs.children and all(c is None for c in args.children):
        code.unless(f"kwargs or len(args) != {len(args.children)}")
        return code.function("args, kwargs", "args")
    if not (code.arguments(args, "args") and code.arguments(kwargs, "kwargs")):
        return None
    return code.function("args, kwargs", f"({''.join(f'{x}, ' for x in code.leaves)})")


def builder(tree: Structure, classes: Classes) -> Callable[[Sequence], Any] | None:
    """A function from leaves to the pytree."""
    code = _Code(classes)
    result = None if tree.num_nodes > _LIMIT else code.give(_nodes(tree))
    if result is None:
        return None
    if code.leaves:
        code.lines.append(f"{', '.join(code.leaves)}, = leaves")
    return code.function("leaves", result)
