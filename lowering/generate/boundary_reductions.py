"""Loop partitioning of reductions to one number: the inside of a grid, then the slabs at its boundaries.

Source: loop partitioning (Halide, TVM's LoopPartition).
Input: a closed group whose members choose by index near boundaries, with reductions of all elements.
Output: one nest with a loop over the inside without choices, and one over each slab; the accumulators go
through all of them, so that the sum of squares of a rolled field's differences needs no copy of it.
Legal when: the sums may reassociate, and no member is read by now at another index.
Pays when: the inside is most of the space (`boundary_regions.py`).
Costs: code for each slab.
"""

from fnx.core import scalar
from fnx.lowering.ir.kernel import Stmt

from . import boundary_regions
from .reductions import ReductionNests
from .values import NeedsFlush, values_at_rest


class BoundaryReductions(ReductionNests):
    """Emits the nest of a closed group whose members choose by index near their edges."""

    def _emit(self) -> None:
        if not (self.group.totals() and self._reassociates() and self._by_parts()):
            super()._emit()

    def _by_parts(self) -> bool:
        group = self.group
        exprs = [m.expr for m in self.stores]
        exprs += [e for f in group.reductions for e in self._values_at(f, list(group.vars))]
        parts = []
        for low, high in boundary_regions.regions(exprs, group.vars, group.shape):
            values, dims = self._region(low, high)
            group.allow(values)
            try:
                with values_at_rest():
                    stores = self._stores_at(values)
                    terms = [self._values_at(f, values) for f in group.reductions]
                parts.append((dims, stores, terms))
            except NeedsFlush:
                return False  # a value has joined since that a member reads elsewhere
        loops: list[Stmt] = []
        totals = [e for f in group.reductions for e in f.recipe.init]
        for k, (dims, stores, terms) in enumerate(parts):
            init, totals = totals, [scalar.var(e.dtype, "a") for e in totals]
            nexts = self._combined(totals, [e for some in terms for e in some], 1)
            if k == 0 and dims and self._is_shared_out(dims):
                loops += self._shared_out(dims, list(stores), totals, init, nexts, 1)
            else:
                loops += self._fold_loops(dims, list(stores), totals, init, nexts, True)
        if parts:
            self._finish(loops, totals, 1)
        return bool(parts)


__all__ = ["BoundaryReductions"]
