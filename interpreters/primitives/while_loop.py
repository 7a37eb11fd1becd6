"""While: loops whose number of iterations depends on values."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.core import config, policy
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Eqn, Jaxpr, Var, eval_jaxpr, made_once
from fnx.core.primitive import Undefined
from fnx.core.recipe import Operand, Recipe
from fnx.core.recipe import While as WhileRecipe
from fnx.interpreters.analysis.cost_model import hoistable
from fnx.interpreters.analysis.dependence import of_while
from fnx.interpreters.batching import batch_jaxpr, place_axis
from fnx.interpreters.control_flow import WhileRecord
from fnx.interpreters.jvp import jvp_jaxpr
from fnx.interpreters.linearize import linearize_jaxpr
from fnx.interpreters.operands import check_operands, given, only, spread, typed
from fnx.interpreters.passes.compiled import run_primitive
from fnx.interpreters.passes.dce import dce, used_inputs
from fnx.interpreters.passes.predicated_updates import updates_chosen
from fnx.interpreters.reverse.checkpoint_online import transpose_while
from fnx.interpreters.reverse.checkpoint_while import fits, linearize_counting, linearize_in_blocks
from fnx.interpreters.reverse.cond_transpose import filled, union
from fnx.interpreters.reverse.trip_count import as_scan, count_of, ranges_of
from fnx.interpreters.rewrite import bind_into, reads, splice
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.reduction.reduction import ReduceOr

from .divergent import choose, may_part, must_part, one_by_one
from .scan import Scan

Mask = tuple[bool, ...]


@dataclass(frozen=True)
class While(WhileRecord):
    """The loop and all its rules."""

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        c, b, carry = self.parts(avals)
        check_operands("the condition of while", [*c, *carry], self.cond_jaxpr.in_avals)
        check_operands("the body of while", [*b, *carry], self.body_jaxpr.in_avals)
        return self.body_jaxpr.out_avals

    def impl(self, *values: np.ndarray) -> tuple:
        c, b, carry = self.parts([ConcreteArray(v) for v in values])
        native = self.backend is not None and not config.disable_jit.value
        shown = self.progress or config.progress.value
        iterations = policy.EAGER_ITERATIONS if shown else 0
        record, done = config.told.get().get(self.site), 0
        with use(evaluate):
            while bool(eval_jaxpr(self.cond_jaxpr, [*c, *carry])[0]):
                if native and iterations == policy.EAGER_ITERATIONS:
                    flat = tuple([a._value for a in (*c, *b, *carry)])
                    return run_primitive(self, self.body_jaxpr, self.backend, flat)
                if record is not None:
                    done += 1
                    record.tell(done, -1, 1)
                carry = eval_jaxpr(self.body_jaxpr, [*b, *carry])
                iterations += 1
        if record is not None:
            record.tell(done, done, 2)
        return typed(carry, self.body_jaxpr.in_avals[self.body_consts :])

    def lower(self, *operands: Operand) -> Recipe:
        jaxprs = self.cond_jaxpr, self.cond_consts, self.body_jaxpr, self.body_consts
        return WhileRecipe(*jaxprs, self.site, self.progress)

    def partition(self, grid: Any, parts: list) -> list:
        """The same loop in each member, while the condition, which is the same in all, holds."""
        of_cond, of_body, carry = self.parts(parts)
        own = [p.cut for p in of_body]
        body = lambda cuts: grid.body(self.body_jaxpr, [*own, *cuts])[1]
        cuts, _ = grid.fixed_point([p.cut for p in carry], body)
        made, _ = grid.body(self.body_jaxpr, [*own, *cuts], cuts)
        cond, _ = grid.body(self.cond_jaxpr, [*[p.cut for p in of_cond], *cuts], [()])
        given = [*of_cond, *of_body, *[grid.lay(p, c) for p, c in zip(carry, cuts)]]
        outs = self.with_jaxprs(cond, made).apply(*[p.x for p in given])
        return list(map(grid.part, outs, [p.shape for p in carry], cuts))

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        return self._jvp(primals, tangents, jvp_jaxpr)

    def _jvp(self, primals: tuple, tangents: tuple, rule: Callable) -> tuple[tuple, tuple]:
        loop, mask = self.differentiated(given(tangents), rule)
        c, b, carry = self.parts(primals)
        _, tb, tcarry = self.parts(tangents)
        start = [typed_zeros(x.aval.tangent()) if t is None else t for t, x in zip(tcarry, carry)]
        outs = loop(*c, *b, *only(given(tb), tb), *carry, *only(mask, start))
        return outs[: len(carry)], spread(mask, outs[len(carry) :])

    def differentiated(self, nonzero: Mask, rule: Callable = jvp_jaxpr) -> tuple["While", Mask]:
        """The loop over (carry, its nonzero tangents); and which of the carry have one.

        `rule` makes the body's derivative.
        """
        _, b, carry = self.parts(nonzero)
        while True:
            body, made = rule(self.body_jaxpr, (*b, *carry))
            more = union([carry, made])
            if more == carry:
                break
            carry = more
        n, m = self.body_consts, len(carry)
        avals = [a.tangent() for a in self.body_jaxpr.out_avals]
        body = filled(body, m, made, carry, avals)
        v, t = body.inputs[: n + m], body.inputs[n + m :]
        tb = sum(b)
        inputs = [*v[:n], *t[:tb], *v[n:], *t[tb:]]
        body = Jaxpr(inputs, body.eqns, body.outs, name=body.name)
        more_inputs = [Var(a) for a in only(carry, avals)]
        cond = self.cond_jaxpr
        cond = Jaxpr([*cond.inputs, *more_inputs], cond.eqns, cond.outs, name=cond.name)
        loop = replace(self, cond_jaxpr=cond, body_jaxpr=body, body_consts=n + tb)
        return loop, carry

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        if not self.by_states:
            return self._by_scans(primals, tangents)
        # Tangents take a second loop, from the same start, so that results do not wait for them.
        _, touts = self._jvp(primals, tangents, _in_two_parts)
        return self(*primals), touts

    def _by_scans(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        """Results and tangents, by a scan of all iterations or by scans of blocks of them."""
        counted = as_scan(self, ranges_of(primals), Scan)
        if counted is not None and fits(counted, tangents):
            operands = counted.operands(primals)
            outs, touts = counted.scan.linearize(operands, tuple(counted.tangents(tangents)))
            k = counted.count.carry
            results = counted.results(primals, operands[0], outs)
            return tuple(results), (*touts[:k], None, *touts[k:])
        count = count_of(self)
        if count is None:
            return linearize_counting(self, Scan, primals, tangents)
        return linearize_in_blocks(self, count, Scan, primals, tangents)

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        if not any(isinstance(a, Undefined) for a in args):
            return (None,) * len(args)
        return tuple(transpose_while(self, Scan, cts, args))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        batched = given(axes)
        c, b, carry = self.parts(batched)
        while True:
            pred = batch_jaxpr(self.cond_jaxpr, size, (*c, *carry))[1][0]
            if pred:
                same = _unchanged(self)
                more = tuple([b or not s for b, s in zip(carry, same)])
            else:
                made = batch_jaxpr(self.body_jaxpr, size, (*b, *carry))[1]
                more = union([carry, made])
            if more == carry:
                break
            carry = more
        mask = (*c, *b, *carry)
        place = [place_axis(size, x, k, 0 if m else None) for x, k, m in zip(args, axes, mask)]
        if pred and (must_part(self, size) or may_part(self, size)):
            outs = one_by_one(Scan, self, self.backend, size, place, mask)
            rest = self.parts(place)[2]
            outs = [y if m else x for x, y, m in zip(rest, outs, carry)]
            return tuple(outs), spread(carry, [0] * sum(carry))
        loop = _batched_while(self, size, mask, pred)
        c_values, b_values, start = self.parts(place)
        again = c_values if pred else []  # the body asks, too, which batch elements go on
        if not pred and may_part(self, size):
            from .masked_loop import masked  # few programs have such loops

            loop = masked(loop, self, mask, size)
        outs = loop(*c_values, *b_values, *again, *start)
        return outs, spread(carry, [0] * sum(carry))

    def expand(self) -> Jaxpr | None:
        """Equations that do the same with less in the loop, if there are such."""
        key = ("expand", self)
        return self.body_jaxpr.once(key, lambda: _expand(self))

    def independent(self, unknown: Mask) -> Mask:
        """Which results do not depend on some operands."""
        return tuple([not d for d in of_while(self, unknown)])

    def prune(self, used: Mask) -> tuple["While", Mask, Mask]:
        """Without the carries that neither the condition nor a needed result reads."""
        nc, nb = self.cond_consts, self.body_consts
        cond = dce(self.cond_jaxpr, (True,))
        cond_reads = used_inputs(cond)
        carry = union([used, cond_reads[nc:]])
        while True:
            body = dce(self.body_jaxpr, carry)
            reads = used_inputs(body)
            more = union([carry, reads[nb:]])
            if more == carry:
                break
            carry = more
        cond_in, body_in = (*cond_reads[:nc], *carry), (*reads[:nb], *carry)
        if cond is self.cond_jaxpr and body is self.body_jaxpr and all((*cond_in, *body_in)):
            return self, (*cond_in[:nc], *body_in), carry
        loop = replace(
            self,
            cond_jaxpr=Jaxpr(only(cond_in, cond.inputs), cond.eqns, cond.outs, name=cond.name),
            cond_consts=sum(cond_reads[:nc]),
            body_jaxpr=Jaxpr(only(body_in, body.inputs), body.eqns, body.outs, name=body.name),
            body_consts=sum(reads[:nb]),
        )
        return loop, (*cond_reads[:nc], *reads[:nb], *carry), carry


@made_once
def _in_two_parts(jaxpr: Jaxpr, nonzero: Mask) -> tuple[Jaxpr, Mask]:
    """As `jvp_jaxpr`, with equations that tangents enter after those that they do not."""
    forward, linear, residuals, mask = linearize_jaxpr(jaxpr, nonzero)
    primals = [Var(v.aval) for v in jaxpr.inputs]
    tangents = [Var(v.aval) for v in linear.inputs[residuals:]]
    eqns: list[Eqn] = []
    outs = splice(forward, primals, eqns)
    n = len(jaxpr.outs)
    touts = splice(linear, [*outs[n:], *tangents], eqns)
    return (
        Jaxpr([*primals, *tangents], eqns, [*outs[:n], *touts], name=jaxpr.name),
        mask,
    )


def _unchanged(loop: While) -> Mask:
    """Which carries are the same in all iterations."""
    carry = loop.body_jaxpr.inputs[loop.body_consts :]
    return tuple([a is b for a, b in zip(carry, loop.body_jaxpr.outs)])


def _expand(loop: While) -> Jaxpr | None:
    """What the body computes of constants alone before the loop; carries that stay as constants."""
    n, m = loop.cond_consts, loop.body_consts
    fixed = _unchanged(loop)
    rest = [not f for f in fixed]
    cond, body = loop.cond_jaxpr, updates_chosen(loop.body_jaxpr)
    c_carry, b_carry = cond.inputs[n:], body.inputs[m:]
    c_consts = [*cond.inputs[:n], *only(fixed, c_carry)]
    b_consts = [*body.inputs[:m], *only(fixed, b_carry)]
    early, late = hoistable(Jaxpr([*b_consts, *only(rest, b_carry)], body.eqns, ()), len(b_consts))
    if not early and not any(fixed) and body is loop.body_jaxpr:
        return None
    outs = only(rest, body.outs)
    needed = reads(late, outs)
    kept = [v for e in early for v in e.outs if v in needed]
    inner = replace(
        loop,
        cond_jaxpr=Jaxpr([*c_consts, *only(rest, c_carry)], cond.eqns, cond.outs, name=cond.name),
        cond_consts=len(c_consts),
        body_jaxpr=Jaxpr([*b_consts, *kept, *only(rest, b_carry)], late, outs, name=body.name),
        body_consts=len(b_consts) + len(kept),
    )
    operands = [Var(v.aval) for v in (*cond.inputs[:n], *body.inputs)]
    c, b, carry = loop.parts(operands)
    still, moving = only(fixed, carry), only(rest, carry)
    eqns: list[Eqn] = []
    values = splice(Jaxpr(b_consts, early, kept), [*b, *still], eqns)
    new = spread(rest, bind_into(eqns, inner, [*c, *still, *b, *still, *values, *moving]))
    back = [x if f else o for f, x, o in zip(fixed, carry, new)]
    return Jaxpr(operands, eqns, back, name=body.name)


def _batched_while(loop: While, size: int, batched: Mask, pred: bool) -> While:
    """The loop for all batch elements; with a condition for each it runs until all are done."""
    c, b, carry = loop.parts(batched)
    cond = batch_jaxpr(loop.cond_jaxpr, size, (*c, *carry))[0]
    body = batch_jaxpr(loop.body_jaxpr, size, (*b, *carry), carry)[0]
    if not pred:
        return replace(loop, cond_jaxpr=cond, body_jaxpr=body)
    key = ("batched while", cond, body, loop.cond_consts, loop.body_consts, batched)

    def make() -> tuple[Jaxpr, Jaxpr]:
        n, m = loop.cond_consts, loop.body_consts

        def going(*args: Array) -> list[Array]:
            (on,) = eval_jaxpr(cond, args)
            return [ReduceOr((0,))(on)]

        def step(*args: Array) -> list[Array]:
            b_consts, c_consts, old = args[:m], args[m : m + n], args[m + n :]
            (on,) = eval_jaxpr(cond, [*c_consts, *old])
            new = eval_jaxpr(body, [*b_consts, *old])
            return [choose(on, (x, y)) if b else y for x, y, b in zip(old, new, carry)]

        avals = [*body.in_avals[:m], *cond.in_avals[:n], *body.in_avals[m:]]
        return (
            trace_closed(going, cond.in_avals, what="vmap", name=cond.name),
            trace_closed(step, avals, what="vmap", name=body.name),
        )

    going_jaxpr, step_jaxpr = loop.body_jaxpr.once(key, make)
    return replace(
        loop,
        cond_jaxpr=going_jaxpr,
        body_jaxpr=step_jaxpr,
        body_consts=loop.body_consts + loop.cond_consts,
    )
