"""Straight-line code for flattening and rebuilding one pytree structure.

A general flattener asks each object what it is. A call of a compiled function knows what its
arguments were the last time: code made for that structure looks them up at once, and says None as
soon as something is different. Only tuples, lists, dicts and None are known here.
"""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Protocol

_LIMIT = 2000  # nodes; above that the general way is no worse


class Structure(Protocol):
    """What is asked of a pytree's structure (optree's PyTreeSpec has it)."""

    type: Any
    num_nodes: int

    def children(self) -> list["Structure"]: ...
    def entries(self) -> list: ...
    def is_leaf(self) -> bool: ...


class _Code:
    """Lines of a function, and the objects that they name."""

    def __init__(self) -> None:
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

    def take(self, tree: Structure, name: str) -> bool:
        """Lines that take `name` apart; False for a structure that is not known."""
        if tree.is_leaf():
            self.leaves.append(name)
            return True
        if tree.type is type(None):
            self.lines.append(f"if {name} is not None: return None")
            return True
        if tree.type not in (tuple, list, dict):
            return False
        children = tree.children()
        parts = [self.fresh() for _ in children]
        kind = tree.type.__name__
        self.lines.append(
            f"if type({name}) is not {kind} or len({name}) != {len(parts)}: return None"
        )
        if parts and tree.type is dict:
            keys = tree.entries()
            get = self.known(itemgetter(*keys))
            self.lines.append(f"{', '.join(parts)} = {get}({name})")  # KeyError: another dict
        elif parts:
            self.lines.append(f"{', '.join(parts)}, = {name}")
        return all(self.take(c, p) for c, p in zip(children, parts, strict=True))

    def give(self, tree: Structure) -> str | None:
        """The expression that rebuilds a structure from `self.leaves`."""
        if tree.is_leaf():
            self.leaves.append(self.fresh())
            return self.leaves[-1]
        if tree.type is type(None):
            return "None"
        if tree.type not in (tuple, list, dict):
            return None
        parts = [self.give(c) for c in tree.children()]
        if None in parts:
            return None
        if tree.type is dict:
            keys = [self.known(k) for k in tree.entries()]
            return "{" + ", ".join(f"{k}: {p}" for k, p in zip(keys, parts, strict=True)) + "}"
        text = "".join(f"{p}, " for p in parts)
        return f"({text})" if tree.type is tuple else f"[{text}]"

    def function(self, argument: str, result: str) -> Callable:
        body = "".join(f"    {line}\n" for line in [*self.lines, f"return {result}"])
        exec(f"def code({argument}):\n{body}", self.names)
        return self.names["code"]


def flattener(tree: Structure) -> Callable[[Any], Sequence | None] | None:
    """A function from a pytree to its leaves; None (or KeyError) where the structure is another."""
    code = _Code()
    if tree.num_nodes > _LIMIT or not code.take(tree, "x0"):
        return None
    return code.function("x0", f"({''.join(f'{x}, ' for x in code.leaves)})")


def builder(tree: Structure) -> Callable[[Sequence], Any] | None:
    """A function from leaves to the pytree."""
    code = _Code()
    result = None if tree.num_nodes > _LIMIT else code.give(tree)
    if result is None:
        return None
    if code.leaves:
        code.lines.append(f"{', '.join(code.leaves)}, = leaves")
    return code.function("leaves", result)
