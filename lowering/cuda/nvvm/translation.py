"""A kernel's source as a module of NVVM's LLVM IR.

It is what Numba-CUDA makes of the same source, without bytecode, inference and overloads: a kernel is one
flat function, in which the first assignment says what type a variable has. Numba takes ten times as long.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from .expressions import Expressions, dotted
from .types import BOOL, INT64, TYPES, Type, Unsupported, Value

_HEAD = """target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-\
f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
"""
_OWNER = ("i8*", "i8*", "i64", "i64")  # the words of an array before its address: Numba's
_SHAPE = ("i64", "i64")


def module(source: str, arguments: Sequence[tuple[str, bool]]) -> str:
    """The LLVM IR of a kernel whose arguments are pointers to these dtypes, or arrays."""
    (tree,) = ast.parse(source).body
    assert isinstance(tree, ast.FunctionDef)
    types: dict[str, Type] = {}
    times = Counter(_assigned(tree.body))
    while True:
        function = _Function(tree, arguments, types, times)
        try:
            return function.module()
        except _Wider as wider:  # a variable is assigned more than its first value says
            types[wider.name] = wider.type


def _assigned(body: Sequence[ast.stmt]) -> Iterator[str]:
    """The names that statements assign; what counts is assigned before its loop and within it."""
    for s in body:
        match s:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AugAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Tuple(elts=names)]):
                yield from (n.id for n in names if isinstance(n, ast.Name))
            case ast.For(target=ast.Name(id=name)):
                yield from (name, name)
        for block in (getattr(s, "body", ()), getattr(s, "orelse", ())):
            yield from _assigned(block)


class _Wider(Exception):
    def __init__(self, name: str, t: Type):
        super().__init__(name)
        self.name, self.type = name, t


class _Function(Expressions):
    """The function of a kernel."""

    def __init__(
        self,
        tree: ast.FunctionDef,
        arguments: Sequence[tuple[str, bool]],
        types: dict[str, Type],
        times: Counter[str],
    ):
        super().__init__()
        self.tree, self.types = tree, types
        self.parameters: list[str] = []
        for a, (dtype, is_array) in zip(tree.args.args, arguments, strict=True):
            self._parameter(a.arg, TYPES[dtype], is_array)
        self.times = times
        self.allocated: list[str] = []
        self.ends: list[str] = []  # where `break` goes
        self.labels = 0

    def _parameter(self, name: str, t: Type, is_array: bool) -> None:
        self.arrays[name] = (t, f"%{name}")
        words = [f"{t.llvm}* %{name}"]
        if is_array:
            owner = [f"{w} %{name}.{k}" for k, w in enumerate(_OWNER)]
            words = [*owner, *words, *(f"{w} %{name}.{k + 5}" for k, w in enumerate(_SHAPE))]
        self.parameters += words

    def module(self) -> str:
        if self.block(self.tree.body):
            self.put("ret void")
        name, kinds = self.tree.name, ", ".join(p.split(" %")[0] for p in self.parameters)
        pointer = f"void ({kinds})* @{name}"
        used = f"[i8* bitcast ({pointer} to i8*)]"
        return "\n".join(
            [
                _HEAD,
                *self.globals,
                f"define void @{name}({', '.join(self.parameters)}) {{",
                "entry:",
                *self.allocated,
                *self.lines,
                "}",
                *self.declared.values(),
                f'@llvm.used = appending global [1 x i8*] {used}, section "llvm.metadata"',
                "!nvvmir.version = !{!0}",
                "!nvvm.annotations = !{!1}",
                "!0 = !{i32 2, i32 0, i32 3, i32 2}",
                f'!1 = !{{{pointer}, !"kernel", i32 1}}',
                "",
            ]
        )

    # --- blocks ----------------------------------------------------------------------------------

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def block(self, body: Sequence[ast.stmt]) -> bool:
        """Statements; whether control may come to their end."""
        outer = dict(self.values)
        goes_on = True
        for s in body:
            if not goes_on:
                raise Unsupported("statements that are never reached")
            goes_on = self.statement(s)
        self.values = outer  # variables of a block do not dominate what follows it
        return goes_on

    def statement(self, s: ast.stmt) -> bool:
        match s:
            case ast.Assign(targets=[target]):
                self._assign(target, s.value)
            case ast.AugAssign(target=ast.Name(id=name)):
                self.set(name, self.binary(s.op, self.variable(name), self.value(s.value)))
            case ast.Expr(value=ast.Call() as call):
                self._call(call)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                pass
            case ast.If():
                return self._if(s)
            case ast.While(orelse=[]):
                self._loop(s.test, s.body, None)
            case ast.For(orelse=[], target=ast.Name(), iter=ast.Call(func=ast.Name(id="range"))):
                self._for(s)
            case ast.Break() if self.ends:
                self.put(f"br label %{self.ends[-1]}")
                return False
            case ast.Return(value=None):
                self.put("ret void")
                return False
            case _:
                raise Unsupported(ast.unparse(s))
        return True

    # --- assignments -----------------------------------------------------------------------------

    def _assign(self, target: ast.expr, e: ast.expr) -> None:
        match target, e:
            case ast.Name(id=name), ast.Call(func=ast.Attribute(attr="array")):
                self._array(name, e)
            case ast.Name(id=name), _:
                self.set(name, self.value(e))
            case ast.Subscript(), _:
                x = self.value(e)
                element, place = self.place(target)
                x = self.cast(self.cast(x, element), element.stored)
                self.put(f"store {x.type.llvm} {x.text}, {x.type.llvm}* {place}")
            case ast.Tuple(), ast.Tuple() if len(target.elts) == len(e.elts):
                values = [self.value(x) for x in e.elts]
                for t, x in zip(target.elts, values, strict=True):
                    if not isinstance(t, ast.Name):
                        raise Unsupported(ast.unparse(target))
                    self.set(t.id, x)
            case _:
                raise Unsupported(ast.unparse(target))

    def set(self, name: str, x: Value) -> None:
        """Let a variable have a value."""
        if self.times[name] == 1:
            self.values[name] = x
            return
        t = self.slots.get(name)
        if t is None:
            t = self.slots[name] = self.types.get(name, x.type)
            self.allocated.append(f"  %{name}.at = alloca {t.llvm}")
        if x.type != t:
            if not (x.type.kind == t.kind == "i"):
                raise Unsupported(f"{name} is {t} and {x.type}")
            if x.type.bits > t.bits:
                raise _Wider(name, x.type)
            x = self.cast(x, t)
        self.put(f"store {t.llvm} {x.text}, {t.llvm}* %{name}.at")

    def _array(self, name: str, e: ast.Call) -> None:
        """An array of the thread, or of its block."""
        match dotted(e.func), e.args:
            case "cuda.local.array" | "cuda.shared.array" as where, [
                ast.Constant(value=int() as count),
                ast.Attribute(attr=dtype),
            ] if dtype in TYPES and self.times[name] == 1:
                t = TYPES[dtype]
                kind = f"[{count} x {t.stored.llvm}]"
            case _:
                raise Unsupported(ast.unparse(e))
        if where == "cuda.local.array":
            self.allocated.append(f"  %{name}.all = alloca {kind}")
            source = f"getelementptr {kind}, {kind}* %{name}.all, i32 0, i32 0"
        else:
            self.globals.append(f"@{name} = addrspace(3) global {kind} undef")
            source = f"addrspacecast ({kind} addrspace(3)* @{name} to {kind}*)"
            source = f"bitcast {kind}* {source} to {t.stored.llvm}*"
        self.put(f"%{name} = {source}")
        self.arrays[name] = (t, f"%{name}")

    # --- control flow ----------------------------------------------------------------------------

    def _if(self, s: ast.If) -> bool:
        condition = self.cast(self.value(s.test), BOOL)
        then, other, end = self.label(), self.label(), self.label()
        self.put(f"br i1 {condition.text}, label %{then}, label %{other if s.orelse else end}")
        goes_on = not s.orelse
        for label, body in ((then, s.body), (other, s.orelse)):
            if body:
                self.begin(label)
                if self.block(body):
                    self.put(f"br label %{end}")
                    goes_on = True
        if goes_on:
            self.begin(end)
        return goes_on

    def _loop(self, test: ast.expr, body: Sequence[ast.stmt], onwards: ast.stmt | None) -> None:
        """A loop that asks at its end, and once before it."""
        start, end = self.label(), self.label()
        self._ask(test, start, end)
        self.begin(start)
        self.ends.append(end)
        if self.block(body):
            if onwards is not None:
                self.statement(onwards)
            self._ask(test, start, end)
        self.ends.pop()
        self.begin(end)

    def _ask(self, test: ast.expr, start: str, end: str) -> None:
        condition = self.cast(self.value(test), BOOL)
        if condition.text == "1":
            self.put(f"br label %{start}")
        else:
            self.put(f"br i1 {condition.text}, label %{start}, label %{end}")

    def _for(self, s: ast.For) -> None:
        """A range, counted; what is its end and its step is evaluated once, before it."""
        assert isinstance(s.iter, ast.Call)
        assert isinstance(s.target, ast.Name)
        first, end, step = self._range(s.iter.args)
        down = isinstance(step, ast.UnaryOp)
        names, known = [], []
        for k, e in enumerate((end, step)):
            name = f"{s.target.id}.{'end' if k == 0 else 'step'}.{self.labels}"
            self.values[name] = self.cast(self.value(e), INT64)
            known.append(self.values[name].bound)
            names.append(ast.Name(name, ast.Load()))
        start = self.cast(self.value(first), INT64)
        self.set(s.target.id, start)
        if start.bound and all(known) and self.times[s.target.id] == 2:  # nobody else assigns it
            self.bounds[s.target.id] = known[0] - 1
        index = ast.Name(s.target.id, ast.Load())
        test = ast.Compare(index, [ast.Gt() if down else ast.Lt()], [names[0]])
        self._loop(test, s.body, ast.AugAssign(index, ast.Add(), names[1]))
        self.bounds.pop(s.target.id, None)

    def _range(self, args: list[ast.expr]) -> tuple[ast.expr, ast.expr, ast.expr]:
        if len(args) == 1:
            return ast.Constant(0), args[0], ast.Constant(1)
        first, end, *step = args
        return first, end, step[0] if step else ast.Constant(1)


__all__ = ["Unsupported", "module"]
