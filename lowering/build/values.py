"""How a value of a jaxpr exists while its program is built: in registers, in memory, or not yet."""

from collections.abc import Callable
from typing import Any

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer

Shape = tuple[int, ...]
OWN = object()  # the scope of a handle that belongs to the jaxpr that it is given to


class State:
    """Base of the ways to exist."""

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        raise NotImplementedError


class Registers(State):
    """A small array: one expression an element, in row-major order."""

    def __init__(self, elements: list[Expr]):
        self.elements = elements

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        position = scalar.linear_index(index, shape)
        if position.op == "size":
            return self.elements[position.attr]
        # A position that is only known at run time: a chain of choices.
        found = self.elements[-1]
        for k in range(len(self.elements) - 2, -1, -1):
            here = scalar.compare("eq", position, scalar.size(k))
            found = scalar.select(here, self.elements[k], found)
        return found


class Stored(State):
    """Contiguous elements of a buffer from `base` on. `owned`: the program may overwrite them.

    A `row` of a stack shares nothing with what other values hold of the buffer.
    """

    def __init__(
        self, buffer: Buffer, base: Expr | None = None, owned: bool = True, row: bool = False
    ):
        self.buffer = buffer
        self.base = scalar.size(0) if base is None else base
        self.owned = owned
        self.row = row

    def position(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        return scalar.add(self.base, scalar.linear_index(index, shape))

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        return scalar.load(self.buffer, self.position(shape, index), self.buffer.dtype)


class Pull(State):
    """Computed wherever it is read. `cost`: operations an element, with all that it pulls."""

    def __init__(self, fn: Callable[..., Expr], cost: int):
        self.fn = fn
        self.cost = cost

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        return self.fn(*index)


class Pending(State):
    """A member of an open group: it will be stored if somebody outside the group reads it."""

    def __init__(self, group: Any, fn: Callable[..., Expr]):
        self.group = group
        self.fn = fn

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        if self.group.covers(shape, index):
            return self.fn(*index)
        raise NeedsFlush(self.group)


class Folding(State):
    """The result of a reduction in an open group: nobody can read it before the group is closed."""

    def __init__(self, group: Any):
        self.group = group

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        raise NeedsFlush(self.group)


class NeedsFlush(Exception):  # a signal, not an error
    """An open group must be closed before an expression can be built."""

    def __init__(self, group: Any):
        self.group = group


class Handle:
    """A value of the jaxpr: shape, dtype, and how it exists now. The operand that `lower` rules see."""

    __slots__ = (
        "consumers",
        "dtype",
        "hint",
        "last_use",
        "scope",
        "shape",
        "state",
        "target",
        "wish",
    )

    def __init__(self, shape: Shape, dtype: str, state: State | None = None):
        self.shape = shape
        self.dtype = dtype
        self.state: State = state  # type: ignore[assignment]
        self.target: Stored | None = None  # where it must be stored
        self.hint: Stored | None = None  # where it should be stored, if it is
        self.wish: Stored | None = None  # a carry's place, to be taken over if it is dead by then
        self.consumers: list[int] = []  # numbers of the equations that read it; -1: an output
        self.last_use: float = -1
        self.scope: Any = None

    def __call__(self, *index: Expr) -> Expr:
        return self.state.read(self.shape, index)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        total = 1
        for n in self.shape:
            total *= n
        return total

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} in {type(self.state).__name__}"


def static_indices(shape: Shape) -> list[tuple[Expr, ...]]:
    """All indices of a small array, in row-major order."""
    found: list[tuple[Expr, ...]] = [()]
    for n in shape:
        found = [(*ix, scalar.size(k)) for ix in found for k in range(n)]
    return found


# --- walks over expressions --------------------------------------------------------------------


_NONE: frozenset = frozenset()


def buffers_read(
    exprs: list[Expr], known: dict[Expr, frozenset[Buffer]] | None = None
) -> frozenset[Buffer]:
    """The buffers from which the expressions load; `known` remembers, so that what many share is
    walked once.
    """
    known = {} if known is None else known
    found = _NONE
    for root in exprs:
        todo = [root]
        while todo:
            e = todo[-1]
            if e not in known:
                below = [a for a in e.args if a not in known]
                if below:
                    todo += below
                    continue
                known[e] = _union([known[a] for a in e.args], e)
            todo.pop()
        if not known[root] <= found:
            found |= known[root]
    return found


def _union(parts: list[frozenset[Buffer]], e: Expr) -> frozenset[Buffer]:
    """The buffers of the operands and of a load; the same object wherever it can be."""
    found = _NONE
    for p in parts:
        if not p <= found:
            found = p if found <= p else found | p
    return found | {e.attr} if e.op == "load" else found


def loads(expr: Expr, known: dict[Expr, bool]) -> bool:
    """Whether an expression reads memory; `known` remembers, so that a long chain is walked once."""
    todo = [expr]
    while todo:
        e = todo[-1]
        if e not in known:
            below = [a for a in e.args if a not in known]
            if below:
                todo += below
                continue
            known[e] = e.op == "load" or any([known[a] for a in e.args])
        todo.pop()
    return known[expr]


def depends_on(exprs: list[Expr], leaves: set[int], stop: Expr | None = None) -> bool:
    """Whether a node of `leaves` (ids) is reached, other than through `stop`."""
    seen: set[int] = set()
    todo = list(exprs)
    while todo:
        e = todo.pop()
        if e is stop or id(e) in seen:
            continue
        if id(e) in leaves:
            return True
        seen.add(id(e))
        todo.extend(e.args)
    return False


def substitute(exprs: list[Expr], old: Expr, new: Expr) -> list[Expr]:
    """The expressions with one node replaced."""
    done: dict[int, Expr] = {id(old): new}

    def visit(root: Expr) -> Expr:
        todo = [root]
        while todo:
            e = todo[-1]
            if id(e) in done:
                todo.pop()
                continue
            missing = [a for a in e.args if id(a) not in done]
            if missing:
                todo.extend(missing)
                continue
            args = tuple(done[id(a)] for a in e.args)
            same = all(a is b for a, b in zip(args, e.args, strict=True))
            done[id(e)] = e if same else scalar.node(e.op, e.dtype, args, e.attr)
            todo.pop()
        return done[id(root)]

    return [visit(e) for e in exprs]
