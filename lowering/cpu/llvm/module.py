"""The LLVM module of a program while it is printed: parameters, declarations, functions, metadata."""

from collections.abc import Callable
from dataclasses import field
from typing import Any

from fnx.core.fast_dataclasses import dataclass
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.ir.kernel import Buffer

from . import vector_abi

Param = Any  # an int (64 bits), ("symbol", name) or ("host", CallHost)
# Numbers carried around a loop up to which LLVM may make several iterations side by side.


@dataclass(eq=False)
class Module:
    """`homes` says which statement's function holds a stack buffer (None: the entry).

    `write_function` prints the function of an operation: its name, text, declarations, and what it calls.
    """

    write_function: Callable[..., tuple[str, str, dict, tuple]]
    homes: dict[Buffer, Any] = field(default_factory=dict)
    has_half: bool = True
    params: list[Param] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    by_text: dict[tuple, str] = field(default_factory=dict)  # the names of kernels
    defined: set[str] = field(default_factory=set)
    slots: dict[Any, int] = field(default_factory=dict)
    declarations: dict[str, str] = field(default_factory=dict)
    helpers: dict[tuple, str] = field(default_factory=dict)
    shared: bool = True  # whether mathematical functions are those that all programs share
    inlined: frozenset[tuple[str, str]] = frozenset()  # but for these
    variants: dict[str, list[str]] = field(default_factory=dict)
    metadata: list[str] = field(default_factory=list)
    _known: dict[Any, str] = field(default_factory=dict)
    _numbers: int = 0

    def next_number(self) -> int:
        """A number for a loop or a function that is to be told from the others."""
        self._numbers += 1
        return self._numbers - 1

    def parameter(self, key: Any, value: Param) -> int:
        """The number of the parameter with this key; a new one has `value`."""
        k = self.slots.get(key)
        if k is None:
            k = self.slots[key] = len(self.params)
            self.params.append(value)
        return k

    def declare(self, name: str, text: str) -> None:
        self.declarations[name] = text

    # --- metadata -------------------------------------------------------------------------------

    def _meta(self, key: Any, text: str) -> str:
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = f"!{len(self.metadata)}"
            self.metadata.append(f"{found} = {text.replace('SELF', found)}")
        return found

    def empty(self) -> str:
        return self._meta("empty", "!{}")

    def positive(self) -> str:
        """Sizes that are parameters are above 16."""
        return self._meta("positive", "!{i64 17, i64 281474976710656}")

    def rarely(self) -> str:
        """Weights of a branch that is hardly ever taken."""
        weights = self._meta("rarely", '!{!"branch_weights", i32 1, i32 4095}')
        return f", !prof {weights}"

    def group(self, numbers: tuple[int, ...]) -> str:
        """The access group of the vector loops of these numbers."""
        single = [self._meta(("group", n), "distinct !{}") for n in numbers]
        if len(single) == 1:
            return single[0]
        return self._meta(("groups", numbers), f"!{{{', '.join(single)}}}")

    def loop(
        self,
        number: int,
        group: int | None,
        unroll: int,
        vectors: int = 0,
        rolled: bool = False,
        carries: int = 0,
        together: int = 0,
        lanes: int = 0,
    ) -> str:
        """What is said of a loop, or nothing.

        `vectors`: the loop is so many, and nothing is left for a loop of the rest. Without this LLVM
        keeps some of the iterations for one, where it reads every third element, say, as vectors of which
        it drops two thirds: the last of them would go beyond what the loop reads. And it would make
        a loop of a few vectors, in which accumulators on the stack cannot be registers.
        `rolled`: iterations are unrolled only where all of them are. `together`: vectors side by side, if
        that is not left to LLVM.
        """
        facts = []
        if group is not None:
            g = self.group((group,))
            parallel = f'!{{!"llvm.loop.parallel_accesses", {g}}}'
            facts.append(self._meta(("parallel", group), parallel))
        if unroll == 1:
            facts.append(self._meta(("unroll", 1), '!{!"llvm.loop.unroll.disable"}'))
        elif rolled and not unroll:
            facts.append(self._meta("rolled", '!{!"llvm.loop.unroll.runtime.disable"}'))
        if vectors:
            enable = '!{!"llvm.loop.vectorize.predicate.enable", i1 true}'
            facts.append(self._meta("whole", enable))
        if lanes:
            width = f'!{{!"llvm.loop.vectorize.width", i32 {lanes}}}'
            facts.append(self._meta(("lanes", lanes), width))
        count = max(vectors, together)
        if (
            count > 1 or carries > thresholds.INTERLEAVED_CARRIES
        ):  # several of each would not fit into registers
            count = count if carries <= thresholds.INTERLEAVED_CARRIES else 1
            told = f'!{{!"llvm.loop.interleave.count", i32 {count}}}'
            facts.append(self._meta(("together", count), told))
        if unroll > 1:
            count = f'!{{!"llvm.loop.unroll.count", i32 {unroll}}}'
            facts.append(self._meta(("unroll", unroll), count))
        if not facts:
            return ""
        fact = self._meta(("loop", number), f"distinct !{{SELF, {', '.join(facts)}}}")
        return f", !llvm.loop {fact}"

    # --- functions of operations ----------------------------------------------------------------

    def helper(self, op: Any, dtype: str) -> str:
        """The name of the function of an operation, printed when it is first asked for."""
        name = self.helpers.get((op, dtype))
        shared = self.shared and vector_abi.exists(op, dtype) and (op, dtype) not in self.inlined
        if name is None and shared:
            name = self.helpers[op, dtype] = self._shared(op, dtype)
        if name is None:
            made = self.write_function(op, dtype, self.has_half, self.shared)
            name, text, declarations, needs = made
            for other in needs:
                self.helper(*other)
            self.helpers[op, dtype] = name
            self.declarations.update(declarations)
            self.functions.append(text)
        return name

    def _shared(self, op: str, dtype: str) -> str:
        """Declare a function that all programs share, and its vector variants."""
        lines, fact, names = vector_abi.declaration(op, dtype)
        pure = "nounwind willreturn memory(none)"
        number = 100 + len(self.variants)
        self.variants[f"attributes #{number} = {{ {pure} {fact} }}"] = names
        first, *others = lines
        self.declare(names[0], f"{first} #{number}")
        for other, n in zip(others, names[1:], strict=True):
            self.declare(n, f"{other} nounwind willreturn memory(none)")
        return f"@{names[0]}"

    def text(self) -> str:
        lines = [*self.functions, *self.declarations.values(), *self.variants, *self.metadata]
        used = [f"ptr @{n}" for names in self.variants.values() for n in names[1:]]
        if used:  # or LLVM drops the declarations before it vectorises
            lines.append(
                f"@llvm.compiler.used = appending global [{len(used)} x ptr] [{', '.join(used)}], "
                'section "llvm.metadata"'
            )
        return "\n".join([*lines, ""])
