"""Facts that decide how kernels are printed: what is inlined, what is a function, where buffers live."""

import re
from collections.abc import Sequence
from typing import Any

from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm import vector_abi
from fnx.lowering.cpu.llvm.operation_functions import function_lines
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.processor.features import inlined_lines
from fnx.lowering.ir import kernel, traversal
from fnx.lowering.ir.expressions import buffers_read
from fnx.lowering.ir.kernel import Buffer, Program, Stmt


def inlined(program: Program) -> frozenset[tuple[str, str]]:
    """The functions that are better part of the loops that call them: short ones, and few.

    A call reads all constants anew and leaves no vector in a register: it takes 5 to 20 % longer, and
    more where there are few registers. Several calls on numbers become one on a vector (`packs`).
    Loops with branches do not become vectors.
    """
    calls = _functions(program.body)
    loops = [
        s
        for s in traversal.statements(program.body)
        if isinstance(s, kernel.Loop) and s.kind.vectorized
    ]
    most = inlined_lines() if _functions(loops) == calls else thresholds.CALLED_LINES
    if len(calls) > most // thresholds.INLINED_LINES or any(
        e.op in vector_abi.BRANCHING for e in calls
    ):
        return frozenset()
    lines = [function_lines(e.op, e.dtype) for e in calls]
    short = sum(lines) <= most and max(lines, default=0) <= thresholds.CALLED_LINES
    return frozenset([(e.op, e.dtype) for e in calls] if short else ())


def _functions(body: Sequence[Stmt]) -> set[Expr]:
    """The calls of functions with vector variants in a block."""
    return {e for e in traversal.nodes(body) if vector_abi.exists(e.op, e.dtype)}


_PURE = re.compile(r" @(fnx_v_|fnx\.|llvm\.(?!mem))")  # the calls of these touch no memory


def hands_on(lines: Sequence[str]) -> bool:
    """Whether a function does little but call others, so often that optimising it takes seconds.

    LLVM's time grows with the square of the calls in a block.
    """
    calls = sum([" call " in line and not _PURE.search(line) for line in lines])
    return calls > thresholds.MANY_CALLS and len(lines) < 8 * calls


def in_memory(kinds: Sequence[str]) -> bool:
    """Whether a function stores its results where it is told.

    LLVM would return the third and fourth float in x87 registers. That is slow, and its instruction
    selector for quickly compiled code reads them with an encoding that no CPU has where it takes
    one of the vector registers 16 to 31.
    """
    return sum([t in ("float", "double") for t in kinds]) > 2


def is_function(nest: kernel.Nest) -> bool:
    """A nest that calls what may fail stays where it is: only the entry can return early."""
    return not any(
        isinstance(s, kernel.CallHost) or (isinstance(s, kernel.CallLibrary) and s.checked)
        for s in traversal.statements(nest.body)
    )


def is_shared_out(loop: kernel.Loop) -> bool:
    return loop.kind.parallel and not loop.carries


def stack_homes(program: Program) -> dict[Buffer, Any]:
    """The innermost statement with a function of its own around all uses of a stack buffer."""
    paths: dict[Buffer, tuple] = {}

    def use(buffer: Buffer, path: tuple) -> None:
        if buffer.space != "private":
            return
        old = paths.get(buffer, path)
        n = 0
        while n < min(len(old), len(path)) and old[n] is path[n]:
            n += 1
        paths[buffer] = old[:n]

    def visit(body: Sequence[Stmt], path: tuple) -> None:
        for stmt in body:
            for b in buffers_read(traversal.expressions(stmt)):
                use(b, path)
            for b in traversal.writes(stmt):
                use(b, path)
            for ref in traversal.references(stmt):
                use(ref.buffer, path)
            inner = path
            if isinstance(stmt, kernel.Nest) and not path and is_function(stmt):
                inner = (stmt,)
            elif isinstance(stmt, kernel.Loop) and len(path) == 1 and is_shared_out(stmt):
                inner = (*path, stmt)
            for block in traversal.blocks(stmt):
                visit(block, inner)

    if any(b.space == "private" for b in traversal.buffers(program.body)):
        visit(program.body, ())
    return {b: path[-1] if path else None for b, path in paths.items()}
