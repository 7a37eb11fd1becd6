"""One LLVM function while it is printed: its lines, its entry, its arguments.

`memo` also holds the result of each instruction by its text, so that equal ones are printed once.
"""

from typing import Any, Optional

from fnx.core.scalar import Expr
from fnx.lowering.ir.available_expressions import Known
from fnx.lowering.ir.kernel import Buffer
from fnx.lowering.ir.number_formats import BYTES, PART

from . import scalar as ls
from . import types as lt
from .conversions import narrow_bits, widen_bits
from .module import Module
from .types import Operand


class Function(Known):
    """The code of a function, in the order in which it is printed.

    A function inside another takes what it needs from there: `captures` are its arguments.
    """

    def __init__(self, module: Module, parent: Optional["Function"] = None, home: Any = None):
        super().__init__(parent)
        self.parent: Function | None = parent
        self.module, self.home = module, home
        self.head: list[str] = []  # stack slots, parameters, addresses: the entry block
        self.lines: list[str] = []
        self.fast: set[Expr] = set()  # operations of reductions
        self.in_vector = False  # whether LLVM makes vectors of the innermost loop around
        self.flags = " contract"
        self.block = "entry"
        self.count = self.labels = 0
        self.pointers: dict[Buffer, str] = {}
        self.captures: list[tuple[str, str, Any]] = []  # argument, operand outside, Buffer or type
        self.groups: tuple[int, ...] = ()
        self.tags: dict[tuple[int, ...], str] = {(): ""}

    # --- instructions ---------------------------------------------------------------------------

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def op(self, text: str) -> str:
        """The result of a pure instruction; equal ones are printed once."""
        memo = self.memo
        name = memo.get(text)
        if name is None:
            self.count += 1
            name = memo[text] = f"%v{self.count}"
            self.log.append(text)
            self.lines.append(f"  {name} = {text}")
        return name

    def put(self, text: str) -> None:
        self.lines.append("  " + text)

    def start(self, label: str) -> None:
        """Begin a block; whoever jumps there has been printed."""
        self.lines.append(label + ":")
        self.block = label

    def slot(self, text: str, key: Any = None) -> str:
        """The result of an instruction in the entry block; one for each key."""
        name = self.memo.get(key) if key is not None else None
        if name is None:
            self.count += 1
            name = f"%e{self.count}"
            self.head.append(f"  {name} = {text}")
            if key is not None:
                self.memo[key] = name
        return name

    # --- numbers and addresses ------------------------------------------------------------------

    def number(self, key: Any, value: int, t: str, positive: bool = False) -> str:
        """A number that is known when the program is loaded, as a value of type `t`."""
        k = self.module.parameter(key, value)
        where = self.slot(f"getelementptr inbounds i64, ptr %params, i64 {k}", ("at", k))
        known = f", !range {self.module.positive()}" if positive else ""
        flags = f"!invariant.load {self.module.empty()}{known}"
        return self.slot(f"load {t}, ptr {where}, align 8, {flags}", ("param", k, t))

    def symbol(self, name: str) -> str:
        return self.number(("symbol", name), ("symbol", name), "ptr")  # type: ignore[arg-type]

    def pointer(self, buffer: Buffer) -> str:
        found = self.pointers.get(buffer)
        if found is None:
            found = self.pointers[buffer] = self._pointer(buffer)
        return found

    def _pointer(self, b: Buffer) -> str:
        if b.space == "private" and self.module.homes.get(b) is self.home:
            return self.slot(f"alloca [{max(b.size, 1)} x {lt.element(b.dtype)}], align 64")
        if self.parent is not None:
            return self.capture(self.parent.pointer(b), b)
        if b.space == "argument":
            where = self.slot(f"getelementptr inbounds ptr, ptr %args, i64 {b.place}")
            return self.slot(
                f"load ptr, ptr {where}, align 8, !invariant.load {self.module.empty()}"
            )
        k = self.number(("place", b), b.place, "i64")
        return self.slot(f"getelementptr inbounds i8, ptr %workspace, i64 {k}")

    def capture(self, operand: str, what: Any) -> str:
        name = f"%{'b' if type(what) is Buffer else 'x'}{len(self.captures)}"
        self.captures.append((name, operand, what))
        return name

    def address(self, buffer: Buffer, index: Operand) -> str:
        pointer = self.pointer(buffer)
        if index == "0":
            return pointer
        return self.op(
            f"getelementptr inbounds {lt.element(buffer.dtype)}, ptr {pointer}, i64 {index}"
        )

    # --- memory ---------------------------------------------------------------------------------

    def _elements(self, buffer: Buffer, index: Operand) -> tuple[str, list[str]]:
        """The type in memory and the addresses of an element: one, or two."""
        where = self.address(buffer, index)
        part = PART.get(buffer.dtype)
        if part is None:
            return lt.MEMORY[buffer.dtype], [where]
        t = lt.MEMORY[part]
        return t, [where, self.op(f"getelementptr inbounds {t}, ptr {where}, i64 1")]

    def _tag(self) -> str:
        """The access groups of a memory access: the vector loops around it."""
        tag = self.tags.get(self.groups)
        if tag is None:
            tag = self.tags[self.groups] = f", !llvm.access.group {self.module.group(self.groups)}"
        return tag

    def load(self, buffer: Buffer, index: Operand) -> Operand:
        key = (buffer, index)
        found = self.memo.get(key)
        if found is not None:
            return found
        dtype = PART.get(buffer.dtype, buffer.dtype)
        align = f", align {BYTES[dtype]}{self._tag()}"
        t, places = self._elements(buffer, index)
        values = []
        for place in places:
            name = self.fresh()
            self.put(f"{name} = load {t}, ptr {place}{align}")
            values.append(self._from_memory(name, dtype))
        found = self.memo[key] = lt.whole(values)
        self.log.append(key)
        self.users.setdefault(buffer, []).append(key)
        return found

    def _from_memory(self, x: str, dtype: str) -> str:
        if dtype == "bool":
            return self.op(f"icmp ne i8 {x}, 0")
        if dtype == "float16":
            if self.module.has_half:
                return self.op(f"fpext half {x} to float")
            return widen_bits(self, self.op(f"bitcast half {x} to i16"), dtype)
        if dtype == "bfloat16":
            return widen_bits(self, x, dtype)
        return x

    def store(self, buffer: Buffer, index: Operand, value: Operand) -> None:
        dtype = PART.get(buffer.dtype, buffer.dtype)
        t, places = self._elements(buffer, index)
        if dtype in ("float16", "bfloat16"):
            t, value = "i16", narrow_bits(self, value, dtype)
        elif dtype == "bool":
            value = self.op(f"zext i1 {value} to i8")
        for place, x in zip(places, lt.parts(value), strict=True):
            self.put(f"store {t} {x}, ptr {place}, align {BYTES[dtype]}{self._tag()}")

    # --- expressions ----------------------------------------------------------------------------

    def evaluated(self, e: Expr) -> Operand:
        first = e.args[0].dtype if e.args else e.dtype
        return ls.printer(e.op, first, e.dtype)(self, e)

    def known_outside(self, e: Expr) -> bool:
        """Whether the function around knows a value; if so it becomes an argument."""
        parent = self.parent
        if parent is None:
            return super().known_outside(e)
        found = parent.memo.get(e)
        if found is None and parent.known_outside(e):
            found = parent.memo[e]
        if found is None:
            return False
        texts = zip(lt.types(e.dtype), lt.parts(found), strict=True)
        self.memo[e] = lt.whole(
            [x if x[0] != "%" else self.capture(x, t) for t, x in texts]
        )  # an argument is known in the whole function: it is not logged
        return True

    # --- calls ----------------------------------------------------------------------------------

    def call_function(self, e: Expr) -> Operand:
        """A call of an operation that has a function of its own."""
        dtype = e.args[0].dtype
        name = self.module.helper(e.attr if e.op == "call" else e.op, dtype)
        operands = [
            f"{t} {x}"
            for a in e.args
            for t, x in zip(lt.types(a.dtype), lt.parts(self.memo[a]), strict=True)
        ]
        kind = lt.result_type(e.dtype)
        convention = "preserve_allcc " if e.op == "call" else ""
        result = self.op(f"call {convention}{kind} {name}({', '.join(operands)})")
        if e.dtype not in PART:
            return result
        return tuple(self.op(f"extractvalue {kind} {result}, {k}") for k in range(2))

    def returns(self, value: Operand, dtype: str) -> None:
        """End an operation's own function."""
        kind = lt.result_type(dtype)
        if dtype in PART:
            t = lt.types(dtype)[0]
            half = self.op(f"insertvalue {kind} poison, {t} {value[0]}, 0")
            value = self.op(f"insertvalue {kind} {half}, {t} {value[1]}, 1")
        self.put(f"ret {kind} {value}")

    def call_helper(self, op: str, args: tuple[str, ...], result: str, operands: tuple) -> str:
        name = self.module.helper(op, "")
        texts = ", ".join(f"{t} {x}" for t, x in zip(args, operands, strict=True))
        return self.op(f"call {result} {name}({texts})")
