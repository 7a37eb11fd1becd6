"""What a thread does with elements of arrays: all loads first, of several elements where there are many.

A load takes as long as hundreds of operations. So a thread asks for all that it needs before it works on
any of it: an elementary function between two loads would else wait twice. Of large arrays it works on
several elements at a time, until enough bytes are under way; those behind the end stand for its first
one, and are not stored.

Source: Better Performance at Lower Occupancy (Volkov 2010); unroll and jam (Allen & Kennedy 2001, ch. 8).
Legal when: iterations are independent, and no iteration reads what it has written.
Pays when: there are more iterations than threads that run at a time, and they are short.
"""

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read, depends_on, reads_memory, replacing
from fnx.lowering.ir.kernel import Eval, If, Let, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize

from .plan import Axes, Further
from .thresholds import Limits


def elements(
    limits: Limits, axes: Axes, body: list[Stmt], count: int
) -> tuple[list[Stmt], list[Further]]:
    """The body of a loop with `count` iterations for a thread's elements, and those after the first."""
    if not _is_simple(body):
        return body, []
    loads = _loads(body)
    times = min(_wanted(limits, loads, body), count // (limits.blocks * limits.threads))
    if times < 2:
        return [Eval(loads), *body] if len(loads) > 1 else body, []
    further = [_further(axes) for _ in range(times - 1)]
    copies = [([*body], None), *((_renamed(body, axes, f), f.inside) for f in further)]
    values: list[Stmt] = [Eval([e for stmts, _ in copies for e in _loads(stmts)])]
    stores: list[Stmt] = []
    for stmts, inside in copies:
        own: list[Stmt] = []
        for s in stmts:
            if isinstance(s, Store):
                own.append(_later(s, values))
            else:
                values.append(s)
        stores += own if inside is None else [If(inside, own, [])]
    return [*values, *stores], further


def _is_simple(body: list[Stmt]) -> bool:
    """Whether all loads may come before all stores."""
    if not all(type(s) in (Let, Eval, Store) for s in body):
        return False
    written: set = set()
    for s in body:
        if written & buffers_read(traversal.expressions(s)):
            return False
        written.update(traversal.writes(s))
    return all(b.space in ("argument", "global") for b in traversal.buffers(body))


def _loads(body: list[Stmt]) -> list[Expr]:
    """What a body loads from places that it knows at its begin, in order."""
    defined = [v for s in body for v in traversal.defined(s)]
    found = [e for e in traversal.nodes(body) if e.op == "load" and not depends_on([e], defined)]
    return found[::-1]


def _wanted(limits: Limits, loads: list[Expr], body: list[Stmt]) -> int:
    """How many elements keep enough bytes under way, of a loop that is short."""
    if not loads or traversal.work(body) > limits.short:
        return 1
    nbytes = sum(itemsize(e.dtype) for e in loads)
    return max(1, min(limits.under_way // nbytes, limits.elements))


def _further(axes: Axes) -> Further:
    counted = [(scalar.counter("i", int(n.attr)), n) for _, n in axes]
    return Further(counted, scalar.var("bool", "c"))


def _renamed(body: list[Stmt], axes: Axes, further: Further) -> list[Stmt]:
    """The statements of another element, with variables of their own."""
    names = {i: j for (i, _), (j, _) in zip(axes, further.axes, strict=True)}
    names |= {v: scalar.var(v.dtype, "v") for s in body for v in traversal.defined(s)}
    anew = replacing(names)
    found = []
    for s in body:
        new = traversal.rewritten(s, anew)
        if isinstance(new, Let):
            new = Let([names[v] for v in new.variables], new.values)
        found.append(new)
    return found


def _later(s: Store, values: list[Stmt]) -> Store:
    """A store of what is computed before, among `values`."""
    value = scalar.var(s.value.dtype, "v")
    values.append(Let([value], [s.value]))
    index = s.index
    if reads_memory(index):
        index = scalar.var(index.dtype, "p")
        values.append(Let([index], [s.index]))
    return Store(s.buffer, index, value)
