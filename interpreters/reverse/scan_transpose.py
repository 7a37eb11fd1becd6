"""Transpose of scan: the linear loop that reads residuals, run from the other end.

Source: JAX.
Input: a linear scan, which operands are linear, and cotangents of its results.
Output: cotangents of its operands, by one scan in reverse.
Legal when: the body is linear in what is transposed.
Pays when: always.
Costs: one pass over the stacks of residuals.
"""

from collections.abc import Sequence
from dataclasses import replace

from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Jaxpr, Literal, Var
from fnx.core.primitive import Undefined
from fnx.interpreters.control_flow import ScanRecord
from fnx.interpreters.linearize import Known, backward_jaxpr
from fnx.interpreters.operands import given, only, spread, undefined
from fnx.interpreters.passes.dce import dce
from fnx.interpreters.rewrite import reaching, with_zeros
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.permute import Rev
from fnx.ops.elementwise.arithmetic import add, mul, sub
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.structure.basic import scalar, zeros
from fnx.ops.structure.join import Iota

from .linear_scales import scaled_once
from .rank_k_sums import stacked
from .residuals import Split

Mask = tuple[bool, ...]


def linear_body(
    scan: ScanRecord, parts: Split, mask: Mask, tangents: tuple[int, int, int]
) -> Jaxpr:
    """(read consts, tconsts, tcarry, versions, read xs, stored, txs) -> (tcarry, tys)."""
    key = ("linear scan", scan.consts, scan.carry, scan.counted, mask)
    return parts.linear.once(key, lambda: _linear_body(scan, parts, mask, tangents))


def _linear_body(
    scan: ScanRecord, parts: Split, mask: Mask, tangents: tuple[int, int, int]
) -> Jaxpr:
    tc, tk, _ = tangents
    v = parts.linear.inputs
    read, end = len(parts.inputs), len(parts.inputs) + sum(parts.versions)
    heads = len(v) - sum(tangents)
    consts = [v for k, v in zip(parts.inputs, v) if k < scan.consts]
    rows = [*v[len(consts) : read], *v[end:heads]]
    iterations = [Var(scan.jaxpr.inputs[0].aval)] if scan.counted else []
    inputs = [
        *iterations,
        *consts,
        *v[heads : heads + tc + tk],
        *v[read:end],
        *rows,
        *v[heads + tc + tk :],
    ]
    eqns = list(parts.linear.eqns)
    touts: Sequence = spread(parts.mask, parts.linear.outs)
    avals = [a.tangent() for a in scan.jaxpr.out_avals]
    full = with_zeros(eqns, touts[: scan.carry], avals)
    outs = [*only(mask[: scan.carry], full), *only(mask[scan.carry :], touts[scan.carry :])]
    return Jaxpr(inputs, eqns, outs, name=parts.linear.name)


# --- carries that need no storing --------------------------------------------------------------


def fixed_carries(scan: ScanRecord) -> Mask:
    """Which carries are the same in all iterations."""
    body = scan.jaxpr
    return tuple([a is b for a, b in zip(scan.parts(body.inputs)[1], body.outs)])


def counters_of(scan: ScanRecord) -> dict[int, Array]:
    """The integer carries that grow by a number in each iteration, and that number."""
    body = scan.jaxpr
    maker = definitions(body.eqns)
    found = {}
    for k, (v, out) in enumerate(zip(scan.parts(body.inputs)[1], body.outs)):
        e = maker.get(out) if dtypes.is_integer(v.aval.dtype) and not v.aval.shape else None  # type: ignore
        if e is not None and e.prim.name == "add" and v in e.inputs:
            other = e.inputs[1] if e.inputs[0] is v else e.inputs[0]
            if type(other) is Literal:
                found[k] = other.value
    return found


def count_rows(scan: ScanRecord, primals: Sequence, k: int, by: Array) -> Array:
    """The values of the counter that is operand `k` in all iterations, in the order of the rows."""
    start = primals[k]
    iterations = Iota(0, start.dtype, (scan.length,))()
    if scan.reverse and scan.counted:
        last = sub(primals[0], scalar(1, primals[0].dtype))
        iterations = sub(ConvertElementType(start.dtype)(last), iterations)
    elif scan.reverse:
        iterations = Rev((0,))(iterations)
    return add(mul(iterations, ConvertElementType(start.dtype)(by)), start)


def without_fixed(scan: ScanRecord, fixed: Mask) -> ScanRecord:
    """The loop whose fixed carries are constants."""
    body = scan.jaxpr
    consts, carry, xs = scan.parts(body.inputs)
    rest = [not f for f in fixed]
    inputs = [*consts, *only(fixed, carry), *only(rest, carry), *xs]
    outs = [*only(rest, body.outs[: scan.carry]), *body.outs[scan.carry :]]
    jaxpr = body.once(
        ("fixed", scan.consts, scan.carry), lambda: Jaxpr(inputs, body.eqns, outs, name=body.name)
    )
    return scan.with_jaxpr(jaxpr, len(consts) + sum(fixed), sum(rest))


def linearize_without(scan: ScanRecord, fixed: Mask, primals: tuple, tangents: tuple) -> tuple:
    rest = [not f for f in fixed]

    def moved(values: tuple) -> tuple:
        consts, carry, xs = scan.parts(values)
        return (*consts, *only(fixed, carry), *only(rest, carry), *xs)

    def back(carry: tuple, outs: tuple) -> tuple:
        n = sum(rest)
        new = spread(rest, outs[:n])
        return (*(c if f else o for f, c, o in zip(fixed, carry, new)), *outs[n:])

    outs, touts = without_fixed(scan, fixed).linearize(moved(primals), moved(tangents))
    return back(scan.parts(primals)[1], outs), back(scan.parts(tangents)[1], touts)


# --- transposition -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Undo:
    """How the arrays that a loop reads are restored in its transpose.

    Their versions are the loop's first rows. `jaxpr`: (known constants, arrays after an iteration, known
    rows) -> versions of each array. `lasts`: the arrays after the last iteration.
    """

    jaxpr: Jaxpr
    versions: tuple[int, ...]
    consts: int  # known ones
    rows: int  # known ones, besides the versions
    lasts: tuple[Array, ...]

    @property
    def count(self) -> int:
        """How many rows are no operands."""
        return sum(self.versions)

    @property
    def firsts(self) -> list[int]:
        """The number of each array's first version."""
        return [sum(self.versions[:k]) for k in range(len(self.versions))]


def transpose_linear(
    scan: ScanRecord, cts: tuple, args: tuple, undo: Undo | None = None
) -> tuple[tuple, tuple]:
    """The loop from the other end; all carries are linear. Also the arrays that `undo` restores."""
    linear = undefined(args)
    consts, _, xs = scan.parts(linear)
    linear = (*consts, *(True,) * scan.carry, *xs)
    ct_carry, ct_ys = cts[: scan.carry], cts[scan.carry :]
    ys = given(ct_ys)
    nonzero, reached = _nonzero(scan, given(ct_carry), ys)
    key = ("transpose of scan", scan.consts, scan.carry, linear, nonzero, ys, undo and undo.jaxpr)
    jaxpr, mask_xs = scan.jaxpr.once(
        key, lambda: _transposed_body(scan, linear, nonzero, ys, reached, undo)
    )
    avals = scan.parts(scan.jaxpr.in_avals)
    summed = [lin and r for lin, r in zip(consts, scan.parts(reached)[0])]
    start = [zeros(a) for a in only(summed, avals[0])]
    start += [
        zeros(a) if ct is None else ct
        for ct, a in zip(only(nonzero, ct_carry), only(nonzero, avals[1]))
    ]
    n, m = sum(summed), len(start)
    start += undo.lasts if undo else ()
    skip = undo.count if undo else 0
    known_c = [a for a, lin in zip(scan.parts(args)[0], consts) if not lin]
    known_x = [a for a, lin in zip(scan.parts(args)[2][skip:], xs[skip:]) if not lin]
    rows = (*known_x, *only(ys, ct_ys))
    outs = _with_sums(scan, jaxpr, known_c, start, n, rows)
    found = (*spread(summed, outs[:n]), *spread(nonzero, outs[n:m]))
    found += spread(xs, spread(mask_xs, outs[len(start) :]))
    cts = tuple([ct if isinstance(a, Undefined) else None for ct, a in zip(found, args)])
    return cts, outs[m : len(start)]


def _with_sums(
    scan: ScanRecord, jaxpr: Jaxpr, consts: Sequence, start: Sequence, sums: int, rows: Sequence
) -> tuple:
    """The results of a transposed loop; its first carries are sums that begin with zeros."""
    found = None
    if not (scan.counted or scan.divergent or scan.effects):
        found = stacked(jaxpr, len(consts), sums, len(start), scan.length)
    if found is None:
        return _back(scan.with_jaxpr(jaxpr, len(consts), len(start)))(*consts, *start, *rows)
    kept = [s for s, terms in zip(start, found.terms) if terms is None]
    start = [*kept, *start[sums:]]
    outs = _back(scan.with_jaxpr(found.jaxpr, len(consts), len(start)))(*consts, *start, *rows)
    end = len(outs) - found.count
    return (*found.totals(outs[: len(kept)], outs[end:], rows), *outs[len(kept) : end])


def _back(scan: ScanRecord) -> ScanRecord:
    """The same from the other end."""
    site = scan.site and scan.site.reversed()
    return replace(scan, reverse=not scan.reverse, site=site)


def _nonzero(scan: ScanRecord, carry: Mask, ys: Mask) -> tuple[Mask, Mask]:
    """Which carries ever have a nonzero cotangent; which inputs one can reach."""
    body = scan.jaxpr
    while True:
        seeds = only((*carry, *ys), body.outs)
        found = reaching(body.eqns, seeds)
        reached = tuple([v in found for v in body.inputs])
        more = tuple([a or b for a, b in zip(carry, scan.parts(reached)[1])])
        if more == carry:
            return carry, reached
        carry = more


def _transposed_body(
    scan: ScanRecord, linear: Mask, nonzero: Mask, ys: Mask, reached: Mask, undo: Undo | None,
) -> tuple[Jaxpr, Mask]:  # fmt: skip
    """(known consts, sums, cotangents of carry, arrays, known xs, cotangents of ys) ->
    (sums, cotangents of carry, arrays, cotangents of xs); and which linear xs have a cotangent.
    """
    body = scan.jaxpr
    consts, _, xs = scan.parts(linear)
    summed = [lin and r for lin, r in zip(consts, scan.parts(reached)[0])]
    in_c, in_k, in_x = scan.parts(body.in_avals)
    vars_c, _, vars_x = scan.parts(body.inputs)
    skip = undo.count if undo else 0
    rows = [k for k, lin in enumerate(xs) if not lin and k >= skip]
    ct_avals = [a.tangent() for a in body.out_avals]
    groups = [
        [a for a, lin in zip(in_c, consts) if not lin],
        only(summed, in_c),
        only(nonzero, in_k),
        [in_x[k] for k in undo.firsts] if undo else [],
        [in_x[k] for k in rows],
        only(ys, ct_avals[scan.carry :]),
    ]
    mask: list[bool] = []

    def run(*flat: Array) -> list[Array]:
        it = iter(flat)
        known_c, sums, ct_k, after, known_x, ct_y = ([next(it) for _ in g] for g in groups)
        values: dict[Var, Array] = dict(
            zip([v for v, lin in zip(vars_c, consts) if not lin], known_c)
        )
        values |= zip([vars_x[k] for k in rows], known_x)
        full = [values[v] if v in values else Undefined(v.aval) for v in body.inputs]
        cts = [*spread(nonzero, ct_k), *spread(ys, ct_y)]
        seeds = [*spread(summed, sums), *(None for _ in (*in_k, *in_x))]
        known = None
        if undo:
            operands = [*known_c[: undo.consts], *after, *known_x[: undo.rows]]
            values |= zip(undo.jaxpr.inputs, operands)
            known = Versions(values, undo.jaxpr, vars_x[:skip])
        back = backward_jaxpr(body, full, cts, seeds, known)
        back_c, back_k, back_x = scan.parts(back)
        back_k = [zeros(a) if ct is None else ct for ct, a in zip(back_k, in_k)]
        back_x = only(xs, back_x)
        mask.extend(ct is not None for ct in back_x)
        return [
            *only(summed, back_c),
            *only(nonzero, back_k),
            *([known[vars_x[k]] for k in undo.firsts] if undo and known else ()),
            *(ct for ct in back_x if ct is not None),
        ]

    jaxpr = trace_closed(run, [a for g in groups for a in g], what="transpose", name=body.name)
    own = [k in (1, 2, 5) for k, g in enumerate(groups) for _ in g]
    return scaled_once(jaxpr, only(own, jaxpr.inputs)), tuple(mask)


class Versions(Known):
    """Values among which are an array's versions, restored from the last to the first as needed.

    A loop in the loop that is transposed restores what it started from on its own way back.
    """

    def __init__(self, values: dict[Var, Array], undo: Jaxpr, versions: Sequence[Var]):
        super().__init__(values, undo.eqns)
        self.made = dict(zip(versions, undo.outs))
        self.order = list(versions)

    def atom(self, v: Var) -> Atom:
        return self.made.get(v, v)

    def learn(self, operands: Sequence[Atom], firsts: Sequence[Array]) -> None:
        for last, first in zip(operands, firsts, strict=True):
            k = self.order.index(last) if last in self.order else 0  # type: ignore[arg-type]
            before = self.made[self.order[k - 1]] if k else None
            maker = self.maker.get(before) if type(before) is Var else None
            if maker is not None and maker.prim.name == "scan":
                self.values.setdefault(before, first)  # type: ignore[arg-type]


def transpose_known(scan: ScanRecord, linear: Mask, cts: tuple, args: tuple) -> tuple:
    """Transposes a loop whose carry is partly known: that part runs first, its values are stacked."""
    key = ("apart", scan.consts, scan.carry, linear, undefined(args))
    first, rest = scan.jaxpr.once(key, lambda: _apart(scan, linear, undefined(args)))
    known = [not lin for lin in linear]
    lin_c, _, lin_x = scan.parts(undefined(args))
    a_c, a_k, a_x = scan.parts(args)
    values_c = [a for a, lin in zip(a_c, lin_c) if not lin]
    values_x = [a for a, lin in zip(a_x, lin_x) if not lin]
    start = only(known, a_k)
    done = scan.with_jaxpr(first, len(values_c), len(start))(*values_c, *start, *values_x)
    rows = done[len(start) :]
    loop = scan.with_jaxpr(rest, scan.consts, sum(linear))
    ct = (*only(linear, cts[: scan.carry]), *cts[scan.carry :])
    found, _ = transpose_linear(loop, ct, (*a_c, *only(linear, a_k), *rows, *a_x))
    n, m = scan.consts, scan.consts + sum(linear)
    return (*found[:n], *spread(linear, found[n:m]), *found[m + len(rows) :])


def _apart(scan: ScanRecord, linear: Mask, undefined_args: Mask) -> tuple[Jaxpr, Jaxpr]:
    """The loop of the known carries alone, which stacks them; the loop in which they are xs."""
    body = scan.jaxpr
    consts, carry, xs = scan.parts(body.inputs)
    lin_c, _, lin_x = scan.parts(undefined_args)
    known = [not lin for lin in linear]
    kept = only(known, carry)
    ins_c = [v for v, lin in zip(consts, lin_c) if not lin]
    ins_x = [v for v, lin in zip(xs, lin_x) if not lin]
    outs = [*only(known, body.outs[: scan.carry]), *kept]
    first = _needed(Jaxpr([*ins_c, *kept, *ins_x], body.eqns, outs, name=body.name))
    inputs = [*consts, *only(linear, carry), *kept, *xs]
    outs = [*only(linear, body.outs[: scan.carry]), *body.outs[scan.carry :]]
    return first, _needed(Jaxpr(inputs, body.eqns, outs, name=body.name))


def _needed(jaxpr: Jaxpr) -> Jaxpr:
    """What the results need, of calls and loops inside too."""
    return dce(jaxpr, (True,) * len(jaxpr.outs))
