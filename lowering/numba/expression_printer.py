"""Expressions as readable Python: what is used more than once has a name."""

from collections import Counter
from typing import Any

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir.available_expressions import Known
from fnx.lowering.ir.kernel import Buffer
from fnx.lowering.math import expand

from . import scalar as ns

WIDE = 76  # characters after which an expression gets a name
FORMULAS = {
    "half_bits": ("float32", expand.half_bits),
    "half_value": ("uint16", expand.half_value),
    "bfloat_bits": ("float32", expand.bfloat_bits),
    "bfloat_value": ("uint16", expand.bfloat_value),
}


class Module:
    """What a source has beside its main function."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.runtime: set[str] = set()
        self.callbacks: list[Any] = []

    def call(self, what: Any) -> str:
        """The text of what calls something: a `kernel.CallHost`, or a function of SciPy's by its name."""
        if what not in self.callbacks:
            self.callbacks.append(what)
        return f"calls[{self.callbacks.index(what) + 2}]"  # after the poll and its counter


class Printer(Known):
    """Expressions as text; values that are used more than once become variables."""

    forms: Any = ns  # how operations are printed

    def __init__(self, module: Module, uses: Counter):
        super().__init__()
        self.module, self.uses = module, uses
        self.lines: list[str] = []
        self.depth = 1
        self.count = 0
        self.indices: set[Expr] = set()

    def put(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count - 1}"

    # --- expressions ----------------------------------------------------------------------------

    def evaluated(self, e: Expr) -> str:
        if e.op in ("const", "size", "literal"):
            return ns.number(e, bare=False)
        text = self.forms.form(e.op, e.args[0].dtype, e.dtype)(self, e)
        if self.uses[e] > 1 or len(text) > WIDE:
            return self.assigned(text)
        return text

    def assigned(self, text: str) -> str:
        """A variable that holds the value, unless it is one already."""
        if text.isidentifier():
            return text
        name = self.fresh("t")
        self.put(f"{name} = {bare(text)}")
        return name

    def inline(self, e: Expr) -> str:
        """The text of an expression that stands for another one."""
        self.uses.update(all_operands(e))
        return self.value(e)

    def operands(self, e: Expr, bare: bool = True) -> list[str]:
        """The operands' texts; numbers without dtype if another operand fixes it."""
        constant = [a.op in ("const", "size", "literal") for a in e.args]
        if e.op == "load":
            constant.append(False)
        bare = bare and not all(constant)
        return [
            ns.number(a, bare=True) if c and bare else self.memo[a]
            for a, c in zip(e.args, constant, strict=False)
        ]

    def is_index(self, e: Expr) -> bool:
        """Surely not negative: made of loop indices and sizes."""
        if e.op in ("size", "const"):
            return e.attr >= 0
        if e.op == "var":
            return e in self.indices
        return e.op in ("add", "mul", "div", "rem") and all(map(self.is_index, e.args))

    def index(self, e: Expr) -> str:
        return ns.number(e, bare=True) if e.op in ("const", "size") else self.value(e)

    def buffer(self, b: Buffer) -> str:
        raise NotImplementedError

    # --- functions ------------------------------------------------------------------------------

    def has_function(self, name: str) -> bool:
        return name in self.module.functions

    def add_function(self, name: str, text: str) -> None:
        self.module.functions[name] = text

    def formula(self, name: str) -> str:
        """The function of a conversion of 16-bit formats."""
        dtype, build = FORMULAS[name]
        return self._define(name, [scalar.var(dtype)], build)

    def function(self, op: str, dtype: str) -> str:
        """The function of an operation that has one of its own."""
        variables = [scalar.var(dtype) for _ in range(2 if op in scalar.BINARY else 1)]
        return self._define(f"{op}_{dtype}", variables, lambda *v: expand.body(op, dtype, list(v)))

    def beside(self, uses: Counter) -> "Printer":
        """What prints a function beside the main one."""
        return Printer(self.module, uses)

    def _define(self, name: str, variables: list[Expr], build: Any) -> str:
        if not self.has_function(name):
            root = build(*variables)
            code = self.beside(Counter(all_operands(root)))
            arguments = ["x", "y"][: len(variables)]
            for v, argument in zip(variables, arguments, strict=True):
                code.memo[v] = argument
            result = code.value(root)
            lines = [f"def {name}({', '.join(arguments)}):", *code.lines]
            self.add_function(name, "\n".join([*lines, f"    return {bare(result)}"]))
        return name


def bare(text: str) -> str:
    """Without parentheses around the whole."""
    if not (text[0] == "(" and text[-1] == ")"):
        return text
    level = 0
    for k, c in enumerate(text):
        level += (c == "(") - (c == ")")
        if not level and k < len(text) - 1:
            return text
    return text[1:-1]


def _parts(root: Expr) -> list[Expr]:
    seen: dict[Expr, None] = {}
    stack = [root]
    while stack:
        e = stack.pop()
        for a in e.args:
            if a not in seen:
                seen[a] = None
                stack.append(a)
    return list(seen)


def all_operands(root: Expr) -> list[Expr]:
    return [a for e in (root, *_parts(root)) for a in e.args]


def stem_of(v: Expr) -> str:
    """The beginning of a name for a variable: its own, where that is no other thing's."""
    stem = "".join(c for c in str(v.attr).rstrip("0123456789") if c.isalnum())
    return stem if stem.isidentifier() and stem not in ("i", "t", "np", "math") else "v"
