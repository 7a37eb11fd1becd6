"""Walks a jaxpr, equation by equation, and keeps a `Handle` for each variable.

Small arrays live in registers and their operations are unrolled; elementwise values of large arrays
are inlined into their readers or join open fusion groups (elementwise.py, fusion_groups.py);
everything else is stored (storage.py). The choices themselves are in planning/fusion_policy.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import dtypes, recipe, scalar
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var
from fnx.lowering.generate.scope import Scope
from fnx.lowering.planning import horizontal_fusion
from fnx.lowering.planning.equation_order import (
    box_chains,
    readers_first,
    saves_readers,
    taken_over,
)

from . import boundary_regions, slice_update_fusion, small_problems
from .storage import Storage
from .target import Target
from .values import OWN, Handle, Pull, Registers, Stored

FOREVER = float("inf")
Make = Callable[["Builder", Eqn, Any, list[Handle], list[Handle]], None]


def dtype_name(dtype: Any) -> str:
    return dtypes.NAME[dtype]


class Builder(Storage):
    """Walks the equations of one program; `make` builds what the recipe of one asks for."""

    def __init__(self, make: Make, target: Target):
        super().__init__(target)
        self._make = make

    # --- jaxprs ---

    def jaxpr(
        self,
        jaxpr: Jaxpr,
        inputs: Sequence[Handle],
        targets: dict[Var, Stored] | None = None,
        wishes: dict[Var, Stored] | None = None,
    ) -> list[Handle]:
        """Build a jaxpr in the current block; the handles of its outputs."""
        jaxpr = readers_first(horizontal_fusion.totals_last(horizontal_fusion.reductions(jaxpr)))
        scope = self.scope = Scope(self.scope)
        for var, given in zip(jaxpr.inputs, inputs, strict=True):
            scope.add(var, self._enter(given))
        self._count_uses(jaxpr)
        for var, target in (targets or {}).items():
            if var in scope.handles:
                continue  # an input: copied by whoever asked
            scope.add(var, self._new_handle(var)).target = target
        self._hint_targets(jaxpr, targets or {})
        for var, place in (wishes or {}).items():
            for v in self._versions(jaxpr, var):
                scope.add(v, self._new_handle(v)).wish = place
                scope.wished.add(place.buffer)
        for k, eqn in enumerate(jaxpr.eqns):
            scope.position = k
            self._eqn(eqn)
        scope.position = len(jaxpr.eqns)
        outs = [self.handle(atom) for atom in jaxpr.outs]
        self.scope = scope.outer  # type: ignore[assignment]
        self._leave(scope, outs)
        return outs

    def _hint_targets(self, jaxpr: Jaxpr, targets: dict[Var, Stored]) -> None:
        """A value that is made by updates of another, which dies there, has that one's place too."""
        for last, target in targets.items():
            for var in self._versions(jaxpr, last):
                self.scope.add(var, self._new_handle(var)).hint = target

    def _versions(self, jaxpr: Jaxpr, var: Var) -> list[Var]:
        """A value, and those that it is made of by updates in which they die, the last first."""
        scope = self.scope
        maker = {v: k for k, e in enumerate(jaxpr.eqns) for v in e.outs}
        found = [var] if var not in scope.handles else []
        while var in maker:
            k = maker[var]
            before = taken_over(jaxpr.eqns[k], var)
            if before is None or before not in maker or before in scope.handles:
                break
            uses = scope.uses.get(before, [])
            alone = len(uses) == 1 or saves_readers(jaxpr.eqns[k])
            if not alone or -1 in uses or max(uses) > k or uses.count(k) != 1:
                break
            found.append(before)
            var = before
        return found

    def _enter(self, given: Handle) -> Handle:
        """A handle of this scope for a value from outside; it shares the state."""
        handle = Handle(given.shape, given.dtype, given.state)
        # It may die here only if it was made for this scope (a carry).
        handle.scope = self.scope if given.scope is OWN else given.scope
        return handle

    def _count_uses(self, jaxpr: Jaxpr) -> None:
        handles = self.scope.handles
        self.scope.eqns = jaxpr.eqns
        self.scope.chains, _ = box_chains(jaxpr)
        self.scope.lanewise = small_problems.equations(jaxpr)
        uses: dict[Var, list[int]] = {}
        for k, eqn in enumerate(jaxpr.eqns):
            for atom in eqn.inputs:
                if type(atom) is Var:
                    uses.setdefault(atom, []).append(k)
        for atom in jaxpr.outs:
            if type(atom) is Var:
                uses.setdefault(atom, []).append(-1)
        self.scope.uses = uses
        for var, handle in handles.items():
            self._set_uses(handle, uses.get(var, []))

    @staticmethod
    def _set_uses(handle: Handle, numbers: list[int]) -> None:
        handle.consumers = numbers
        handle.last_use = FOREVER if -1 in numbers else max(numbers, default=-1)

    def _new_handle(self, var: Var) -> Handle:
        handle = Handle(var.aval.shape, dtype_name(var.aval.dtype))
        handle.scope = self.scope
        self._set_uses(handle, self.scope.uses.get(var, []))
        return handle

    def _leave(self, scope: Scope, outs: list[Handle]) -> None:
        """Close what is open in a finished scope, so that its outputs stand on their own."""
        self.scope, outer = scope, self.scope
        self.flush_all()
        for handle in outs:
            self.settle(handle)
        self.scope = outer
        for handle in outs:
            handle.scope = outer

    def handle(self, atom: Any) -> Handle:
        if type(atom) is Literal:
            dtype = dtype_name(atom.aval.dtype)
            value = atom.value._value.item() if dtype != "bfloat16" else float(atom.value._value)
            return Handle((), dtype, Registers([scalar.literal(value, dtype)]))
        return self.scope.handles[atom]

    # --- equations ---

    def _eqn(self, eqn: Eqn) -> None:
        inputs = [self.handle(a) for a in eqn.inputs]
        outs = []
        for var in eqn.outs:
            if var not in self.scope.handles:
                self.scope.add(var, self._new_handle(var))
            outs.append(self.scope.handles[var])
        if not any(h.consumers for h in outs) and not eqn.prim.effects:
            return  # dead
        recipes = eqn.prim.lower(*inputs)
        waits = isinstance(recipes, recipe.Update) and recipes.box is not None
        joined = (
            slice_update_fusion.mapped(self, eqn, inputs, outs)
            if type(recipes) is recipe.Point
            else None
        )
        for h in inputs:
            regional = isinstance(h.state, Pull) and h.state.regional
            goes_on = waits and h is recipes.operand and type(h.state) is slice_update_fusion.Boxes
            waiting = (
                isinstance(h.state, slice_update_fusion.Boxes) and not goes_on and h is not joined
            )
            if waiting or regional and not boundary_regions.reads_along(eqn):
                self.store(h)
        if joined is not None:
            slice_update_fusion.map_chain(self, eqn, recipes.fn, joined, outs[0])
        elif isinstance(recipes, tuple):
            for h, r in zip(outs, recipes, strict=True):
                self._make(self, eqn, r, inputs, [h])
        else:
            self._make(self, eqn, recipes, inputs, outs)
