"""Prints a program of the Kernel IR as readable Python for Numba, which plain Python runs as well.

`emit(program)` gives the source; `run(program, arrays)` executes it. It is the second printer beside
emit_llvm: what people read and export, and a check of the first.
"""

import builtins
import keyword
import linecache
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from fnx.core import policy
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.ir import kernel, traversal
from fnx.lowering.ir.kernel import Buffer, Program, Ref, Stmt
from fnx.lowering.ir.number_formats import KIND

from . import scalar as ns
from . import sharing
from .expression_printer import Module, Printer, bare, stem_of


@dataclass(eq=False)
class Printed:
    """Python source with one function `entry`, whose arguments are one-dimensional arrays.

    These are inputs, outputs, and what it works in (`buffers`), then `calls`, where it calls the host or
    is polled: the poll, a counter, and what calls each of `hosts`, which are statements or names of
    SciPy's. float16 and bfloat16 arrays are passed as uint16. A program that calls libraries runs as plain
    Python only (`compiles` is False).
    """

    source: str
    entry: str
    body: str
    functions: dict[str, str]
    imports: dict[str, set[str]]
    buffers: list[Buffer]
    hosts: list[Any]
    calls: bool
    compiles: bool

    def python(self) -> Any:
        """The function as plain Python, in which a debugger steps through the source."""
        space: dict[str, Any] = {}
        file = f"<fnx {self.entry} {hash(self.source) & 0xFFFFFFFF:x}>"
        linecache.cache[file] = (len(self.source), None, self.source.splitlines(True), file)
        source = self.source.replace(_JIT, "jit = lambda f: f\n")
        exec(compile(source, file, "exec"), space)
        return space[self.entry]

    def __call__(self, arrays: Sequence[np.ndarray]) -> None:
        """Run as plain Python on arguments: inputs and outputs, made flat."""
        work = [
            np.empty(max(b.size, 1), ns.STORED[b.dtype].removeprefix("np."))
            for b in self.buffers[len(arrays) :]
        ]
        given = [*map(flat, arrays), *work]
        if self.calls:
            from . import runtime

            given.append([None, None, *[runtime.calling(h) for h in self.hosts]])
        with np.errstate(all="ignore"):
            self.python()(*given)


_JIT = "jit = numba.njit(error_model='numpy')\n"


def emit(program: Program) -> Printed:
    """The source of a program."""
    module = Module()
    code = Code(module, uses(program.body))
    buffers = [*program.inputs, *program.outputs]
    work = [b for b in traversal.buffers(program.body) if b.space != "argument"]
    buffers += [b for b in work if b.space == "global"]
    names = [code.buffer(b) for b in buffers]
    for b in work:
        if b.space != "global":
            code.put(f"{code.buffer(b)} = np.empty({max(b.size, 1)}, {ns.STORED[b.dtype]})")
    code.statements(program.body)
    calls = bool(module.runtime & {"host", "shared", "special", "stop", "tell"})
    if calls:
        code.put("return 0")
    entry = _entry(program.name, module)
    lines = ["@jit", f"def {entry}({', '.join([*names, 'calls'][: len(names) + calls])}):"]
    lines += [f'    """{note}"""' for note in program.notes[:1]]
    body = "\n".join(lines + (code.lines or ["    pass"])) + "\n"
    helpers = module.functions.keys() & ns.HELPERS
    imported = {
        "operations": helpers | module.runtime & {"fma"},
        "runtime": module.runtime - {"fma"},
    }
    functions = {n: f"@jit\n{text}\n" for n, text in module.functions.items() if n not in helpers}
    head = ["import math\n", "import numba", "import numpy as np"]
    head += [
        f"from fnx.lowering.numba.{file} import {', '.join(sorted(names))}"
        for file, names in imported.items()
        if names
    ]
    top = "\n".join(head) + "\n\n" + _JIT
    source = top + "\n\n" + "\n\n".join([*functions.values(), body])
    compiles = "library" not in module.runtime
    return Printed(
        source, entry, body, functions, imported, buffers, module.callbacks, calls, compiles
    )


def _entry(name: str, module: Module) -> str:
    """The name of the function: the program's, where it means nothing else in Python or in the source."""
    entry = "".join(c if c.isalnum() else "_" for c in name) or "program"
    taken = {"np", "math", "numba", "jit", *dir(builtins), *module.functions, *module.runtime}
    if (
        not entry.isidentifier()
        or not entry[0].isalpha()
        or keyword.iskeyword(entry)
        or entry in taken
    ):
        entry = "program_" + entry
    return entry


def run(program: Program, arrays: Sequence[np.ndarray], jit: bool = True) -> list[np.ndarray]:
    """Execute a program by its printed Python; outputs are one-dimensional arrays."""
    from fnx.core import dtypes

    printed = emit(program)
    if jit and printed.compiles:
        from . import load

        specs = [
            [((b.size,), dtypes.canonical(b.dtype)) for b in side]
            for side in (program.inputs, program.outputs)
        ]
        return load.load(printed, program, *specs)(list(arrays))
    results = [np.zeros(b.size, dtypes.canonical(b.dtype)) for b in program.outputs]
    printed([*arrays, *results])
    return results


def flat(a: np.ndarray) -> np.ndarray:
    """An array as a program takes it: one axis, floats of 16 bits and small numbers as their bits."""
    from fnx.core import dtypes

    flat = np.ascontiguousarray(a).reshape(-1)
    return flat.view(f"u{flat.itemsize}") if KIND[dtypes.NAME[flat.dtype]] in "hs" else flat


def uses(body: Sequence[Stmt]) -> Counter:
    """How often each expression is an operand, anywhere in statements."""
    found: Counter = Counter()
    seen: set[Expr] = set()
    for stmt in traversal.statements(body):
        stack = traversal.expressions(stmt)
        found.update(stack)
        while stack:
            e = stack.pop()
            if e not in seen:
                seen.add(e)
                found.update(e.args)
                stack.extend(e.args)
    return found


class Code(Printer):
    """The main function: statements."""

    methods: ClassVar[dict[type, str]] = {
        kernel.Eval: "eval",
        kernel.Let: "let",
        kernel.Store: "store",
        kernel.Loop: "loop",
        kernel.While: "while_",
        kernel.If: "if_",
        kernel.Copy: "copy",
        kernel.Transpose: "transpose",
        kernel.Fill: "fill",
        kernel.CallLibrary: "library",
        kernel.CallHost: "host",
        kernel.Nest: "nest",
    }

    def __init__(self, module: Module, uses: Counter):
        super().__init__(module, uses)
        self.names: dict[Buffer, str] = {}
        self.taken: set[str] = set()
        self.shares = False  # whether a loop around is shared out

    def buffer(self, b: Buffer) -> str:
        name = self.names.get(b)
        if name is None:
            name = "".join(c if c.isalnum() else "_" for c in b.name) or "b"
            while name in self.taken or not name[0].isalpha():
                name = "b_" + name
            self.names[b] = name
            self.taken.add(name)
        return name

    def statements(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            getattr(self, self.methods[type(stmt)])(stmt)

    def before(self, stmt: Stmt) -> None:
        for b in traversal.all_writes(stmt):
            self.kill(b)

    def named(self, variables: Sequence[Expr]) -> list[str]:
        """Python variables for variables of the IR."""
        return [self.fresh(stem_of(v)) for v in variables]

    def bind_all(self, variables: Sequence[Expr], names: Sequence[str]) -> None:
        for v, name in zip(variables, names, strict=True):
            self.bind(v, name)

    def set(self, names: Sequence[str], exprs: Sequence[Expr]) -> None:
        """names = exprs, all at once."""
        texts = [self.value(e) for e in exprs]
        pairs = [(n, t) for n, t in zip(names, texts, strict=True) if n != t]
        if any(n in t for n, _ in pairs for _, t in pairs) and len(pairs) > 1:
            left, right = zip(*pairs, strict=True)
            self.put(f"{', '.join(left)} = {', '.join(map(bare, right))}")
            return
        for n, t in pairs:
            self.put(f"{n} = {bare(t)}")

    # --- statements -----------------------------------------------------------------------------

    def eval(self, s: kernel.Eval) -> None:
        self.pin(s.exprs)
        for e in s.exprs:
            if e.args:
                self.memo[e] = self.assigned(self.memo[e])

    def let(self, s: kernel.Let) -> None:
        names = self.named(s.variables)
        self.set(names, s.values)
        self.bind_all(s.variables, names)

    def kept(self, value: str, dtype: str) -> str:
        """A value as it lies in memory."""
        return self.forms.to_bits(self, value, dtype) if KIND[dtype] == "h" else value

    def store(self, s: kernel.Store) -> None:
        index, value = self.index(s.index), self.kept(self.value(s.value), s.buffer.dtype)
        self.put(f"{self.buffer(s.buffer)}[{bare(index)}] = {bare(value)}")
        self.kill(s.buffer)

    def loop(self, s: kernel.Loop) -> None:
        extent = self.index(s.extent)
        names = self.named(s.carries)
        self.set(names, s.init)
        self.before(s)
        index = self.fresh("i")
        indices = f"range({extent} - 1, -1, -1)" if s.reverse else f"range({bare(extent)})"
        around, self.shares = self.shares, self.shares or sharing.can_be_shared(s)
        if self.shares and not around:
            indices = self.dealt_out(s, extent)
        marks = s.kind.words() + ["reassociate"] * s.reassociate
        self.tell(s, 1, "0", extent)
        self.put(f"for {index} in {indices}:" + (f"  # {', '.join(marks)}" if marks else ""))
        self.depth += 1
        with self.scope():
            self.indices.add(s.index)
            self.bind(s.index, index)
            self.bind_all(s.carries, names)
            start = len(self.lines)
            self.poll(s)
            self.tell(s, 1, f"({extent} - 1 - {index})" if s.reverse else index, extent)
            self.statements(s.body)
            self.set(names, s.yields)
            if len(self.lines) == start:
                self.put("pass")
        self.depth -= 1
        self.shares = around
        self.tell(s, 2, extent, extent)
        self.bind_all(s.carries, names)

    def dealt_out(self, s: kernel.Loop, extent: str) -> str:
        """The iterations of a loop that threads share, no fewer at a time than are worth it."""
        self.module.runtime.add("shared")
        word = self.module.call(("symbol", "fnx_parallel_for"))
        least = max(1, thresholds.GRAIN_WORK // max(traversal.work(s.body), 1))
        return f"shared({word}, {bare(extent)}, {least})"

    def while_(self, s: kernel.While) -> None:
        names = self.named(s.carries)
        self.set(names, s.init)
        self.before(s)
        count = "" if s.shown is None else self.fresh("n")
        if count:
            self.put(f"{count} = 0")
        self.tell(s, 1, count, "-1")
        self.put("while True:")
        self.depth += 1
        with self.scope():
            self.bind_all(s.carries, names)
            self.statements(s.before)
            cond = self.value(s.cond)
            self.put(f"if not {cond}:")
            self.put("    break")
            with self.scope():
                self.poll(s)
                if count:
                    self.put(f"{count} += 1")
                self.tell(s, 1, count, "-1")
                self.statements(s.body)
                self.set(names, s.yields)
        self.depth -= 1
        self.tell(s, 2, count, count)
        self.bind_all(s.carries, names)

    def if_(self, s: kernel.If) -> None:
        cond = self.value(s.cond)
        names = self.named(s.results)
        self.before(s)
        for head, body, values in (
            (f"if {bare(cond)}:", s.then, s.on_true),
            ("else:", s.orelse, s.on_false),
        ):
            self.put(head)
            self.depth += 1
            with self.scope():
                start = len(self.lines)
                self.statements(body)
                self.set(names, values)
                if len(self.lines) == start:
                    self.put("pass")
            self.depth -= 1
        self.bind_all(s.results, names)

    def copy(self, s: kernel.Copy) -> None:
        count = self.index(s.count)
        target, source = self.index(s.destination.index), self.index(s.source.index)
        to, of = self.buffer(s.destination.buffer), self.buffer(s.source.buffer)
        k = self.fresh("k")
        self.put(f"for {k} in range({bare(count)}):")
        self.put(f"    {to}[{_from(target, k)}] = {of}[{_from(source, k)}]")
        self.kill(s.destination.buffer)

    def transpose(self, s: kernel.Transpose) -> None:
        target, source = self.index(s.destination.index), self.index(s.source.index)
        to, of = self.buffer(s.destination.buffer), self.buffer(s.source.buffer)
        down, across = map(self.index, s.apart)
        k, j = self.fresh("k"), self.fresh("k")
        self.put(f"for {k} in range({s.rows}):")
        self.put(f"    for {j} in range({s.columns}):")
        places = f"{target} + {k} * {down} + {j}", f"{source} + {j} * {across} + {k}"
        self.put(f"        {to}[{places[0]}] = {of}[{places[1]}]")
        self.kill(s.destination.buffer)

    def fill(self, s: kernel.Fill) -> None:
        count, value, first = (
            self.index(s.count),
            self.kept(self.value(s.value), s.destination.buffer.dtype),
            self.index(s.destination.index),
        )
        k = self.fresh("k")
        self.put(f"for {k} in range({bare(count)}):")
        self.put(f"    {self.buffer(s.destination.buffer)}[{_from(first, k)}] = {bare(value)}")
        self.kill(s.destination.buffer)

    def library(self, s: kernel.CallLibrary) -> None:
        if s.symbol == "libm:memcpy":
            self.module.runtime.add("copy_bytes")
            to, of, count = s.args
            places = [f"{self.buffer(r.buffer)}, {bare(self.index(r.index))}" for r in (to, of)]
            self.put(f"copy_bytes(({', '.join(places)}), {bare(self.index(count))})")
            self.kill(to.buffer)
            return
        self.module.runtime.add("library")
        texts = [
            f"({self.buffer(a.buffer)}, {bare(self.index(a.index))})"
            if isinstance(a, Ref)
            else repr(a.symbol)
            if isinstance(a, kernel.Address)
            else f"{ns.NUMPY[a.dtype]}({bare(self.value(a))})"
            for a in s.args
        ]
        result = repr(s.result.dtype) if s.result is not None else None
        call = ", ".join([repr(s.symbol), str(s.by_reference), str(result), *texts])
        if s.result is None:
            self.put(f"library({call})")
        else:
            (name,) = self.named([s.result])
            self.put(f"{name} = library({call})")
            self.bind(s.result, name)
        for b in s.writes:
            self.kill(b)

    def host(self, s: kernel.CallHost) -> None:
        self.module.runtime.add("host")
        word = self.module.call(s)
        places = ", ".join(
            [
                f"{self.buffer(r.buffer)}, {bare(self.index(r.index))}"
                for r, *_ in (*s.inputs, *s.outputs)
            ]
        )
        comment = f"  # {s.name}" if s.name else ""
        self.put(f"if host({word}, ({places})):{comment}")
        self.put("    return 2")
        for r, _, _ in s.outputs:
            self.kill(r.buffer)

    def poll(self, s: kernel.Loop | kernel.While) -> None:
        """Ask in a loop that may run for long whether to stop."""
        if s.polled:
            self.module.runtime.add("stop")
            # More than what is polled after is as good, and fits a word.
            work = min(max(traversal.work(s.body), 1), policy.POLLED_WORK + 1)
            self.put(f"if stop(calls, {work}):")
            self.put("    return 1")

    def tell(self, s: kernel.Loop | kernel.While, state: int, done: str, total: str) -> None:
        """Note how far a loop is that is shown: 1 in it, 2 after it."""
        if s.shown is not None:
            self.module.runtime.add("tell")
            word = self.module.call(("progress", s.shown.site))
            self.put(f"tell({word}, {done}, {total}, {state})")

    def nest(self, s: kernel.Nest) -> None:
        self.put(f"# {s.name}" + (f": {s.note}" if s.note else ""))
        self.before(s)
        with self.scope():
            self.statements(s.body)
            found = [self.value(v) for v in s.results]
        self.bind_all(s.results, found)


def _from(first: str, k: str) -> str:
    return k if first in ("0", "np.int64(0)") else f"{first} + {k}"
