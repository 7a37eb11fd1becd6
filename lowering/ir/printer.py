"""The Kernel IR as text that people read: `show(program)`."""

from collections.abc import Iterable, Sequence
from typing import Any

from fnx.core.scalar import Expr

from . import kernel, traversal
from .kernel import Buffer, Program, Ref, Stmt

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "rem": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shift_left": "<<",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
_LONG = 60  # characters of an expression after which a part that is used twice gets a name


def show(program: Program) -> str:
    """The whole program: arguments, work memory, statements; variables numbered as they come."""
    return _Text(program).text()


def expression(e: Expr, depth: int = 6) -> str:
    """One expression; parts deeper than `depth` are dots."""
    return _Names({}).text(e, depth)


class _Names:
    """Expressions as text; `known` names variables and shared parts."""

    def __init__(self, known: dict[Expr, str]):
        self.known = known

    def text(self, e: Expr, depth: int = 1 << 30) -> str:
        if e in self.known:
            return self.known[e]
        if e.op == "var":
            return str(e.attr)
        if e.op in ("const", "size", "literal"):
            return _number(e)
        if depth == 0:
            return "..."
        args = [self.text(a, depth - 1) for a in e.args]
        if e.op == "load":
            return f"{e.attr}[{args[0]}]"
        if e.op in _INFIX and len(args) == 2:
            return f"({args[0]} {_INFIX[e.op]} {args[1]})"
        if e.op in ("cast", "bitcast"):
            return f"{e.dtype if e.op == 'cast' else 'bits_as_' + e.dtype}({args[0]})"
        if e.op == "special":
            return f"{e.attr[0]}({', '.join(args)})" + (f"[{e.attr[1]}]" if e.attr[1] else "")
        if e.op == "integer_pow":
            return f"{args[0]}**{e.attr}"
        return f"{e.attr if e.op == 'call' else e.op}({', '.join(args)})"


def _number(e: Expr) -> str:
    if isinstance(e.attr, tuple):
        return repr(complex(*e.attr))
    if e.dtype in ("int64", "float64", "bool"):
        return float.__repr__(e.attr) if isinstance(e.attr, float) else repr(e.attr)
    value = float.__repr__(e.attr) if isinstance(e.attr, float) else e.attr
    return f"{e.dtype}({value})"


class _Text:
    """The lines of a program, and the names of its values."""

    def __init__(self, program: Program):
        self.program = program
        self.names = _Names({})
        self.lines: list[str] = []
        self.variables = 0
        self.shared = 0

    def text(self) -> str:
        p = self.program
        self.put(0, f"program {p.name}")
        for word, group in (("input", p.inputs), ("output", p.outputs)):
            for b in group:
                self.put(1, f"{word} {_buffer(b)}")
        for b in traversal.buffers(p.body):
            if b.space != "argument":
                self.put(1, f"{b.space} {_buffer(b)}")
        self.block(0, p.body)
        for note in p.notes:
            self.put(0, f"# {note}")
        return "\n".join(self.lines) + "\n"

    def put(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def name(self, v: Expr) -> str:
        found = self.names.known.get(v)
        if found is None:
            stem = str(v.attr).rstrip("0123456789") or "v"
            found = self.names.known[v] = f"{stem}{self.variables}"
            self.variables += 1
        return found

    def e(self, depth: int, *roots: Expr) -> list[str]:
        """Texts of expressions; long parts that occur twice get lines of their own before."""
        local = self._share(depth, roots)
        texts = [self.names.text(r) for r in roots]
        for e in local:
            del self.names.known[e]
        return texts

    def _share(self, depth: int, roots: Sequence[Expr]) -> list[Expr]:
        uses: dict[Expr, int] = {}
        order: list[Expr] = []
        for root in roots:
            _count(root, uses, order, self.names.known)
        local, width = [], {}
        for e in order:
            width[e] = 4 + sum(width.get(a, 8) for a in e.args)
            often = uses[e] > 1 and width[e] > 20 or width[e] > 4 * _LONG
            if often and e.args and e not in roots:
                text = self.names.text(e)
                self.names.known[e] = f"t{self.shared}"
                self.put(depth, f"t{self.shared} = {text}")
                self.shared += 1
                local.append(e)
                width[e] = 4
        return local

    def block(self, depth: int, body: Iterable[Stmt]) -> None:
        for stmt in body:
            _SHOW[type(stmt)](self, depth, stmt)

    def ref(self, depth: int, r: Ref) -> str:
        return f"&{r.buffer}[{self.e(depth, r.index)[0]}]"

    def ends(self, depth: int, word: str, yields: Sequence[Expr]) -> None:
        if yields:
            texts = self.e(depth, *yields)
            self.put(depth, f"{word} {', '.join(texts)}")

    # --- statements -----------------------------------------------------------------------------

    def eval(self, depth: int, s: kernel.Eval) -> None:
        texts = self.e(depth, *s.exprs)
        for e, text in zip(s.exprs, texts, strict=True):
            self.put(depth, f"e{self.shared} = {text}")
            self.names.known[e] = f"e{self.shared}"
            self.shared += 1

    def let(self, depth: int, s: kernel.Let) -> None:
        texts = self.e(depth, *s.values)
        for v, text in zip(s.variables, texts, strict=True):
            self.put(depth, f"{self.name(v)} = {text}")

    def store(self, depth: int, s: kernel.Store) -> None:
        index, value = self.e(depth, s.index, s.value)
        self.put(depth, f"{s.buffer}[{index}] = {value}")

    def carries(self, depth: int, s: Any) -> str:
        init = self.e(depth, *s.init)
        pairs = [f"{self.name(v)} = {x}" for v, x in zip(s.carries, init, strict=True)]
        return f" with {', '.join(pairs)}" if pairs else ""

    def loop(self, depth: int, s: kernel.Loop) -> None:
        words = s.kind.words() + [w for w in _WORDS if getattr(s, w)]
        extent = self.e(depth, s.extent)[0]
        carries = self.carries(depth, s)
        marks = f"  # {', '.join(words)}" if words else ""
        self.put(depth, f"for {self.name(s.index)} < {extent}{carries}:{marks}")
        self.block(depth + 1, s.body)
        self.ends(depth + 1, "yield", s.yields)

    def while_(self, depth: int, s: kernel.While) -> None:
        self.put(depth, f"loop{self.carries(depth, s)}:")
        self.block(depth + 1, s.before)
        self.put(depth + 1, f"while {self.e(depth + 1, s.cond)[0]}")
        self.block(depth + 1, s.body)
        self.ends(depth + 1, "yield", s.yields)

    def if_(self, depth: int, s: kernel.If) -> None:
        results = [self.name(v) for v in s.results]
        prefix = f"{', '.join(results)} = " if results else ""
        self.put(depth, f"{prefix}if {self.e(depth, s.cond)[0]}:")
        self.block(depth + 1, s.then)
        self.ends(depth + 1, "yield", s.on_true)
        self.put(depth, "else:")
        self.block(depth + 1, s.orelse)
        self.ends(depth + 1, "yield", s.on_false)

    def copy(self, depth: int, s: kernel.Copy) -> None:
        count = self.e(depth, s.count)[0]
        self.put(
            depth,
            f"copy {count} to {self.ref(depth, s.destination)} from {self.ref(depth, s.source)}",
        )

    def barrier(self, depth: int, s: kernel.Barrier) -> None:
        self.put(depth, "barrier")

    def transpose(self, depth: int, s: kernel.Transpose) -> None:
        to, of = self.e(depth, *s.apart)
        where = f"{self.ref(depth, s.destination)} by {to} from {self.ref(depth, s.source)} by {of}"
        self.put(depth, f"transpose {s.rows} x {s.columns} to {where}")

    def fill(self, depth: int, s: kernel.Fill) -> None:
        count, value = self.e(depth, s.count, s.value)
        self.put(depth, f"fill {count} at {self.ref(depth, s.destination)} with {value}")

    def library(self, depth: int, s: kernel.CallLibrary) -> None:
        args = [self.argument(depth, a) for a in s.args]
        result = f"{self.name(s.result)} = " if s.result is not None else ""
        self.put(depth, f"{result}library {s.symbol}({', '.join(args)})  # writes {s.writes}")

    def argument(self, depth: int, a: Any) -> str:
        if isinstance(a, kernel.Address):
            return a.symbol
        return self.ref(depth, a) if isinstance(a, Ref) else self.e(depth, a)[0]

    def host(self, depth: int, s: kernel.CallHost) -> None:
        sides = [
            ", ".join(f"{self.ref(depth, r)}: {dtype}{list(shape)}" for r, shape, dtype in side)
            for side in (s.inputs, s.outputs)
        ]
        self.put(depth, f"host {s.name}({sides[0]}) -> {sides[1]}")

    def nest(self, depth: int, s: kernel.Nest) -> None:
        note = f"  # {s.note}" if s.note else ""
        self.put(depth, f"kernel {s.name}:{note}")
        self.block(depth + 1, s.body)
        if s.results:
            self.put(depth + 1, f"return {', '.join(self.name(v) for v in s.results)}")


_WORDS = ("reassociate", "reverse", "polled", "shown", "rolled", "runs")
_SHOW: dict[type, Any] = {
    kernel.Eval: _Text.eval,
    kernel.Let: _Text.let,
    kernel.Store: _Text.store,
    kernel.Loop: _Text.loop,
    kernel.While: _Text.while_,
    kernel.If: _Text.if_,
    kernel.Copy: _Text.copy,
    kernel.Barrier: _Text.barrier,
    kernel.Transpose: _Text.transpose,
    kernel.Fill: _Text.fill,
    kernel.CallLibrary: _Text.library,
    kernel.CallHost: _Text.host,
    kernel.Nest: _Text.nest,
}


def _count(root: Expr, uses: dict[Expr, int], order: list[Expr], known: dict[Expr, str]) -> None:
    """Uses of each part of an expression, and the parts, operands first."""
    stack = [(root, False)]
    while stack:
        e, ready = stack.pop()
        if ready:
            order.append(e)
            continue
        uses[e] = uses.get(e, 0) + 1
        if uses[e] > 1 or e in known:
            continue
        stack.append((e, True))
        stack.extend((a, False) for a in reversed(e.args))


def _buffer(b: Buffer) -> str:
    return f"{b.name}: {b.dtype}[{b.size}]" + (f" at {b.place}" if b.space == "global" else "")
