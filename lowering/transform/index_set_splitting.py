"""Index-set splitting: a loop is cut in two where its index meets a bound.

Reversed and shifted arrays are read at positions like max(k - i, 0). Left alone, these are gathered
one by one, and added to one after the other; either side of i = k, they are neighbours, or one place.

Source: Allen & Kennedy 2001, ch. 5.
Input: innermost loops with comparisons of the index, or positions clamped by it.
Output: two loops, in each of which the comparison is decided.
Legal when: the cut is known before the loop; iterations run in the same order.
Pays when: the loop has `SPLIT_ITERATIONS` iterations, and accesses become regular.
Costs: the code of the loop twice.
"""

from collections.abc import Sequence

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import affine, dependence
from fnx.lowering.ir.expressions import nodes
from fnx.lowering.ir.kernel import If, Loop, LoopKind, Stmt, Store

SIDES = {  # by comparison, and sign of the index: what to add to the point, whether true below it
    ("lt", 1): (0, True),
    ("le", 1): (1, True),
    ("gt", 1): (1, False),
    ("ge", 1): (0, False),
    ("lt", -1): (1, False),
    ("le", -1): (0, False),
    ("gt", -1): (0, True),
    ("ge", -1): (1, True),
}


def cut(body: Sequence[Stmt]) -> list[Stmt]:
    """The statements, with the innermost loops among them cut where that makes accesses regular."""
    found: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            if all(isinstance(s, Store) for s in stmt.body):
                found += (not stmt.kind.parallel and _parts(stmt)) or [stmt]
                continue
            stmt.body = cut(stmt.body)
        found.append(stmt)
    return found


def _parts(loop: Loop) -> list[Stmt] | None:
    """The loop in two, cut where its index passes the bound of its clamps; None without such a one."""
    if loop.extent.op != "size" or loop.extent.attr < policy.SPLIT_ITERATIONS or loop.reverse:
        return None
    exprs = [e for s in loop.body for e in (s.index, s.value)]  # type: ignore[attr-defined]
    exprs += loop.yields
    operations = list(nodes(exprs))
    clamps = {}
    for e in operations:
        if e.op in ("min", "max") and e.dtype == "int64":
            x, y = e.args
            key = crossing("gt" if e.op == "min" else "lt", x, y, loop.index)
            if key is not None:
                clamps[dependence.terms(key[0])] = key[0]
    if len(clamps) != 1:
        return None
    ((normal, point),) = clamps.items()
    point = scalar.clamp(scalar.size(0), point, loop.extent)
    choices = {}
    for e in operations:
        op = {"min": "gt", "max": "lt"}.get(e.op, e.op)
        if (op, 1) not in SIDES or e.args[0].dtype != "int64":
            continue
        x, y = e.args
        found = crossing(op, x, y, loop.index)
        if found is not None and dependence.terms(found[0]) == normal:
            choices[id(e)] = (e, found[1])
    below = {k: _resolved(e, true_below) for k, (e, true_below) in choices.items()}
    above = {k: _resolved(e, not true_below) for k, (e, true_below) in choices.items()}
    middle = [scalar.var(c.dtype, "a") for c in loop.carries]
    first = _part(loop, scalar.size(0), point, below, middle, loop.init)
    rest = scalar.sub(loop.extent, point)
    second = _part(loop, point, rest, above, loop.carries, middle)
    return [*first, *second]


def crossing(op: str, x: Expr, y: Expr, index: Expr) -> tuple[Expr, bool] | None:
    """Where a comparison changes as the index grows, and whether it is true below that."""
    left, right = (affine.linear(a, {id(index): 0}) for a in (x, y))
    if left is None or right is None:
        return None
    sign = left[1].get(0, 0) - right[1].get(0, 0)
    if sign not in (1, -1):
        return None
    add, true_below = SIDES[op, sign]
    a, b = (right[0], left[0]) if sign == 1 else (left[0], right[0])
    return scalar.add(scalar.sub(a, b), scalar.size(add)), true_below


def _resolved(e: Expr, true: bool) -> Expr:
    """A comparison, or the choice of min and max, where its outcome is known."""
    if e.dtype == "bool":
        return scalar.const(true, "bool")
    return e.args[1] if true else e.args[0]


def _part(
    loop: Loop, start: Expr, extent: Expr, known: dict[int, Expr],
    carries: list[Expr], init: list[Expr],
) -> list[Stmt]:  # fmt: skip
    """The iterations from `start` on, in which what is `known` need not be computed."""
    index = scalar.counter("i", loop.extent.attr)
    done = {id(loop.index): scalar.add(start, index)}
    done |= {id(a): b for a, b in zip(loop.carries, carries)}
    new = Rebuilt(done, known)
    body: list[Stmt] = []
    once: list[Stmt] = []
    vector = True
    for s in loop.body:
        assert isinstance(s, Store)
        store = Store(s.buffer, new(s.index), new(s.value))
        at = affine.linear(store.index, {id(index): 0})
        if at is not None and at[1].get(0, 0) == 0:
            if _adds_zero(store):
                once.append(store)
                continue
        vector = vector and at is not None and at[1].get(0, 0) != 0
        body.append(store)
    vector = vector and (loop.kind.vectorized or _apart(body))  # type: ignore[arg-type]
    yields = [new(e) for e in loop.yields]
    found: list[Stmt] = []
    if once:
        some = scalar.compare("gt", extent, scalar.size(0))
        found += once if some.op == "const" and some.attr else [If(some, once, [])]
    if body or carries:
        found.append(
            Loop(
                index, extent, body, list(carries), list(init), yields,
                kind=LoopKind.of(vectorized=vector and bool(body)), reassociate=loop.reassociate,
                rolled=loop.rolled,
            )
        )  # fmt: skip
    return found


def _apart(stores: Sequence[Store]) -> bool:
    """Whether an iteration reads nothing that another one, or another store, writes."""
    into = {s.buffer: s.index for s in stores}
    if len(into) != len(stores):
        return False
    loads = [e for e in nodes([s.value for s in stores]) if e.op == "load"]
    return all(into.get(e.attr, e.args[0]) is e.args[0] for e in loads)


def _adds_zero(s: Store) -> bool:
    """Whether a store adds nothing to what is there: once is as good as many times."""
    e = s.value
    if e.op != "add" or e.args[0].op != "load" or e.args[0].attr is not s.buffer:
        return False
    zero = e.args[1]
    return e.args[0].args[0] is s.index and zero.op in ("const", "literal") and not zero.attr


class Rebuilt:
    """Expressions anew, simplified by what is known of some nodes."""

    def __init__(self, done: dict[int, Expr], known: dict[int, Expr]):
        self.done, self.known = done, known

    def __call__(self, root: Expr) -> Expr:
        todo = [root]
        while todo:
            e = todo[-1]
            if id(e) in self.done:
                todo.pop()
                continue
            as_known = self.known.get(id(e))
            below = (as_known,) if as_known is not None else e.args
            missing = [a for a in below if id(a) not in self.done]
            if missing:
                todo += missing
                continue
            args = [self.done[id(a)] for a in below]
            self.done[id(e)] = args[0] if as_known is not None else _node(e, args)
            todo.pop()
        return self.done[id(root)]


def _node(e: Expr, args: list[Expr]) -> Expr:
    if all(a is b for a, b in zip(args, e.args, strict=True)):
        return e
    if e.op == "select":
        return scalar.select(*args)
    if e.op == "and" and e.dtype == "bool":
        return scalar.logical_and(*args)
    if e.op in ("add", "sub", "mul", "lt", "le", "gt", "ge", "eq", "ne") and e.attr is None:
        return scalar.apply(e.op, *args)
    return scalar.node(e.op, e.dtype, tuple(args), e.attr)
