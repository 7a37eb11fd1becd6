"""Superword-level parallelism of calls: several of one function become one call of its vector variant.

LLVM's loop vectoriser makes vectors of loops. Values in registers - a state of a few numbers, the
elements of a small array - are straight code, where four exponentials take four times as long as one.

Source: Larsen & Amarasinghe 2000.
Input: the expressions of a block.
Output: which calls are packed together.
Legal when: none of them depends on another one.
Pays when: there are two or more that fill half of a vector.
Costs: elements are put into a vector and taken out again.
"""

from collections.abc import Iterable, Sequence

from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read
from fnx.lowering.ir.kernel import Eval, Let, Stmt, Store

from . import vector_abi

_STRAIGHT = (Let, Eval, Store)


class Packs:
    """The calls of a block that can be made together.

    `fellows[e]` are those with the function of `e` and as many such calls below them: none of them
    needs another. `after[e]` is the number of the statement after which its variables are known.
    """

    def __init__(self, body: Sequence[Stmt], results: Iterable[Expr]):
        self.body, self.results = body, results
        self.at = 0  # the statement that is being printed
        self.fellows: dict[Expr, list[Expr]] | None = None  # most blocks call no function
        self.after: dict[Expr, int] = {}
        self._depth: dict[Expr, int] = {}

    def _groups(self) -> dict[Expr, list[Expr]]:
        fellows: dict[Expr, list[Expr]] = {}
        body = self.body
        bound = {v: k for k, s in enumerate(body) for v in traversal.defined(s)}
        written = {b for s in body for b in traversal.all_writes(s)}
        groups: dict[tuple[str, str, int], list[Expr]] = {}
        roots = [e for s in body if isinstance(s, _STRAIGHT) for e in traversal.expressions(s)]
        for e in self._upwards([*roots, *self.results], bound):
            # What reads memory that is written here has its place among the writes.
            if is_costly(e) and not (written and buffers_read([e]) & written):
                groups.setdefault((e.op, e.dtype, self._depth[e]), []).append(e)
        for group in groups.values():
            if len(group) > 1:
                fellows.update(dict.fromkeys(group, group))
        return fellows

    def _upwards(self, roots: list[Expr], bound: dict[Expr, int]) -> Iterable[Expr]:
        """All nodes, operands first; enters how many calls are below each, and where it is known."""
        stack, depth, after = roots[::-1], self._depth, self.after
        while stack:
            e = stack[-1]
            if e not in depth:
                below = [a for a in e.args if a not in depth]
                if below:
                    stack += below[::-1]
                    continue
                depth[e] = max([depth[a] + is_costly(a) for a in e.args], default=0)
                after[e] = max([after[a] for a in e.args], default=bound.get(e, -1))
                yield e
            stack.pop()

    def ready(self, e: Expr) -> list[Expr]:
        """The calls to be made with that of `e`, itself first: those whose variables are known."""
        if self.fellows is None:
            self.fellows = self._groups()
        group = self.fellows.get(e, ())
        return [e, *(x for x in group if x is not e and self.after[x] < self.at)]


def is_costly(e: Expr) -> bool:
    return vector_abi.exists(e.op, e.dtype)


def widths(count: int, dtype: str) -> list[int]:
    """How many lanes the vectors for so many calls have; the last may be partly empty."""
    known = vector_abi.widths(dtype)
    small, large = min(known), max(known)
    full, rest = divmod(count, large)
    return [large] * full + ([small if rest <= small else large] if rest else [])
