"""Cond and while: branches and loops whose course depends on values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.errors import TypeMismatch
from fnx.core.interpreter import Tracer, evaluate, use
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var, eval_jaxpr
from fnx.core.primitive import Primitive, Undefined
from fnx.core.recipe import Branch, Operand, Recipe
from fnx.core.recipe import While as WhileRecipe
from fnx.ops.basic import scalar, zeros
from fnx.ops.broadcast import Broadcast
from fnx.ops.elementwise import stop_gradient
from fnx.ops.reduction import ReduceOr
from fnx.ops.select import clamp, eq, select_n

from .batching import batch_jaxpr, place_axis
from .branches import adding_branches, filled, transpose_adding, union
from .call import (
    Backend,
    check_operands,
    given,
    only,
    run_primitive,
    split_call,
    spread,
    typed,
    undefined,
)
from .costs import hoistable
from .counted import as_scan, count_of, ranges_of
from .jvp import has_tangent, jvp_jaxpr
from .lanes import guarded, may_part, one_by_one, worth_parting
from .linearize import linearize_jaxpr, transpose_jaxpr
from .rewrite import bind_into, reads, splice, zeros_into
from .rounds import fits, linearize_counting, linearize_in_blocks
from .scan import Scan
from .simplify import dce, used_inputs
from .sink import sunk_jaxpr
from .trace import trace_closed
from .while_reverse import transpose_while

Mask = tuple[bool, ...]


@dataclass(frozen=True)
class Cond(Primitive):
    """Operand 0, an int32, says which of `branches` is applied to the others; it is clamped."""

    branches: tuple[Jaxpr, ...]
    backend: Backend | None = field(default=None, compare=False, repr=False)
    name = "cond"
    multiple_results = True
    jaxpr_fields = ("branches",)

    def with_branches(self, branches: Sequence[Jaxpr]) -> "Cond":
        return replace(self, branches=tuple(branches))

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return any(e.prim.effects for b in self.branches for e in b.eqns)

    def abstract(self, index: ShapedArray, *avals: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore
        if index.shape != () or index.dtype != np.dtype(np.int32):
            raise TypeMismatch(f"cond by an index of type {index}; expected i32[]")
        first = self.branches[0]
        for b in self.branches:
            check_operands(self.name, avals, b.in_avals)
            if not all(x.like(y) for x, y in zip(b.out_avals, first.out_avals, strict=True)):
                raise TypeMismatch(
                    f"branches of cond give {first.out_avals} and {b.out_avals}; expected equal types"
                )
        return first.out_avals

    def impl(self, index: np.ndarray, *values: np.ndarray) -> tuple:  # type: ignore[override]
        branch = self.branches[min(max(int(index), 0), len(self.branches) - 1)]
        with use(evaluate):
            outs = eval_jaxpr(branch, [ConcreteArray(v) for v in values])
        return typed(outs, self.branches[0].out_avals)

    def lower(self, *operands: Operand) -> Recipe:
        return Branch(self.branches)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        nonzero = given(tangents[1:])
        parts = [jvp_jaxpr(b, nonzero) for b in self.branches]
        mask = union([made for _, made in parts])
        avals = [a.tangent() for a in self.branches[0].out_avals]
        n = len(avals)
        branches = [filled(j, n, made, mask, avals) for j, made in parts]
        outs = self.with_branches(branches)(*primals, *only(nonzero, tangents[1:]))
        return outs[:n], spread(mask, outs[n:])

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        nonzero = given(tangents[1:])
        forward, linear, reads, mask = _linear_branches(self, nonzero)
        n = len(self.branches[0].outs)
        index, *operands = primals
        outs = self.with_branches(forward)(*primals)
        kept = only(reads, operands)
        touts = self.with_branches(linear)(index, *kept, *outs[n:], *only(nonzero, tangents[1:]))
        return outs[:n], spread(mask, touts)

    def transpose(self, cts: tuple, index: Array, *args: Any) -> tuple:  # type: ignore[override]
        linear, nonzero = undefined(args), given(cts)
        added = adding_branches(self, linear, nonzero)
        if added is not None:
            return transpose_adding(self, added, cts, index, args)
        parts = [transpose_jaxpr(b, linear, nonzero) for b in self.branches]
        mask = union([made for _, made in parts])
        avals = only(linear, self.branches[0].in_avals)
        branches = [filled(j, 0, made, mask, avals) for j, made in parts]
        values = [a for a, lin in zip(args, linear) if not lin]
        outs = self.with_branches(branches)(index, *values, *only(nonzero, cts))
        return (None, *spread(linear, spread(mask, outs)))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (index, *operands), lanes = args, given(axes[1:])
        operands = [
            x if k is None else place_axis(size, x, k, 0) for x, k in zip(operands, axes[1:])
        ]
        if axes[0] is None:
            mask = union([batch_jaxpr(b, size, lanes)[1] for b in self.branches])
            branches = [batch_jaxpr(b, size, lanes, mask)[0] for b in self.branches]
            outs = self.with_branches(branches)(index, *operands)
            return outs, spread(mask, [0] * sum(mask))
        passed = _passed_on(self.branches, lanes, operands)
        if may_part(self, size) and worth_parting(self.branches):
            values = [place_axis(size, index, axes[0], 0), *operands]
            outs = one_by_one(Scan, self, self.backend, size, values, (True, *lanes))
            return _with_passed(outs, passed)
        # What a branch computes in lanes that do not take it is dropped, but in its derivatives 0
        # times an infinite slope were nan: there operands have no tangents.
        shield = [
            isinstance(x, Tracer) and has_tangent(x.aval) and (has or not x.shape)
            for x, has in zip(operands, lanes)
        ]
        operands = [
            place_axis(size, x, None, 0) if s and not has else x
            for x, has, s in zip(operands, lanes, shield)
        ]
        lanes = tuple([has or s for has, s in zip(lanes, shield)])
        cases = []
        for k, b in enumerate(self.branches):
            careful = guarded(b)
            taken = None
            if any(shield) or careful is not None:
                taken = _takes(index, k, len(self.branches))
            own = [
                _choose(taken, (stop_gradient(x), x)) if s else x for x, s in zip(operands, shield)
            ]
            if careful is None:
                cases.append(eval_jaxpr(batch_jaxpr(b, size, lanes, True)[0], own))
            else:
                jaxpr = batch_jaxpr(careful, size, (True, *lanes), True)[0]
                cases.append(eval_jaxpr(jaxpr, [taken, *own]))
        return _with_passed([_choose(index, case) for case in zip(*cases)], passed)

    def expand(self) -> Jaxpr | None:
        """Equations that do the same with updates of arrays after the branch, if there are any."""
        key = ("expand", self.branches)
        memo = self.branches[0].memo
        if key not in memo:
            memo[key] = None if self.effects else sunk_jaxpr(self)
        return memo[key]

    def prune(self, used: Mask) -> tuple["Cond", Mask, Mask]:
        """Without the results that nobody needs, and the operands that no branch reads."""
        small = [dce(b, used) for b in self.branches]
        ins = union([used_inputs(b) for b in small])
        branches = [Jaxpr(only(ins, b.inputs), b.eqns, b.outs, name=b.name) for b in small]
        return self.with_branches(branches), (True, *ins), used


def _passed_on(
    branches: Sequence[Jaxpr], lanes: Sequence[bool], operands: Sequence[Array]
) -> list[Array | None]:
    """The operand without lanes that every branch gives as this result, or None."""
    found: list[Array | None] = []
    for column in zip(*[b.outs for b in branches]):
        where = {b.inputs.index(o) if o in b.inputs else -1 for b, o in zip(branches, column)}
        k = where.pop()
        found.append(operands[k] if not where and k >= 0 and not lanes[k] else None)
    return found


def _with_passed(
    outs: Sequence[Array], passed: Sequence[Array | None]
) -> tuple[tuple[Array, ...], tuple[int | None, ...]]:
    """Results with lanes along axis 0, but for those that are operands."""
    chosen = tuple([o if p is None else p for o, p in zip(outs, passed, strict=True)])
    return chosen, tuple([0 if p is None else None for p in passed])


def _takes(index: Array, k: int, count: int) -> Array:
    """Which lanes take branch `k` of so many."""
    last = scalar(count - 1, index.dtype)
    return eq(clamp(scalar(0, index.dtype), index, last), scalar(k, index.dtype))


def _choose(index: Array, cases: Sequence[Array]) -> Array:
    """Lane by lane, one of the cases."""
    if cases[0].ndim > 1:
        index = Broadcast(cases[0].shape, (0,))(index)
    return select_n(index, *cases) if len(cases) > 1 else cases[0]


def _linear_branches(cond: Cond, nonzero: Mask) -> tuple[list[Jaxpr], list[Jaxpr], Mask, Mask]:
    """Branches of the forward cond and of the linear one, which operands the latter reads, and
    which results have tangents. Branches share places for what they store, by type.
    """
    memo = cond.branches[0].memo
    key = ("linear cond", cond.branches, nonzero)
    if key in memo:
        return memo[key]
    parts = [split_call(b, nonzero) for b in cond.branches]
    mask = union([p.mask for p in parts])
    n = len(mask)
    reads = tuple([any(k in p.inputs for p in parts) for k in range(len(nonzero))])
    slots: list[ShapedArray] = []
    places = [_places(p.forward.outs[n:], slots) for p in parts]
    avals = [a.tangent() for a in cond.branches[0].out_avals]
    forward, linear = [], []
    for p, at in zip(parts, places):
        eqns = list(p.forward.eqns)
        by_slot = dict(zip(at, p.forward.outs[n:]))
        stored = [by_slot[k] if k in by_slot else zeros_into(eqns, a) for k, a in enumerate(slots)]
        outs = [*p.forward.outs[:n], *stored]
        forward.append(Jaxpr(p.forward.inputs, eqns, outs, name=p.forward.name))
        own = p.linear.inputs
        m = len(p.inputs)
        by_input = dict(zip(p.inputs, own))
        by_place = dict(zip(at, own[m:]))
        in_avals = cond.branches[0].in_avals
        heads = [by_input.get(k) or Var(a) for k, a in enumerate(in_avals) if reads[k]]
        middle = [by_place.get(k) or Var(a) for k, a in enumerate(slots)]
        body = Jaxpr([*heads, *middle, *own[m + p.stored :]], p.linear.eqns, p.linear.outs)
        linear.append(filled(body, 0, p.mask, mask, avals))
    memo[key] = forward, linear, reads, mask
    return memo[key]


def _places(stored: Sequence[Atom], slots: list[ShapedArray]) -> list[int]:
    """A slot of the right type for each value; slots that are lacking are added."""
    taken: list[int] = []
    for v in stored:
        aval = v.aval.strong()
        free = [k for k, a in enumerate(slots) if a == aval and k not in taken]
        if not free:
            slots.append(aval)
            free = [len(slots) - 1]
        taken.append(free[0])
    return taken


# --- while -------------------------------------------------------------------------------------

_EAGER_ROUNDS = 20  # so many rounds are interpreted before a compiled loop takes over


@dataclass(frozen=True)
class While(Primitive):
    """`body_jaxpr` is applied to the carry while `cond_jaxpr` holds.

    Operands: constants of the condition, constants of the body, carry. Results: the carry.
    """

    cond_jaxpr: Jaxpr
    cond_consts: int
    body_jaxpr: Jaxpr
    body_consts: int
    backend: Backend | None = field(default=None, compare=False, repr=False)
    most: int | None = field(default=None, repr=False)  # it runs no more rounds than these
    by_states: bool = field(default=False, repr=False)  # reverse mode keeps states between rounds
    name = "while"
    multiple_results = True
    jaxpr_fields = ("cond_jaxpr", "body_jaxpr")

    def params(self) -> dict[str, Any]:
        return {
            "cond_jaxpr": self.cond_jaxpr,
            "cond_nconsts": self.cond_consts,
            "body_jaxpr": self.body_jaxpr,
            "body_nconsts": self.body_consts,
        }

    def parts(self, values: Sequence) -> tuple[Any, Any, Any]:
        """Constants of the condition, of the body, and the carry."""
        n, m = self.cond_consts, self.cond_consts + self.body_consts
        return values[:n], values[n:m], values[m:]

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return any(e.prim.effects for e in (*self.cond_jaxpr.eqns, *self.body_jaxpr.eqns))

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        c, b, carry = self.parts(avals)
        check_operands("the condition of while", [*c, *carry], self.cond_jaxpr.in_avals)
        check_operands("the body of while", [*b, *carry], self.body_jaxpr.in_avals)
        return self.body_jaxpr.in_avals[self.body_consts :]

    def impl(self, *values: np.ndarray) -> tuple:
        c, b, carry = self.parts([ConcreteArray(v) for v in values])
        native = self.backend is not None and not config.disable_jit.value
        rounds = 0
        with use(evaluate):
            while bool(eval_jaxpr(self.cond_jaxpr, [*c, *carry])[0]):
                if native and rounds == _EAGER_ROUNDS:
                    flat = tuple([a._value for a in (*c, *b, *carry)])
                    return run_primitive(self, self.body_jaxpr, self.backend, flat)
                carry = eval_jaxpr(self.body_jaxpr, [*b, *carry])
                rounds += 1
        return typed(carry, self.body_jaxpr.in_avals[self.body_consts :])

    def lower(self, *operands: Operand) -> Recipe:
        return WhileRecipe(self.cond_jaxpr, self.cond_consts, self.body_jaxpr, self.body_consts)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        return self._jvp(primals, tangents, jvp_jaxpr)

    def _jvp(self, primals: tuple, tangents: tuple, rule: Callable) -> tuple[tuple, tuple]:
        loop, mask = self.differentiated(given(tangents), rule)
        c, b, carry = self.parts(primals)
        _, tb, tcarry = self.parts(tangents)
        start = [zeros(x.aval.tangent()) if t is None else t for t, x in zip(tcarry, carry)]
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
        """Results and tangents, by a scan of all rounds or by scans of blocks of them."""
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
        return tuple(transpose_while(self, cts, args))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        lanes = given(axes)
        c, b, carry = self.parts(lanes)
        while True:
            pred = batch_jaxpr(self.cond_jaxpr, size, (*c, *carry))[1][0]
            if pred:
                same = _unchanged(self)
                more = tuple([lane or not s for lane, s in zip(carry, same)])
            else:
                made = batch_jaxpr(self.body_jaxpr, size, (*b, *carry))[1]
                more = union([carry, made])
            if more == carry:
                break
            carry = more
        mask = (*c, *b, *carry)
        place = [place_axis(size, x, k, 0 if m else None) for x, k, m in zip(args, axes, mask)]
        if pred and may_part(self, size):
            outs = one_by_one(Scan, self, self.backend, size, place, mask)
            rest = self.parts(place)[2]
            outs = [y if m else x for x, y, m in zip(rest, outs, carry)]
            return tuple(outs), spread(carry, [0] * sum(carry))
        loop = _batched_while(self, size, mask, pred)
        c_values, b_values, start = self.parts(place)
        again = c_values if pred else []  # the body asks, too, which lanes go on
        outs = loop(*c_values, *b_values, *again, *start)
        return outs, spread(carry, [0] * sum(carry))

    def expand(self) -> Jaxpr | None:
        """Equations that do the same with less in the loop, if there are such."""
        key = ("expand", self)
        if key not in self.body_jaxpr.memo:
            self.body_jaxpr.memo[key] = _expand(self)
        return self.body_jaxpr.memo[key]

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
        loop = replace(
            self,
            cond_jaxpr=Jaxpr(only(cond_in, cond.inputs), cond.eqns, cond.outs, name=cond.name),
            cond_consts=sum(cond_reads[:nc]),
            body_jaxpr=Jaxpr(only(body_in, body.inputs), body.eqns, body.outs, name=body.name),
            body_consts=sum(reads[:nb]),
        )
        return loop, (*cond_reads[:nc], *reads[:nb], *carry), carry


def _in_two_parts(jaxpr: Jaxpr, nonzero: Mask) -> tuple[Jaxpr, Mask]:
    """As `jvp_jaxpr`, with equations that tangents enter after those that they do not."""
    key = ("in two parts", nonzero)
    if key not in jaxpr.memo:
        forward, linear, residuals, mask = linearize_jaxpr(jaxpr, nonzero)
        primals = [Var(v.aval) for v in jaxpr.inputs]
        tangents = [Var(v.aval) for v in linear.inputs[residuals:]]
        eqns: list[Eqn] = []
        outs = splice(forward, primals, eqns)
        n = len(jaxpr.outs)
        touts = splice(linear, [*outs[n:], *tangents], eqns)
        jaxpr.memo[key] = (
            Jaxpr([*primals, *tangents], eqns, [*outs[:n], *touts], name=jaxpr.name),
            mask,
        )
    return jaxpr.memo[key]


def _unchanged(loop: While) -> Mask:
    """Which carries are the same in all rounds."""
    carry = loop.body_jaxpr.inputs[loop.body_consts :]
    return tuple([a is b for a, b in zip(carry, loop.body_jaxpr.outs)])


def _expand(loop: While) -> Jaxpr | None:
    """What the body computes of constants alone before the loop; carries that stay as constants."""
    n, m = loop.cond_consts, loop.body_consts
    fixed = _unchanged(loop)
    rest = [not f for f in fixed]
    cond, body = loop.cond_jaxpr, loop.body_jaxpr
    c_carry, b_carry = cond.inputs[n:], body.inputs[m:]
    c_consts = [*cond.inputs[:n], *only(fixed, c_carry)]
    b_consts = [*body.inputs[:m], *only(fixed, b_carry)]
    early, late = hoistable(Jaxpr([*b_consts, *only(rest, b_carry)], body.eqns, ()), len(b_consts))
    if not early and not any(fixed):
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


def _batched_while(loop: While, size: int, lanes: Mask, pred: bool) -> While:
    """The loop for all lanes; with a condition per lane it runs until all lanes are done."""
    c, b, carry = loop.parts(lanes)
    cond = batch_jaxpr(loop.cond_jaxpr, size, (*c, *carry))[0]
    body = batch_jaxpr(loop.body_jaxpr, size, (*b, *carry), carry)[0]
    if not pred:
        return replace(loop, cond_jaxpr=cond, body_jaxpr=body)
    key = ("while of lanes", cond, body, loop.cond_consts, loop.body_consts, lanes)
    memo = loop.body_jaxpr.memo
    if key not in memo:
        n, m = loop.cond_consts, loop.body_consts

        def going(*args: Array) -> list[Array]:
            (on,) = eval_jaxpr(cond, args)
            return [ReduceOr((0,))(on)]

        def step(*args: Array) -> list[Array]:
            b_consts, c_consts, old = args[:m], args[m : m + n], args[m + n :]
            (on,) = eval_jaxpr(cond, [*c_consts, *old])
            new = eval_jaxpr(body, [*b_consts, *old])
            return [_choose(on, (x, y)) if lane else y for x, y, lane in zip(old, new, carry)]

        avals = [*body.in_avals[:m], *cond.in_avals[:n], *body.in_avals[m:]]
        memo[key] = (
            trace_closed(going, cond.in_avals, what="vmap", name=cond.name),
            trace_closed(step, avals, what="vmap", name=body.name),
        )
    going_jaxpr, step_jaxpr = memo[key]
    return replace(
        loop,
        cond_jaxpr=going_jaxpr,
        body_jaxpr=step_jaxpr,
        body_consts=loop.body_consts + loop.cond_consts,
    )
