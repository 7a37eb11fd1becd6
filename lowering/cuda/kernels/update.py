"""An update of a place that is known when it is made, as a loop's one statement says it."""

from fnx.core import scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.lowering.ir.expressions import buffers_read
from fnx.lowering.ir.kernel import If, Loop, Stmt, Store


class Atomic(Store):
    """buffer[index] = op(buffer[index], value), as one operation."""

    def __init__(self, buffer, index: Expr, value: Expr, op: str):  # type: ignore[no-untyped-def]
        super().__init__(buffer, index, value)
        self.op = op


@dataclass(eq=False)
class Update:
    """When a statement updates, where, by which operation (None: it sets), and with what."""

    inside: Expr
    store: Store
    op: str | None
    value: Expr

    def guarded(self, s: Stmt) -> Stmt:
        """A statement, where the update is made at all."""
        return s if self.inside.op == "const" else If(self.inside, [s], [])


def indices_of(number: Expr, loops: list[Loop]) -> dict[Expr, Expr]:
    """The indices of nested loops in an iteration, by its number among all of them."""
    found: dict[Expr, Expr] = {}
    for x in reversed(loops[1:]):
        number, found[x.index] = scalar.divmod_size(number, int(x.extent.attr))
    return found | {loops[0].index: number}


def update_of(s: Stmt) -> Update | None:
    """The update that a statement is; None where it is none."""
    inside = scalar.const(True, "bool")
    if isinstance(s, If):
        if s.orelse or s.results or len(s.then) != 1:
            return None
        inside, s = s.cond, s.then[0]
    if type(s) is not Store:
        return None
    value, old = s.value, scalar.load(s.buffer, s.index, s.buffer.dtype)
    if s.buffer not in buffers_read([value]):
        return Update(inside, s, None, value)
    others = [a for a in value.args if a is not old]
    if value.op not in ("add", "mul", "max", "min", "and", "or", "xor") or len(others) != 1:
        return None
    return Update(inside, s, value.op, others[0])
