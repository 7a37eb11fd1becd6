"""Trip counts: a while loop that counts becomes a scan of the most iterations that it can have.

The bounds of an inner loop are often numbers of the outer one: `fori_loop(0, i, ...)`. Intervals of
integers, from the rows of the outer loop inwards, bound its iterations. A scan that learns its trip
count only when it runs can store, and restore, for each iteration what its derivative needs.

Source: LLVM's ScalarEvolution.
Input: a while loop, and what is known of its operands (`analysis/value_ranges.py`).
Output: a scan with `counted`, whose first constant is the trip count; None if it does not count.
Legal when: the condition compares a counter, which each iteration changes by a constant, with a
constant.
Pays when: reverse mode is asked for, and stacks have at most `COUNTED_ITERATIONS` rows.
Costs: rows that are never touched.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes, policy
from fnx.core.array import Array
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var, eval_jaxpr, made_once, subjaxprs
from fnx.interpreters.analysis.value_ranges import Interval, Intervals, of_value
from fnx.interpreters.control_flow import ScanRecord, WhileRecord
from fnx.interpreters.passes.dce import dce, used_inputs
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.rewrite import splice
from fnx.interpreters.trace import trace_closed
from fnx.ops.elementwise.arithmetic import add, div, max_, mul, sub
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.basic import scalar
from fnx.ops.structure.join import Iota

from .scan_transpose import counters_of

_INT = np.dtype(np.int64)
Ranges = tuple[Interval | None, ...]


@dataclass(frozen=True)
class Count:
    """A loop that goes on while its carry number `carry`, which grows by `step`, is within `limit`.

    `limit`: what the condition compares with, of the condition's inputs. `closed`: it is still within.
    """

    carry: int
    step: int
    limit: Jaxpr
    closed: bool


def count_of(loop: WhileRecord) -> Count | None:
    """How a loop counts, if it does."""
    test, body = simplify(loop.cond_jaxpr), simplify(loop.body_jaxpr)
    e = next((e for e in test.eqns if test.outs[0] in e.outs), None)
    if loop.effects or e is None or e.prim.name not in _MIRROR or e.inputs[0].aval.shape:
        return None
    n, m = loop.cond_consts, loop.body_consts
    fixed = [a is b for a, b in zip(body.inputs[m:], body.outs)]
    for name, x, y in ((e.prim.name, *e.inputs), (_MIRROR[e.prim.name], *e.inputs[::-1])):
        k = test.inputs.index(x) - n if x in test.inputs else -1  # type: ignore[arg-type]
        step = _step(body, m + k, k) if k >= 0 else None
        if step is None or (step > 0) != (name in ("lt", "le")):
            continue
        limit = dce(Jaxpr(test.inputs, test.eqns, [y]), (True,))
        if not any(used_inputs(limit)[n + j] for j, f in enumerate(fixed) if not f):
            return Count(k, step, limit, name in ("le", "ge"))
    return None


_MIRROR = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


def _step(body: Jaxpr, operand: int, result: int) -> int | None:
    """By how much a carried integer grows in each iteration."""
    v = body.inputs[operand]
    if v.aval.dtype.kind not in "iu" or v.aval.dtype == np.uint64:
        return None
    e = next((e for e in body.eqns if body.outs[result] in e.outs), None)
    if e is None or e.prim.name not in ("add", "sub"):
        return None
    x, y = e.inputs
    if e.prim.name == "add" and y is v:
        x, y = y, x
    if x is not v or type(y) is not Literal:
        return None
    number = int(y.value._value)  # type: ignore[attr-defined]
    return (number if e.prim.name == "add" else -number) or None


def most_iterations(loop: WhileRecord, count: Count, ranges: Ranges) -> tuple[int, Interval] | None:
    """The largest number of iterations, and the interval of the counter within them."""
    n, m = loop.cond_consts, loop.cond_consts + loop.body_consts
    first = ranges[m + count.carry]
    known = Intervals(zip(count.limit.inputs, (*ranges[:n], *ranges[m:]), strict=True))
    for e in count.limit.eqns:
        known.add(e)
    last = known.of(count.limit.outs[0])
    if first is None or last is None:
        return None
    way, by = (
        (last[1] - first[0], count.step) if count.step > 0 else (first[1] - last[0], -count.step)
    )
    most = max(0, (way + count.closed + by - 1) // by)
    v = loop.body_jaxpr.inputs[loop.body_consts + count.carry]
    info = dtypes.iinfo(v.aval.dtype)
    ends = (first[0], last[1]) if count.step > 0 else (last[0], first[1])
    if most > policy.COUNTED_ITERATIONS or ends[0] - by < info.min or ends[1] + by > info.max:
        return None
    open_end = not count.closed
    return most, (ends[0] + (open_end and count.step < 0), ends[1] - (open_end and count.step > 0))


def as_scan(loop: WhileRecord, ranges: Ranges, kind: type[ScanRecord]) -> "Counted | None":
    """The scan that does the same, if the loop counts and its iterations have a bound."""
    return loop.body_jaxpr.once(("as scan", loop, ranges), lambda: _as_scan(loop, ranges, kind))


def _as_scan(loop: WhileRecord, ranges: Ranges, kind: type[ScanRecord]) -> "Counted | None":
    count = count_of(loop)
    found = most_iterations(loop, count, ranges) if count is not None else None
    if count is None or found is None:
        return None
    return _scan_of(loop, count, *found, ranges, kind)


def scan_of_iterations(
    loop: WhileRecord, count: Count, length: int, kind: type[ScanRecord]
) -> "Counted":
    """The scan of so many iterations at most, of a loop of which no more is known."""
    operands = loop.cond_consts + len(loop.body_jaxpr.inputs)
    return _scan_of(loop, count, length, None, (None,) * operands, kind)


def _scan_of(
    loop: WhileRecord, count: Count, most: int, counter: Interval | None, ranges: Ranges,
    kind: type[ScanRecord],
) -> "Counted":  # fmt: skip
    body, m, k = simplify(loop.body_jaxpr), loop.body_consts, count.carry
    v = body.inputs[m + k]
    eqns, row = list(body.eqns), v
    if v.aval.weak_type:
        row = Var(v.aval.strong())
        eqns.insert(0, Eqn(ConvertElementType(v.aval.dtype, True), [row], [v]))
    carry = [x for j, x in enumerate(body.inputs[m:]) if j != k]
    outs = [o for j, o in enumerate(body.outs) if j != k]
    iterations = Var(scalar(0, _INT).aval)
    inputs = [iterations, *body.inputs[:m], *carry, row]
    b = ranges[loop.cond_consts : loop.cond_consts + m]
    inside = counted_loops(
        simplify(Jaxpr(inputs, eqns, outs, name=body.name)),
        ((0, most), *b, *[None] * len(carry), counter),
        kind,
    )
    of = {"backend": loop.backend, "site": loop.site, "progress": loop.progress}
    scan = kind(inside, m + 1, len(carry), most, counted=True, **of)  # type: ignore[arg-type]
    return Counted(loop, count, scan)


@dataclass(frozen=True)
class Counted:
    """A scan in place of a loop."""

    loop: WhileRecord
    count: Count
    scan: ScanRecord

    def operands(self, values: Sequence[Array]) -> list[Array]:
        """Those of the scan, from those of the loop."""
        c, b, carry = self.loop.parts(values)
        first, step = carry[self.count.carry], self.count.step
        (end,) = eval_jaxpr(self.count.limit, [*c, *carry])
        wide = ConvertElementType(_INT)
        low, high = (first, end) if step > 0 else (end, first)
        number = lambda n: scalar(n, _INT)
        iterations = sub(wide(high), wide(low))
        more = abs(step) - 1 + self.count.closed
        iterations = add(iterations, number(more)) if more else iterations
        iterations = div(iterations, number(abs(step))) if abs(step) > 1 else iterations
        iterations = max_(iterations, number(0))
        rest = [x for j, x in enumerate(carry) if j != self.count.carry]
        return [iterations, *b, *rest, self.rows(first)]

    def rows(self, first: Array) -> Array:
        """The counter in the iterations from where it is `first`."""
        step, dtype = self.count.step, first.dtype
        rows = Iota(0, dtype, (self.scan.length,))()
        rows = mul(rows, scalar(step, dtype)) if step != 1 else rows
        return add(rows, ConvertElementType(dtype)(first))

    def results(
        self, values: Sequence[Array], iterations: Array, outs: Sequence[Array]
    ) -> list[Array]:
        """Those of the loop, from those of the scan."""
        first = self.loop.parts(values)[2][self.count.carry]
        by = ConvertElementType(first.dtype)(mul(iterations, scalar(self.count.step, _INT)))
        last = add(first, by)
        weak = first.aval.weak_type
        last = ConvertElementType(first.dtype, True)(last) if weak else last
        return [*outs[: self.count.carry], last, *outs[self.count.carry :]]

    def tangents(self, tangents: Sequence[Any]) -> list[Any]:
        """Parallel to `operands`."""
        _, b, carry = self.loop.parts(tangents)
        return [None, *b, *(t for j, t in enumerate(carry) if j != self.count.carry), None]

    def equations(self, e: Eqn) -> list[Eqn]:
        """What replaces the loop's equation."""

        def run(*values: Array) -> list[Array]:
            operands = self.operands(values)
            return self.results(values, operands[0], self.scan(*operands))

        eqns: list[Eqn] = []
        jaxpr = trace_closed(run, [a.aval for a in e.inputs], name="counted")
        outs = splice(jaxpr, e.inputs, eqns)
        maker = {v: (j, i) for j, x in enumerate(eqns) for i, v in enumerate(x.outs)}
        for old, new in zip(e.outs, outs, strict=True):  # results keep their names
            j, i = maker[new]  # type: ignore[index]
            own = [*eqns[j].outs]
            own[i] = old
            eqns[j] = Eqn(eqns[j].prim, eqns[j].inputs, own, e.source)
        return eqns


# --- inside other jaxprs -----------------------------------------------------------------------


@made_once
def holds_while(jaxpr: Jaxpr) -> bool:
    """Whether there is a while loop at any depth."""
    return any(
        e.prim.name == "while" or any(holds_while(j) for j in subjaxprs(e.prim)) for e in jaxpr.eqns
    )


def counted_loops(jaxpr: Jaxpr, ranges: Ranges, kind: type[ScanRecord]) -> Jaxpr:
    """The jaxpr with scans for its loops that count; `ranges` of its inputs."""
    return _counted_loops(jaxpr, ranges, kind) if holds_while(jaxpr) else jaxpr


@made_once
def _counted_loops(jaxpr: Jaxpr, ranges: Ranges, kind: type[ScanRecord]) -> Jaxpr:
    known = Intervals(zip(jaxpr.inputs, ranges, strict=True))
    eqns: list[Eqn] = []
    changed = False
    for e in jaxpr.eqns:
        new = _replaced(e, tuple([known.of(a) for a in e.inputs]), kind)
        changed |= new != [e]
        eqns += new
        for x in new:
            known.add(x)
    if not changed:
        return jaxpr
    return simplify(jaxpr.with_eqns(eqns))


def _replaced(e: Eqn, ranges: Ranges, kind: type[ScanRecord]) -> list[Eqn]:
    prim: Any = e.prim
    if prim.name == "while":
        found = as_scan(prim, ranges, kind)
        return [e] if found is None else found.equations(e)
    if prim.name == "scan":
        inside = counted_loops(prim.jaxpr, ranges_inside(prim, ranges), kind)
        if inside is not prim.jaxpr:
            return [
                Eqn(prim.with_jaxpr(inside, prim.consts, prim.carry), e.inputs, e.outs, e.source)
            ]
    if prim.name == "cond":
        branches = [counted_loops(b, ranges[1:], kind) for b in prim.branches]
        if any(a is not b for a, b in zip(branches, prim.branches)):
            return [Eqn(prim.with_branches(branches), e.inputs, e.outs, e.source)]
    return [e]


def ranges_inside(scan: ScanRecord, ranges: Ranges) -> Ranges:
    """Intervals of the body's inputs: counters and what stays are known among the carries."""
    consts, carry, xs = scan.parts(ranges)
    inputs, outs = scan.parts(scan.jaxpr.inputs)[1], scan.jaxpr.outs
    steps = {k: int(by._value) for k, by in counters_of(scan).items()}  # type: ignore[attr-defined]
    found = []
    for k, first in enumerate(carry):
        if first is not None and k in steps:
            way = steps[k] * max(scan.length - 1, 0)
            found.append((first[0] + min(way, 0), first[1] + max(way, 0)))
        else:
            found.append(first if outs[k] is inputs[k] else None)
    return (*consts, *found, *xs)


def ranges_of(values: Sequence[Array]) -> Ranges:
    """Intervals of arrays, where they are known."""
    return tuple([of_value(x) if dtypes.is_integer(x.dtype) else None for x in values])
