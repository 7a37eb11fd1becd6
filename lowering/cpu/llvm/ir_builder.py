"""Writing LLVM IR text by hand: functions with structured control flow, one line an instruction.

For the small run time of fnx (the call wrapper, the thread pool), not for users' programs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple


class Value(NamedTuple):
    """A typed operand as it is printed."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


NULL = Value("ptr", "null")


def i64(value: int) -> Value:
    return Value("i64", str(value))


def i32(value: int) -> Value:
    return Value("i32", str(value))


class Module:
    """Globals and functions; what is called but not defined is declared when it is printed."""

    def __init__(self) -> None:
        self.globals: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.declared: dict[str, str] = {}

    def variable(self, name: str, type_: str, initial: str = "0", public: bool = False) -> Value:
        linkage = "" if public else "internal "
        self.globals[name] = f"@{name} = {linkage}global {type_} {initial}, align 64"
        return Value("ptr", f"@{name}")

    def __str__(self) -> str:
        missing = [t for n, t in self.declared.items() if n not in {*self.globals, *self.functions}]
        return "\n".join([*self.globals.values(), *missing, *self.functions.values()]) + "\n"


class Function:
    """A function under construction. Arguments are %0, %1, ...; offsets are bytes.

    After a `ret` inside `when` the block ends; what follows the `when` goes on.
    """

    def __init__(self, module: Module, name: str, result: str, *args: str, public: bool = False):
        self.module, self.name, self.result, self.public = module, name, result, public
        self.args = [Value(type_, f"%a{k}") for k, type_ in enumerate(args)]
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.count = 0
        self.open = True
        self.block = "start"

    def __enter__(self) -> "Function":
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if kind is None:
            head = "" if self.public else "internal "
            args = ", ".join(map(str, self.args))
            body = "\n".join(["entry:", *self.slots, "  br label %start", "start:", *self.lines])
            self.module.functions[self.name] = (
                f"define {head}{self.result} @{self.name}({args}) nounwind {{\n{body}\n}}"
            )

    # --- instructions

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def emit(self, type_: str, instruction: str) -> Value:
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return Value(type_, name)

    def do(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def binary(self, op: str, a: Value, b: Value | int) -> Value:
        b = Value(a.type, str(b)) if isinstance(b, int) else b
        return self.emit(a.type, f"{op} {a}, {b.name}")

    def add(self, a: Value, b: Value | int) -> Value:
        return self.binary("add", a, b)

    def sub(self, a: Value, b: Value | int) -> Value:
        return self.binary("sub", a, b)

    def mul(self, a: Value, b: Value | int) -> Value:
        return self.binary("mul", a, b)

    def compare(self, op: str, a: Value, b: Value | int) -> Value:
        """`op`: eq ne slt sle sgt sge."""
        b = Value(a.type, str(b)) if isinstance(b, int) else b
        return self.emit("i1", f"icmp {op} {a}, {b.name}")

    def same(self, a: Value, b: Value) -> Value:
        return self.compare("eq", a, b)

    def both(self, *conditions: Value) -> Value:
        found, *rest = conditions
        for condition in rest:
            found = self.binary("and", found, condition)
        return found

    def either(self, a: Value, b: Value) -> Value:
        return self.binary("or", a, b)

    def negate(self, condition: Value) -> Value:
        return self.binary("xor", condition, Value("i1", "true"))

    def choose(self, condition: Value, a: Value, b: Value) -> Value:
        return self.emit(a.type, f"select {condition}, {a}, {b}")

    def convert(self, op: str, a: Value, type_: str) -> Value:
        """`op`: trunc zext sext fptrunc inttoptr ptrtoint."""
        return self.emit(type_, f"{op} {a} to {type_}")

    # --- memory

    def object(self, name: str) -> Value:
        """The address of a variable: of this module, or of the C libraries."""
        self.module.declared.setdefault(name, f"@{name} = external global i8")
        return Value("ptr", f"@{name}")

    def routine(self, name: str) -> Value:
        """The address of a function of this module."""
        return Value("ptr", f"@{name}")

    def slot(self, type_: str, words: int = 1, align: int = 16) -> Value:
        """Memory on the stack for the time of the call."""
        name = self.fresh()
        self.slots.append(f"  {name} = alloca {type_}, i64 {words}, align {align}")
        return Value("ptr", name)

    def array(self, words: Value) -> Value:
        """So many 64-bit words on the stack."""
        return self.emit("ptr", f"alloca i64, {words}, align 16")

    def at(self, base: Value, offset: Value | int) -> Value:
        if offset == 0:
            return base
        offset = i64(offset) if isinstance(offset, int) else offset
        return self.emit("ptr", f"getelementptr inbounds i8, {base}, {offset}")

    def index(self, base: Value, k: Value | int, width: int = 8) -> Value:
        k = i64(k) if isinstance(k, int) else k
        return self.at(base, self.mul(k, width))

    def load(self, base: Value, offset: Value | int = 0, type_: str = "i64") -> Value:
        return self.emit(type_, f"load {type_}, {self.at(base, offset)}")

    def pointer(self, base: Value, offset: Value | int = 0) -> Value:
        return self.load(base, offset, "ptr")

    def store(self, value: Value | int, base: Value, offset: Value | int = 0) -> None:
        value = i64(value) if isinstance(value, int) else value
        self.do(f"store {value}, {self.at(base, offset)}")

    # --- memory that threads share: sequentially consistent, 32 or 64 bits

    def atomic(self, op: str, place: Value, value: Value) -> Value:
        """`op`: add sub and or xchg; the value before."""
        return self.emit(value.type, f"atomicrmw {op} {place}, {value} seq_cst")

    def atomic_load(self, place: Value, type_: str) -> Value:
        return self.emit(type_, f"load atomic {type_}, {place} seq_cst, align 8")

    def atomic_store(self, value: Value, place: Value) -> None:
        self.do(f"store atomic {value}, {place} seq_cst, align 8")

    def exchange_if(self, place: Value, old: Value, new: Value) -> Value:
        """Replace the old value by a new one; whether it was the old one."""
        pair = self.emit("", f"cmpxchg {place}, {old}, {new} seq_cst seq_cst")
        return self.emit("i1", f"extractvalue {{ {old.type}, i1 }} {pair.name}, 1")

    # --- control

    def call(self, name: str, result: str, *args: Value) -> Value:
        """Call a function of this module or of the C libraries, which is declared by its use."""
        types = ", ".join(a.type for a in args)
        self.module.declared.setdefault(name, f"declare {result} @{name}({types})")
        return self.call_at(Value("ptr", f"@{name}"), result, *args)

    def call_at(self, address: Value, result: str, *args: Value) -> Value:
        call = f"call {result} {address.name}({', '.join(map(str, args))})"
        if result == "void":
            self.do(call)
            return NULL
        return self.emit(result, call)

    def ret(self, value: Value | None = None) -> None:
        self.do(f"ret {value}" if value else "ret void")
        self.open = False

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block, self.open = label, True

    def branch(self, label: str) -> None:
        if self.open:
            self.do(f"br label %{label}")

    def label(self, word: str) -> str:
        self.count += 1
        return f"{word}{self.count}"

    @contextmanager
    def when(self, condition: Value, likely: bool | None = None) -> Iterator[None]:
        then, after = self.label("then"), self.label("after")
        weights = "" if likely is None else ', !prof !{!"branch_weights", i32 %d, i32 %d}'
        if weights:
            weights %= (2000, 1) if likely else (1, 2000)
        self.do(f"br {condition}, label %{then}, label %{after}{weights}")
        self.start(then)
        yield
        self.branch(after)
        self.start(after)

    @contextmanager
    def unless(self, condition: Value) -> Iterator[None]:
        """What happens rarely: when the condition does not hold."""
        with self.when(self.negate(condition), likely=False):
            yield

    @contextmanager
    def choice(self, condition: Value) -> Iterator[tuple]:
        """with f.choice(c) as (yes, no): with yes: ...; with no: ..."""
        then, other, after = (self.label(word) for word in ("then", "other", "after"))
        self.do(f"br {condition}, label %{then}, label %{other}")

        @contextmanager
        def arm(label: str) -> Iterator[None]:
            self.start(label)
            yield
            self.branch(after)

        yield arm(then), arm(other)
        self.start(after)

    @contextmanager
    def loop(self, count: Value, start: Value | int = 0) -> Iterator[Value]:
        """for k in range(start, count)."""
        head, body, done = (self.label(word) for word in ("head", "body", "done"))
        k = Variable(self, "i64", start)
        self.branch(head)
        self.start(head)
        now = k.get()
        self.do(f"br {self.compare('slt', now, count)}, label %{body}, label %{done}")
        self.start(body)
        yield now
        if self.open:
            k.set(self.add(now, 1))
        self.branch(head)
        self.start(done)

    @contextmanager
    def forever(self) -> Iterator[str]:
        """A loop that is left by `branch` to the label that it gives, or by `ret`."""
        head, done = self.label("head"), self.label("done")
        self.branch(head)
        self.start(head)
        yield done
        self.branch(head)
        self.start(done)

    @contextmanager
    def once(self) -> Iterator[str]:
        """What can be left early, as a `forever`."""
        done = self.label("done")
        yield done
        self.branch(done)
        self.start(done)

    def leave(self, done: str) -> None:
        """Go to the end of a `forever` or a `once`."""
        self.branch(done)
        self.open = False

    def variable(self, type_: str, initial: Value | int) -> "Variable":
        return Variable(self, type_, initial)


class Variable:
    """A local variable: a stack slot, which LLVM turns into registers."""

    def __init__(self, f: Function, type_: str, initial: Value | int):
        self.f, self.type, self.slot = f, type_, f.slot(type_)
        self.set(initial)

    def set(self, value: Value | int) -> None:
        value = Value(self.type, str(value)) if isinstance(value, int) else value
        self.f.do(f"store {value}, {self.slot}")

    def get(self) -> Value:
        return self.f.emit(self.type, f"load {self.type}, {self.slot}")
