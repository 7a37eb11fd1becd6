"""What a printer knows at a point of a program: which expressions have values, and for how long.

An expression is printed where it is first needed and known from there on in its block. A write makes
values loaded from the buffer unknown, but those that an Eval has asked for: they stay as they are
until the next Eval of the same expression.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Optional

from fnx.core.scalar import Expr

from .kernel import Buffer

LEAVES = frozenset({"const", "size", "literal"})  # known in a whole function once printed
_MISSING = object()


class Known:
    """`memo` maps what is known here to how the printer writes it; `scope` takes back additions.

    Printers define `evaluated`, which prints one node whose operands are known.
    """

    def __init__(self, parent: Optional["Known"] = None):
        self.parent = parent  # the function around, whose values can be captured
        self.memo: dict[Any, Any] = {}
        self.log: list[Any] = []  # keys of memo, in the order of their entry
        self.hidden: list[tuple[Expr, Any]] = []  # entries that an Eval has replaced
        self.deps: dict[Expr, frozenset[Buffer]] = {}  # what a known value was loaded from
        self.users: dict[Buffer, list[Any]] = {}
        self.pinned: set[Any] = set()  # values of Evals: they outlive writes
        self.stale: set[Expr] = set()  # pinned values older than a write: an Eval renews them
        self.mark = 0  # where the log of the innermost scope begins

    def evaluated(self, e: Expr) -> Any:
        """Print a node; how its value is written from here on."""
        raise NotImplementedError

    def known_outside(self, e: Expr) -> bool:
        """Whether the function around knows a value; if so, it is entered in `memo`."""
        if e.op == "var":
            raise KeyError(f"variable {e!r} is used where it has no value")
        return False

    def value(self, root: Expr) -> Any:
        """The operand of an expression, printed here if it is not known yet."""
        memo = self.memo
        found = memo.get(root)
        if found is not None:
            return found
        stack = [root]
        while stack:
            e = stack[-1]
            if e in memo:
                stack.pop()
                continue
            op = e.op
            if (op == "var" or self.parent is not None and e not in self.stale) and (
                op not in LEAVES and self.known_outside(e)
            ):
                continue
            pending = [a for a in e.args if a not in memo]
            if pending:
                pending.reverse()
                stack += pending
                continue
            stack.pop()
            self.enter(e, self.evaluated(e))
        return memo[root]

    def enter(self, e: Expr, operand: Any) -> None:
        """A node is known from here on in this scope."""
        self.memo[e] = operand
        if e.op in LEAVES:
            return
        self.log.append(e)
        if e.op == "load" or self.deps:
            self._depends(e)

    def _depends(self, e: Expr) -> None:
        deps = self.deps
        found: frozenset[Buffer] = frozenset((e.attr,)) if e.op == "load" else frozenset()
        for a in e.args:
            more = deps.get(a)
            if more is not None:
                found = found | more if found and found is not more else more
        if found:
            deps[e] = found
            for buffer in found:
                self.users.setdefault(buffer, []).append(e)

    def bind(self, variable: Expr, operand: Any) -> None:
        """Give a variable a value in this scope."""
        self.memo[variable] = operand
        self.log.append(variable)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is evaluated inside is forgotten outside."""
        outer, mark, hidden = self.mark, len(self.log), len(self.hidden)
        self.mark = mark
        yield
        self.mark = outer
        memo, deps, pinned = self.memo, self.deps, self.pinned
        for key in self.log[mark:]:
            memo.pop(key, None)
            deps.pop(key, None)
            pinned.discard(key)
        del self.log[mark:]
        for e, old in reversed(self.hidden[hidden:]):
            memo[e] = old
            pinned.add(e)
            self.stale.add(e)
        del self.hidden[hidden:]

    def kill(self, buffer: Buffer) -> None:
        """The buffer is written: values loaded from it are known no more, but those of Evals."""
        for key in self.users.pop(buffer, ()):
            if key in self.pinned:
                self.stale.add(key)
            else:
                self.memo.pop(key, None)
                self.deps.pop(key, None)

    def pin(self, exprs: list[Expr]) -> None:
        """Evaluate now; the values outlive later writes of what they were loaded from."""
        for e in exprs:
            if self._is_stale(e):
                old = self.memo.pop(e, _MISSING)
                if old is not _MISSING and e in self.pinned:
                    self.pinned.discard(e)
                    if e not in self.log[self.mark :]:
                        self.hidden.append((e, old))  # it is back after this scope
                self.stale.add(e)  # not to be taken from outside
        for e in exprs:
            self.value(e)
        for e in exprs:
            self.stale.discard(e)
            if self.deps.pop(e, None) is not None:
                self.pinned.add(e)

    def _is_stale(self, e: Expr) -> bool:
        return e in self.stale or self.parent is not None and self.parent._is_stale(e)
