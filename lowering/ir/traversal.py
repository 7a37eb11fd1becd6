"""What statements of the Kernel IR contain: blocks, expressions, buffers, work."""

from collections.abc import Callable, Iterable, Iterator

from fnx.core import policy
from fnx.core.scalar import Expr

from . import kernel
from .expressions import loads
from .expressions import nodes as expression_nodes
from .kernel import Buffer, Ref, Stmt


def blocks(stmt: Stmt) -> tuple[list[Stmt], ...]:
    """The blocks directly inside a statement, in the order in which they are printed."""
    match stmt:
        case kernel.Loop() | kernel.Nest():
            return (stmt.body,)
        case kernel.While():
            return (stmt.before, stmt.body)
        case kernel.If():
            return (stmt.then, stmt.orelse)
    return ()


def statements(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """All statements of a block and of the blocks inside it, outer ones first."""
    for stmt in body:
        yield stmt
        for block in blocks(stmt):
            yield from statements(block)


def expressions(stmt: Stmt) -> list[Expr]:
    """The expressions that a statement itself evaluates, without those of its blocks."""
    match stmt:
        case kernel.Eval():
            return list(stmt.exprs)
        case kernel.Let():
            return list(stmt.values)
        case kernel.Store():
            return [stmt.index, stmt.value]
        case kernel.Loop():
            return [stmt.extent, *stmt.init, *stmt.yields]
        case kernel.While():
            return [*stmt.init, stmt.cond, *stmt.yields]
        case kernel.If():
            return [stmt.cond, *stmt.on_true, *stmt.on_false]
        case kernel.Copy():
            return [stmt.destination.index, stmt.source.index, stmt.count]
        case kernel.Transpose():
            return [stmt.destination.index, stmt.source.index, *stmt.apart]
        case kernel.Fill():
            return [stmt.destination.index, stmt.count, stmt.value]
        case kernel.CallLibrary():
            given = [a for a in stmt.args if not isinstance(a, kernel.Address)]
            return [a.index if isinstance(a, Ref) else a for a in given]
        case kernel.CallHost():
            return [ref.index for ref, _, _ in (*stmt.inputs, *stmt.outputs)]
        case kernel.Nest():
            return list(stmt.results)
        case kernel.Barrier():
            return []
    raise TypeError(f"not a statement of the Kernel IR: {stmt!r}")


def nodes(body: Iterable[Stmt]) -> Iterator[Expr]:
    """All nodes of the expressions of a block and of the blocks inside it, each once."""
    return expression_nodes(e for stmt in statements(body) for e in expressions(stmt))


def defined(stmt: Stmt) -> list[Expr]:
    """The variables that a statement leaves known to those that follow it."""
    match stmt:
        case kernel.Loop() | kernel.While():
            return list(stmt.carries)
        case kernel.If() | kernel.Nest():
            return list(stmt.results)
        case kernel.Let():
            return list(stmt.variables)
        case kernel.CallLibrary() if stmt.result is not None:
            return [stmt.result]
    return []


def references(stmt: Stmt) -> list[Ref]:
    """The addresses that a statement itself takes."""
    match stmt:
        case kernel.Copy() | kernel.Transpose():
            return [stmt.destination, stmt.source]
        case kernel.Fill():
            return [stmt.destination]
        case kernel.CallLibrary():
            return [a for a in stmt.args if isinstance(a, Ref)]
        case kernel.CallHost():
            return [ref for ref, _, _ in (*stmt.inputs, *stmt.outputs)]
    return []


def writes(stmt: Stmt) -> list[Buffer]:
    """The buffers that a statement itself writes."""
    match stmt:
        case kernel.Store():
            return [stmt.buffer]
        case kernel.Copy() | kernel.Transpose() | kernel.Fill():
            return [stmt.destination.buffer]
        case kernel.CallLibrary():
            return list(stmt.writes)
        case kernel.CallHost():
            return [ref.buffer for ref, _, _ in stmt.outputs]
    return []


def all_writes(stmt: Stmt) -> dict[Buffer, None]:
    """The buffers that a statement or those inside it write, in order."""
    return {b: None for s in statements([stmt]) for b in writes(s)}


def buffers(body: Iterable[Stmt]) -> dict[Buffer, None]:
    """All buffers that a block touches, in the order of their first use."""
    found: dict[Buffer, None] = {}
    for stmt in statements(body):
        loads(expressions(stmt), found)
        found.update(dict.fromkeys(ref.buffer for ref in references(stmt)))
        found.update(dict.fromkeys(writes(stmt)))
    return found


REWRITTEN = (kernel.Store, kernel.Let, kernel.Eval, kernel.Loop)


def rewritten(s: Stmt, new: Callable[[Expr], Expr]) -> Stmt:
    """A statement with its expressions replaced."""
    match s:
        case kernel.Store():
            return kernel.Store(s.buffer, new(s.index), new(s.value))
        case kernel.Let():
            return kernel.Let(s.variables, [new(e) for e in s.values])
        case kernel.Eval():
            return kernel.Eval([new(e) for e in s.exprs])
        case kernel.Loop():
            return kernel.Loop(
                s.index, new(s.extent), [rewritten(x, new) for x in s.body], s.carries,
                [new(e) for e in s.init], [new(e) for e in s.yields],
                s.kind, s.reassociate, s.reverse, s.rolled, s.polled, s.shown, s.runs,
            )  # fmt: skip
    raise TypeError(f"not to be rewritten: {s!r}")


# --- how much work -----------------------------------------------------------------------------

_CHEAP = frozenset("const size literal var real imag complex cast bitcast".split())
_COSTS = {"div": 4, "rem": 8, "sqrt": 4, "load": 1, "select": 1, "special": 200}
_SIMPLE = frozenset(
    "add sub mul neg abs and or xor not max min fma eq ne lt le gt ge floor ceil trunc round_even "
    "shift_left shift_right_arithmetic shift_right_logical is_finite square sign".split()
)


def work(body: Iterable[Stmt]) -> int:
    """An estimate of the operations that one run of a block takes."""
    seen: set[Expr] = set()
    return max(1, sum(_work(stmt, seen) for stmt in body))


def _work(stmt: Stmt, seen: set[Expr]) -> int:
    match stmt:
        case kernel.Loop():
            once = _expression_work([stmt.extent, *stmt.init], seen)
            return once + extent(stmt.extent) * _round(stmt.body, stmt.yields)
        case kernel.While():
            once = _expression_work(stmt.init, seen)
            again = _round([*stmt.before, *stmt.body], [stmt.cond, *stmt.yields])
            return once + policy.UNKNOWN_EXTENT * again
    own = _expression_work(expressions(stmt), seen)
    match stmt:
        case kernel.Copy() | kernel.Fill():
            return own + extent(stmt.count)
        case kernel.Transpose():
            return own + stmt.rows * stmt.columns
        case kernel.CallLibrary() | kernel.CallHost():
            return own + policy.CALL_WORK
    return 1 + own + sum(work(block) for block in blocks(stmt))


def has_known_extent(loop: kernel.Loop) -> bool:
    """Whether the number of iterations is known when the program is compiled."""
    return loop.extent.op in ("size", "const")


def _round(body: Iterable[Stmt], results: Iterable[Expr]) -> int:
    seen: set[Expr] = set()
    return sum(_work(stmt, seen) for stmt in body) + _expression_work(results, seen) + 1


def simple_work(e: Expr) -> int | None:
    """The loads and operations of an expression, without those of indices; None if one is costly."""
    total, seen, stack = 0, set(), [e]
    while stack:
        e = stack.pop()
        if e in seen or e.op in _CHEAP and not e.args:
            continue
        seen.add(e)
        if e.op == "load":
            total += 1
            continue
        by_number = e.op == "div" and e.args[1].op == "literal"  # two multiplications
        if e.op not in _SIMPLE and e.op not in _CHEAP and e.op != "select" and not by_number:
            return None
        total += 2 if by_number else e.op not in _CHEAP
        stack += e.args
    return total


def extent(e: Expr) -> int:
    """A loop's trip count, if it is known; a guess, if not."""
    return max(e.attr, 0) if e.op in ("size", "const") else policy.UNKNOWN_EXTENT


def _expression_work(roots: Iterable[Expr], seen: set[Expr]) -> int:
    total, stack = 0, list(roots)
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e.op not in _CHEAP:
            total += (
                1 if e.op in _SIMPLE else e.attr.work if e.op == "call" else _COSTS.get(e.op, 20)
            )
        stack.extend(e.args)
    return total
