"""Batches of small problems: the values of many of them side by side, in one loop over the problems.

A rotation of each of a thousand points is made of arrays of shapes (1000,), (1000, 3), (1000, 3, 3).
Taken by shapes they are many nests, with arrays of temporaries in between. Here a value has one
expression for each element of a problem, and all of them belong to the group of the long axes, the
problems: they share one loop, in which what is in between lives in registers.

Source: outer-loop vectorization (Nuzman & Zaks 2008) of full unrolling; scalar replacement of arrays,
Allen & Kennedy 2001, ch. 8.
Input: equations of one jaxpr over the same problems that hang together.
Output: members of one group, an expression for each element of a problem.
Legal when: no equation mixes problems but by reducing all of them, and none has effects or carries jaxprs.
Pays when: one of them makes elements of a problem from others, and all fit registers (`PROBLEM`).
Costs: code that grows with the elements of a problem, at most `PROBLEM_NODES` operations in a loop.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from fnx.core import policy, recipe, scalar
from fnx.core.backend import Machine
from fnx.core.jaxpr import Eqn, Jaxpr, Literal, subjaxprs
from fnx.core.recipe import Recipe
from fnx.core.scalar import Expr
from fnx.lowering.ir import number_formats
from fnx.lowering.ir.kernel import Stmt, Store

from . import elementwise, slice_update_fusion
from .fusion_groups import Reduction, places
from .generation import Generation
from .values import Fused, Inlined, Materialized, Shape, Value, memoised, static_indices

Fn = Callable[..., Expr]


# --- which equations ---------------------------------------------------------------------------


def problem_axes(shape: Shape) -> Shape:
    """The long axes of a shape; none if a problem has no elements, or too many for registers.

    On a grid with so many at a point their rows are rather vectors: channels of pictures.
    """
    long, short = _split(shape)
    return (
        tuple(long)
        if 0 < prod(short) <= (policy.PROBLEM if len(long) == 1 else policy.SMALL)
        else ()
    )


def _problem(shape: Shape) -> Shape:
    """The short axes of a shape."""
    return tuple(n for n in shape if 1 < n <= policy.SMALL)


def equations(jaxpr: Jaxpr) -> set[int]:
    """The equations that are computed lanewise.

    Those over the same problems that hang together, if one of them makes a problem's values of some
    shape from others: what is elementwise alone is best done in the order of memory.
    """
    parent: dict[object, object] = {}

    def root(x: object) -> object:
        while (above := parent.setdefault(x, x)) is not x:
            parent[x] = x = parent[above]  # half as far the next time
        return x

    mixing, found, apart = [], {}, []
    for k, eqn in enumerate(jaxpr.eqns):
        if not eqn.outs:  # a callback reads what there is
            continue
        apart += [v for a in eqn.inputs if _is_of_grids(eqn, a) for v in (a, *eqn.outs)]
        over = {problem_axes(v.aval.shape) for v in eqn.outs}
        if len(over) != 1 or () in over or not _is_plain(eqn):
            continue
        found[k] = first = eqn.outs[0]
        mine = {_problem(v.aval.shape) for v in eqn.outs}
        read = [
            a for a in eqn.inputs if type(a) is not Literal and problem_axes(a.aval.shape) in over
        ]
        for v in (*eqn.outs, *read):
            parent[root(v)] = root(first)
        if _is_along(eqn) or any(_problem(a.aval.shape) not in mine for a in read):
            mixing.append(first)
    roots = {id(root(v)) for v in mixing} - {id(root(v)) for v in apart}
    return {k for k, v in found.items() if id(root(v)) in roots}


_CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "linear_recurrence")
_WINDOWED = ("conv_general_dilated", "reduce_window", "select_and_")


def _is_along(eqn: Eqn) -> bool:
    """Whether it goes along a problem, from each element to the next."""
    shape = eqn.outs[0].aval.shape
    return eqn.prim.name in _CUMULATIVE and 1 < shape[eqn.prim.axis] <= policy.SMALL  # type: ignore[attr-defined]


def _is_of_grids(eqn: Eqn, a: Any) -> bool:
    """Whether an equation is not for each problem: it reduces problems along some of their axes, or to more
    numbers than registers hold, or transposes them, or takes or is a part of their grid (a stencil), or
    joins problems, each of which would ask where it is from; or if rows of the problems fill vectors.
    """
    if type(a) is Literal or not problem_axes(a.aval.shape):
        return False
    if eqn.prim.name.startswith(_WINDOWED) or _is_of_large(eqn):
        return True
    before, out = problem_axes(a.aval.shape), eqn.outs[0].aval.shape
    after = tuple(n for n in out if n > policy.SMALL)
    if after:
        other = len(after) == len(before) and after != before
        joins = len(before) > 1 or eqn.prim.name in ("concatenate", "pad")
        return len(after) < len(before) or (other and joins)
    return eqn.prim.name.startswith("reduce_") and prod(out) > policy.PROBLEM


def _is_of_large(eqn: Eqn) -> bool:
    """Whether it is a product with a matrix of each problem that is too large for registers."""
    if eqn.prim.name != "dot_general":
        return False
    apart = [_split(a.aval.shape) for a in (*eqn.inputs, *eqn.outs)]
    return any(len(long) == 1 and prod(short) > policy.PROBLEM for long, short in apart)


def _is_plain(eqn: Eqn) -> bool:
    """Whether an equation may be computed problem by problem.

    Products with a matrix that all problems share, whose rows fill vectors, are those of matrices, unless
    they have few terms.
    """
    if eqn.prim.effects or any(True for _ in subjaxprs(eqn.prim)):
        return False
    if eqn.prim.name != "dot_general" or all(problem_axes(a.aval.shape) for a in eqn.inputs):
        return True
    row, (axes, _) = _problem(eqn.outs[0].aval.shape), eqn.prim.dimension_numbers[0]  # type: ignore[attr-defined]
    terms = prod(eqn.inputs[0].aval.shape[k] for k in axes)
    return len(row) != 1 or row[0] < policy.VECTOR_ROW or terms <= policy.CHAIN


# --- their elements ----------------------------------------------------------------------------


def functions(builder: Generation, r: Recipe, outs: Sequence[Value]) -> list[Fn] | None:
    """The outputs of a recipe by index, of which those along short axes are numbers; if it has such."""
    match r:
        case recipe.Point():
            return [r.fn]
        case recipe.Reshape():
            fn = _reshaped(r.operand.shape, outs[0].shape, r.operand)
            return fn and [fn]
        case recipe.Pieces():
            return [elementwise.chosen(r.pieces)]
        case recipe.Fold() if _is_short(r):
            return _reductions(r, len(outs))
        case recipe.Cumulative() if r.shape[r.axis] <= policy.SMALL:
            return _partial(r, len(outs))
        case recipe.Update() if not _is_elsewhere(r.operand, outs[0]):  # type: ignore[arg-type]
            return None
        case recipe.Update() if r.box is not None and _is_whole(*r.box, outs[0].shape):
            box = (*r.box, r.value, r.combine is not None)
            return [slice_update_fusion.Boxes(r.operand, [box], 0, outs[0].shape).fn]
        case recipe.Update() if _stays_in_lanes(builder, r, outs[0]):
            return [_updated(r, outs[0].shape)]
    return None


def _reshaped(old: Shape, new: Shape, read: Fn) -> Fn | None:
    """A reshape that leaves the axes of the problems alone."""
    at, to = ([k for k, n in enumerate(s) if n > policy.SMALL] for s in (old, new))
    cuts = [(*x, len(s)) for x, s in ((at, old), (to, new))]
    if len(at) != len(to):
        return None
    spans = []  # of short axes, between the long ones
    for (i, j), (m, n) in zip(zip((-1, *at), cuts[0]), zip((-1, *to), cuts[1])):
        spans.append((old[i + 1 : j], new[m + 1 : n]))
        if prod(old[i + 1 : j]) != prod(new[m + 1 : n]):
            return None

    def fn(*index: Expr) -> Expr:
        found: list[Expr] = []
        k = 0
        for before, after in spans:
            position = scalar.linear_index(index[k : k + len(after)], after)
            k += len(after)
            part = []
            for n in reversed(before):
                position, i = scalar.divmod_size(position, n)
                part.append(i)
            found += part[::-1]
            if k < len(index):
                found.append(index[k])
                k += 1
        return read(*found)

    return fn


def _is_short(r: recipe.Fold) -> bool:
    """Whether only short axes are reduced, and few terms are to be written out."""
    few = prod(n for n in r.shape if n <= policy.SMALL) <= policy.PROBLEM_TERMS
    return few and all(r.shape[k] <= policy.SMALL for k in r.axes)


def _reductions(r: recipe.Fold, outputs: int) -> list[Fn]:
    kept = [k for k in range(len(r.shape)) if k not in r.axes]
    at = memoised(lambda *index: elementwise.folded(r, kept, index))
    return [lambda *index, j=j: at(*index)[j] for j in range(outputs)]


def _partial(r: recipe.Cumulative, outputs: int) -> list[Fn]:
    """Each element is made from the one before."""
    step = -1 if r.reverse else 1
    first = r.shape[r.axis] - 1 if r.reverse else 0

    def element(*index: Expr) -> tuple[Expr, ...]:
        k = index[r.axis].attr
        before = (*index[: r.axis], scalar.size(k - step), *index[r.axis + 1 :])
        return r.combine(r.init if k == first else at(*before), r.fn(*index))

    at = memoised(element)
    return [lambda *index, j=j: at(*index)[j] for j in range(outputs)]


def _is_whole(low: Shape, high: Shape, shape: Shape) -> bool:
    """Whether a box holds all problems."""
    return all(n <= policy.SMALL or h - l == n for l, h, n in zip(low, high, shape, strict=True))


def _is_elsewhere(operand: Value, out: Value) -> bool:
    """Whether an update may be written anew: not over what it reads. What is there is updated there."""
    if isinstance(operand.state, slice_update_fusion.Boxes):
        return False
    taken = {
        place.buffer
        for place in (out.destination, out.preferred_buffer, out.carry_buffer)
        if place is not None
    }
    if isinstance(operand.state, Materialized):
        return operand.state.buffer not in taken
    if operand.preferred_buffer is not None and operand.preferred_buffer.buffer in taken:
        operand.preferred_buffer = None
    return operand.destination is None or operand.destination.buffer not in taken


def _stays_in_lanes(builder: Generation, r: recipe.Update, out: Value) -> bool:
    """Whether few elements of each problem are updated, with what is computed in that problem."""
    long, short = _split(r.shape)
    if (
        long != _split(out.shape)[0]
        or prod(short) * prod(_split(out.shape)[1]) > policy.PROBLEM_TERMS
    ):
        return False
    if number_formats.KIND[out.dtype] == "h":  # sums are not to be rounded in between
        return False
    problem = builder.group_of(problem_axes(out.shape)).vars
    aims = builder.evaluated(lambda: [r.target(*ix)[1] for ix in _of_problem(r.shape, problem)])
    return all([i for i, n in zip(aim, out.shape) if n > policy.SMALL] == problem for aim in aims)


def _split(shape: Shape) -> tuple[list[int], list[int]]:
    """The long and the short axes of a shape."""
    return [n for n in shape if n > policy.SMALL], [n for n in shape if n <= policy.SMALL]


def _of_problem(shape: Shape, problem: Sequence[Expr]) -> list[tuple[Expr, ...]]:
    """The indices of the elements of a problem."""
    found = []
    for at in places(shape):
        rest = iter(problem)
        found.append(tuple(next(rest) if i is None else i for i in at))
    return found


def _updated(r: recipe.Update, shape: Shape) -> Fn:
    def fn(*index: Expr) -> Expr:
        total = r.operand(*index)
        problem = [i for i, n in zip(index, shape, strict=True) if n > policy.SMALL]
        for at in _of_problem(r.shape, problem):
            here, aim = r.target(*at)
            for i, j, n in zip(aim, index, shape, strict=True):
                if n <= policy.SMALL:
                    here = scalar.logical_and(here, scalar.compare("eq", i, j))
            if here.op == "const" and not here.attr:
                continue
            value = r.value(*at)
            new = value if r.combine is None else r.combine(total, value)
            total = scalar.select(here, new, total)
        return total

    return fn


# --- their groups ------------------------------------------------------------------------------


def settle(builder: Generation, inputs: list[Value]) -> None:
    """Have what is the same for all problems in memory: it is not to be computed again for each."""
    for h in inputs:
        if isinstance(h.state, Inlined) and h.state.cost > 1 and not _split(h.shape)[0]:
            builder.store(h)


def values(builder: Generation, eqn: Eqn, out: Value, fn: Fn) -> None:
    """An output becomes a member of its problems' group; what is only moved is inlined."""
    out.lanewise = True
    fn = memoised(fn)
    if eqn.prim.cost.operations == 0 and -1 not in out.consumers and out.destination is None:
        out.state = Inlined(fn, 0)
    else:
        join(builder, out, fn, eqn.prim.name)


def join(builder: Generation, out: Value, fn: Fn, name: str) -> None:
    """Make the elements of a value members of the open group of its problems."""
    group, made = builder.in_group(
        problem_axes(out.shape),
        lambda g: [(at, fn(*g.index(out.shape, at=at))) for at in places(out.shape)],
    )
    for at, expr in made:
        group.add_element(out, fn, expr, builder.scope.position, name, at)
    out.state = Fused(group, fn)


# --- reductions over all problems -----------------------------------------------------------------


class _Totals(Reduction):
    """A reduction over problems: an accumulator for each element of the results."""

    def is_stored(self, builder: Generation) -> bool:
        return not builder.target.is_small(self.results[0].shape)

    def stores(self, builder: Generation, results: list[list[Expr]]) -> list[Stmt]:
        if not self.is_stored(builder):
            return []
        count, made = len(self.results), list[Stmt]()
        for k, value in enumerate(self.results):
            stored = value.destination or builder.new_stored(value)
            value.state = stored
            for j, e in enumerate(results[0][k::count]):
                made.append(Store(stored.buffer, scalar.add(stored.base, scalar.size(j)), e))
        return made

    def settle(self, builder: Generation, results: list[list[Expr]]) -> None:
        if self.is_stored(builder):
            return
        count = len(self.results)
        for k, value in enumerate(self.results):
            builder.settle_registers(value, results[0][k::count])


def reduction(
    builder: Generation, eqn: Eqn, r: recipe.Fold, inputs: list[Value], outs: list[Value]
) -> bool:
    """Reduce lanewise values over all problems in the loop that computes them; False if they are not."""
    shape, short = _split(r.shape)
    if not shape or not 0 < prod(short) <= _most_totals(builder.machine, eqn, shape, inputs):
        return False
    if not all(k in r.axes for k, n in enumerate(r.shape) if n > policy.SMALL):
        return False
    if not any(h.lanewise and isinstance(h.state, Fused | Inlined) for h in inputs):
        return False
    axes = tuple(range(len(shape)))
    total = recipe.Fold(tuple(shape), axes, r.init * outs[0].size, *_totals(r), r.reassociate)
    builder.join_reduction(_Totals(total, outs, eqn.prim.name), axes)
    return True


def _most_totals(machine: Machine, eqn: Eqn, shape: list[int], inputs: list[Value]) -> int:
    """How many terms each problem may have.

    More than registers hold are worth it for products of several matrices, both computed here: these
    would go through memory, of which a routine for each product reads parts of all lines.
    """
    if len(shape) > 1:
        return policy.SMALL
    if eqn.prim.name != "dot_general" or not eqn.prim.dimension_numbers[1][0]:  # type: ignore[attr-defined]
        return policy.PROBLEM
    here = all(h.lanewise and isinstance(h.state, Fused | Inlined) for h in inputs)
    size = sum(h.size * number_formats.itemsize(h.dtype) for h in inputs)
    return machine.batch_sums if here and size >= machine.far_batch else policy.PROBLEM


def _totals(r: recipe.Fold) -> tuple[Callable, Callable]:
    """The values of a problem, those of an element of the results together; and how they are combined."""
    kept = tuple(n for k, n in enumerate(r.shape) if k not in r.axes)
    along = tuple(r.shape[k] if r.shape[k] <= policy.SMALL else 1 for k in r.axes)

    def fn(*index: Expr) -> tuple[Expr, ...]:
        found: list[Expr] = []
        for at in static_indices(kept):
            for over in static_indices(along):
                problem, mine, rest = iter(index), iter(at), iter(over)
                point = []
                for k, n in enumerate(r.shape):
                    i = next(rest if k in r.axes else mine)
                    point.append(next(problem) if n > policy.SMALL else i)
                found += r.fn(*point)
        return tuple(found)

    def combine(accs: tuple[Expr, ...], values: tuple[Expr, ...]) -> tuple[Expr, ...]:
        each, count = len(r.init), len(values) // len(accs)
        found: list[Expr] = []
        for k in range(0, len(accs), each):
            acc = accs[k : k + each]
            for j in range(k * count, (k + each) * count, each):
                acc = r.combine(acc, values[j : j + each])
            found += acc
        return tuple(found)

    return fn, combine
