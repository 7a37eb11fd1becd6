"""Stacks of matrices in memory as library routines want them: places, copies, calls, loops."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate import updates
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import (
    Inlined,
    Materialized,
    Scalars,
    Shape,
    Value,
    static_indices,
)
from fnx.lowering.ir.kernel import (
    Buffer,
    CallLibrary,
    Fill,
    If,
    Let,
    Loop,
    LoopKind,
    Ref,
    Stmt,
    Store,
)
from fnx.lowering.ir.number_formats import itemsize

LETTER = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
REAL = {"complex64": "float32", "complex128": "float64"}


def is_complex(dtype: str) -> bool:
    return dtype in REAL


def symbol(name: str, dtype: str, kind: str = "lapack") -> str:
    """A routine of LAPACK or BLAS for a dtype."""
    return f"{kind}:{LETTER[dtype]}{name}"


# --- numbers -----------------------------------------------------------------------------------


def const(value: complex, dtype: str) -> Expr:
    return scalar.const(value, dtype)


def nan(dtype: str) -> Expr:
    return scalar.const(float("nan"), dtype)


def not_zero(buffer: Buffer, index: Expr) -> Expr:
    """Whether an int32 in memory, a routine's info, is not 0."""
    return scalar.compare("ne", scalar.load(buffer, index, "int32"), scalar.const(0, "int32"))


# --- places ------------------------------------------------------------------------------------


def place(builder: Generation, out: Value) -> Materialized:
    """Memory for a result."""
    stored = out.destination or builder.new_stored(out)
    out.state = stored
    return stored


def finish(builder: Generation, out: Value) -> None:
    """A result was written to its place: if it is small, it is wanted in registers."""
    if builder.target.is_small(out.shape):
        builder.load_registers(out)


def work(builder: Generation, dtype: str, size: int) -> Materialized:
    return Materialized(builder.new_buffer(dtype, size))


def info(builder: Generation) -> Buffer:
    """Where a routine says whether it failed."""
    return builder.new_buffer("int32", 1)


def at(stored: Materialized, *offsets: Expr) -> Ref:
    """The address of an element, by the sum of offsets."""
    index = stored.base
    for e in offsets:
        index = scalar.add(index, e)
    return Ref(stored.buffer, index)


def nth(stored: Materialized, t: Expr, size: int) -> Ref:
    """The address of item `t` of `size` elements."""
    return at(stored, scalar.mul(t, scalar.size(size)))


def result(builder: Generation, out: Value, fn: Callable[..., Expr], name: str) -> None:
    """A result that is read out of work memory, by its readers themselves where that will do."""
    if builder.target.is_small(out.shape):
        builder.registers(out, fn)
    elif -1 not in out.consumers and out.destination is None:
        out.state = Inlined(fn, 0)
    else:
        builder.join(out, fn, name)


def filled(builder: Generation, shape: Shape, dtype: str, fn: Callable[..., Expr]) -> Materialized:
    """Memory of its own with the elements fn(*index)."""
    made = Value(shape, dtype)
    stored = work(builder, dtype, made.size)
    if builder.target.is_small(shape):
        elements = builder.evaluated(lambda: [fn(*ix) for ix in static_indices(shape)])
        made.state = Scalars(builder.kept(elements))
        builder.store_into(made, stored)
        return stored
    made.destination = stored
    builder.join(made, fn, "store")
    return builder.store(made)


def columns(builder: Generation, h: Value) -> Materialized:
    """A copy of a stack of matrices, each in column-major order."""
    *lead, rows, cols = h.shape
    return filled(builder, (*lead, cols, rows), h.dtype, lambda *ix: h(*ix[:-2], ix[-1], ix[-2]))


def transposed(stored: Materialized, shape: Shape) -> Callable[..., Expr]:
    """Elements of row-major matrices of which memory holds the column-major form.

    `shape` is that of the memory: [..., columns, rows].
    """
    return lambda *ix: stored.read(shape, (*ix[:-2], ix[-1], ix[-2]))


def same_bytes(builder: Generation, r: Any, outs: list[Value]) -> None:
    """The operand's bytes as a result of another dtype."""
    (x,), (out,) = r.operands, outs
    source, destination = builder.store(x), place(builder, out)
    if x.size:
        count = scalar.size(x.size * itemsize(x.dtype))
        args = [at(destination), at(source), count]
        builder.emit(CallLibrary("libm:memcpy", args, [destination.buffer]))
    finish(builder, out)


def in_place(builder: Generation, h: Value, out: Value, *others: Materialized) -> Materialized:
    """Memory that holds an operand and may be overwritten by a result of its shape and dtype.

    It is the operand's own if that dies here and is none of `others`, which are still read.
    """
    shared = isinstance(h.state, Materialized) and any(h.state.buffer is s.buffer for s in others)
    if not isinstance(h.state, (Scalars, Materialized)):
        if h.last_use <= builder.scope.position and h.destination is None:
            h.destination = out.destination or builder.new_stored(out)
        builder.store(h)
        shared = False
    if shared:
        destination = out.destination or builder.new_stored(out)
        builder.copy(destination, h.state, h.size)  # type: ignore[arg-type]
        return destination
    return updates.place_of_update(builder, h, out)


# --- statements --------------------------------------------------------------------------------


def each(builder: Generation, count: int, make: Callable[[Expr], list[Stmt]]) -> None:
    """Emit the statements for each item of a stack."""
    if count == 1:
        builder.block += make(scalar.size(0))
    elif count:
        t = scalar.var("int64", "t")
        builder.emit(Loop(t, scalar.size(count), make(t)))


def minus_one(stored: Materialized, index: Expr) -> Stmt:
    """Count an index from 0 that Fortran counts from 1."""
    value = scalar.load(stored.buffer, index, "int32")
    return Store(stored.buffer, index, scalar.sub(value, const(1, "int32")))


def swapped(buffer: Buffer, i: Expr, j: Expr) -> list[Stmt]:
    """Exchange two elements."""
    x, y = (scalar.load(buffer, k, buffer.dtype) for k in (i, j))
    a, b = scalar.var(x.dtype, "x"), scalar.var(x.dtype, "y")
    return [Let([a, b], [x, y]), Store(buffer, i, b), Store(buffer, j, a)]


def permute(pivots: Ref, order: Ref, rows: int, k: int) -> list[Stmt]:
    """The permutation that swaps of rows make, for pivots from 0."""
    kind = order.buffer.dtype

    def start(i: Expr) -> list[Stmt]:
        return [Store(order.buffer, scalar.add(order.index, i), scalar.cast(i, kind))]

    def swap(i: Expr) -> list[Stmt]:
        p = scalar.load(pivots.buffer, scalar.add(pivots.index, i), pivots.buffer.dtype)
        one = scalar.add(order.index, i)
        other = scalar.add(order.index, scalar.cast(p, "int64"))
        return swapped(order.buffer, one, other)

    return [loop(rows, start), loop(k, swap)]


def loop(extent: Expr | int, make: Callable[[Expr], list[Stmt]], vector: bool = False) -> Loop:
    """for i in range(extent): make(i)."""
    i = scalar.var("int64", "i")
    n = scalar.size(extent) if isinstance(extent, int) else extent
    return Loop(i, n, make(i), kind=LoopKind.of(vectorized=vector))


def each_item(
    builder: Generation,
    lead: Shape,
    make: Callable[[tuple[Expr, ...]], list[Stmt]],
    name: str,
    parallel: bool = False,
) -> None:
    """Loops over the items of a stack, as one kernel."""
    index = tuple(scalar.var("int64", "t") if n != 1 else scalar.size(0) for n in lead)
    body = builder.evaluated(lambda: make(index))
    for i, n in reversed(list(zip(index, lead, strict=True))):
        if n != 1:
            body = [Loop(i, scalar.size(n), body)]
    if parallel and isinstance(body[0], Loop):
        body[0].kind = body[0].kind.shared()
    builder.emit_nest([name], body, [], note=f"{list(lead)} {name}")


def named(exprs: Sequence[Expr], name: str) -> tuple[list[Expr], Stmt]:
    """Variables for values that must be computed before something is overwritten."""
    names = [scalar.var(e.dtype, name) for e in exprs]
    return names, Let(names, list(exprs))


def fill_if(cond: Expr, *fills: tuple[Ref, int]) -> If:
    """Make arrays nan where a routine failed."""
    body: list[Stmt] = [Fill(ref, scalar.size(n), nan(ref.buffer.dtype)) for ref, n in fills if n]
    return If(cond, body, [])


def i32(n: int) -> Expr:
    return scalar.cast(scalar.size(n), "int32")


ROUTINES = {"same_bytes": same_bytes}
