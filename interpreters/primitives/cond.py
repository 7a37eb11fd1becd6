"""Cond: branches of which a value chooses one."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import Tracer, evaluate, use
from fnx.core.jaxpr import Atom, Jaxpr, Var, eval_jaxpr
from fnx.core.recipe import Branch, Operand, Recipe
from fnx.interpreters.analysis.dependence import of_cond
from fnx.interpreters.batching import batch_jaxpr, place_axis
from fnx.interpreters.control_flow import CondRecord
from fnx.interpreters.jvp import has_tangent, jvp_jaxpr
from fnx.interpreters.linearize import transpose_jaxpr
from fnx.interpreters.operands import check_operands, given, only, spread, typed, undefined
from fnx.interpreters.passes.dce import dce, used_inputs
from fnx.interpreters.passes.sink_updates import sunk_jaxpr
from fnx.interpreters.reverse.cond_transpose import adding_branches, filled, transpose_adding, union
from fnx.interpreters.reverse.split_call import split_call
from fnx.interpreters.rewrite import zeros_into
from fnx.ops.elementwise.arithmetic import stop_gradient
from fnx.ops.elementwise.select import clamp, eq
from fnx.ops.structure.basic import scalar

from .divergent import choose, guarded, may_part, must_part, one_by_one, worth_parting
from .scan import Scan

Mask = tuple[bool, ...]


@dataclass(frozen=True)
class Cond(CondRecord):
    """The branches and all their rules."""

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

    def partition(self, grid: Any, parts: list) -> list:
        """The same branch in each member: which one is the same in all."""
        cuts = [p.cut for p in parts[1:]]
        found = [grid.body(b, cuts)[1] for b in self.branches]
        # Cut as all branches leave a result.
        wanted = [
            tuple([axis[0] if len(set(axis)) == 1 else () for axis in zip(*each)])
            for each in zip(*found)
        ]
        branches = [grid.body(b, cuts, wanted)[0] for b in self.branches]
        outs = self.with_branches(branches).apply(*[p.x for p in parts])
        return list(map(grid.part, outs, grid.shapes(self, parts), wanted))

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
        (index, *operands), batched = args, given(axes[1:])
        operands = [
            x if k is None else place_axis(size, x, k, 0) for x, k in zip(operands, axes[1:])
        ]
        if axes[0] is None:
            mask = union([batch_jaxpr(b, size, batched)[1] for b in self.branches])
            branches = [batch_jaxpr(b, size, batched, mask)[0] for b in self.branches]
            outs = self.with_branches(branches)(index, *operands)
            return outs, spread(mask, [0] * sum(mask))
        passed = _passed_on(self.branches, batched, operands)
        if must_part(self, size) or (may_part(self, size) and worth_parting(self.branches)):
            values = [place_axis(size, index, axes[0], 0), *operands]
            outs = one_by_one(Scan, self, self.backend, size, values, (True, *batched))
            return _with_passed(outs, passed)
        cases = self._for_all(size, index, operands, batched)
        return _with_passed([choose(index, case) for case in zip(*cases)], passed)

    def _for_all(
        self, size: int, index: Array, operands: Sequence[Array], batched: Mask
    ) -> list[list[Array]]:
        """What every branch gives for all batch elements.

        What one computes for batch elements that do not take it is dropped, but in its derivatives 0
        times an infinite slope were nan: there operands have no tangents.
        """
        shield = [
            isinstance(x, Tracer) and has_tangent(x.aval) and (has or not x.shape)
            for x, has in zip(operands, batched)
        ]
        operands = [
            place_axis(size, x, None, 0) if s and not has else x
            for x, has, s in zip(operands, batched, shield)
        ]
        batched = tuple([has or s for has, s in zip(batched, shield)])
        cases = []
        for k, b in enumerate(self.branches):
            careful = guarded(b)
            taken = None
            if any(shield) or careful is not None:
                taken = _takes(index, k, len(self.branches))
            own = [
                choose(taken, (stop_gradient(x), x)) if s else x for x, s in zip(operands, shield)
            ]
            if careful is None:
                cases.append(eval_jaxpr(batch_jaxpr(b, size, batched, True)[0], own))
            else:
                jaxpr = batch_jaxpr(careful, size, (True, *batched), True)[0]
                cases.append(eval_jaxpr(jaxpr, [taken, *own]))
        return cases

    def expand(self) -> Jaxpr | None:
        """Equations that do the same with updates of arrays after the branch, if there are any."""
        key = ("expand", self.branches)
        return self.branches[0].once(key, lambda: None if self.effects else sunk_jaxpr(self))

    def independent(self, unknown: Mask) -> Mask:
        """Which results do not depend on some operands."""
        return tuple([not d for d in of_cond(self, unknown)])

    def prune(self, used: Mask) -> tuple["Cond", Mask, Mask]:
        """Without the results that nobody needs, and the operands that no branch reads."""
        small = [dce(b, used) for b in self.branches]
        ins = union([used_inputs(b) for b in small])
        if all(ins) and all([a is b for a, b in zip(small, self.branches)]):
            return self, (True, *ins), used
        branches = [Jaxpr(only(ins, b.inputs), b.eqns, b.outs, name=b.name) for b in small]
        return self.with_branches(branches), (True, *ins), used


def _passed_on(
    branches: Sequence[Jaxpr], batched: Sequence[bool], operands: Sequence[Array]
) -> list[Array | None]:
    """The operand without a batch axis that every branch gives as this result, or None."""
    found: list[Array | None] = []
    for column in zip(*[b.outs for b in branches]):
        where = {b.inputs.index(o) if o in b.inputs else -1 for b, o in zip(branches, column)}
        k = where.pop()
        found.append(operands[k] if not where and k >= 0 and not batched[k] else None)
    return found


def _with_passed(
    outs: Sequence[Array], passed: Sequence[Array | None]
) -> tuple[tuple[Array, ...], tuple[int | None, ...]]:
    """Results with their batch along axis 0, but for those that are operands."""
    chosen = tuple([o if p is None else p for o, p in zip(outs, passed, strict=True)])
    return chosen, tuple([0 if p is None else None for p in passed])


def _takes(index: Array, k: int, count: int) -> Array:
    """Which batch elements take branch `k` of so many."""
    last = scalar(count - 1, index.dtype)
    return eq(clamp(scalar(0, index.dtype), index, last), scalar(k, index.dtype))


def _linear_branches(cond: Cond, nonzero: Mask) -> tuple[list[Jaxpr], list[Jaxpr], Mask, Mask]:
    """Branches of the forward cond and of the linear one, which operands the latter reads, and
    which results have tangents. Branches share places for what they store, by type.
    """
    key = ("linear cond", cond.branches, nonzero)
    return cond.branches[0].once(key, lambda: _split_branches(cond.branches, nonzero))


def _split_branches(
    branches: Sequence[Jaxpr], nonzero: Mask
) -> tuple[list[Jaxpr], list[Jaxpr], Mask, Mask]:
    """`_linear_branches` of branches."""
    parts = [split_call(b, nonzero) for b in branches]
    mask = union([p.mask for p in parts])
    n = len(mask)
    reads = tuple([any(k in p.inputs for p in parts) for k in range(len(nonzero))])
    slots: list[ShapedArray] = []
    places = [_places(p.forward.outs[n:], slots) for p in parts]
    in_avals = branches[0].in_avals
    avals = [a.tangent() for a in branches[0].out_avals]
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
        heads = [by_input.get(k) or Var(a) for k, a in enumerate(in_avals) if reads[k]]
        middle = [by_place.get(k) or Var(a) for k, a in enumerate(slots)]
        body = Jaxpr([*heads, *middle, *own[m + p.stored :]], p.linear.eqns, p.linear.outs)
        linear.append(filled(body, 0, p.mask, mask, avals))
    return forward, linear, reads, mask


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
