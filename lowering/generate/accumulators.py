"""Accumulators in registers: loops of reductions that carry few results as variables.

Source: scalar replacement of accumulators, Allen & Kennedy 2001, ch. 8; a reduction split in parts whose
results are reduced: rfactor, Suriana et al. 2017.
Input: a closed fusion group with reductions.
Output: a nest whose loops carry the accumulators, or parts of it that threads share and a loop over these.
Legal when: always in order; in parts where the numbers are exact, or the recipe lets sums reassociate.
Pays when: parts take `Machine.parallel_reduction` operations, many results one strip at a time.
Costs: partial results in memory; their number does not depend on threads, and neither do results.
"""

from collections.abc import Sequence
from math import prod

from fnx.core import policy, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.nests import Nests
from fnx.lowering.ir.expressions import buffers_read, depends_on, substitute
from fnx.lowering.ir.kernel import Buffer, Let, Loop, LoopKind, Stmt, Store

from .fusion_groups import Reduction

_EXACT = frozenset("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())


class Accumulators(Nests):
    """Emits nests of a closed group in which accumulators are variables."""

    def _values_at(self, f: Reduction, values: list[Expr]) -> tuple[Expr, ...]:
        return f.recipe.fn(*self.group.index(f.recipe.shape, values))

    def _finish(
        self, loops: list[Stmt], totals: list[Expr], points: int, values: Sequence[Expr] = ()
    ) -> None:
        """Emit the nest, and put the totals where they belong: reduction by reduction, point by point.

        `values` are those of the totals where the loops do not carry these.
        """
        rest = iter(totals)
        reductions = self.group.reductions
        found = [
            (f, [[next(rest) for _ in f.recipe.init] for _ in range(points)]) for f in reductions
        ]
        stores: list[Stmt] = []
        results: list[Expr] = []
        for f, own in found:
            stores += f.stores(self.builder, own)
            results += [a for each in own for a in each if not f.is_stored(self.builder)]
        self._nest([*loops, *_known(stores, results, dict(zip(totals, values)))], results)
        for f, own in found:
            f.settle(self.builder, own)

    def _by_strips(
        self,
        dims: list[tuple[Expr, int]],
        stores: list[Store],
        accs: list[Expr],
        init: list[Expr],
        nexts: list[Expr],
        points: int,
    ) -> tuple[list[Stmt], list[Expr]] | None:
        """Many results: a few at a time, strip by strip, of which threads share parts; and their values."""
        if len(dims) > 1 or len(accs) <= policy.SMALL or not self._reassociates():
            return None
        numbers = [k for f in self.group.reductions for k in range(points * len(f.recipe.init))]
        order = sorted(range(len(accs)), key=numbers.__getitem__)  # of all reductions together
        combine = lambda x, y: self._combined(x, y, points)
        carries = accs, init, nexts
        strips = self.builder.target.reduction_in_strips(
            self.builder, dims[0], stores, carries, order, combine
        )
        if strips is None:
            return None
        if not self._is_shared_out(dims):
            places = strips.places()
            loops = strips.loop(scalar.size(0), scalar.size(strips.count), places)
            return loops, strips.results(places)
        each = max(
            -(-strips.count // self.builder.machine.strip_parts), self.builder.machine.least_strips
        )
        loop, joined, places = strips.parts(each)
        names = [m.name for m in [*self.stores, *self.group.reductions]]
        self.builder.emit_nest(
            names, [loop], [], f"{loop.extent.attr} parts of {self._note(names)}"
        )
        return joined, strips.results(places)

    def _reassociates(self) -> bool:
        return all(f.recipe.reassociate for f in self.group.reductions)

    def _is_shared_out(self, dims: list[tuple[Expr, int]]) -> bool:
        """Whether parts of a large reduction are worth reducing apart: then threads can."""
        exact = all(e.dtype in _EXACT for f in self.group.reductions for e in f.recipe.init)
        starts = all(e.op == "const" for f in self.group.reductions for e in f.recipe.init)
        return (
            prod(n for _, n in dims) * self._weight() >= self.builder.machine.parallel_reduction
            and dims[0][1] > 1
            and starts
            and (exact or self._reassociates())
        )

    def _shared_out(
        self,
        dims: list[tuple[Expr, int]],
        body: list[Stmt],
        accs: list[Expr],
        init: list[Expr],
        nexts: list[Expr],
        points: int,
    ) -> list[Stmt]:
        """A nest that reduces equal parts; what remains: the partial results, then the last rows.

        The parts are the same for any number of threads, and so are the results.
        """
        (var, n), rest = dims[0], dims[1:]
        length = -(-n // self.builder.machine.parts)
        length += -length % policy.SMALL if length > policy.SMALL else 0  # whole vectors
        parts = n // length
        part, i = scalar.var("int64", "p"), scalar.var("int64", "i")
        own = [scalar.var(a.dtype, "a") for a in accs]
        at = scalar.add(scalar.mul(part, scalar.size(length)), i)
        inner, again = _moved(body, nexts, [var, *accs], [at, *own])
        free = self._reassociates()
        loops = self._fold_loops([(i, length), *rest], inner, own, init, again, free)
        if parts * length == n:
            return self._joined(part, parts, loops, own, accs, init, points)
        total = [scalar.var(a.dtype, "a") for a in accs]
        joined = self._joined(part, parts, loops, own, total, init, points)
        tail = scalar.var("int64", "i")
        body, nexts = _moved(body, nexts, [var], [scalar.add(scalar.size(parts * length), tail)])
        left = [(tail, n - parts * length), *rest]
        return [*joined, *self._fold_loops(left, body, accs, total, nexts, free)]

    def _joined(
        self,
        part: Expr,
        parts: int,
        loops: list[Stmt],
        own: list[Expr],
        accs: list[Expr],
        init: list[Expr],
        points: int,
    ) -> list[Stmt]:
        """A nest of parts, each with results of its own; what remains to be done with these."""
        builder = self.builder
        kinds = {a.dtype: [b for b in own if b.dtype == a.dtype] for a in own}
        buffers = {t: builder.new_buffer(t, parts * len(some)) for t, some in kinds.items()}

        number = {a: k for some in kinds.values() for k, a in enumerate(some)}

        def place(a: Expr, p: Expr) -> tuple[Buffer, Expr]:
            row = scalar.mul(p, scalar.const(len(kinds[a.dtype]), "int64"))
            return buffers[a.dtype], scalar.add(row, scalar.const(number[a], "int64"))

        loops = [*loops, *[Store(*place(a, part), a) for a in own]]
        names = [m.name for m in [*self.stores, *self.group.reductions]]
        loop = Loop(part, scalar.size(parts), loops, kind=LoopKind.PARALLEL)
        builder.emit_nest(names, [loop], [], f"{parts} parts of {self._note(names)}")
        j = scalar.var("int64", "p")
        values = [scalar.load(*place(a, j), a.dtype) for a in own]
        merged = self._combined(accs, values, points)
        return self._fold_loops([(j, parts)], [], accs, init, merged, False)

    def _combined(self, accs: list[Expr], values: list[Expr], points: int) -> list[Expr]:
        """Accumulators of all reductions, at all points, with more values."""
        found: list[Expr] = []
        for f in self.group.reductions:
            for _ in range(points):
                k = len(found)
                some = slice(k, k + len(f.recipe.init))
                found += f.recipe.combine(tuple(accs[some]), tuple(values[some]))
        return found

    def _collapse_reduction(self, dims: list, stores: list[Store], nexts: list[Expr]) -> tuple:
        group = self.group
        position = scalar.linear_index(tuple(group.vars), group.shape)
        exprs = [e for s in stores for e in (s.index, s.value)] + nexts
        if depends_on(exprs, group.vars, stop=position):
            return dims, stores, nexts
        flat = scalar.var("int64", "i")
        new = iter(substitute(exprs, {position: flat}))
        stores = [Store(s.buffer, next(new), next(new)) for s in stores]
        return [(flat, prod(group.shape))], stores, list(new)

    def _fold_loops(
        self,
        dims: list[tuple[Expr, int]],
        body: list[Stmt],
        accs: list[Expr],
        init: list[Expr],
        nexts: list[Expr],
        reassociate: bool,
    ) -> list[Stmt]:
        """Nested loops that hand the accumulators through; `accs` hold the results after them."""
        if not dims:  # every axis has size 1: the reduction has one step
            once = scalar.var("int64", "i")
            dims = [(once, 1)]
        (var, n), *rest = dims
        if not rest:
            loop = Loop(var, scalar.size(n), body, accs, init, nexts, reassociate=reassociate)
            loop.kind = LoopKind.of(
                vectorized=bool(body)
            )  # stores are at the iteration's own point
            if reassociate and 2 * policy.INTERLEAVED <= n <= policy.SMALL:
                loop.rolled = True  # not before the vectoriser comes, which makes one vector of it
            return [loop]
        inner = [scalar.var(a.dtype, "a") for a in accs]
        again = substitute(nexts, dict(zip(accs, inner, strict=True)))
        loops = self._fold_loops(rest, body, inner, list(accs), again, reassociate)
        return [Loop(var, scalar.size(n), loops, accs, init, inner, reassociate=reassociate)]


def _known(stores: list[Stmt], results: list[Expr], values: dict[Expr, Expr]) -> list[Stmt]:
    """Stores of variables, and the variables that are results, after the values of these.

    What is stored is computed there, so that not all values wait, unless one reads what is overwritten.
    """
    written = {s.buffer for s in stores if isinstance(s, Store)}
    if written.isdisjoint(buffers_read(values.values())):
        into = [s for s in stores if isinstance(s, Store)]
        stores = [Store(s.buffer, s.index, values.get(s.value, s.value)) for s in into]
        values = {a: values[a] for a in results if a in values}
    return [Let(list(values), list(values.values())), *stores] if values else stores


def _moved(
    body: list[Stmt], values: list[Expr], old: list[Expr], new: list[Expr]
) -> tuple[list[Stmt], list[Expr]]:
    """Stores and values with expressions replaced."""
    stores = [s for s in body if isinstance(s, Store)]
    exprs = [*values, *(e for s in stores for e in (s.index, s.value))]
    exprs = substitute(exprs, dict(zip(old, new, strict=True)))
    rest = iter(exprs[len(values) :])
    return [Store(s.buffer, next(rest), next(rest)) for s in stores], exprs[: len(values)]
