"""The scan primitive: a loop of known length that carries values and stacks results.

Its derivative is two loops: one forward, which also stacks the residuals that `residuals` chose, and
one that computes the rest of them again and applies the linear equations; the transpose of the
second runs from the other end.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var, eval_jaxpr
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Loop, Operand, Recipe
from fnx.ops.basic import zeros
from fnx.ops.convert import ConvertElementType
from fnx.ops.elementwise import add, mul
from fnx.ops.join import Iota
from fnx.ops.permute import Rev

from .batching import batch_jaxpr, place_axis
from .call import Backend, check_operands, given, only, run_primitive, spread, undefined
from .costs import hoistable
from .jvp import jvp_jaxpr
from .linearize import backward_jaxpr
from .residuals import Split, split
from .restore import Places, chain, makers, overwritten, places
from .rewrite import bind_into, dependent, live, reaching, reads, splice, zeros_into
from .simplify import dce, simplify, used_inputs
from .trace import trace_closed

Mask = tuple[bool, ...]


@dataclass(frozen=True)
class Scan(Primitive):
    """`jaxpr`: (constants, carry, x) -> (carry, y), run `length` times over the rows of xs.

    Operands: constants, first carry, xs. Results: the last carry, the stacked ys.
    """

    jaxpr: Jaxpr
    consts: int
    carry: int
    length: int
    reverse: bool = False
    unroll: int = 1
    backend: Backend | None = field(default=None, compare=False, repr=False)
    name = "scan"
    multiple_results = True
    jaxpr_fields = ("jaxpr",)

    def parts(self, values: Sequence) -> tuple[Any, Any, Any]:
        """Constants, carry and xs of the operands, or of anything that runs parallel to them."""
        n, m = self.consts, self.consts + self.carry
        return values[:n], values[n:m], values[m:]

    def with_jaxpr(self, jaxpr: Jaxpr, consts: int, carry: int) -> "Scan":
        return replace(self, jaxpr=jaxpr, consts=consts, carry=carry)

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return any(e.prim.effects for e in self.jaxpr.eqns)

    # --- types, evaluation ------------------------------------------------------------------------

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        check_operands(self.name, avals, self.abstract_operands())
        ys = self.jaxpr.out_avals[self.carry :]
        carry = self.parts(self.jaxpr.in_avals)[1]
        return (*carry, *(_stack(a, self.length) for a in ys))

    def impl(self, *values: np.ndarray) -> tuple:
        if self.backend is not None and not config.disable_jit.value:
            return run_primitive(self, self.jaxpr, self.backend, values)
        consts, carry, xs = self.parts(values)
        arrays, state = [ConcreteArray(c) for c in consts], [ConcreteArray(c) for c in carry]
        avals = self.jaxpr.out_avals[self.carry :]
        ys = [np.zeros((self.length, *a.shape), a.dtype) for a in avals]
        steps = range(self.length)
        with use(evaluate):
            for t in reversed(steps) if self.reverse else steps:
                row = [ConcreteArray(x[t, ...]) for x in xs]
                outs = eval_jaxpr(self.jaxpr, [*arrays, *state, *row])
                state = outs[: self.carry]
                for y, out in zip(ys, outs[self.carry :]):
                    y[t] = out._value  # type: ignore[attr-defined]
        return (*state, *map(ConcreteArray, ys))

    def lower(self, *operands: Operand) -> Recipe:
        return Loop(
            self.jaxpr, self.consts, self.carry, self.length, self.reverse, self.unroll
        )

    # --- forward mode ---------------------------------------------------------------------------------

    def _tangents(self, tangents: Sequence, masks: Callable[[Mask], Mask]) -> tuple[tuple, Mask]:
        """Tangents, with zeros where a carry gets one later; and which results have tangents."""
        consts, carry, xs = self.parts(given(tangents))
        while True:
            outs = masks((*consts, *carry, *xs))
            more = tuple([a or b for a, b in zip(carry, outs)])
            if more == carry:
                break
            carry = more
        avals = self.parts(self.jaxpr.in_avals)[1]
        tc, tk, tx = self.parts(tangents)
        tk = [zeros(a.tangent()) if nz and t is None else t for t, nz, a in zip(tk, carry, avals)]
        return (*tc, *tk, *tx), (*carry, *outs[self.carry :])

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        tangents, mask = self._tangents(tangents, lambda nz: jvp_jaxpr(self.jaxpr, nz)[1])
        nonzero = given(tangents)
        jaxpr = _jvp_body(self, nonzero, mask)
        parts = [self.parts(v) for v in (primals, tangents, nonzero)]
        operands: list[Array] = []
        counts = []
        for p, t, nz in zip(*parts):
            operands += [*p, *only(nz, t)]
            counts.append(len(p) + sum(nz))
        outs = self.with_jaxpr(jaxpr, counts[0], counts[1])(*operands)
        n, m = self.carry, counts[1]
        ny = len(self.jaxpr.outs) - n
        touts = spread(mask, [*outs[n:m], *outs[m + ny :]])
        return (*outs[:n], *outs[m : m + ny]), touts

    # --- reverse mode -----------------------------------------------------------------------------------

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        small = simplify(self.jaxpr)
        if small is not self.jaxpr:
            return self.with_jaxpr(small, self.consts, self.carry).linearize(primals, tangents)
        fixed = _fixed(self)
        if any(fixed):
            return _linearize_without(self, fixed, primals, tangents)
        counters = _counters(self)
        costly = [False] * self.consts + [k not in counters for k in range(self.carry)]
        costly += [False] * (len(primals) - len(costly))
        constant = [k < self.consts for k in range(len(primals))]

        def pieces(nz: Mask) -> Split:
            key = ("split scan", nz, self.consts, self.carry)
            if key not in self.jaxpr.memo:
                carry = range(self.consts, self.consts + self.carry)
                self.jaxpr.memo[key] = split(self.jaxpr, nz, costly, constant, carry)
            return self.jaxpr.memo[key]

        tangents, mask = self._tangents(tangents, lambda nz: pieces(nz).mask)
        nonzero = given(tangents)
        parts = pieces(nonzero)
        n = len(self.jaxpr.outs)
        outs = self.with_jaxpr(parts.forward, self.consts, self.carry)(*primals)
        kc = [k for k in parts.inputs if k < self.consts]
        kx = [k for k in parts.inputs if k >= self.consts and k not in parts.replayed]
        rows = [
            _count(self, primals[k], counters[k - self.consts])
            if k < self.consts + self.carry
            else primals[k]
            for k in kx
        ]
        tc, tk, tx = (only(given(t), t) for t in self.parts(tangents))
        start = [primals[k] for k in parts.replayed]
        jaxpr = _linear_body(self, parts, mask, (len(tc), len(tk), len(tx)))
        linear = self.with_jaxpr(jaxpr, len(kc) + len(tc), len(tk) + len(start))
        xs = [*rows, *outs[n:], *tx]
        touts = linear(*(primals[k] for k in kc), *tc, *tk, *start, *xs)
        return outs[:n], spread(mask, [*touts[: len(tk)], *touts[len(tk) + len(start) :]])

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        linear = undefined(args)
        body = self.jaxpr
        moved = dependent(body.eqns, only(linear, body.inputs))
        carried = self.parts(linear)[1]
        while True:  # a carry is linear if it is so after any step
            outs = body.outs[: self.carry]
            more = tuple([c or o in moved for c, o in zip(carried, outs)])
            if more == carried:
                break
            carried = more
            moved = dependent(body.eqns, [*moved, *only(carried, self.parts(body.inputs)[1])])
        if not all(carried):
            return _without_known_carry(self, carried, cts, args)
        return _transpose(self, cts, args)

    # --- vmap, dead code -----------------------------------------------------------------------------------

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        consts, carry, xs = self.parts(given(axes))
        force: Mask = (False,) * len(self.jaxpr.outs)
        while True:
            jaxpr, mask = batch_jaxpr(self.jaxpr, size, (*consts, *carry, *xs), force)
            more = tuple([a or b for a, b in zip(carry, mask)])
            if more == carry and mask[: self.carry] == carry:
                break
            carry = more
            force = (*carry, *(False for _ in mask[self.carry :]))
        front = self.consts + self.carry
        place = [
            place_axis(size, x, k, (0 if j < front else 1) if b else None)
            for j, (x, k, b) in enumerate(zip(args, axes, (*consts, *carry, *xs)))
        ]
        outs = self.with_jaxpr(jaxpr, self.consts, self.carry)(*place)
        out_axes = [(0 if j < self.carry else 1) if b else None for j, b in enumerate(mask)]
        return outs, tuple(out_axes)

    def abstract_operands(self) -> list[ShapedArray]:
        """The types of the operands."""
        consts, carry, xs = self.parts(self.jaxpr.in_avals)
        return [*consts, *carry, *(_stack(a, self.length) for a in xs)]

    def expand(self) -> Jaxpr | None:
        """Equations that do the same with less in the loop, if there are such."""
        key = ("expand", self)
        if key not in self.jaxpr.memo:
            self.jaxpr.memo[key] = _expand(self)
        return self.jaxpr.memo[key]

    def prune(self, used: Mask) -> tuple["Scan", Mask, Mask]:
        """Without the results and the carries that nobody needs."""
        key = ("prune", self.consts, self.carry, used)
        if key not in self.jaxpr.memo:
            self.jaxpr.memo[key] = _prune(self, used)
        jaxpr, consts, carry, ins, outs = self.jaxpr.memo[key]
        return self.with_jaxpr(jaxpr, consts, carry), ins, outs


def _stack(aval: ShapedArray, length: int) -> ShapedArray:
    return aval.update(shape=(length, *aval.shape))


def _with_zeros(eqns: list, outs: Sequence[Atom | None], avals: Sequence[ShapedArray]) -> list[Atom]:
    """`outs`, with zeros made for those that are None."""
    return [zeros_into(eqns, a) if o is None else o for o, a in zip(outs, avals)]


def _jvp_body(scan: Scan, nonzero: Mask, mask: Mask) -> Jaxpr:
    """(consts, tconsts, carry, tcarry, xs, txs) -> (carry, tcarry, ys, tys)."""
    key = ("jvp of scan", scan.consts, scan.carry, nonzero)
    if key in scan.jaxpr.memo:
        return scan.jaxpr.memo[key]
    body, made = jvp_jaxpr(scan.jaxpr, nonzero)
    n = len(nonzero)
    tangents = scan.parts(spread(nonzero, body.inputs[n:]))
    inputs: list[Var] = []
    for p, t in zip(scan.parts(body.inputs[:n]), tangents):
        inputs += [*p, *(v for v in t if v is not None)]
    eqns = list(body.eqns)
    m = len(made)
    outs = body.outs[:m]
    touts: Sequence = spread(made, body.outs[m:])
    full = _with_zeros(eqns, touts[: scan.carry], [o.aval.tangent() for o in outs])
    carry = [*outs[: scan.carry], *only(mask[: scan.carry], full)]
    ys = [*outs[scan.carry :], *(t for t in touts[scan.carry :] if t is not None)]
    scan.jaxpr.memo[key] = Jaxpr(inputs, eqns, [*carry, *ys], name=body.name)
    return scan.jaxpr.memo[key]


def _linear_body(
    scan: Scan, parts: Split, mask: Mask, tangents: tuple[int, int, int]
) -> Jaxpr:
    """(read consts, tconsts, tcarry, replayed, read xs, stored, txs) -> (tcarry, replayed, tys)."""
    key = ("linear scan", scan.consts, scan.carry, mask)
    if key in parts.linear.memo:
        return parts.linear.memo[key]
    tc, tk, _ = tangents
    v = parts.linear.inputs
    heads = len(v) - sum(tangents)
    by = dict(zip(parts.inputs, v))
    consts = [by[k] for k in parts.inputs if k < scan.consts]
    again = [by[k] for k in parts.replayed]
    rows = [by[k] for k in parts.inputs if k >= scan.consts and k not in parts.replayed]
    rows += v[len(parts.inputs) : heads]
    inputs = [*consts, *v[heads : heads + tc + tk], *again, *rows, *v[heads + tc + tk :]]
    eqns = list(parts.linear.eqns)
    last = len(parts.linear.outs) - len(again)
    touts: Sequence = spread(parts.mask, parts.linear.outs[:last])
    avals = [a.tangent() for a in scan.jaxpr.out_avals]
    full = _with_zeros(eqns, touts[: scan.carry], avals)
    tcarry = only(mask[: scan.carry], full)
    tys = only(mask[scan.carry :], touts[scan.carry :])
    outs = [*tcarry, *parts.linear.outs[last:], *tys]
    parts.linear.memo[key] = Jaxpr(inputs, eqns, outs, name=parts.linear.name)
    return parts.linear.memo[key]


# --- carries that need no storing ----------------------------------------------------------------------


def _fixed(scan: Scan) -> Mask:
    """Which carries are the same in all rounds."""
    body = scan.jaxpr
    return tuple([a is b for a, b in zip(scan.parts(body.inputs)[1], body.outs)])


def _counters(scan: Scan) -> dict[int, Array]:
    """The integer carries that grow by a number in each round, and that number."""
    body = scan.jaxpr
    maker = {v: e for e in body.eqns for v in e.outs}
    found = {}
    for k, (v, out) in enumerate(zip(scan.parts(body.inputs)[1], body.outs)):
        e = maker.get(out) if dtypes.is_integer(v.aval.dtype) and not v.aval.shape else None  # type: ignore
        if e is not None and e.prim.name == "add" and v in e.inputs:
            other = e.inputs[1] if e.inputs[0] is v else e.inputs[0]
            if type(other) is Literal:
                found[k] = other.value
    return found


def _count(scan: Scan, start: Array, by: Array) -> Array:
    """The values of a counter in all rounds, in the order of the rows."""
    rounds = Iota(0, start.dtype, (scan.length,))()
    if scan.reverse:
        rounds = Rev((0,))(rounds)
    return add(mul(rounds, ConvertElementType(start.dtype)(by)), start)


def _without_fixed(scan: Scan, fixed: Mask) -> Scan:
    """The loop whose fixed carries are constants."""
    key = ("fixed", scan.consts, scan.carry)
    if key not in scan.jaxpr.memo:
        body = scan.jaxpr
        consts, carry, xs = scan.parts(body.inputs)
        rest = [not f for f in fixed]
        inputs = [*consts, *only(fixed, carry), *only(rest, carry), *xs]
        outs = [*only(rest, body.outs[: scan.carry]), *body.outs[scan.carry :]]
        scan.jaxpr.memo[key] = Jaxpr(inputs, body.eqns, outs, name=body.name)
    return scan.with_jaxpr(scan.jaxpr.memo[key], scan.consts + sum(fixed), scan.carry - sum(fixed))


def _linearize_without(scan: Scan, fixed: Mask, primals: tuple, tangents: tuple) -> tuple:
    rest = [not f for f in fixed]

    def moved(values: tuple) -> tuple:
        consts, carry, xs = scan.parts(values)
        return (*consts, *only(fixed, carry), *only(rest, carry), *xs)

    def back(carry: tuple, outs: tuple) -> tuple:
        n = sum(rest)
        new = spread(rest, outs[:n])
        return (*(c if f else o for f, c, o in zip(fixed, carry, new)), *outs[n:])

    outs, touts = _without_fixed(scan, fixed).linearize(moved(primals), moved(tangents))
    return back(scan.parts(primals)[1], outs), back(scan.parts(tangents)[1], touts)


def _expand(scan: Scan) -> Jaxpr | None:
    """Fixed carries as constants, and what depends on constants alone before the loop."""
    fixed = _fixed(scan)
    inner = _without_fixed(scan, fixed) if any(fixed) else scan
    body = inner.jaxpr
    early, late = hoistable(body, inner.consts)
    if not early and inner is scan:
        return None
    needed = reads(late, body.outs)
    kept = [v for e in early for v in e.outs if v in needed]
    n = inner.consts
    inputs = [*body.inputs[:n], *kept, *body.inputs[n:]]
    loop = inner.with_jaxpr(Jaxpr(inputs, late, body.outs, name=body.name), n + len(kept), inner.carry)
    operands = [Var(a) for a in scan.abstract_operands()]
    consts, carry, xs = scan.parts(operands)
    rest = [not f for f in fixed]
    heads = [*consts, *only(fixed, carry)]
    eqns: list[Eqn] = []
    values = splice(Jaxpr(body.inputs[:n], early, kept), heads, eqns)
    outs: list[Atom] = bind_into(eqns, loop, [*heads, *values, *only(rest, carry), *xs])
    new = spread(rest, outs[: inner.carry])
    back = [c if f else o for f, c, o in zip(fixed, carry, new)]
    return Jaxpr(operands, eqns, [*back, *outs[inner.carry :]], name=scan.jaxpr.name)


# --- transposition ------------------------------------------------------------------------------------


def _transpose(scan: Scan, cts: tuple, args: tuple, restored: tuple["Restored", ...] = ()) -> tuple:
    """The loop from the other end; all carries are linear.

    Known xs that are `restored` are not rows of arrays: they are made anew in each round.
    """
    linear = undefined(args)
    consts, _, xs = scan.parts(linear)
    linear = (*consts, *(True,) * scan.carry, *xs)
    ct_carry, ct_ys = cts[: scan.carry], cts[scan.carry :]
    nonzero, reached = _nonzero(scan, given(ct_carry), given(ct_ys))
    jaxpr, mask_xs = _transposed_body(scan, linear, nonzero, given(ct_ys), reached, restored)
    avals = scan.parts(scan.jaxpr.in_avals)
    summed = [lin and r for lin, r in zip(consts, scan.parts(reached)[0])]
    start = [zeros(a) for a in only(summed, avals[0])]
    start += [
        zeros(a) if ct is None else ct
        for ct, a in zip(only(nonzero, ct_carry), only(nonzero, avals[1]))
    ]
    n, m = sum(summed), len(start)
    start += [scan.parts(args)[2][r.row] for r in restored]  # their last values
    made = [r.row for r in restored]
    known_c = [a for a, lin in zip(scan.parts(args)[0], consts) if not lin]
    known_x = [
        a for k, (a, lin) in enumerate(zip(scan.parts(args)[2], xs)) if not lin and k not in made
    ]
    back = replace(scan.with_jaxpr(jaxpr, len(known_c), len(start)), reverse=not scan.reverse)
    outs = back(*known_c, *start, *known_x, *only(given(ct_ys), ct_ys))
    found = (*spread(summed, outs[:n]), *spread(nonzero, outs[n:m]))
    found += spread(xs, spread(mask_xs, outs[len(start) :]))
    return tuple([ct if isinstance(a, Undefined) else None for ct, a in zip(found, args)])


def _nonzero(scan: Scan, carry: Mask, ys: Mask) -> tuple[Mask, Mask]:
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
    scan: Scan, linear: Mask, nonzero: Mask, ys: Mask, reached: Mask,
    restored: tuple["Restored", ...],
) -> tuple[Jaxpr, Mask]:  # fmt: skip
    """(known consts, sums, cotangents of carry, restored, known xs, cotangents of ys) ->
    (sums, cotangents of carry, restored, cotangents of xs); and which linear xs have a cotangent.
    """
    body = scan.jaxpr
    key = ("transpose of scan", scan.consts, scan.carry, linear, nonzero, ys, restored)
    if key in body.memo:
        return body.memo[key]
    consts, _, xs = scan.parts(linear)
    summed = [lin and r for lin, r in zip(consts, scan.parts(reached)[0])]
    in_c, in_k, in_x = scan.parts(body.in_avals)
    vars_c, _, vars_x = scan.parts(body.inputs)
    made = {r.row for r in restored}
    rows = [k for k, lin in enumerate(xs) if not lin and k not in made]
    ct_avals = [a.tangent() for a in body.out_avals]
    groups = [
        [a for a, lin in zip(in_c, consts) if not lin],
        only(summed, in_c),
        only(nonzero, in_k),
        [in_x[r.row] for r in restored],
        [in_x[k] for k in rows],
        only(ys, ct_avals[scan.carry :]),
    ]
    mask: list[bool] = []

    def run(*flat: Array) -> list[Array]:
        it = iter(flat)
        known_c, sums, ct_k, after, known_x, ct_y = ([next(it) for _ in g] for g in groups)
        values: dict[Var, Array] = dict(zip([v for v, lin in zip(vars_c, consts) if not lin], known_c))
        values |= zip([vars_x[k] for k in rows], known_x)
        before = [r.before(x, values) for r, x in zip(restored, after)]
        values |= zip([vars_x[r.row] for r in restored], before)
        full = [values[v] if v in values else Undefined(v.aval) for v in body.inputs]
        cts = [*spread(nonzero, ct_k), *spread(ys, ct_y)]
        seeds = [*spread(summed, sums), *(None for _ in (*in_k, *in_x))]
        back = backward_jaxpr(body, full, cts, seeds)
        back_c, back_k, back_x = scan.parts(back)
        back_k = [zeros(a) if ct is None else ct for ct, a in zip(back_k, in_k)]
        back_x = only(xs, back_x)
        mask.extend(ct is not None for ct in back_x)
        return [
            *only(summed, back_c),
            *only(nonzero, back_k),
            *before,
            *(ct for ct in back_x if ct is not None),
        ]

    jaxpr = trace_closed(run, [a for g in groups for a in g], what="transpose", name=body.name)
    body.memo[key] = jaxpr, tuple(mask)
    return body.memo[key]


@dataclass(frozen=True)
class Restored:
    """A row that is an array's value before a chain of updates, made from the value after it.

    `steps` are the updates' places, last first, each with the variable of what it overwrote.
    """

    row: int
    steps: tuple[tuple[Places, Var], ...]

    def before(self, x: Array, values: dict[Var, Array]) -> Array:
        for at, old in self.steps:
            where = [values[a] if type(a) is Var else a.value for a in at.where]  # type: ignore
            x = at.write(x, values[old], *where)
        return x


def _without_known_carry(scan: Scan, linear: Mask, cts: tuple, args: tuple) -> tuple:
    """Transposes a loop whose carry is partly known: that part runs first.

    Its values are stacked, or, of arrays that are updated in place, what the updates overwrite.
    """
    first, rest, restored, counts = _apart(scan, linear, undefined(args))
    known = [not lin for lin in linear]
    lin_c, _, lin_x = scan.parts(undefined(args))
    a_c, a_k, a_x = scan.parts(args)
    values_c = [a for a, lin in zip(a_c, lin_c) if not lin]
    values_x = [a for a, lin in zip(a_x, lin_x) if not lin]
    start = only(known, a_k)
    done = scan.with_jaxpr(first, len(values_c), len(start))(*values_c, *start, *values_x)
    last, stacked = done[: len(start)], done[len(start) :]
    rows = [*(last[k] for k in counts), *stacked]
    loop = scan.with_jaxpr(rest, scan.consts, sum(linear))
    ct = (*only(linear, cts[: scan.carry]), *cts[scan.carry :])
    found = _transpose(loop, ct, (*a_c, *only(linear, a_k), *rows, *a_x), restored)
    n, m = scan.consts, scan.consts + sum(linear)
    return (*found[:n], *spread(linear, found[n:m]), *found[m + len(rows) :])


def _apart(
    scan: Scan, linear: Mask, undefined_args: Mask
) -> tuple[Jaxpr, Jaxpr, tuple[Restored, ...], list[int]]:
    """The loop of the known carries alone; the loop in which they are xs; how those that are updated in
    place are restored; and their numbers among the known carries.
    """
    body = scan.jaxpr
    key = ("apart", scan.consts, scan.carry, linear, undefined_args)
    if key in body.memo:
        return body.memo[key]
    consts, carry, xs = scan.parts(body.inputs)
    lin_c, _, lin_x = scan.parts(undefined_args)
    known = [not lin for lin in linear]
    kept = only(known, carry)
    after = only(known, body.outs[: scan.carry])
    fixed = {v for v, lin in zip((*consts, *xs), (*lin_c, *lin_x)) if not lin}
    maker = makers(body.eqns)
    chains = [chain(maker, v, o) for v, o in zip(kept, after)]
    chains = [c if c and 2 * overwritten(c) < v.aval.nbytes else None for c, v in zip(chains, kept)]
    eqns, extra, names = list(body.eqns), [], {}  # what the first loop stacks, and its name later
    counts = [k for k, c in enumerate(chains) if c]
    restored = []
    for row, k in enumerate(counts):
        steps = []
        for e in chains[k] or ():
            at = places(e)
            for a in at.where:
                if type(a) is Var and a not in fixed and a not in names:
                    names[a] = Var(a.aval)
                    extra.append(a)
            old = splice(_reader(e, at), [e.inputs[0], *at.where], eqns)[0]
            names[old] = Var(old.aval)
            extra.append(old)
            where = tuple([names.get(a, a) if type(a) is Var else a for a in at.where])
            steps.append((replace(at, where=where), names[old]))
        restored.append(Restored(row, tuple(steps[::-1])))
    plain = [v for v, c in zip(kept, chains) if not c]
    ins_c = [v for v, lin in zip(consts, lin_c) if not lin]
    ins_x = [v for v, lin in zip(xs, lin_x) if not lin]
    outs = [*after, *plain, *extra]
    first = Jaxpr([*ins_c, *kept, *ins_x], live(eqns, outs), outs, name=body.name)
    rows = [*(kept[k] for k in counts), *plain, *(names[v] for v in extra)]
    inputs = [*consts, *only(linear, carry), *rows, *xs]
    outs = [*only(linear, body.outs[: scan.carry]), *body.outs[scan.carry :]]
    rest = Jaxpr(inputs, live(body.eqns, outs), outs, name=body.name)
    body.memo[key] = first, rest, tuple(restored), counts
    return body.memo[key]


def _reader(e: Eqn, at: Places) -> Jaxpr:
    """What an update overwrites, as a jaxpr of the array and the places."""
    avals = [e.inputs[0].aval, *(a.aval for a in at.where)]
    return trace_closed(lambda x, *where: [at.read(x, *where)], avals, what="transpose")


# --- dead code ---------------------------------------------------------------------------------------------


def _prune(scan: Scan, used: Mask) -> tuple[Jaxpr, int, int, Mask, Mask]:
    body, n = scan.jaxpr, scan.carry
    carry, ys = used[:n], used[n:]
    while True:
        small = dce(body, (*carry, *ys))
        reads = used_inputs(small)
        more = tuple([a or b for a, b in zip(carry, scan.parts(reads)[1])])
        if more == carry:
            break
        carry = more
    ins = (*scan.parts(reads)[0], *carry, *scan.parts(reads)[2])
    inputs = only(ins, small.inputs)
    jaxpr = Jaxpr(inputs, small.eqns, small.outs, name=body.name)
    return jaxpr, sum(ins[: scan.consts]), sum(carry), ins, (*carry, *ys)

