"""Strip-mined while loops: a loop over blocks of iterations, each of them a scan.

Reverse mode keeps the states between blocks, and what a scan keeps within one.

Source: Griewank & Walther 2008, ch. 12.
Input: a while loop that counts, whose bound is unknown or too large to stack a row for each iteration.
Output: its linearization, by a loop over scans.
Legal when: the trip count is known when the loop begins (`trip_count.py`).
Pays when: rows for all iterations would take more than `ROW_BYTES` bytes.
Costs: about as much work as a scan of all iterations, in memory that does not grow with their number.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fnx.core import dtypes, policy
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.errors import MissingRule
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var
from fnx.interpreters.control_flow import ScanRecord, WhileRecord
from fnx.interpreters.linearize import linearize_jaxpr
from fnx.interpreters.operands import given
from fnx.interpreters.rewrite import with_jaxprs
from fnx.interpreters.trace import trace_closed
from fnx.ops.elementwise.arithmetic import add, min_, mul, sub
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.select import lt
from fnx.ops.structure.basic import scalar

from .trip_count import Count, Counted, count_of, scan_of_iterations

_INT = np.dtype(np.int64)


def fits(counted: Counted, tangents: Sequence) -> bool:
    """Whether a derivative may keep rows for all iterations that are possible."""
    iterations = counted.scan.length
    return (
        iterations <= policy.ROWS_ALWAYS
        or iterations * _bytes_of_row(counted, tangents) <= policy.ROW_BYTES
    )


def fits_inside(scan: ScanRecord, nonzero: Sequence[bool]) -> bool:
    """Whether a derivative may keep what it would: rows of loops inside are rarely all used."""
    return _bytes_of_rows(scan, nonzero) <= policy.VIRTUAL_ROW_BYTES


def _bytes_of_row(counted: Counted, tangents: Sequence) -> float:
    """What the derivative of a scan keeps for each iteration; at least a byte."""
    scan = replace(counted.scan, length=policy.ROWS_ALWAYS)
    return max(_bytes_of_rows(scan, given(counted.tangents(tangents))) / policy.ROWS_ALWAYS, 1)


def _bytes_of_rows(scan: ScanRecord, nonzero: Sequence[bool]) -> int:
    """What the derivative of a scan keeps for all iterations."""
    inputs = [Var(a) for a in scan.abstract_operands()]
    outs = [Var(a) for a in scan.abstract(*[v.aval for v in inputs])]
    jaxpr = Jaxpr(inputs, [Eqn(scan, inputs, outs)], outs)
    forward = linearize_jaxpr(jaxpr, tuple(nonzero))[0]
    rows = {v for v in forward.outs[len(outs) :] if v.aval.shape[:1] == (scan.length,)}
    return sum(v.aval.nbytes for v in rows if v not in forward.inputs)


def linearize_in_blocks(
    loop: WhileRecord,
    count: Count,
    kind: type[ScanRecord],
    primals: Sequence,
    tangents: Sequence,
) -> tuple[tuple, tuple]:
    """Results and tangents of a loop that counts."""
    counted, size = scan_of_iterations(loop, count, policy.BLOCK_LEAST, kind), policy.BLOCK_LEAST
    row = _bytes_of_row(counted, tangents)
    while size < policy.BLOCK_MOST and 2 * size * row <= policy.BLOCK_ROW_BYTES:
        size *= 2
    counted = replace(counted, scan=replace(counted.scan, length=size))
    iterations, *operands, _ = counted.operands(primals)
    first = loop.parts(primals)[2][count.carry]
    n = loop.body_consts
    zero = scalar(0, _INT)
    values = (iterations, iterations, first, *operands[:n], zero, *operands[n:])
    _, *given_tangents, _ = counted.tangents(tangents)
    blocks = _blocks(counted, [x.aval for x in values])
    t_in = (None, None, None, *given_tangents[:n], None, *given_tangents[n:])
    _, touts = blocks.linearize(values, t_in)
    k = count.carry
    return loop(*primals), (*touts[1 : k + 1], None, *touts[k + 1 :])


def linearize_counting(
    loop: WhileRecord, kind: type[ScanRecord], primals: Sequence, tangents: Sequence
) -> tuple[tuple, tuple]:
    """Results and tangents of a loop that does not count: its iterations are counted as it runs."""
    c, b, carry = loop.parts(primals)
    _, tb, tcarry = loop.parts(tangents)
    ends, counts = _counting(loop)
    zero = scalar(0, _INT)
    *outs, iterations = ends(*c, *b, *carry, zero)
    count = count_of(counts)
    if count is None:
        raise MissingRule(
            f"reverse-mode differentiation through a {loop.name} whose iterations, which run again on "
            "the way back, use results of a function with side effects. Expected: pure_callback, or a scan."
        )
    values, t_in = (iterations, *b, *carry, zero), (None, *tb, *tcarry, None)
    _, touts = linearize_in_blocks(counts, count, kind, values, t_in)
    return tuple(outs), touts[:-1]


def silent(jaxpr: Jaxpr) -> Jaxpr:
    """Without what runs for its side effects alone, for iterations that run a second time."""
    kept: list[Eqn] = []
    needed = {o for o in jaxpr.outs if type(o) is Var}
    for e in reversed(jaxpr.eqns):
        if e.prim.effects:
            e = Eqn(with_jaxprs(e.prim, silent), e.inputs, e.outs, e.source)
            if e.prim.effects and not any(v in needed for v in e.outs):
                continue
        kept.append(e)
        needed.update(a for a in e.inputs if type(a) is Var)
    return jaxpr.with_eqns(kept[::-1])


def _counting(loop: WhileRecord) -> tuple[WhileRecord, WhileRecord]:
    """The loop that also counts its iterations; the loop that runs so many."""
    key = ("counting", loop)
    body, cond = loop.body_jaxpr, loop.cond_jaxpr

    def make() -> tuple[WhileRecord, WhileRecord]:
        number = ShapedArray((), _INT)
        k, iterations, following = Var(number), Var(number), Var(number)
        more = Var(ShapedArray((), dtypes.bool_))
        one = Literal(scalar(1, _INT))
        step = Jaxpr(
            [*body.inputs, k],
            [*body.eqns, Eqn(add, [k, one], [following])],
            [*body.outs, following],
            name=body.name,
        )
        test = Jaxpr([*cond.inputs, k], cond.eqns, cond.outs, name=cond.name)
        carry = [Var(v.aval) for v in body.inputs[loop.body_consts :]]
        quiet = silent(step)
        until = Jaxpr([iterations, *carry, k], [Eqn(lt, [k, iterations], [more])], [more])
        return (
            replace(loop, cond_jaxpr=test, body_jaxpr=step),
            replace(loop, cond_jaxpr=until, cond_consts=1, body_jaxpr=quiet),
        )

    return loop.body_jaxpr.once(key, make)


def _blocks(counted: Counted, avals: Sequence[ShapedArray]) -> WhileRecord:
    """Over (iterations before, carries); constants: iterations, first counter, those of the scan."""
    scan, loop = counted.scan, counted.loop
    n, size, step = loop.body_consts, scan.length, counted.count.step
    key = ("blocks", size, step, *avals)

    def make() -> tuple[Jaxpr, Jaxpr]:
        def run(iterations: Array, first: Array, *rest: Array) -> list[Array]:
            b, done, carry = rest[:n], rest[n], rest[n + 1 :]
            here = min_(sub(iterations, done), scalar(size, _INT))
            way = ConvertElementType(first.dtype)(mul(done, scalar(step, _INT)))
            rows = counted.rows(add(way, first))
            return [add(done, here), *scan(here, *b, *carry, rows)]

        number = ShapedArray((), _INT)
        iterations, done, more = Var(number), Var(number), Var(ShapedArray((), dtypes.bool_))
        carry = [Var(a) for a in avals[n + 4 :]]
        cond = Jaxpr([iterations, done, *carry], [Eqn(lt, [done, iterations], [more])], [more])
        return cond, trace_closed(run, avals[1:], what="grad", name=scan.jaxpr.name)

    cond, body = counted.scan.jaxpr.once(key, make)
    most = loop.most and -(-loop.most // size)
    return replace(
        loop, cond_jaxpr=cond, cond_consts=1, body_jaxpr=body, body_consts=n + 2, most=most,
        by_states=True,
    )  # fmt: skip
