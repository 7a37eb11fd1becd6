"""Checks a program of the Kernel IR: types, scopes, buffers. For tests and debugging."""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, NoReturn

from fnx.core import scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr

from . import kernel, traversal
from .kernel import Buffer, LoopKind, Program, Ref, Stmt
from .number_formats import KIND, PART, itemsize

_COMPARISONS = frozenset("eq ne lt le gt ge".split())
_LEAVES = frozenset("const size literal var".split())
_KNOWN = scalar.UNARY | scalar.BINARY | scalar.TERNARY | _LEAVES
_KNOWN |= {"load", "select", "cast", "bitcast", "special", "call"}
_BITWISE = frozenset({"and", "or", "xor", "not"})
_INTEGER = frozenset(
    "shift_left shift_right_arithmetic shift_right_logical population_count clz".split()
)


class KernelError(AssertionError):
    """A program of the Kernel IR breaks a rule: a mistake in lowering, not in the user's code."""


@dataclass(frozen=True)
class Target:
    """What programs of a target may contain: statements, kinds of loops, spaces of buffers."""

    name: str
    statements: frozenset[type]
    kinds: frozenset[LoopKind]
    spaces: frozenset[str]


def check(program: Program, target: Target | None = None) -> None:
    """Raise KernelError, naming the statement, if a program breaks a rule of the Kernel IR.

    `target`: the CPU, unless told otherwise.
    """
    _Checker(program, target or CPU).run()


class _Checker:
    """A walk through a program: which variables are known, and where it is."""

    def __init__(self, program: Program, target: Target):
        self.program, self.target = program, target
        self.known: list[set[Expr]] = [set()]  # variables, by scope
        self.path: list[str] = []
        self.typed: set[Expr] = set()
        self.seen: dict[Expr, None] = {}  # expressions whose variables were known, by scope
        donated = set(program.aliases.values())
        self.kept = [b for k, b in enumerate(program.inputs) if k not in donated]
        self.arguments = {id(b): b for b in (*program.inputs, *program.outputs)}

    def fail(self, what: str) -> NoReturn:
        where = " > ".join(self.path) or "the list of arguments"
        raise KernelError(
            f"program {self.program.name!r}, in {where}: {what}. "
            "Print it with fnx.lowering.show.show(program) to see the statement."
        )

    def run(self) -> None:
        p = self.program
        places = [b.place for b in (*p.inputs, *p.outputs)]
        if places != list(range(len(places))):
            self.fail(f"arguments have the places {places}, expected 0, 1, 2, ... in order")
        for b in (*p.inputs, *p.outputs):
            if b.space != "argument":
                self.fail(f"argument {b!r} is in the space {b.space!r}")
        for stmt in traversal.statements(p.body):
            if type(stmt) not in _RULES:
                self.fail(f"{stmt!r} is not a statement")
            if type(stmt) not in self.target.statements:
                self.fail(f"{_title(stmt)} is no statement of programs for {self.target.name}")
            if isinstance(stmt, kernel.Loop) and stmt.kind not in self.target.kinds:
                kind = stmt.kind.value
                self.fail(f"{_title(stmt)} is of the kind {kind!r}, not for {self.target.name}")
        names: dict[str, Buffer] = {}
        for b in (*p.inputs, *p.outputs, *traversal.buffers(p.body)):
            if names.setdefault(b.name, b) is not b:
                self.fail(f"two buffers are named {b.name!r}")
            self.buffer(b)
        self.block(p.body)

    def buffer(self, b: Buffer) -> None:
        if b.dtype not in KIND:
            self.fail(f"buffer {b!r} has an unknown dtype {b.dtype!r}")
        if b.size < 0 or b.place < 0:
            self.fail(f"buffer {b!r} has size {b.size} and place {b.place}")
        if b.space not in self.target.spaces:
            self.fail(f"buffer {b!r} is in the space {b.space!r}, not for {self.target.name}")
        if b.space == "argument" and id(b) not in self.arguments:
            self.fail(f"buffer {b!r} is an argument, but neither an input nor an output")
        end = b.place + b.size * itemsize(b.dtype)
        if b.space == "global" and end > self.program.workspace:
            self.fail(
                f"buffer {b!r} ends at byte {end} of a workspace of {self.program.workspace} bytes"
            )
        if b.space == "global" and b.place % 64:
            self.fail(f"buffer {b!r} starts at byte {b.place}, which is no multiple of 64")

    # --- statements -----------------------------------------------------------------------------

    def block(
        self, body: Sequence[Stmt], variables: Iterable[Expr] = (), results: Iterable[Expr] = ()
    ) -> None:
        """A block in a scope of its own that knows `variables`; `results` are evaluated in it."""
        self.known.append(set())
        before, self.seen = self.seen, dict(self.seen)
        for v in variables:
            self.define(v)
        for stmt in body:
            self.statement(stmt)
        for e in results:
            self.expression(e)
        self.seen = before
        self.known.pop()

    def statement(self, s: Stmt) -> None:
        rule = _RULES[type(s)]
        self.path.append(_title(s))
        for b in traversal.writes(s):
            if any(b is x for x in self.kept):
                self.fail(f"input {b!r} is written")
        rule(self, s)
        for v in traversal.defined(s):
            if v in self.known[-1]:
                self.fail(f"variable {v!r} is defined a second time in the same block")
            self.known[-1].add(v)
        self.path.pop()

    def define(self, v: Expr) -> None:
        if v.op != "var":
            self.fail(f"{v!r} stands where a variable is defined")
        if any(v in scope for scope in self.known):
            self.fail(f"variable {v!r} is defined inside a scope that knows it already")
        self.known[-1].add(v)

    def equal(self, what: str, *lists: Sequence[Expr]) -> None:
        """Parallel lists have equal lengths and dtypes; the first is of variables."""
        if len({len(x) for x in lists}) > 1:
            self.fail(f"{what} have {' and '.join(str(len(x)) for x in lists)} entries")
        for k, row in enumerate(zip(*lists, strict=True)):
            if len({e.dtype for e in row}) > 1:
                self.fail(f"{what} number {k} have the dtypes {[e.dtype for e in row]}")
            if row[0].op != "var":
                self.fail(f"{what} number {k}: {row[0]!r} is not a variable")

    def index(self, e: Expr) -> None:
        self.expression(e)
        if e.dtype != "int64":
            self.fail(f"index {e!r} is of {e.dtype}, expected int64")

    def bool(self, e: Expr) -> None:
        self.expression(e)
        if e.dtype != "bool":
            self.fail(f"condition {e!r} is of {e.dtype}, expected bool")

    def ref(self, r: Ref) -> None:
        self.index(r.index)

    def store(self, s: kernel.Store) -> None:
        self.index(s.index)
        self.expression(s.value)
        if s.value.dtype != s.buffer.dtype:
            self.fail(f"a {s.value.dtype} is stored in {s.buffer!r} of {s.buffer.dtype}")

    def loop(self, s: kernel.Loop) -> None:
        self.index(s.extent)
        if s.index.dtype != "int64":
            self.fail(f"loop index {s.index!r} is of {s.index.dtype}, expected int64")
        self.equal("carries, initial values and yields", s.carries, s.init, s.yields)
        for e in s.init:
            self.expression(e)
        self.block(s.body, [s.index, *s.carries], s.yields)

    def while_(self, s: kernel.While) -> None:
        self.equal("carries, initial values and yields", s.carries, s.init, s.yields)
        for e in s.init:
            self.expression(e)
        # the body knows what `before` evaluates: one scope in another
        self.known.append(set())
        before, self.seen = self.seen, dict(self.seen)
        for v in s.carries:
            self.define(v)
        for stmt in s.before:
            self.statement(stmt)
        self.bool(s.cond)
        self.block(s.body, (), s.yields)
        self.seen = before
        self.known.pop()

    def if_(self, s: kernel.If) -> None:
        self.bool(s.cond)
        self.equal("results of both branches", s.results, s.on_true, s.on_false)
        self.block(s.then, (), s.on_true)
        self.block(s.orelse, (), s.on_false)

    def copy(self, s: kernel.Copy) -> None:
        self.ref(s.destination)
        self.ref(s.source)
        self.index(s.count)
        if s.destination.buffer.dtype != s.source.buffer.dtype:
            self.fail(f"a copy from {s.source.buffer.dtype} to {s.destination.buffer.dtype}")

    def barrier(self, s: kernel.Barrier) -> None:
        pass

    def transpose(self, s: kernel.Transpose) -> None:
        self.ref(s.destination)
        self.ref(s.source)
        for e in s.apart:
            self.index(e)
        if s.destination.buffer.dtype != s.source.buffer.dtype:
            self.fail(f"a block of {s.source.buffer.dtype} goes to {s.destination.buffer.dtype}")
        if min(s.rows, s.columns) < 2:
            self.fail(f"a block of {s.rows} times {s.columns} is no matrix")

    def fill(self, s: kernel.Fill) -> None:
        self.ref(s.destination)
        self.index(s.count)
        self.expression(s.value)
        if s.value.dtype != s.destination.buffer.dtype:
            self.fail(
                f"{s.destination.buffer!r} of {s.destination.buffer.dtype} gets a {s.value.dtype}"
            )

    def eval(self, s: kernel.Eval) -> None:
        for e in s.exprs:
            self.expression(e)

    def let(self, s: kernel.Let) -> None:
        for v, e in zip(s.variables, s.values, strict=True):
            self.expression(e)
            if v.dtype != e.dtype:
                self.fail(f"{v!r} of {v.dtype} is let be a {e.dtype}")

    def library(self, s: kernel.CallLibrary) -> None:
        for arg in s.args:
            if isinstance(arg, Ref):
                self.ref(arg)
            elif not isinstance(arg, kernel.Address):
                self.expression(arg)
        passed = [a.buffer for a in s.args if isinstance(a, Ref)]
        for b in s.writes:
            if not any(b is x for x in passed):
                self.fail(f"{s.symbol} writes {b!r}, which is not among its arguments")
        if s.result is not None and s.result.op != "var":
            self.fail(f"the result of {s.symbol} is {s.result!r}, not a variable")

    def host(self, s: kernel.CallHost) -> None:
        if not callable(s.callback):
            self.fail(f"the callback {s.callback!r} cannot be called")
        for r, shape, dtype in (*s.inputs, *s.outputs):
            self.ref(r)
            if dtype != r.buffer.dtype:
                self.fail(f"{r.buffer!r} of {r.buffer.dtype} is passed as {dtype}")
            count = prod(shape)
            if count > r.buffer.size:
                self.fail(f"shape {shape} has {count} elements, {r.buffer!r} has {r.buffer.size}")

    def nest(self, s: kernel.Nest) -> None:
        self.known.append(set())
        before, self.seen = self.seen, dict(self.seen)
        for stmt in s.body:
            self.statement(stmt)
        for e in s.results:
            if e not in self.known[-1]:
                self.fail(f"result {e!r} is no variable that an outermost statement of it defines")
        self.seen = before
        self.known.pop()

    # --- expressions ----------------------------------------------------------------------------

    def expression(self, root: Expr) -> None:
        """Types, and that variables are known here."""
        stack = [root]
        while stack:
            e = stack.pop()
            if e in self.seen:
                continue
            if e.op == "var" and not any(e in scope for scope in self.known):
                self.fail(f"variable {e!r} is used where it is not defined")
            if e not in self.typed:
                self.type(e)
                self.typed.add(e)
            self.seen[e] = None
            stack.extend(e.args)

    def type(self, e: Expr) -> None:
        """The rule of one node."""
        problem = _type_problem(e)
        if problem:
            self.fail(f"{_short(e)}: {problem}")


def _type_problem(e: Expr) -> str | None:
    op, args, dtypes = e.op, e.args, [a.dtype for a in e.args]
    if op not in _KNOWN:
        return f"there is no operation {op!r}"
    if e.dtype not in KIND:
        return f"there is no dtype {e.dtype!r}"
    if op == "call":
        wanted = list(e.attr.dtypes)
        return None if dtypes == wanted else f"operands of {dtypes}, expected {wanted}"
    count = _arity(op)
    if len(args) != count and not (op == "special" and args):
        return f"{len(args)} operands, expected {count}"
    if op == "size" and (e.dtype != "int64" or type(e.attr) is not int):
        return f"a size is an int64, not {e.attr!r} of {e.dtype}"
    if op == "load":
        if not isinstance(e.attr, Buffer):
            return f"a load from {e.attr!r}, which is not a buffer"
        if e.dtype != e.attr.dtype or dtypes[0] != "int64":
            return f"a load of {e.dtype} from a buffer of {e.attr.dtype}, index of {dtypes[0]}"
        return None
    if op in _LEAVES or op == "cast":
        return None
    if op == "select":
        if dtypes[0] != "bool" or dtypes[1] != dtypes[2] or dtypes[1] != e.dtype:
            return f"operands of {dtypes} give {e.dtype}"
        return None
    if op == "bitcast":
        if itemsize(dtypes[0]) != itemsize(e.dtype) or e.dtype in PART or dtypes[0] in PART:
            return f"from {dtypes[0]} to {e.dtype}, whose widths differ or which is complex"
        return None
    if len(set(dtypes)) > 1:
        return f"operands of {dtypes}; they should be equal"
    return _operation_problem(op, dtypes[0], e)


def _arity(op: str) -> int:
    """How many operands an operation has; special functions have one or more."""
    if op in _LEAVES:
        return 0
    if op in ("select", "fma"):
        return 3
    return 2 if op in scalar.BINARY else 1


def _operation_problem(op: str, dtype: str, e: Expr) -> str | None:
    kind = KIND[dtype]
    expected = dtype
    if op in _COMPARISONS or op == "is_finite":
        expected = "bool"
    elif op in ("real", "imag", "abs"):
        expected = PART.get(dtype, dtype)
    elif op == "complex":
        expected = scalar._TO_COMPLEX.get(dtype, "")
    if e.dtype != expected:
        return f"operands of {dtype} give {expected or 'nothing'}, not {e.dtype}"
    if op in _BITWISE and kind not in "iub" or op in _INTEGER and kind not in "iu":
        return f"no such operation on {dtype}"
    if op == "integer_pow" and type(e.attr) is not int:
        return f"the exponent {e.attr!r} is not an int"
    return None


def _title(s: Stmt) -> str:
    name = type(s).__name__
    match s:
        case kernel.Nest():
            return f"{name} {s.name}"
        case kernel.Loop():
            return f"{name} over {s.index!r}"
        case kernel.Store():
            return f"{name} to {s.buffer!r}"
        case kernel.CallLibrary():
            return f"{name} of {s.symbol}"
        case kernel.Copy() | kernel.Transpose() | kernel.Fill():
            return f"{name} to {s.destination.buffer!r}"
    return name


def _short(e: Expr) -> str:
    from .printer import expression

    return expression(e, depth=3)


_RULES: dict[type, Any] = {
    kernel.Eval: _Checker.eval,
    kernel.Let: _Checker.let,
    kernel.Store: _Checker.store,
    kernel.Loop: _Checker.loop,
    kernel.While: _Checker.while_,
    kernel.If: _Checker.if_,
    kernel.Copy: _Checker.copy,
    kernel.Barrier: _Checker.barrier,
    kernel.Transpose: _Checker.transpose,
    kernel.Fill: _Checker.fill,
    kernel.CallLibrary: _Checker.library,
    kernel.CallHost: _Checker.host,
    kernel.Nest: _Checker.nest,
}

_GRID = frozenset({LoopKind.GRID_BLOCK, LoopKind.THREAD})
CPU = Target(
    "the CPU",
    frozenset(_RULES) - {kernel.Barrier},
    frozenset(LoopKind) - _GRID,
    frozenset({"argument", "global", "private"}),
)
GPU = Target(
    "GPUs",
    frozenset(_RULES) - {kernel.Transpose},
    frozenset(LoopKind),
    frozenset({"argument", "global", "shared", "private"}),
)
