"""The scan primitive: a loop of known length that carries values and stacks results.

Its derivative is two loops: one forward, which also stacks the residuals that `residuals` chose, and
one that computes the rest of them again and applies the linear equations; the transpose of the
second runs from the other end.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.core import config, policy
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.axis_size import axis_name_of
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var, eval_jaxpr
from fnx.core.recipe import Loop, Operand, Recipe
from fnx.interpreters.analysis.cost_model import hoistable
from fnx.interpreters.analysis.dependence import carried, of_scan
from fnx.interpreters.batching import axis_names, batch_jaxpr, place_axis
from fnx.interpreters.control_flow import ScanRecord, stacked
from fnx.interpreters.jvp import jvp_jaxpr
from fnx.interpreters.operands import check_operands, given, only, spread, typed, undefined
from fnx.interpreters.passes.compiled import count_work, run_primitive
from fnx.interpreters.passes.dce import dce, used_inputs
from fnx.interpreters.passes.loop_vectorize import rows_at_once
from fnx.interpreters.passes.one_hot_updates import spotted
from fnx.interpreters.passes.predicated_updates import updates_chosen
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.reverse.checkpoint_blocks import length_of_blocks, linearize_in_blocks
from fnx.interpreters.reverse.checkpoint_while import fits_inside
from fnx.interpreters.reverse.low_rank_updates import Summed, summed
from fnx.interpreters.reverse.residuals import Split, split
from fnx.interpreters.reverse.scan_transpose import (
    count_rows,
    counters_of,
    fixed_carries,
    linear_body,
    linearize_without,
    transpose_known,
    transpose_linear,
    without_fixed,
)
from fnx.interpreters.reverse.trip_count import counted_loops, holds_while, ranges_inside, ranges_of
from fnx.interpreters.reverse.undo_loop import UndoLoop, undo_loop_of
from fnx.interpreters.rewrite import bind_into, reads, splice, with_zeros
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.base.permute import Reshape
from fnx.ops.structure.basic import broadcast_axis, reshape

from .divergent import batch_of_counts

Mask = tuple[bool, ...]


@dataclass(frozen=True)
class Scan(ScanRecord):
    """The loop and all its rules."""

    # --- types, evaluation ----------------------------------------------------------------------

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        check_operands(self.name, avals, self.abstract_operands())
        ys = self.jaxpr.out_avals[self.carry :]
        carry = self.jaxpr.out_avals[: self.carry]  # but for weak types, what the body gets
        return (*carry, *(stacked(a, self.length) for a in ys))

    def impl(self, *values: np.ndarray) -> tuple:
        native = self.backend is not None and not config.disable_jit.value
        long = self.length * count_work(self.jaxpr) > policy.EAGER_EQUATIONS
        if native and (long or self.progress):
            return run_primitive(self, self.jaxpr, self.backend, values)
        consts, carry, xs = self.parts(values)
        arrays, state = [ConcreteArray(c) for c in consts], [ConcreteArray(c) for c in carry]
        avals = self.jaxpr.out_avals[self.carry :]
        ys = [np.zeros((self.length, *a.shape), a.dtype) for a in avals]
        steps = range(min(max(int(values[0]), 0), self.length) if self.counted else self.length)
        record = config.told.get().get(self.site)
        with use(evaluate):
            for k, t in enumerate(reversed(steps) if self.reverse else steps):
                if record is not None:
                    record.tell(k, len(steps), 1)
                row = [ConcreteArray(x[t, ...]) for x in xs]
                outs = eval_jaxpr(self.jaxpr, [*arrays, *state, *row])
                state = outs[: self.carry]
                for y, out in zip(ys, outs[self.carry :]):
                    y[t] = out._value  # type: ignore[attr-defined]
        if record is not None:
            record.tell(len(steps), len(steps), 2)
        outs = (*state, *map(ConcreteArray, ys))
        return typed(outs, self.abstract(*self.abstract_operands()))

    def lower(self, *operands: Operand) -> Recipe:
        n, m = self.consts, self.carry
        more = self.reverse, self.counted, self.site, self.progress
        return Loop(self.jaxpr, n, m, self.length, *more)

    def partition(self, grid: Any, parts: list) -> list:
        """The same loop in each member, over rows that are cut."""
        consts, carry, xs = self.parts(parts)
        rows = [grid.lay(p, ((), *p.cut[1:])) for p in xs]
        own, along = [p.cut for p in consts], [p.cut[1:] for p in rows]

        def body(cuts: list) -> list:
            return grid.body(self.jaxpr, [*own, *cuts, *along])[1]

        cuts, outs = grid.fixed_point([p.cut for p in carry], body)
        wanted = [*cuts, *outs[self.carry :]]
        jaxpr, _ = grid.body(self.jaxpr, [*own, *cuts, *along], wanted)
        given = [*consts, *[grid.lay(p, c) for p, c in zip(carry, cuts)], *rows]
        made = replace(self, jaxpr=jaxpr).apply(*[p.x for p in given])
        results = [*cuts, *[((), *c) for c in wanted[self.carry :]]]
        return list(map(grid.part, made, grid.shapes(self, parts), results))

    # --- forward mode ---------------------------------------------------------------------------

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
        tk = [
            typed_zeros(a.tangent()) if nz and t is None else t
            for t, nz, a in zip(tk, carry, avals)
        ]
        return (*tc, *tk, *tx), (*carry, *outs[self.carry :])

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        tangents, mask = self._tangents(tangents, lambda nz: jvp_jaxpr(self.jaxpr, nz)[1])
        nonzero = given(tangents)
        key = ("jvp of scan", self.consts, self.carry, nonzero)
        jaxpr = self.jaxpr.once(key, lambda: _jvp_body(self, nonzero, mask))
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

    # --- reverse mode ---------------------------------------------------------------------------

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        small = spotted(updates_chosen(simplify(self.jaxpr)), self.consts, self.carry)
        if holds_while(small):
            new = counted_loops(small, ranges_inside(self, ranges_of(primals)), Scan)
            known = self.with_jaxpr(new, self.consts, self.carry)
            small = new if new is not small and fits_inside(known, given(tangents)) else small
        if small is not self.jaxpr:
            return self.with_jaxpr(small, self.consts, self.carry).linearize(primals, tangents)
        fixed = fixed_carries(self)
        if any(fixed):
            return linearize_without(self, fixed, primals, tangents)
        counters = counters_of(self)
        costly = [False] * self.consts + [k not in counters for k in range(self.carry)]
        costly += [False] * (len(primals) - len(costly))
        constant = [k < self.consts for k in range(len(primals))]

        carry = range(self.consts, self.consts + self.carry)
        room = policy.RESIDUAL_BYTES * sum(a.nbytes for a in self._arrays()) / max(self.length, 1)

        def pieces(nz: Mask) -> Split:
            key = ("split scan", nz, self.consts, self.carry, self.length)
            return self.jaxpr.once(
                key, lambda: split(self.jaxpr, nz, costly, constant, carry, room)
            )

        tangents, mask = self._tangents(tangents, lambda nz: pieces(nz).mask)
        nonzero = given(tangents)
        parts = pieces(nonzero)
        n = len(self.jaxpr.outs)
        whole = self._rows_at_once(parts, primals)
        if whole is not None:
            return whole.linearize(primals, tangents)
        sums = self._summed(parts, nonzero, costly)
        if sums is not None:
            outs = self.with_jaxpr(sums.forward, self.consts, self.carry)(*primals)
            more = sums.extended(primals, outs), sums.extended(tangents, None)
            touts = sums.scan._linear(sums.parts, *more, outs, mask, counters)
            return outs[:n], spread(mask, touts)
        block = length_of_blocks(self, parts)
        if block is not None:
            return linearize_in_blocks(self, block, primals, tangents)
        outs = self.with_jaxpr(parts.forward, self.consts, self.carry)(*primals)
        return outs[:n], spread(mask, self._linear(parts, primals, tangents, outs, mask, counters))

    def _rows_at_once(self, parts: Split, primals: tuple) -> "Scan | None":
        """The loop without inner loops that change row after row, where these would keep much."""
        stored = sum(v.aval.nbytes for v in parts.forward.outs[len(self.jaxpr.outs) :])
        if stored * self.length <= policy.RESIDUAL_BYTES * sum(a.nbytes for a in self._arrays()):
            return None
        whole = rows_at_once(self.jaxpr, ranges_inside(self, ranges_of(primals)))
        return None if whole is None else self.with_jaxpr(whole, self.consts, self.carry)

    def _summed(self, parts: Split, nonzero: Mask, costly: list[bool]) -> Summed | None:
        return self.jaxpr.once(
            ("summed", self, nonzero), lambda: summed(self, parts, nonzero, costly)
        )

    def _linear(
        self, parts: Split, primals: tuple, tangents: tuple, outs: Sequence, mask: Mask,
        counters: dict[int, Array],
    ) -> tuple:  # fmt: skip
        """The tangents of the results, by the linear loop that reads what was stored."""
        n = len(self.jaxpr.outs)
        kc = [k for k in parts.inputs if k < self.consts]
        kc = [0, *kc] if self.counted else kc
        kx = [k for k in parts.inputs if k >= self.consts]
        rows = [
            count_rows(self, primals, k, counters[k - self.consts])
            if k < self.consts + self.carry
            else primals[k]
            for k in kx
        ]
        tc, tk, tx = (only(given(t), t) for t in self.parts(tangents))
        jaxpr = linear_body(self, parts, mask, (len(tc), len(tk), len(tx)))
        loop: Scan | UndoLoop = self.with_jaxpr(jaxpr, len(kc) + len(tc), len(tk))
        if parts.undo is not None:
            loop = undo_loop_of(loop, parts, len(kc), self.counted)
        lasts = [outs[k - self.consts] for k in parts.restored]
        return loop(*(primals[k] for k in kc), *tc, *tk, *lasts, *rows, *outs[n:], *tx)

    def _arrays(self) -> list[ShapedArray]:
        """The types of what it carries, reads row by row, and stacks."""
        rows = [*self.parts(self.jaxpr.in_avals)[2], *self.jaxpr.out_avals[self.carry :]]
        return [*self.parts(self.jaxpr.in_avals)[1], *(stacked(a, self.length) for a in rows)]

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        linear = carried(self, undefined(args))
        if not all(linear):
            return transpose_known(self, linear, cts, args)
        return transpose_linear(self, cts, args)[0]

    # --- vmap, dead code ------------------------------------------------------------------------

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        if self.divergent and (
            axis_name_of(size) is None or axis_name_of(size) not in axis_names(self)
        ):
            return self._batch_of_batches(size, args, axes)
        if self.counted and axes[0] is not None:
            return batch_of_counts(self, size, args, axes)
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

    def _batch_of_batches(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        """The elements of a batch of batches are one batch."""
        shared = [k for k in range(self.consts) if axes[k] is None]
        own = [k for k in range(len(args)) if k not in shared]
        n, inputs = self.length, self.jaxpr.inputs
        rows = []
        for k in own:
            x = place_axis(size, args[k], axes[k], 0)
            if k < self.consts:
                x = broadcast_axis(x, n, 1)
            rows.append(reshape(x, (size * n, *x.shape[2:])))
        order = [inputs[k] for k in (*shared, *own)]
        key = ("batch of batches", *shared)
        loop = replace(
            self,
            jaxpr=self.jaxpr.once(
                key, lambda: Jaxpr(order, self.jaxpr.eqns, self.jaxpr.outs, name=self.jaxpr.name)
            ),
            consts=len(shared),
            length=int(size) * n,
        )
        outs = loop(*[args[k] for k in shared], *rows)
        return tuple([reshape(y, (int(size), n, *y.shape[1:])) for y in outs]), (0,) * len(outs)

    def expand(self) -> Jaxpr | None:
        """Equations that do the same with less in the loop, if there are such."""
        make = _inlined if self.length == 1 and not self.counted else _expand
        return self.jaxpr.once(("expand", self), lambda: make(self))

    def independent(self, unknown: Mask) -> Mask:
        """Which results do not depend on some operands."""
        return tuple([not d for d in of_scan(self, unknown)])

    def prune(self, used: Mask) -> tuple["Scan", Mask, Mask]:
        """Without the results and the carries that nobody needs."""
        key = ("prune", self.consts, self.carry, self.counted, used)
        jaxpr, consts, carry, ins, outs = self.jaxpr.once(key, lambda: _prune(self, used))
        loop = self if jaxpr is self.jaxpr else self.with_jaxpr(jaxpr, consts, carry)
        return loop, ins, outs


def _jvp_body(scan: Scan, nonzero: Mask, mask: Mask) -> Jaxpr:
    """(consts, tconsts, carry, tcarry, xs, txs) -> (carry, tcarry, ys, tys)."""
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
    full = with_zeros(eqns, touts[: scan.carry], [o.aval.tangent() for o in outs])
    carry = [*outs[: scan.carry], *only(mask[: scan.carry], full)]
    ys = [*outs[scan.carry :], *(t for t in touts[scan.carry :] if t is not None)]
    return Jaxpr(inputs, eqns, [*carry, *ys], name=body.name)


# --- simplification ----------------------------------------------------------------------------


def _expand(scan: Scan) -> Jaxpr | None:
    """Fixed carries as constants, and what depends on constants alone before the loop."""
    fixed = fixed_carries(scan)
    inner = without_fixed(scan, fixed) if any(fixed) else scan
    body = spotted(updates_chosen(inner.jaxpr), inner.consts, inner.carry)
    early, late = hoistable(body, inner.consts)
    if not early and body is scan.jaxpr:
        return None
    needed = reads(late, body.outs)
    kept = [v for e in early for v in e.outs if v in needed]
    n = inner.consts
    inputs = [*body.inputs[:n], *kept, *body.inputs[n:]]
    loop = inner.with_jaxpr(
        Jaxpr(inputs, late, body.outs, name=body.name), n + len(kept), inner.carry
    )
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


def _inlined(scan: Scan) -> Jaxpr:
    """The only iteration of a loop, without the loop."""
    operands = [Var(a) for a in scan.abstract_operands()]
    consts, carry, xs = scan.parts(operands)
    eqns: list[Eqn] = []
    rows = [bind_into(eqns, Reshape(x.aval.shape[1:]), [x])[0] for x in xs]
    outs = splice(scan.jaxpr, [*consts, *carry, *rows], eqns)
    ys = [bind_into(eqns, Reshape((1, *y.aval.shape)), [y])[0] for y in outs[scan.carry :]]
    return Jaxpr(operands, eqns, [*outs[: scan.carry], *ys], name=scan.jaxpr.name)


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
    ins = (True, *ins[1:]) if scan.counted else ins
    inputs = only(ins, small.inputs)
    whole = small is body and all(ins)
    jaxpr = body if whole else Jaxpr(inputs, small.eqns, small.outs, name=body.name)
    return jaxpr, sum(ins[: scan.consts]), sum(carry), ins, (*carry, *ys)
