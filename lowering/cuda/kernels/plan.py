"""The plan of a program: what the host does, step by step, and the kernels that it launches."""

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import Any, Literal, NamedTuple, Protocol

from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer, CallHost, CallLibrary, Program, Stmt

from .thresholds import Limits

Shape = Literal["single", "flat", "tile", "square", "block"]
Axes = list[tuple[Expr, Expr]]  # indices, and how many iterations each has


class Step:
    """Base of all steps."""


class Halo(NamedTuple):
    """A square and what lies around it: `place` in it, which is at `row` and `lane` of the loop's axes."""

    place: Expr
    row: Expr
    lane: Expr
    rows: int
    columns: int


class Staged(NamedTuple):
    """What a block puts into shared memory before its threads run, square by square, or `rows` of one.

    `lane` and `row` are places in the square: in `stores` those along the axis before the last one, and the
    last one; in the body of the kernel the other way round. Where there are `halos`, one for each of
    `stores`, these run for all elements of their halo.
    """

    stores: list[Stmt]
    lane: Expr
    row: Expr
    rows: int
    halos: Sequence[Halo] = ()

    def variables(self) -> set[Expr]:
        """What a kernel binds for them."""
        return {self.lane, self.row, *(e for h in self.halos for e in h[:3])}


class Tile(NamedTuple):
    """What a block has in shared memory of rows: `items` elements for each of `lanes` threads of each."""

    rows: int
    lanes: int
    items: int

    @property
    def length(self) -> int:
        return self.lanes * self.items

    @classmethod
    def of(cls, limits: Limits, n: int, most: int) -> "Tile":
        """The tiles of rows of n elements, at most so many a thread.

        Items are odd in number: so threads find theirs in different banks of shared memory.
        """
        most = max(_odd(most), 1)
        lanes = min(1 << (-(-n // most) - 1).bit_length(), limits.threads)
        return cls(limits.threads // lanes, lanes, min(_odd(-(-n // lanes) + 1), most))


def _odd(n: int) -> int:
    """The greatest odd number that is not greater."""
    return n - 1 + n % 2


@dataclass(eq=False)
class Kernel(Step):
    """Statements that threads of a GPU run.

    single: one thread. flat: the iterations of `axes` (index, extent) are dealt out to all threads.
    tile: those of the last two axes to blocks of two dimensions. square: squares of them to blocks, which
    first make what is `staged`. block: those of `axes` to blocks, and within a block loops of kind THREAD
    to its threads; where there is a `thread`, all threads run all statements, and that is the number of
    each. `atomic` are buffers that are added to in any
    order. `names` are values that were computed before: how statements here refer to what memory no
    longer holds. `guards` are slots and what has to lie in them: else the kernel does nothing, so that the
    host may launch it before it knows.
    """

    name: str
    shape: Shape
    axes: list[tuple[Expr, Expr]]
    body: list[Stmt]
    note: str = ""
    atomic: list[Buffer] = field(default_factory=list)
    names: dict[Expr, Expr] = field(default_factory=dict)
    slots: dict[Expr, tuple[Buffer, int]] = field(default_factory=dict)  # what it reads of before
    stored: dict[Expr, tuple[Buffer, int]] = field(default_factory=dict)  # what others read of it
    guards: list[tuple[Buffer, int, bool]] = field(default_factory=list)
    staged: Staged | None = None
    lanes: int = (
        0  # of a warp that has an iteration of "block" to itself; 0: all threads of a block
    )
    group: Expr | None = None  # which of a block's warps this is
    first: list[Stmt] = field(default_factory=list)  # what each thread computes before all else
    thread: Expr | None = None

    def statements(self) -> list[Stmt]:
        """All statements that its threads run."""
        return [*self.first, *(self.staged.stores if self.staged else ()), *self.body]


@dataclass(eq=False)
class Host(Step):
    """A call of Python with copies of arrays; `offsets` are where they begin, once they are known."""

    call: CallHost
    offsets: list[tuple[Buffer, int]]


@dataclass(eq=False)
class Library(Step):
    """A call of a library of the vendor's on our memory; `offsets` as in Host."""

    call: CallLibrary
    offsets: list[tuple[Buffer, int]]


@dataclass(eq=False)
class For(Step):
    """Steps as often as a number says: known, or in a slot of memory. The device counts by itself."""

    extent: int | tuple[Buffer, int]
    body: list[Step]


@dataclass(eq=False)
class While(Step):
    """`before`, and as long as it leaves True in a slot, `body`; the slot is True at first."""

    before: list[Step]
    condition: tuple[Buffer, int]
    body: list[Step]


@dataclass(eq=False)
class If(Step):
    """One of two lists of steps, as a slot says."""

    condition: tuple[Buffer, int]
    then: list[Step]
    orelse: list[Step]


@dataclass(eq=False)
class Plan:
    """Steps on the buffers of a program; `slots` hold scalars between kernels, in the workspace."""

    program: Program
    steps: list[Step]
    slots: list[Buffer]
    workspace: int
    notes: list[str] = field(default_factory=list)

    def kernels(self) -> list[Kernel]:
        return [s for s in walk(self.steps) if isinstance(s, Kernel)]

    def count(self, kind: type) -> int:
        return sum(isinstance(s, kind) for s in walk(self.steps))


def walk(steps: list[Step]) -> Iterator[Step]:
    """All steps, outer ones first."""
    for s in steps:
        yield s
        for block in blocks(s):
            yield from walk(block)


def blocks(step: Step) -> list[list[Step]]:
    """The lists of steps inside of one."""
    match step:
        case For():
            return [step.body]
        case While():
            return [step.before, step.body]
        case If():
            return [step.then, step.orelse]
    return []


class Scheduling(Protocol):
    """Adds kernels to a plan, in order."""

    limits: Limits
    halves: dict[Expr, int]
    temporaries: list[Buffer]

    def launch(
        self,
        shape: Shape,
        axes: Axes,
        body: list[Stmt],
        name: str = "",
        note: str = "",
        **more: Any,
    ) -> None:
        """A kernel of its own; `more` are fields of it."""
        ...

    def temporary(self, dtype: str, size: int) -> Buffer:
        """Memory for what one kernel leaves for the next."""
        ...

    def statement(self, s: Stmt, name: str = "", note: str = "") -> None:
        """Make steps of a statement."""
        ...
