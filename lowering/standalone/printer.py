"""Kernel IR as Python that needs NumPy and Numba only: elementary functions are theirs, and what the
host computes is done by functions of NumPy's that are copied along (`host_functions.py`).
"""

import ast
import inspect
import keyword
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.errors import MissingRule
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Jaxpr
from fnx.core.scalar import Expr
from fnx.core.source import at_line
from fnx.lowering import pipeline
from fnx.lowering.ir import kernel, traversal
from fnx.lowering.ir.kernel import Buffer, Program, Stmt
from fnx.lowering.ir.number_formats import KIND
from fnx.lowering.numba import scalar as ns
from fnx.lowering.numba.expression_printer import Module, Printer, bare
from fnx.lowering.numba.program_printer import Code, uses
from fnx.lowering.numba.target import NumbaTarget
from fnx.lowering.standalone import host_functions
from fnx.lowering.standalone.notes import NotedBuilder

# What NumPy and the module math call the elementary functions, whose results have their operands' dtype.
_REAL = {
    "acos": "np.arccos", "acosh": "np.arccosh", "asin": "np.arcsin", "asinh": "np.arcsinh",
    "atan": "np.arctan", "atan2": "np.arctan2", "atanh": "np.arctanh", "cos": "np.cos",
    "cosh": "np.cosh", "exp": "np.exp", "exp2": "np.exp2", "expm1": "np.expm1", "log": "np.log",
    "log10": "np.log10", "log1p": "np.log1p", "log2": "np.log2", "sin": "np.sin", "sinh": "np.sinh",
    "tan": "np.tan", "tanh": "np.tanh",
}  # fmt: skip
_MATH = {"erf": "math.erf", "erfc": "math.erfc"}
_COMPLEX = {k: _REAL[k] for k in ("cos", "cosh", "exp", "log", "sin", "sinh")}
_FMA = '''
def fma(a, b, c):
    """a * b + c, nearly as if rounded once: the product in two parts (Dekker 1971)."""
    product = a * b
    if not (np.isfinite(product) and np.isfinite(c) and abs(a) < 1e150 and abs(b) < 1e150):
        return product + c
    x, y = a * 134217729.0, b * 134217729.0
    high_a, high_b = x - (x - a), y - (y - b)
    low_a, low_b = a - high_a, b - high_b
    rest = low_a * low_b - (((product - high_a * high_b) - low_a * high_b) - high_a * low_b)
    total = product + c
    part = total - product
    return total + (((product - (total - part)) + (c - part)) + rest)
'''.strip()
_RESERVED = frozenset(
    "np numba math jit range float int bool complex abs min max scipy fma found slice".split()
)


@dataclass(eq=False)
class Standalone:
    """The parts of a source: functions of the host's, helpers, the program's function, arrays in it."""

    hosts: list[str]
    helpers: list[str]
    body: str
    entry: str
    buffers: list[Buffer]  # its arguments: inputs, then outputs
    constants: dict[str, np.ndarray]
    needs_scipy: bool


def emit(jaxpr: Jaxpr, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Standalone:
    """The source of a jaxpr, whose inputs and outputs have these names."""
    builders: list[NotedBuilder] = []

    def make(*given: Any) -> NotedBuilder:
        builders.append(NotedBuilder(*given))
        return builders[-1]

    program, _ = pipeline.build(jaxpr, (), NumbaTarget(), make)
    for b, own in zip([*program.inputs, *program.outputs], [*inputs, *outputs], strict=True):
        b.name = own
    module = _Module()
    code = _Code(module, uses(program.body))
    code.notes = builders[-1]
    code.taken |= {name}
    return _printed(code, module, program, name)


def _printed(code: "_Code", module: "_Module", program: Program, entry: str) -> Standalone:
    buffers = [*program.inputs, *program.outputs]
    names = [code.buffer(b) for b in buffers]
    for b in traversal.buffers(program.body):
        if b.space != "argument":
            code.put(f"{code.buffer(b)} = np.empty({max(b.size, 1)}, {ns.STORED[b.dtype]})")
    code.statements(program.body)
    lines = ["@jit", f"def {entry}({', '.join(names)}):", *(code.lines or ["    pass"])]
    if "fma" in module.runtime:
        module.functions["fma"] = _FMA
    helpers = [f"@jit\n{text}\n" for text in module.functions.values()]
    return Standalone(
        _copied(module.hosts), helpers, "\n".join(lines) + "\n", entry, buffers, module.constants,
        module.needs_scipy or any("scipy" in text for text in _copied(module.hosts)),
    )  # fmt: skip


class _Module(Module):
    """What a source has beside its main function, functions of the host's among it."""

    def __init__(self) -> None:
        super().__init__()
        self.hosts: set[str] = set()
        self.constants: dict[str, np.ndarray] = {}
        self.needs_scipy = False


class _Plain(Printer):
    """Expressions with the elementary functions of NumPy."""

    module: _Module

    def beside(self, uses: Counter) -> Printer:
        return _Plain(self.module, uses)

    def evaluated(self, e: Expr) -> str:
        if e.op == "special":
            return self.special(e)
        if e.op in _MATH and e.args[0].dtype in ("float32", "float64"):
            text = f"{ns.NUMPY[e.dtype]}({_MATH[e.op]}({self.operands(e, bare=False)[0]}))"
            return self.assigned(text) if self.uses[e] > 1 else text
        return super().evaluated(e)

    def function(self, op: str, dtype: str) -> str:
        known = _COMPLEX if KIND[dtype] == "c" else _REAL if KIND[dtype] == "f" else {}
        return known.get(op) or super().function(op, dtype)

    def special(self, e: Expr) -> str:
        """A function of SciPy's, called by the interpreter."""
        import scipy.special

        self.module.needs_scipy = True
        name, part = e.attr
        args = ", ".join(self.operands(e, bare=False))
        found = self.fresh("v")
        self.put(f'with numba.objmode({found}="{e.dtype}"):')
        which = f"[{part}]" if getattr(getattr(scipy.special, name), "nout", 1) > 1 else ""
        self.put(f"    {found} = {ns.NUMPY[e.dtype]}(scipy.special.{name}({args}){which})")
        return found


class _Code(_Plain, Code):
    """The main function, with the user's names, and lines as comments."""

    notes: NotedBuilder

    def buffer(self, b: Buffer) -> str:
        if b not in self.names:
            self.names[b] = self.unused(b.name)
        return self.names[b]

    def unused(self, wanted: str) -> str:
        """A name that nothing else has."""
        name = re.sub(r"\W", "_", wanted) or "b"
        name = re.sub(r"^([bs])(?=\d+$)", r"work", name)
        if keyword.iskeyword(name) or name in _RESERVED or re.fullmatch(r"[a-z]\d+", name):
            name += "_"
        count, found = 1, name
        while found in self.taken or found in self.module.functions or found in self.module.hosts:
            count += 1
            found = f"{name}_{count}"
        self.taken.add(found)
        return found

    def statements(self, body: Sequence[Stmt]) -> None:
        for stmt in body:
            start = len(self.lines)
            for line in self.notes.comments.get(stmt, ()):
                self.put(f"# {line}")
            first = len(self.lines)
            getattr(self, self.methods[type(stmt)])(stmt)
            if len(self.lines) == first:
                del self.lines[start:]

    def eval(self, s: kernel.Eval) -> None:
        names = self.notes.names.get(s, [])
        self.pin(s.exprs)
        for k, e in enumerate(s.exprs):
            if e.args and not self.memo[e].isidentifier():
                if k < len(names) and len(s.exprs) == 1:
                    name = self.unused(names[k])
                    self.put(f"{name} = {bare(self.memo[e])}")
                    self.memo[e] = name
                else:
                    self.memo[e] = self.assigned(self.memo[e])

    def let(self, s: kernel.Let) -> None:
        found = self.notes.names.get(s, [])
        if len(found) != len(s.variables):
            super().let(s)
            return
        names = [self.unused(n) for n in found]
        self.set(names, s.values)
        self.bind_all(s.variables, names)

    def nest(self, s: kernel.Nest) -> None:
        self.before(s)
        with self.scope():
            self.statements(s.body)
            found = [self.value(v) for v in s.results]
        self.bind_all(s.results, found)

    def poll(self, s: kernel.Loop | kernel.While) -> None:
        """Nothing asks whether to stop."""

    def dealt_out(self, s: kernel.Loop, extent: str) -> str:
        """One thread runs all iterations."""
        return f"range({bare(extent)})"

    def tell(self, s: kernel.Loop | kernel.While, state: int, done: str, total: str) -> None:
        """Nobody looks how far it is."""

    def library(self, s: kernel.CallLibrary) -> None:
        if s.symbol != "libm:memcpy":
            raise MissingRule(f"export.python: there is no Python for the routine {s.symbol}")
        to, of, count = s.args
        n = bare(self.index(count))
        left, right = [
            f"{self.buffer(r.buffer)}[{bare(self.index(r.index))} :].view(np.uint8)[:{n}]"
            for r in (to, of)
        ]
        self.put(f"{left} = {right}")
        self.kill(to.buffer)

    def host(self, s: kernel.CallHost) -> None:
        prim = getattr(s.callback, "prim", None)
        if getattr(prim, "silent", False) and not s.outputs:
            self.put(f"# {s.name} is left out")
            return
        call = self._call(s, prim)
        self.put("with numba.objmode():")
        if len(s.outputs) == 1:
            self.put(f"    {self._view(s.outputs[0])}[...] = {call}")
        else:
            self.put(f"    found = {call}")
            for k, place in enumerate(s.outputs):
                self.put(f"    {self._view(place)}[...] = found[{k}]")
        for r, _, _ in s.outputs:
            self.kill(r.buffer)

    def _view(self, place: tuple) -> str:
        ref, shape, dtype = place
        if KIND[dtype] in "hs":
            raise MissingRule(
                f"export.python: {dtype} in a function of NumPy's; convert to float32"
            )
        count, at = int(np.prod(shape, dtype=np.int64)), self.index(ref.index)
        whole = at == "0" and ref.buffer.size == count
        part = "" if whole else f"[{bare(at)} : {bare(at)} + {count}]"
        return f"{self.buffer(ref.buffer)}{part}.reshape({', '.join(map(str, shape)) or '()'})"

    def _call(self, s: kernel.CallHost, prim: Any) -> str:
        """The call of a copied function that does what a primitive does."""
        name = getattr(prim, "name", s.name)
        if name == "constant":
            value = np.asarray(prim.value._value)
            found = self.unused("constant")
            self.module.constants[found] = value
            return found
        function = getattr(host_functions, name, None)
        if function is None:
            where = at_line(getattr(s.callback, "source", None))
            raise MissingRule(
                f"export.python: {name} cannot be taken along: it is no function of NumPy's or SciPy's "
                f"that fnx knows how to write. Expected a function without callbacks of Python's.{where}"
            )
        if name == "dot_general":
            contracted, batched = prim.dimension_numbers
            dtype = np.result_type(
                *[ns.NUMPY[d].removeprefix("np.") for *_, d in (*s.inputs, s.outputs[0])]
            )
            given = [repr(contracted), repr(batched), f"np.{dtype.name}"]
        else:
            known = list(inspect.signature(function).parameters)[len(s.inputs) :]
            given = [f"{k}={getattr(prim, k)!r}" for k in known]
        self.module.hosts.add(name)
        return f"{name}({', '.join([*map(self._view, s.inputs), *given])})"


def _copied(names: set[str]) -> list[str]:
    """The texts of functions of the host's, and of those that they call."""
    found: dict[str, str] = {}
    rest = sorted(names, reverse=True)
    while rest:
        name = rest.pop()
        if name not in found:
            found[name] = text = inspect.getsource(getattr(host_functions, name))
            called = {n.id for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name)}
            rest += sorted(n for n in called if hasattr(host_functions, n) and n != "np")
    return list(found.values())


__all__ = ["Standalone", "emit"]
