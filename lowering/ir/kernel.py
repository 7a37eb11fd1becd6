"""The Kernel IR: typed scalar expressions (fnx.core.scalar) inside structured statements.

A `Program` is the body of one native function

    int32 entry(void **arguments, int64 *params, char *workspace, void *control)

where `arguments` are the data pointers of inputs, then outputs; `params` the run-time numbers that
expressions name (sizes, literals, addresses of library routines), in the order in which the printer
met them; `workspace` one block for all work buffers. It returns 0, or the code of an error.

Statements run in order. An expression is evaluated where a statement first needs it and is then
known in that block and the blocks inside it; a load is evaluated again once its buffer was written.
`Eval` evaluates early, where a value must be computed once; `Let` keeps what memory holds now, for
use after it is overwritten.
"""

from dataclasses import field
from typing import Any, Literal

from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr

Space = Literal["argument", "workspace", "stack"]


@dataclass(eq=False)
class Buffer:
    """`size` elements of contiguous memory, row-major, aligned to 64 bytes but for arguments.

    `place` is the number among the arguments, or the offset in the workspace, in bytes. bool takes
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

    `carries[k]` is a variable: `init[k]` at first, then `yields[k]` of the round before; after the
    loop the same variable stands for the last value. `reassociate` allows reductions in any order
    (fast-math reassoc and nsz on the operations that combine the carries). `parallel` says that
    rounds are independent and worth sharing out. `poll` asks the control block now and then
    whether to stop. `vector` says that rounds are independent (no store of one is read by another).
    `reverse` runs from the last index to the first. `unroll` is a hint: 1 means that the loop is
    better left to the vectoriser. `vectors` says that a round is one vector of a row.
    """

    index: Expr
    extent: Expr
    body: list[Stmt]
    carries: list[Expr] = field(default_factory=list)
    init: list[Expr] = field(default_factory=list)
    yields: list[Expr] = field(default_factory=list)
    reassociate: bool = False
    parallel: bool = False
    vector: bool = False
    poll: bool = False
    reverse: bool = False
    unroll: int = 0
    vectors: bool = False


@dataclass(eq=False)
class While(Stmt):
    """while cond: body; `before` computes the condition and runs each time; carries as in Loop."""

    before: list[Stmt]
    cond: Expr
    body: list[Stmt]
    carries: list[Expr] = field(default_factory=list)
    init: list[Expr] = field(default_factory=list)
    yields: list[Expr] = field(default_factory=list)
    poll: bool = True


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
    """Copy `count` elements (memcpy); source and target do not overlap."""

    target: Ref
    source: Ref
    count: Expr


@dataclass(eq=False)
class Transpose(Stmt):
    """target[i, j] = source[j, i]: a small block, `rows` times `columns` of the target.

    Rows of the target and of the source are `apart` elements from each other; the two do not overlap.
    """

    target: Ref
    source: Ref
    rows: int
    columns: int
    apart: tuple[Expr, Expr]


@dataclass(eq=False)
class Fill(Stmt):
    """Set `count` elements to `value`."""

    target: Ref
    count: Expr
    value: Expr


@dataclass(eq=False)
class CallLibrary(Stmt):
    """Call a C routine by pointer: `symbol` is resolved when the program is loaded.

    `args`: Ref or Address (passed as a pointer), or Expr (a value). `by_reference` puts every Expr
    into a stack slot and passes its address (Fortran). `writes` names the buffers that it writes.
    `result` is a variable for what it returns, or None. `work`: how many multiplications to tell
    OpenBLAS's guard of threads (blas_threads.py); 0 for routines of others.
    """

    symbol: str
    args: list[Any]
    writes: list[Buffer]
    by_reference: bool = False
    result: Expr | None = None
    work: int = 0


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
