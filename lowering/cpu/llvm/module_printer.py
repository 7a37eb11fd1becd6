"""Prints a program of the Kernel IR as an LLVM module.

The text depends on the structure of a program only: numbers that vary (`size`, `literal`, offsets in
the workspace, addresses of routines) are parameters, and names are numbered in the order in which
they are met.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm.kernel_facts import (
    hands_on,
    in_memory,
    inlined,
    is_function,
    is_shared_out,
    stack_homes,
)
from fnx.lowering.cpu.llvm.operation_functions import helper_text
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.processor.features import has_half
from fnx.lowering.ir import kernel, traversal
from fnx.lowering.ir.kernel import Buffer, Program, Ref, Stmt
from fnx.lowering.ir.number_formats import BYTES, KIND, PART, itemsize

from . import loop_tails, prefetching, progress, register_transpose, scheduling_attributes
from . import scalar as ls
from . import types as lt
from .control_flow import Flow
from .function import Function
from .module import Module, Param
from .types import Operand

ENTRY = "entry"
# Vectors for which there is no register lie on the stack. LLVM puts them wherever it happens to be, a
# multiple of 16, unless told to align it: across two cache lines they take twice as long.
_OWN = 'nounwind "stackrealign"'


@dataclass(eq=False)
class Emitted:
    """LLVM IR as text, what its parameters are, and which kernel became which function.

    A parameter is an int (the bits of a number), ("symbol", name), ("host", CallHost)
    or ("progress", LoopSite), the address of a record of how far that loop is.
    """

    text: str
    params: list[Param]
    entry: str = ENTRY
    kernels: list[tuple[str, str, str]] = field(default_factory=list)  # function, name, note


def emit(program: Program) -> Emitted:
    """The LLVM module of a program."""
    module = Module(
        helper_text, homes=stack_homes(program), has_half=has_half(), inlined=inlined(program)
    )
    body = Body(module, top=True)
    body.run(program.body, ())
    body.put("ret i32 0")
    for label, code in (("cancelled", 1), ("failed", 2)):
        if label in body.exits:
            body.start(label)
            body.put(f"ret i32 {code}")
    arguments = ", ".join(f"ptr noalias readonly {x}" for x in ("%args", "%params"))
    quickly = " optnone noinline" if hands_on(body.lines) else ""
    head = f"define i32 @{ENTRY}({arguments}, ptr %workspace, ptr %control) nounwind{quickly} {{"
    module.functions.append("\n".join([head, "entry:", *body.head, *body.lines, "}", ""]))
    return Emitted(module.text(), module.params, kernels=body.kernels)


# --- which statements become functions ---------------------------------------------------------


# --- statements --------------------------------------------------------------------------------


class Body(Flow):
    """A function whose code is statements: the entry, a nest, the body of a parallel loop."""

    def __init__(
        self, module: Module, parent: Function | None = None, home: Any = None, top: bool = False
    ):
        super().__init__(module, parent, home, top)
        self.shares = isinstance(home, kernel.Nest)  # may still hand a loop to threads
        self.kernels: list[tuple[str, str, str]] = []  # of the entry

    def statements(self, body: Sequence[Stmt]) -> None:
        """Print a block."""
        packs = self.packs
        for k, stmt in enumerate(body):
            if packs is not None:
                packs.at = k
            _PRINT[type(stmt)](self, stmt)
        if packs is not None:
            packs.at = len(body)

    # --- simple statements ----------------------------------------------------------------------

    def eval(self, s: kernel.Eval) -> None:
        self.pin(s.exprs)

    def let(self, s: kernel.Let) -> None:
        found = [self.value(e) for e in s.values]
        for v, operand in zip(s.variables, found, strict=True):
            self.bind(v, operand)

    def put_store(self, s: kernel.Store) -> None:
        index, value = self.value(s.index), self.value(s.value)
        if s.buffer in self.filled and s.value.op in ("const", "literal"):
            value = ls.parameter(self, s.value)
        self.store(s.buffer, index, value)
        self.kill(s.buffer)

    def ref(self, ref: Ref) -> str:
        return self.address(ref.buffer, self.value(ref.index))

    def copy(self, s: kernel.Copy) -> None:
        target, source, count = self.ref(s.destination), self.ref(s.source), self.value(s.count)
        size = itemsize(s.destination.buffer.dtype)
        total = self.op(f"mul i64 {count}, {size}") if size > 1 else count
        name = "@llvm.memcpy.p0.p0.i64"
        self.module.declare(name, f"declare void {name}(ptr, ptr, i64, i1)")
        align = f"align {min(size, 8)}"
        self.put(
            f"call void {name}(ptr {align} {target}, ptr {align} {source}, i64 {total}, i1 false)"
        )
        self.kill(s.destination.buffer)

    def transpose(self, s: kernel.Transpose) -> None:
        register_transpose.transpose(self, s)
        self.kill(s.destination.buffer)

    def fill_memory(self, s: kernel.Fill) -> None:
        buffer = s.destination.buffer
        value = s.value.attr if s.value.op in ("const", "literal") else None
        zero = value is not None and all(
            v == 0 and not (isinstance(v, float) and v.hex()[0] == "-") for v in lt.parts(value)
        )
        if not zero:
            value, first = self.value(s.value), self.value(s.destination.index)
            self._fill_loop(buffer, first, self.value(s.count), value)
        else:
            target, count = self.ref(s.destination), self.value(s.count)
            size = itemsize(buffer.dtype)
            total = self.op(f"mul i64 {count}, {size}") if size > 1 else count
            name = "@llvm.memset.p0.i64"
            self.module.declare(name, f"declare void {name}(ptr, i8, i64, i1)")
            align = f"align {min(size, 8)}"
            self.put(f"call void {name}(ptr {align} {target}, i8 0, i64 {total}, i1 false)")
        self.kill(buffer)

    def _fill_loop(self, buffer: Buffer, first: str, count: str, value: Operand) -> None:
        before, loop, done = self.block, self.label(), self.label()
        some = self.op(f"icmp sgt i64 {count}, 0")
        self.branch(some, loop, done)
        self.start(loop)
        (k,), at = self.phis(["int64"])
        with self.scope():
            self.store(buffer, self.op(f"add i64 {first}, {k}"), value)
        following = self.fresh()
        self.put(f"{following} = add nuw nsw i64 {k}, 1")
        more = self.fresh()
        self.put(f"{more} = icmp slt i64 {following}, {count}")
        self.branch(more, loop, done)
        self.fill(at, [k], ["int64"], [(before, ["0"]), (loop, [following])])
        self.start(done)

    # --- calls ----------------------------------------------------------------------------------

    def library(self, s: kernel.CallLibrary) -> None:
        texts = []
        for k, arg in enumerate(s.args):
            if isinstance(arg, Ref):
                texts.append(f"ptr {self.ref(arg)}")
            elif isinstance(arg, kernel.Address):
                texts.append(f"ptr {self.symbol(arg.symbol)}")
            elif s.by_reference:
                texts.append(f"ptr {self._in_slot(arg, (s, k))}")
            elif arg.dtype == "bool":
                texts.append(f"i8 {self.op(f'zext i1 {self.value(arg)} to i8')}")
            elif arg.dtype in PART or KIND[arg.dtype] == "h":
                raise NotImplementedError(
                    f"{s.symbol}: {arg.dtype} can be passed by reference only"
                )
            else:
                texts.append(f"{lt.REGISTER[arg.dtype]} {self.value(arg)}")
        callee = self.symbol(s.symbol)
        if s.work:
            work, entered = self.number(("work", s), s.work, "i64"), self.fresh()
            self.put(f"{entered} = call i64 {self.symbol('fnx_blas_enter')}(i64 {work})")
        if s.checked:
            self._checked(f"call i32 {callee}({', '.join(texts)})", "ne", 0)
        elif s.result is None:
            self.put(f"call void {callee}({', '.join(texts)})")
        else:
            name = self.fresh()
            self.put(f"{name} = call {lt.REGISTER[s.result.dtype]} {callee}({', '.join(texts)})")
            self.bind(s.result, name)
        if s.work:
            self.put(f"call void {self.symbol('fnx_blas_leave')}(i64 {entered})")
        for buffer in s.writes:
            self.kill(buffer)

    def _in_slot(self, arg: Expr, key: Any) -> str:
        """The address of a stack slot with the value of an expression."""
        dtype, value = arg.dtype, self.value(arg)
        buffer = Buffer("argument", dtype, 1, "private")
        slot = self.pointers[buffer] = self.slot(f"alloca {lt.element(dtype)}, align 16", key)
        with self.scope():
            self.store(buffer, "0", value)
        return slot

    def host(self, s: kernel.CallHost) -> None:
        refs = [ref for ref, _, _ in (*s.inputs, *s.outputs)]
        array = self.slot(f"alloca [{max(len(refs), 1)} x ptr], align 16")
        for k, ref in enumerate(refs):
            address = self.ref(ref)
            place = self.op(f"getelementptr inbounds ptr, ptr {array}, i64 {k}") if k else array
            self.put(f"store ptr {address}, ptr {place}, align 8")
        callee = self.number(("host", s), ("host", s), "ptr")  # type: ignore[arg-type]
        self._checked(f"call i32 {callee}(ptr {array})", "eq", 1)
        for ref, _, _ in s.outputs:
            self.kill(ref.buffer)

    def _checked(self, call: str, order: str, number: int) -> None:
        """A call whose answer says whether the program goes on."""
        status, good, on = self.fresh(), self.fresh(), self.label()
        self.put(f"{status} = {call}")
        self.put(f"{good} = icmp {order} i32 {status}, {number}")
        self.exits.add("failed")
        self.branch(good, on, "failed")
        self.start(on)

    # --- functions of their own -----------------------------------------------------------------

    def loop(self, s: kernel.Loop) -> None:
        prefetching.next_row(self, s)
        s = loop_tails.whole(s, self.halves, self.rows)
        if is_shared_out(s) and self.shares:
            self.share_out(s)
        else:
            super().loop(s)

    def nest(self, s: kernel.Nest) -> None:
        if not (self.top and is_function(s)):
            # inside a function, or with a host call: a block like any other
            self.before(s)
            results = self.scoped(s.body, s.results)
            for variable, operand in zip(s.results, results, strict=True):
                self.bind(variable, operand)
            return
        self.before(s)
        inner = Body(self.module, self, s)
        operands = inner.run(s.body, s.results)
        dtypes = [r.dtype for r in s.results]
        flat = [x for operand in operands for x in lt.parts(operand)]
        kinds = [t for d in dtypes for t in lt.types(d)]
        struct = f"{{ {', '.join(kinds)} }}" if kinds else "void"
        stored = in_memory(kinds)
        returned = "void" if stored else struct
        value = "poison"
        for k, (t, x) in enumerate(zip(kinds, flat, strict=True)):
            if stored:
                inner.put(f"store {t} {x}, ptr {inner.op(_field(struct, '%results', k))}")
            else:
                value = inner.op(f"insertvalue {struct} {value}, {t} {x}, {k}")
        inner.put("ret void" if returned == "void" else f"ret {struct} {value}")
        inner.cancelled(returned)
        name = f"@k{len(self.kernels)}"
        light = len(inner.lines) < 30 and not any(
            isinstance(x, kernel.Loop | kernel.While) for x in traversal.statements(s.body)
        )
        attribute = "alwaysinline" if light else "noinline"
        more = ", ptr noalias nonnull %results" if stored else ""
        name, new = self._define(inner, name, returned, more, attribute, s), name
        if name == new:
            self.kernels.append((name[1:], s.name, s.note))
        texts = ["ptr %params", *(f"{_type(what)} {x}" for _, x, what in inner.captures)]
        if stored:
            result = self.slot(f"alloca {struct}, align 16")
            texts.append(f"ptr {result}")
        else:
            result = self.fresh()
        call = f"call {returned} {name}({', '.join(texts)})"
        self.put(call if returned == "void" else f"{result} = {call}")
        self.unless_cancelled(inner)
        fields = []
        for k, t in enumerate(kinds):
            if stored:
                fields.append(self.op(f"load {t}, ptr {self.op(_field(struct, result, k))}"))
            else:
                fields.append(self.op(f"extractvalue {struct} {result}, {k}"))
        for variable, dtype in zip(s.results, dtypes, strict=True):
            n = len(lt.types(dtype))
            self.bind(variable, lt.whole(fields[:n]))
            del fields[:n]

    def _define(
        self, inner: "Body", name: str, result: str, more: str, attributes: str, s: Stmt
    ) -> str:
        """Print a function whose arguments are what it captures from this one; its name.

        Kernels that are equal share a function.
        """
        written = traversal.all_writes(s)
        arguments = ["ptr noalias readonly %params"]
        for x, _, what in inner.captures:
            if type(what) is Buffer:
                align = BYTES[PART.get(what.dtype, what.dtype)]
                align = align if what.space == "argument" else 64
                access = "" if what in written else " readonly"
                arguments.append(f"ptr noalias nonnull noundef align {align}{access} {x}")
            else:
                arguments.append(f"{what} {x}")
        arguments.append(more.removeprefix(", "))
        if scheduling_attributes.in_order(s):
            attributes = f'"in-order" {attributes}'
        signature = f"({', '.join(filter(None, arguments))}) {_OWN} {attributes} {{"
        text = "\n".join([signature, "entry:", *inner.head, *inner.lines, "}", ""])
        key = result, _plain(text), *[(x.kind.vectorized, x.rolled) for x in _loops(s)]
        if isinstance(s, kernel.Nest) and "@p" not in text:
            name = self.module.by_text.setdefault(key, name)
            if name in self.module.defined:
                return name
        self.module.defined.add(name)
        self.module.functions.append(f"define internal {result} {name}{text}")
        return name

    def share_out(self, s: kernel.Loop) -> None:
        """A loop whose iterations threads share: its body is a function of a range of iterations."""
        extent = self.value(s.extent)
        self.before(s)
        progress.begin(self, s, extent)
        inner = Body(self.module, self, s)
        inner.iterations(s, "%hi", [], sure=False, start="%lo")
        inner.put("ret void")
        inner.cancelled()
        name = f"@p{self.module.next_number()}"
        self._define(inner, name, "void", ", i64 %lo, i64 %hi", "", s)
        kinds = ["ptr", *(_type(what) for _, _, what in inner.captures)]
        values = ["%params", *(x for _, x, _ in inner.captures)]
        struct = f"{{ {', '.join(kinds)} }}"
        context = self.slot(f"alloca {struct}, align 16")
        for k, (t, x) in enumerate(zip(kinds, values, strict=True)):
            place = self.op(_field(struct, context, k))
            self.put(f"store {t} {x}, ptr {place}")
        task = f"{name}.task"
        lines = [f"define internal void {task}(ptr %context, i64 %lo, i64 %hi) {_OWN} {{"]
        for k, t in enumerate(kinds):
            lines += [
                f"  %p{k} = {_field(struct, '%context', k)}",
                f"  %x{k} = load {t}, ptr %p{k}",
            ]
        passed = ", ".join(f"{t} %x{k}" for k, t in enumerate(kinds))
        lines += [f"  call void {name}({passed}, i64 %lo, i64 %hi)", "  ret void", "}", ""]
        self.module.functions.append("\n".join(lines))
        grain = max(1, thresholds.GRAIN_WORK // traversal.work(s.body))
        least = self.number(("grain", s), grain, "i64")
        arguments = f"ptr {task}, ptr {context}, i64 {extent}, i64 {least}"
        if "cancelled" in inner.exits:
            run = self.symbol("fnx_parallel_for_polled")
            arguments += f", ptr {self.stopped()}"
        else:
            run = self.symbol("fnx_parallel_for")
        self.put(f"call void {run}({arguments})")
        self.unless_cancelled(inner)
        progress.end(self, s, extent)


def _plain(text: str) -> str:
    """A function's text with its metadata numbered from 0."""
    numbers: dict[str, str] = {}
    return re.sub(r"![0-9]+", lambda m: numbers.setdefault(m[0], f"!{len(numbers)}"), text)


def _loops(s: Stmt) -> list[kernel.Loop]:
    return [x for x in traversal.statements([s]) if isinstance(x, kernel.Loop)]


def _field(struct: str, place: str, k: int) -> str:
    return f"getelementptr inbounds {struct}, ptr {place}, i64 0, i32 {k}"


def _type(what: Any) -> str:
    return "ptr" if type(what) is Buffer else what


_PRINT: dict[type, Callable[[Any, Any], None]] = {
    kernel.Eval: Body.eval,
    kernel.Let: Body.let,
    kernel.Store: Body.put_store,
    kernel.Loop: Body.loop,
    kernel.While: Body.while_,
    kernel.If: Body.if_,
    kernel.Copy: Body.copy,
    kernel.Transpose: Body.transpose,
    kernel.Fill: Body.fill_memory,
    kernel.CallLibrary: Body.library,
    kernel.CallHost: Body.host,
    kernel.Nest: Body.nest,
}
