"""The Kernel IR: typed scalar expressions (fnx.core.scalar) inside structured statements.

A `Program` is the body of one function: its arguments are the buffers of inputs, then outputs. How a
target calls it is the target's own: the CPU's entry is described in lowering/cpu/runtime/abi.py.

Statements run in order. An expression is evaluated where a statement first needs it and is then
known in that block and the blocks inside it; a load is evaluated again once its buffer was written.
`Eval` evaluates early, where a value must be computed once; `Let` keeps what memory holds now, for
use after it is overwritten.
"""

from dataclasses import field
from enum import Enum
from typing import Any, Literal

from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.core.source import LoopSite

Space = Literal["argument", "global", "shared", "private"]


class LoopKind(Enum):
    """How the iterations of a loop are run.

    SERIAL: one after another. PARALLEL: they are independent, and worth sharing out to threads.
    VECTORIZED: no iteration reads what another one stores, so that several may be the lanes of a
    vector. PARALLEL_VECTORIZED is both (OpenMP's `parallel for simd`). GRID_BLOCK and THREAD are the
    blocks of a grid and the threads of a block, of targets that have them. Loops that are unrolled
    are written out when they are generated.
    """

    SERIAL = "serial"
    PARALLEL = "parallel"
    VECTORIZED = "vector"
    PARALLEL_VECTORIZED = "parallel, vector"
    GRID_BLOCK = "grid block"
    THREAD = "thread"

    @staticmethod
    def of(parallel: bool = False, vectorized: bool = False) -> "LoopKind":
        if parallel:
            return LoopKind.PARALLEL_VECTORIZED if vectorized else LoopKind.PARALLEL
        return LoopKind.VECTORIZED if vectorized else LoopKind.SERIAL

    @property
    def parallel(self) -> bool:
        return self in (LoopKind.PARALLEL, LoopKind.PARALLEL_VECTORIZED)

    @property
    def vectorized(self) -> bool:
        return self in (LoopKind.VECTORIZED, LoopKind.PARALLEL_VECTORIZED)

    def shared(self, parallel: bool = True) -> "LoopKind":
        """The same of a loop whose iterations are shared out to threads, or are not."""
        return LoopKind.of(parallel, self.vectorized)

    def words(self) -> list[str]:
        """What the text of a program says of it."""
        return [] if self is LoopKind.SERIAL else [self.value]


@dataclass(eq=False)
class Buffer:
    """`size` elements of contiguous memory, row-major, aligned to 64 bytes but for arguments.

    The space is that of an argument, of all threads (`global`: one block of work memory a program), of
    the threads of a block (`shared`, on targets that have such) or of one thread (`private`: a stack).
    `place` is the number among the arguments, or the offset in the work memory, in bytes. bool takes
    a byte an element, float16 and bfloat16 two (computed in float32), complex two floats.
    """

    name: str
    dtype: str
    size: int
    space: Space
    place: int = 0

    def __repr__(self) -> str:
        return self.name


@dataclass(eq=False)
class Ref:
    """The address of element `index` of a buffer: an argument of a library call."""

    buffer: Buffer
    index: Expr


@dataclass(frozen=True)
class Address:
    """What `symbol` is resolved to when the program is loaded: an argument of a library call."""

    symbol: str


class Stmt:
    """Base of all statements."""


@dataclass(eq=False)
class Progress:
    """What a loop tells of how far it is: for which loop of the user's, whenever it asks whether to stop.

    `total`: of how many, if these are not its iterations. `tally`: a variable of the loops inside it, which
    threads may share; what it has grown by is added.
    """

    site: LoopSite
    total: Expr | None = None
    tally: Expr | None = None


@dataclass(eq=False)
class Eval(Stmt):
    """Evaluate the expressions here."""

    exprs: list[Expr]


@dataclass(eq=False)
class Let(Stmt):
    """Each variable is, from here on, what its expression is now, whatever is written later."""

    variables: list[Expr]
    values: list[Expr]


@dataclass(eq=False)
class Store(Stmt):
    """buffer[index] = value."""

    buffer: Buffer
    index: Expr
    value: Expr


@dataclass(eq=False)
class Loop(Stmt):
    """for index in range(extent): carries are values that live in registers.

    `carries[k]` is a variable: `init[k]` at first, then `yields[k]` of the iteration before; after the
    loop the same variable stands for the last value. `kind`: how iterations are scheduled.
    `reassociate` allows reductions in any order (fast-math reassoc and nsz on the operations that
    combine the carries). `reverse` runs from the last index to the first. `rolled`: better left to the
    vectoriser than unrolled before it. `polled`: a loop of the user's program that may run for long, by
    itself or as often as those around it run it: a target asks in it whether to stop. `shown`: what it
    tells of its progress. `runs`: iterations that update one place follow one another.
    """

    index: Expr
    extent: Expr
    body: list[Stmt]
    carries: list[Expr] = field(default_factory=list)
    init: list[Expr] = field(default_factory=list)
    yields: list[Expr] = field(default_factory=list)
    kind: LoopKind = LoopKind.SERIAL
    reassociate: bool = False
    reverse: bool = False
    rolled: bool = False
    polled: bool = False
    shown: Progress | None = None
    runs: bool = False


@dataclass(eq=False)
class While(Stmt):
    """while cond: body; `before` computes the condition and runs each time; carries as in Loop."""

    before: list[Stmt]
    cond: Expr
    body: list[Stmt]
    carries: list[Expr] = field(default_factory=list)
    init: list[Expr] = field(default_factory=list)
    yields: list[Expr] = field(default_factory=list)
    polled: bool = False
    shown: Progress | None = None


@dataclass(eq=False)
class If(Stmt):
    """One of two blocks runs; `results[k]` is a variable that takes `on_true[k]` or `on_false[k]`."""

    cond: Expr
    then: list[Stmt]
    orelse: list[Stmt]
    results: list[Expr] = field(default_factory=list)
    on_true: list[Expr] = field(default_factory=list)
    on_false: list[Expr] = field(default_factory=list)


@dataclass(eq=False)
class Copy(Stmt):
    """Copy `count` elements (memcpy); source and destination do not overlap."""

    destination: Ref
    source: Ref
    count: Expr


@dataclass(eq=False)
class Transpose(Stmt):
    """destination[i, j] = source[j, i]: a small block, `rows` times `columns` of the destination.

    Rows of the destination and of the source are `apart` elements from each other; the two do not overlap.
    """

    destination: Ref
    source: Ref
    rows: int
    columns: int
    apart: tuple[Expr, Expr]


@dataclass(eq=False)
class Fill(Stmt):
    """Set `count` elements to `value`."""

    destination: Ref
    count: Expr
    value: Expr


@dataclass(eq=False)
class Barrier(Stmt):
    """The threads of a block wait for one another, and see from here on what they have stored."""


@dataclass(eq=False)
class CallLibrary(Stmt):
    """Call a C routine by pointer: `symbol` is resolved when the program is loaded.

    `args`: Ref or Address (passed as a pointer), or Expr (a value). `by_reference` puts every Expr
    into a stack slot and passes its address (Fortran). `writes` names the buffers that it writes.
    `result` is a variable for what it returns, or None. `work`: how many multiplications to tell
    OpenBLAS's guard of threads (blas_threads.py); 0 for routines of others. `checked`: it returns an int32,
    without which the program ends as after an exception of the host's.
    """

    symbol: str
    args: list[Any]
    writes: list[Buffer]
    by_reference: bool = False
    result: Expr | None = None
    work: int = 0
    checked: bool = False


@dataclass(eq=False)
class CallHost(Stmt):
    """Call Python: `callback(*inputs)` gets read-only arrays and returns arrays for the outputs.

    `inputs` and `outputs` are (Ref, shape, dtype). An exception ends the program and is raised by it.
    """

    callback: Any
    inputs: list[tuple[Ref, tuple[int, ...], str]]
    outputs: list[tuple[Ref, tuple[int, ...], str]]
    name: str = ""


@dataclass(eq=False)
class Nest(Stmt):
    """A kernel: a block that is emitted as a function of its own, on distinct buffers (noalias).

    No value that is evaluated inside is known outside, but those of `results`: variables that the
    body's own (outermost) loops carry or its Ifs assign.
    """

    name: str
    body: list[Stmt]
    results: list[Expr] = field(default_factory=list)
    note: str = ""


@dataclass(eq=False)
class Program:
    """A whole native function: arguments (inputs, then outputs), work memory, statements.

    `aliases`: results, by number, that are left in inputs, by number, which were donated. They are
    not among the outputs.
    """

    name: str
    inputs: list[Buffer]
    outputs: list[Buffer]
    body: list[Stmt]
    workspace: int = 0  # bytes
    notes: list[str] = field(default_factory=list)
    aliases: dict[int, int] = field(default_factory=dict)
