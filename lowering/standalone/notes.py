"""Building with the user's words: which variable and which lines of the user's a statement comes from."""

import dis
import linecache
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from fnx.core import policy
from fnx.core.jaxpr import Eqn
from fnx.core.source import Source
from fnx.lowering.generate.builder import Builder
from fnx.lowering.generate.values import Materialized, Value
from fnx.lowering.ir.kernel import Eval, Let, Stmt


class NotedBuilder(Builder):
    """A builder that remembers, of statements and buffers, what the user calls them."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        self.comments: dict[Stmt, list[str]] = {}
        self.names: dict[Stmt, list[str]] = {}  # of what Evals and Lets name
        self._values: dict[int, tuple[Value, str]] = {}
        self._pending: dict[str, None] = {}  # lines whose statements are still to come
        self._name = ""

    def _eqn(self, eqn: Eqn) -> None:
        for var in eqn.outs:
            if var not in self.scope.values:
                self.scope.add(var, self._new_value(var))
        names = names_of(eqn.source, len(eqn.outs))
        for var, name in zip(eqn.outs, names, strict=True):
            if name:
                value = self.scope.values[var]
                self._values[id(value)] = value, name
        text = line_of(eqn.source)
        site = getattr(eqn.prim, "site", None)
        if site is not None:
            text = f"{site.short}: {text.partition(': ')[2]}"
        if text:
            self._pending[text] = None
        before, block = self._name, self.block
        self._name = names[0] if len(names) == 1 else ""
        count = len(block)
        try:
            super()._eqn(eqn)
        finally:
            self._name = before
        new = block[count:] if block is self.block else []
        plain = [s for s in new if s not in self.comments]
        if plain and self._pending:
            self._note(plain[0])

    def _note(self, stmt: Stmt) -> None:
        self.comments[stmt] = list(self._pending)[: policy.NOTED_LINES]
        self._pending.clear()

    def emit(self, stmt: Stmt) -> None:
        super().emit(stmt)
        if isinstance(stmt, (Eval, Let)) and self._name:
            self.names[stmt] = [self._name]

    def emit_nest(self, names: Sequence[str], *given: Any, **options: Any) -> None:
        super().emit_nest(names, *given, **options)
        if self._pending:
            self._note(self.block[-1])

    def new_stored(self, value: Value) -> Materialized:
        made = super().new_stored(value)
        found = self._values.get(id(value))
        fresh = made.buffer.space == "global" and made.buffer.name == f"b{len(self.buffers) - 1}"
        if found is not None and fresh and value.preferred_buffer is None:
            made.buffer.name = found[1]
        return made


def names_of(source: Source | None, count: int) -> list[str]:
    """What the user calls the results of an equation; "" for those that have no name."""
    found = () if source is None or source.role else _stored(source.code, source.lasti)
    return list(found) if len(found) == count else [""] * count


@lru_cache(maxsize=4096)
def _stored(code: CodeType, at: int) -> tuple[str, ...]:
    """The variables that take the result of the instruction at a place."""
    rest = [i for i in _instructions(code) if i.offset > at and i.opname not in ("CACHE", "COPY")]
    if rest and rest[0].opname == "UNPACK_SEQUENCE":
        stores = rest[1 : 1 + (rest[0].arg or 0)]
    else:
        stores = rest[:1]
    good = all(i.opname.startswith("STORE_") and isinstance(i.argval, str) for i in stores)
    names = tuple([i.argval for i in stores]) if good else ()
    return names if all(n.isidentifier() and n.isascii() for n in names) else ()


@lru_cache(maxsize=256)
def _instructions(code: CodeType) -> tuple:
    return tuple(dis.get_instructions(code))


def line_of(source: Source | None) -> str:
    """The user's line, with file and number."""
    if source is None:
        return ""
    file, line = source.code.co_filename, source.line
    text = linecache.getline(file, line).strip()
    role = f" ({source.role})" if source.role else ""
    return f"{source.short}: {text}{role}"
