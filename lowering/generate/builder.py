"""Walks a jaxpr, equation by equation, and keeps a `Value` for each variable.

Small arrays live in registers and their operations are unrolled; elementwise values of large arrays
are inlined into their readers or join open fusion groups (elementwise.py, fusion_groups.py);
everything else is stored (storage.py). The choices themselves are in planning/fusion_policy.py.
"""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import dtypes, recipe, scalar
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, Var
from fnx.lowering.generate.fusion_groups import Scope
from fnx.lowering.planning import horizontal_fusion
from fnx.lowering.planning.equation_order import (
    box_chains,
    exchanged,
    readers_first,
    saves_readers,
    taken_over,
)

from . import boundary_regions, slice_update_fusion, small_problems
from .storage import Storage
from .target import Target
from .values import OWN, Inlined, Materialized, Scalars, Value

FOREVER = float("inf")
Make = Callable[["Builder", Eqn, Any, list[Value], list[Value]], None]


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
        inputs: Sequence[Value],
        destinations: dict[Var, Materialized] | None = None,
        carry_buffers: dict[Var, Materialized] | None = None,
    ) -> list[Value]:
        """Build a jaxpr in the current block; the values of its outputs."""
        jaxpr = readers_first(horizontal_fusion.totals_last(horizontal_fusion.reductions(jaxpr)))
        scope = self.scope = Scope(self.scope)
        for var, given in zip(jaxpr.inputs, inputs, strict=True):
            scope.add(var, self._enter(given))
        self._count_uses(jaxpr)
        destinations = self._through_reshapes(jaxpr, destinations or {})
        for var, destination in destinations.items():
            if var in scope.values:
                continue  # an input: copied by whoever asked
            scope.add(var, self._new_value(var)).destination = destination
        self._prefer_destinations(jaxpr, destinations)
        for var, place in (carry_buffers or {}).items():
            for v in self._versions(jaxpr, var):
                scope.add(v, self._new_value(v)).carry_buffer = place
                scope.wished.add(place.buffer)
        for k, eqn in enumerate(jaxpr.eqns):
            scope.position = k
            self._eqn(eqn)
        scope.position = len(jaxpr.eqns)
        outs = [self.value(atom) for atom in jaxpr.outs]
        self.scope = scope.outer  # type: ignore[assignment]
        self._leave(scope, outs)
        return outs

    def _through_reshapes(
        self, jaxpr: Jaxpr, destinations: dict[Var, Materialized]
    ) -> dict[Var, Materialized]:
        """With them values that are made only to be reshaped into one: they lie there alike."""
        found = dict(destinations)
        for k in range(len(jaxpr.eqns) - 1, -1, -1) if destinations else ():
            eqn = jaxpr.eqns[k]
            place = found.get(eqn.outs[0]) if eqn.prim.name in ("reshape", "squeeze") else None
            if place is not None and type(x := eqn.inputs[0]) is Var:
                alone = self.scope.uses[x] == [k] and x not in self.scope.values
                if alone and not self.target.is_small(x.aval.shape):
                    found.setdefault(x, place)
        return found

    def _prefer_destinations(self, jaxpr: Jaxpr, destinations: dict[Var, Materialized]) -> None:
        """A value that is made by updates of another, which dies there, has that one's place too."""
        for last, destination in destinations.items():
            made = self._versions(jaxpr, last)
            before = exchanged(jaxpr, made[-1] if made else last, self.scope.uses)
            for var in [*made, before] if before is not None else made:
                self.scope.add(var, self._new_value(var)).preferred_buffer = destination

    def _versions(self, jaxpr: Jaxpr, var: Var) -> list[Var]:
        """A value, and those that it is made of by updates in which they die, the last first."""
        scope = self.scope
        maker = {v: k for k, e in enumerate(jaxpr.eqns) for v in e.outs}
        found = [var] if var not in scope.values else []
        while var in maker:
            k = maker[var]
            before = taken_over(jaxpr.eqns[k], var)
            if before is None or before not in maker or before in scope.values:
                break
            uses = scope.uses.get(before, [])
            alone = len(uses) == 1 or saves_readers(jaxpr.eqns[k])
            if not alone or -1 in uses or max(uses) > k or uses.count(k) != 1:
                break
            found.append(before)
            var = before
        return found

    def _enter(self, given: Value) -> Value:
        """A value of this scope for a value from outside; it shares the state."""
        value = Value(given.shape, given.dtype, given.state)
        # It may die here only if it was made for this scope (a carry).
        value.scope = self.scope if given.scope is OWN else given.scope
        return value

    def _count_uses(self, jaxpr: Jaxpr) -> None:
        values = self.scope.values
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
        for var, value in values.items():
            self._set_uses(value, uses.get(var, []))

    @staticmethod
    def _set_uses(value: Value, numbers: list[int]) -> None:
        value.consumers = numbers
        value.last_use = FOREVER if -1 in numbers else max(numbers, default=-1)

    def _new_value(self, var: Var) -> Value:
        value = Value(var.aval.shape, dtype_name(var.aval.dtype))
        value.scope = self.scope
        self._set_uses(value, self.scope.uses.get(var, []))
        return value

    def _leave(self, scope: Scope, outs: list[Value]) -> None:
        """Close what is open in a finished scope, so that its outputs stand on their own."""
        self.scope, outer = scope, self.scope
        self.flush_all()
        for value in outs:
            self.settle(value)
        self.scope = outer
        for value in outs:
            value.scope = outer

    def value(self, atom: Any) -> Value:
        if type(atom) is Literal:
            dtype = dtype_name(atom.aval.dtype)
            value = dtypes.scalar_value(atom.value._value)
            return Value((), dtype, Scalars([scalar.literal(value, dtype)]))
        return self.scope.values[atom]

    # --- equations ---

    def _eqn(self, eqn: Eqn) -> None:
        inputs = [self.value(a) for a in eqn.inputs]
        outs = []
        for var in eqn.outs:
            if var not in self.scope.values:
                self.scope.add(var, self._new_value(var))
            outs.append(self.scope.values[var])
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
            regional = isinstance(h.state, Inlined) and h.state.regional
            goes_on = waits and h is recipes.operand and type(h.state) is slice_update_fusion.Boxes
            waiting = (
                isinstance(h.state, slice_update_fusion.Boxes) and not goes_on and h is not joined
            )
            if waiting:
                slice_update_fusion.settle(self, h)
            elif regional and not boundary_regions.reads_along(eqn):
                self.store_reusing(h)
        if joined is not None:
            slice_update_fusion.map_chain(self, eqn, recipes.fn, joined, inputs, outs[0])
        elif isinstance(recipes, tuple):
            for h, r in zip(outs, recipes, strict=True):
                self._make(self, eqn, r, inputs, [h])
        else:
            self._make(self, eqn, recipes, inputs, outs)
