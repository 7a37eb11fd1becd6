"""The state of a value while code is generated: scalars, in memory, inlined, in an open group, or reducing.

The states are decisions of a schedule: materialized or delayed arrays (Repa, Keller et al. 2010),
computed at root or inlined (Halide, Ragan-Kelley et al. 2013).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, ClassVar

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer

Shape = tuple[int, ...]
OWN = object()  # the scope of a value that belongs to the jaxpr that it is given to


class State:
    """Base of the ways to exist."""

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        raise NotImplementedError


class Scalars(State):
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


class Materialized(State):
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

    def is_at(self, other: "Materialized") -> bool:
        """Whether two arrays of one shape are the same elements of memory."""
        return self.buffer is other.buffer and self.base is other.base

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        return scalar.load(self.buffer, self.position(shape, index), self.buffer.dtype)


class Inlined(State):
    """Computed wherever it is read. `cost`: operations an element, with all that it inlines.

    `sources`: the values that it reads, where that is known. `regional`: near its edges it is computed
    otherwise, by a choice at each element; best read where loops are cut there.
    """

    known: ClassVar[dict[tuple, Expr] | None] = None  # elements that were read, while it is a dict

    def __init__(
        self,
        fn: Callable[..., Expr],
        cost: int,
        sources: "Sequence[Value] | None" = None,
        regional: bool = False,
    ):
        self.fn = fn
        self.cost = cost
        self.sources = sources
        self.regional = regional

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        known = Inlined.known
        if known is None:
            return self.fn(*index)
        found = known.get((self, *index))
        if found is None:
            found = known[self, *index] = self.fn(*index)
        return found


@contextmanager
def values_at_rest() -> Iterator[None]:
    """Meanwhile no value changes how it exists, so that an inlined element is computed from the same.

    What many operations read of one another is then built once, not as often as there are ways to it.
    """
    before = Inlined.known
    try:
        Inlined.known = {} if before is None else before
        yield
    finally:
        Inlined.known = before


class Fused(State):
    """A member of an open group: it will be stored if somebody outside the group reads it."""

    def __init__(self, group: Any, fn: Callable[..., Expr]):
        self.group = group
        self.fn = fn

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        if self.group.covers(shape, index):
            return self.fn(*index)
        raise NeedsFlush(self.group)


class Reducing(State):
    """The result of a reduction in an open group: nobody can read it before the group is closed."""

    def __init__(self, group: Any):
        self.group = group

    def read(self, shape: Shape, index: tuple[Expr, ...]) -> Expr:
        raise NeedsFlush(self.group)


class NeedsFlush(Exception):  # a signal, not an error
    """An open group must be closed before an expression can be built."""

    def __init__(self, group: Any):
        self.group = group


class Value:
    """A value of the jaxpr: shape, dtype, and how it exists now. The operand that `lower` rules see."""

    __slots__ = (
        "carry_buffer",
        "consumers",
        "destination",
        "dtype",
        "lanewise",
        "last_use",
        "preferred_buffer",
        "scope",
        "shape",
        "state",
    )

    def __init__(self, shape: Shape, dtype: str, state: State | None = None):
        self.shape = shape
        self.dtype = dtype
        self.state: State = state  # type: ignore[assignment]
        self.destination: Materialized | None = None  # where it must be stored
        self.preferred_buffer: Materialized | None = None  # where it should be stored, if it is
        self.carry_buffer: Materialized | None = (
            None  # a carry's place, to be taken over if it is dead by then
        )
        self.consumers: list[int] = []  # numbers of the equations that read it; -1: an output
        self.last_use: float = -1
        self.scope: Any = None
        self.lanewise = (
            False  # whether it is computed problem by problem, its short axes written out
        )

    def __call__(self, *index: Expr) -> Expr:
        return self.state.read(self.shape, index)

    def twin(self) -> "Value":
        """The same value under a value of its own, so that storing it does not move the original."""
        made = Value(self.shape, self.dtype, self.state)
        made.consumers, made.last_use, made.scope = self.consumers, self.last_use, self.scope
        return made

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __repr__(self) -> str:
        return f"{self.dtype}{list(self.shape)} in {type(self.state).__name__}"


def static_indices(shape: Shape) -> list[tuple[Expr, ...]]:
    """All indices of a small array, in row-major order."""
    found: list[tuple[Expr, ...]] = [()]
    for n in shape:
        found = [(*ix, scalar.size(k)) for ix in found for k in range(n)]
    return found


def memoised(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of expressions that remembers what it gave."""
    memo: dict[tuple, Any] = {}

    def at(*index: Expr) -> Any:
        key = tuple(map(id, index))
        if key not in memo:
            memo[key] = index, fn(*index)  # the index, too: other expressions must not get its ids
        return memo[key][1]

    return at
