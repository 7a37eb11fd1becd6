"""What a thread does with elements of arrays: all loads first, of several elements where there are many.

A load takes as long as hundreds of operations. So a thread asks for all that it needs before it works on
any of it: an elementary function between two loads would else wait twice. Of large arrays it works on
several elements at a time, as far apart as there are threads, until enough bytes are under way. Where an
axis does not divide, those behind its end stand for the thread's first one, and count for nothing.

Source: Better Performance at Lower Occupancy (Volkov 2010); unroll and jam (Allen & Kennedy 2001, ch. 8).
Legal when: iterations are independent but for what they carry, and none reads what it has written.
Pays when: there are more iterations than threads that run at a time, and they are short.
"""

from collections.abc import Sequence
from functools import reduce

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read, depends_on, reads_memory, replacing
from fnx.lowering.ir.kernel import Eval, If, Let, Loop, Stmt, Store
from fnx.lowering.ir.number_formats import itemsize

from . import combining
from .plan import Axes
from .thresholds import Limits


def elements(limits: Limits, axes: Axes, body: list[Stmt], count: int) -> tuple[Axes, list[Stmt]]:
    """Axes with `count` iterations all in all, and their body, for threads that do several of them."""
    if not _is_simple(body):
        return axes, body
    threads = limits.blocks * limits.threads
    times = min(_wanted(limits, body), _power(count // threads))
    axis = next((k for k, (_, n) in enumerate(axes) if _fits(n, times)), None)
    if times < 2 or axis is None:
        return axes, _loads_first(body)
    index, extent = axes[axis]
    copies = _Copies(index, int(extent.attr), times)
    axes = [*axes[:axis], (copies.index, scalar.size(copies.apart)), *axes[axis + 1 :]]
    return axes, copies.body(body)


def of_loop(limits: Limits, s: Loop, threads: int) -> Loop:
    """The same of a loop that some threads share: terms of what it carries are combined first."""
    if not _is_simple(s.body) or not _takes_long(s):
        return s
    operations = combining.operations(s) or []
    pairs = zip(s.yields, s.carries, strict=True)
    terms = [next(a for a in e.args if a is not c) for e, c in pairs]
    each = int(s.extent.attr) // threads
    times = min(_wanted(limits, [*s.body, Eval(terms)]), _power(each))
    if each % times and each < 4 * times:  # threads would have more or fewer
        times = 1
    if times < 2:
        return s
    copies = _Copies(s.index, int(s.extent.attr), times)
    neutral = [combining.identity(o, e.dtype) for o, e in zip(operations, terms, strict=True)]
    body = copies.body(s.body, terms, neutral)
    yields = list(s.carries)
    for k, (o, *found) in enumerate(zip(operations, *copies.terms, strict=True)):
        total = reduce(lambda a, b, o=o: combining.combined(o, a, b), found)  # type: ignore[misc]
        yields[k] = combining.combined(o, s.carries[k], total)
    return Loop(
        copies.index, scalar.size(copies.apart), body, s.carries, s.init, yields,
        kind=s.kind, reassociate=s.reassociate,
    )  # fmt: skip


class _Copies:
    """A body for an element and others, `apart` from one another; `terms` of each, as variables."""

    def __init__(self, index: Expr, extent: int, times: int):
        self.old, self.apart = index, -(-extent // times)
        self.index = scalar.counter("i", self.apart)
        self.times, self.extent = times, extent
        self.terms: list[list[Expr]] = []

    def body(
        self, body: list[Stmt], terms: Sequence[Expr] = (), neutral: Sequence[Expr] = ()
    ) -> list[Stmt]:
        """The statements of all of them: loads, values, stores."""
        loads: list[Expr] = []
        values: list[Stmt] = []
        stores: list[Stmt] = []
        for number in range(self.times):
            place, inside = self._place(number)
            stmts, found = _renamed(body, {self.old: place}, terms)
            loads += _loads([*stmts, Eval(found)])
            own: list[Stmt] = []
            known: dict[Expr, Expr] = {}
            for s in stmts:
                if isinstance(s, Store):
                    own.append(_later(s, values, known))
                else:
                    values.append(s)
            found = [known.get(e, e) for e in found]
            if inside is not None:
                own = [If(inside, own, [])] if own else own
                found = [scalar.select(inside, e, n) for e, n in zip(found, neutral, strict=True)]
            stores += own
            if found:
                self.terms.append([_named(e, values, known) for e in found])
        return [Eval(loads), *values, *stores]

    def _place(self, number: int) -> tuple[Expr, Expr | None]:
        """Where an element is, and whether there is one, which is known of all but the last."""
        place = scalar.add(self.index, scalar.size(number * self.apart))
        if (number + 1) * self.apart <= self.extent:
            return place, None
        inside = scalar.compare("lt", place, scalar.size(self.extent))
        return scalar.select(inside, place, self.index), inside


def _fits(extent: Expr, times: int) -> bool:
    """Whether an axis is long enough that few of its elements are behind the end."""
    return int(extent.attr) >= 8 * times or times > 1 and int(extent.attr) % times == 0


def _is_simple(body: list[Stmt]) -> bool:
    """Whether all loads may come before all stores."""
    if not all(type(s) in (Let, Eval, Store) for s in body):
        return False
    written: set = set()
    for s in body:
        if written & buffers_read(traversal.expressions(s)):
            return False
        written.update(traversal.writes(s))
    return all(b.space != "private" for b in traversal.buffers(body))


def _takes_long(s: Loop) -> bool:
    """Whether there is something between loads of a loop that a compiler does not move them over."""
    if any(isinstance(x, Store) for x in s.body):
        return True
    return any(traversal.simple_work(e) is None for e in s.yields)


def _loads_first(body: list[Stmt]) -> list[Stmt]:
    loads = _loads(body)
    return [Eval(loads), *body] if len(loads) > 1 else body


def _loads(body: list[Stmt]) -> list[Expr]:
    """What a body loads from places that it knows at its begin, in order."""
    unknown = [v for s in body for v in traversal.defined(s)]
    found = [e for e in traversal.nodes(body) if e.op == "load" and not depends_on([e], unknown)]
    return found[::-1]


def _wanted(limits: Limits, body: list[Stmt]) -> int:
    """How many elements keep enough bytes under way, of a loop that is short."""
    nbytes = sum(itemsize(e.dtype) for e in _loads(body) if e.attr.space != "shared")
    if not nbytes:
        return 1
    most = limits.under_way // nbytes, limits.short // traversal.work(body), limits.elements
    return _power(min(most))


def _power(n: int) -> int:
    """The largest power of two up to a number: most axes divide by it."""
    return 1 << max(n.bit_length() - 1, 0)


def _renamed(
    body: list[Stmt], names: dict[Expr, Expr], terms: Sequence[Expr]
) -> tuple[list[Stmt], list[Expr]]:
    """The statements, and expressions, with other names, and variables of their own."""
    own = {v: scalar.var(v.dtype, "v") for s in body for v in traversal.defined(s)}
    anew = replacing(names | own)
    found = []
    for s in body:
        new = traversal.rewritten(s, anew)
        if isinstance(new, Let):
            new = Let([own[v] for v in new.variables], new.values)
        found.append(new)
    return found, [anew(e) for e in terms]


def _later(s: Store, values: list[Stmt], known: dict[Expr, Expr]) -> Store:
    """A store of what is computed before, among `values`."""
    index = _named(s.index, values, known) if reads_memory(s.index) else s.index
    return Store(s.buffer, index, _named(s.value, values, known))


def _named(e: Expr, values: list[Stmt], known: dict[Expr, Expr]) -> Expr:
    """A variable for an expression, one for each."""
    if e.op == "var":
        return e
    if e not in known:
        known[e] = scalar.var(e.dtype, "v")
        values.append(Let([known[e]], [e]))
    return known[e]
