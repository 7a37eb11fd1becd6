"""SPMD: named axes that are bound around one member's program, whose collectives stay equations.

`Batch` computes for all members of an axis at once, and makes of a collective array operations along
the batch axis. `Spmd` stands beside it: it runs the program of one member (Darema 1988: single program,
multiple data), knows the names and sizes of the axes, and hands every primitive on. Collectives over its
names so reach the interpreter around it as they are: a stage records an equation, evaluation asks the
transport in force (core/transport.py).

Input: a function of one member's arrays, names and sizes of axes.
Output: the member's results; within a trace, equations with collectives over those names.
Legal when: none of the names is bound already: an outer `Batch` of that name would take the collectives.
Costs: nothing for other primitives; a call through Python, and the exchange, for each collective.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import wraps
from typing import Any

from fnx.core.errors import InvalidValue, UnboundAxis
from fnx.core.interpreter import Interpreter, current, use
from fnx.core.primitive import Primitive

Name = Hashable


class Spmd(Interpreter):
    """Binds names of axes, of which one member's program runs. All primitives are the parent's."""

    what = "the program of one member of named axes"

    def __init__(self, parent: Interpreter, sizes: Mapping[Name, int]):
        self.parent: Interpreter = parent
        self.sizes = dict(sizes)

    def process(self, prim: Primitive, args: tuple) -> tuple:
        return self.parent.process(prim, args)


def spmd(fn: Callable, sizes: Mapping[Name, int]) -> Callable:
    """`fn` as the program of one member of named axes of these sizes."""

    @wraps(fn)
    def member(*args: Any, **kwargs: Any) -> Any:
        bound = bound_axes()
        for name in sizes:
            if name in bound:
                raise InvalidValue(
                    f"the axis name {name!r} is bound already; bound are: {list(bound)}"
                )
        with use(Spmd(current.get(), sizes)):
            return fn(*args, **kwargs)

    return member


def bound_axes() -> dict[Name, int]:
    """The sizes of the named axes around this place in the program, innermost first."""
    found: dict[Name, int] = {}
    it: Interpreter | None = current.get()
    while it is not None:
        name = getattr(it, "axis_name", None)
        if name is not None:
            found.setdefault(name, int(it.size))  # type: ignore[attr-defined]
        for name, size in getattr(it, "sizes", {}).items():
            found.setdefault(name, size)
        # A stage has no parent that it passes operations to, but was opened inside another interpreter.
        it = it.parent or getattr(it, "outer", None)
    return found


def axis_size(name: Name) -> int:
    """The size of a named axis; NameError if it is not bound."""
    found = bound_axes()
    if name not in found:
        raise unbound(name, found)
    return found[name]


def unbound(name: Name, found: Iterable[Name] = ()) -> UnboundAxis:
    """The error for a name that nobody binds."""
    known = ", ".join(map(repr, found)) or "none"
    return UnboundAxis(
        f"unbound axis name: {name}. Axis names that are bound here: {known}. Collectives work inside a "
        f"function that is mapped under that name: vmap(f, axis_name={name!r}), pmap or shard_map."
    )
