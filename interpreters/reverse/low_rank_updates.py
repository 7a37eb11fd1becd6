"""Low-rank updates: a matrix that a loop changes by outer products is kept as factors.

Iteration k sees the first matrix and what those before have added: X_k = X_0 + U_k V_k^T. So a product
with it is one with the first matrix and two with the stacks of the vectors, and the matrices between
need neither be stored nor restored. Orthogonalisation and reflections are of this kind.

Source: WY form, Bischof & Van Loan 1987.
Input: a scan, and what its derivative reads of a carried matrix.
Output: the scan that stacks vectors, and the linear loop that reads products.
Legal when: the body changes the matrix by outer products alone, and the derivative reads it in products
alone.
Pays when: the matrices would take `LOW_RANK_BYTES` bytes, and the stacks at most `LOW_RANK_STACKS` times
one matrix.
Costs: two thin products for each product with the matrix.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from fnx.core import policy
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.interpreters.control_flow import ScanRecord
from fnx.interpreters.linearize import linearize_jaxpr
from fnx.interpreters.passes.row_dependence import index_of
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.rewrite import bind_into, dependent, splice
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add, lt, mul, select, sub
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.elementwise.select import clamp, eq
from fnx.ops.linalg.contraction import DotGeneral
from fnx.ops.structure.basic import scalar
from fnx.ops.structure.dynamic_slice import DynamicSlice
from fnx.ops.structure.join import Iota

from .residuals import Split, assemble, choose

_INT = np.dtype(np.int64)


@dataclass(frozen=True)
class Sum:
    """Carry `number`, and the columns and rows whose products each iteration adds to it, times `scales`.

    `versions`: the matrix before each, and after them all.
    """

    number: int
    versions: tuple[Var, ...]
    terms: tuple[tuple[Var, Var], ...]
    scales: tuple[float, ...]


@dataclass(frozen=True)
class Summed:
    """The derivative of a loop whose `sums` are not stored.

    `scan` has more constants: of each sum the first matrix, the stacks of its vectors; and a last row,
    the number of the iteration. `parts` is the derivative of that. `stacks`: which results of `forward`.
    """

    scan: ScanRecord
    forward: Jaxpr
    parts: Split
    sums: tuple[Sum, ...]
    stacks: tuple[int, ...]

    def extended(self, values: Sequence, outs: Sequence | None) -> tuple:
        """Operands of `scan` for those of the loop and its results; for tangents (no results) None."""
        n = self.scan.consts - len(self.stacks) - len(self.sums)
        m = n + self.scan.carry
        if outs is None:
            more: list = [None] * (len(self.stacks) + len(self.sums))
            return (*values[:n], *more, *values[n:], None)
        firsts = [values[n + s.number] for s in self.sums]
        iterations = Iota(0, _INT, (self.scan.length,))()
        stacks = [outs[k] for k in self.stacks]
        return (*values[:n], *firsts, *stacks, *values[n:m], *values[m:], iterations)


def summed(
    scan: ScanRecord, parts: Split, nonzero: tuple[bool, ...], costly: Sequence[bool]
) -> Summed | None:
    """The derivative of a loop in which sums of outer products are not stored, if there are any."""
    n = len(scan.jaxpr.outs)
    shapes = {v.aval.shape for v in parts.forward.outs[n:]}
    shapes |= {scan.jaxpr.inputs[k].aval.shape for k in parts.restored}
    if scan.counted or scan.reverse or scan.divergent or scan.effects:
        return None
    large = [
        k
        for k, v in enumerate(scan.parts(scan.jaxpr.inputs)[1])
        if v.aval.ndim == 2
        and v.aval.shape in shapes
        and v.aval.dtype.kind == "f"
        and v.aval.nbytes * scan.length >= policy.LOW_RANK_BYTES
    ]
    return _summed(scan, nonzero, costly, large) if large else None


def _summed(
    scan: ScanRecord, nonzero: tuple[bool, ...], costly: Sequence[bool], large: list[int]
) -> Summed | None:
    """`summed` for these carries; None if they are read otherwise than in products."""
    forward, linear, count, mask = linearize_jaxpr(simplify(scan.jaxpr), nonzero)
    n = len(scan.jaxpr.outs)
    eqns = list(forward.eqns)
    results, residuals = list(forward.outs[:n]), list(forward.outs[n:])
    consts, carry, xs = scan.parts(forward.inputs)
    sums = _sums(scan, eqns, carry, results, large)
    places = {v: (s, j) for s in sums for j, v in enumerate(s.versions)}
    read = {linear.inputs[k]: places[v] for k, v in enumerate(residuals) if v in places}  # type: ignore
    sums = [s for s in sums if any(s is t for t, _ in read.values())]
    if not sums or not _in_products(linear, set(read)):
        return None
    number = Var(ShapedArray((), _INT))
    firsts = {s.number: Var(s.versions[0].aval) for s in sums}
    vectors = list(dict.fromkeys(v for s in sums for pair in s.terms for v in pair))
    stacks = {v: Var(v.aval.update(shape=(scan.length, *v.aval.shape))) for v in vectors}
    body = _with_products(linear, read, firsts, stacks, number)
    more = [*firsts.values(), *stacks.values(), number]
    kept = [k for k, v in enumerate(linear.inputs[:count]) if v not in read]
    linear = Jaxpr(
        [*(linear.inputs[k] for k in kept), *more, *linear.inputs[count:]],
        body,
        linear.outs,
        name=linear.name,
    )
    outs = [*results, *(residuals[k] for k in kept), *more]
    inputs = [*consts, *more[:-1], *carry, *xs, number]
    forward = Jaxpr(inputs, eqns, outs, name=forward.name)
    dear = {v: v.aval.nbytes + 0.5 for v, c in zip([*consts, *carry, *xs], costly) if c}
    hand = {v for v in inputs if v not in dear}
    changing = dependent(eqns, [*carry, *xs])
    invariant = {v for e in eqns for v in e.outs if v not in changing}
    stored, _ = choose(eqns, results, outs[n:], hand | set(vectors), dear, invariant, (), True)
    stored = list(dict.fromkeys([*vectors, *stored]))
    if any(v.aval.shape == s.versions[0].aval.shape for v in stored for s in sums):
        return None
    parts = assemble(forward, linear, len(outs) - n, mask, stored, hand)
    rows = parts.forward.outs[n:]
    return Summed(
        _with_operands(scan, more[:-1], number),
        Jaxpr([*consts, *carry, *xs], parts.forward.eqns, parts.forward.outs, name=scan.jaxpr.name),
        parts,
        tuple(sums),
        tuple([n + rows.index(v) for v in vectors]),
    )


def _with_operands(scan: ScanRecord, consts: Sequence[Var], row: Var) -> ScanRecord:
    """The loop with more constants and a row, which it does not read."""
    body, n = scan.jaxpr, scan.consts
    inputs = [*body.inputs[:n], *consts, *body.inputs[n:], row]
    jaxpr = Jaxpr(inputs, body.eqns, body.outs, name=body.name)
    return replace(scan, jaxpr=jaxpr, consts=n + len(consts))


def _sums(
    scan: ScanRecord,
    eqns: list[Eqn],
    carry: Sequence[Var],
    results: Sequence[Atom],
    large: list[int],
) -> list[Sum]:
    """What the large matrices are sums of, where stacks of that are small."""
    maker = definitions(eqns)
    found = [_sum(eqns, maker, k, carry[k], results[k]) for k in large]
    return [s for s in found if s is not None and _small(s, scan.length)]


def _small(s: Sum, length: int) -> bool:
    return (
        length * sum(v.aval.size for t in s.terms for v in t)
        <= policy.LOW_RANK_STACKS * s.versions[0].aval.size
    )


def _sum(eqns: list[Eqn], maker: dict[Var, Eqn], number: int, start: Var, end: Atom) -> Sum | None:
    """The outer products that lead from a matrix to what it is in the next iteration."""
    versions: list[Var] = []
    terms: list[tuple[bool, Factors]] = []
    replaced = 0
    while end is not start:
        e = maker.get(end) if type(end) is Var else None  # type: ignore[arg-type]
        if e is None or e.prim.name not in ("add", "sub", "scatter", "dynamic_update_slice"):
            return None
        versions.append(end)  # type: ignore[arg-type]
        if e.prim.name not in ("add", "sub"):
            pair = _replaced(eqns, maker, e)
            if pair is None:
                return None
            replaced += 1
            terms.append((False, ([], [pair[0]], [pair[1]])))
            end = e.inputs[0]
            continue
        x, y = e.inputs
        factors = _factors(maker, y)
        if factors is None and e.prim.name == "add":
            x, factors = y, _factors(maker, x)
        if factors is None or not factors[1] or not factors[2]:
            return None
        terms.append((e.prim.name == "sub", factors))
        end = x
    if replaced == len(terms):  # to restore what is overwritten is cheaper
        return None
    made = tuple([_vectors(eqns, *factors) for _, factors in reversed(terms)])
    scales = tuple([-_known(f[0]) if m else _known(f[0]) for m, f in reversed(terms)])
    return Sum(number, (start, *reversed(versions)), made, scales) if made else None


def _replaced(eqns: list[Eqn], maker: dict[Var, Eqn], e: Eqn) -> tuple[Var, Var] | None:
    """Column and row whose product an update adds that replaces a whole column, or a whole row."""
    at = index_of(maker, e)
    if at is None or sum(a is None for a in at) != 1:
        return None
    axis = 0 if at[1] is None else 1
    index, x = at[axis], e.inputs[0]
    new = e.inputs[2 if e.prim.name == "scatter" else 1]
    made = trace_closed(
        partial(_change, axis, e.prim.name == "scatter"),
        [x.aval, new.aval, index.aval],  # type: ignore[union-attr]
        what="grad",
    )
    before: list[Eqn] = []  # what is overwritten is read before
    change, unit = splice(made, [x, new, index], before)  # type: ignore[list-item]
    at_update = eqns.index(e)
    eqns[at_update:at_update] = before
    return (unit, change) if axis == 0 else (change, unit)  # type: ignore[return-value]


def _change(axis: int, drops: bool, x: Array, new: Array, index: Array) -> list[Array]:
    """By how much a row or column changes, and the unit vector that says which it is."""
    kind, size = index.aval.dtype, x.shape[axis]
    index = Reshape(())(index)
    zero, last = scalar(0, kind), scalar(size - 1, kind)
    inside = clamp(zero, index, last)
    box = tuple([1 if k == axis else n for k, n in enumerate(x.shape)])
    old = DynamicSlice(box)(x, *([inside, zero] if axis == 0 else [zero, inside]))
    line = (x.size // size,)
    change = sub(Reshape(line)(new), Reshape(line)(old))
    here = eq(Iota(0, kind, (size,))(), index if drops else inside)
    return [change, ConvertElementType(x.dtype)(here)]


def _known(numbers: list[Atom]) -> float:
    """The product of those numbers that are known."""
    return prod([float(a.value._value) for a in numbers if type(a) is Literal])  # type: ignore


Factors = tuple[list[Atom], list[Atom], list[Atom]]  # numbers, columns, rows


def _factors(maker: dict[Var, Eqn], a: Atom) -> Factors | None:
    """What an outer product multiplies."""
    e = maker.get(a) if type(a) is Var else None
    if not a.aval.shape:
        return [a], [], []
    if e is None:
        return None
    prim: Any = e.prim
    if prim.name == "mul":
        found = [_factors(maker, x) for x in e.inputs]
        if found[0] is None or found[1] is None:
            return None
        return tuple([x + y for x, y in zip(*found)])  # type: ignore
    if isinstance(prim, DotGeneral) and prim.dimension_numbers == (((), ()), ((), ())):
        x, y = e.inputs
        return ([], [x], [y]) if x.aval.ndim == y.aval.ndim == 1 else None
    if isinstance(prim, Broadcast):
        x, (n, m) = e.inputs[0], a.aval.shape
        if not x.aval.shape:
            return [x], [], []
        if prim.broadcast_dimensions == (0,) or x.aval.shape == (n, 1):
            return [], [x], []
        if prim.broadcast_dimensions == (1,) or x.aval.shape == (1, m):
            return [], [], [x]
    return None


def _vectors(
    eqns: list[Eqn], numbers: list[Atom], columns: list[Atom], rows: list[Atom]
) -> tuple[Var, Var]:
    """Append what makes one column and one row of the factors."""

    def product(factors: list[Atom], length: int) -> Var:
        flat = [
            bind_into(eqns, Reshape((length,)), [a])[0] if a.aval.ndim == 2 else a for a in factors
        ]
        out = flat[0]
        for a in flat[1:]:
            (out,) = bind_into(eqns, mul, [out, a])
        return out  # type: ignore[return-value]

    column, row = product(columns, columns[0].aval.size), product(rows, rows[0].aval.size)
    shorter = column if column.aval.size <= row.aval.size else row
    scaled = shorter
    for a in [a for a in numbers if type(a) is Var]:
        (scaled,) = bind_into(eqns, mul, [scaled, a])
    return (scaled, row) if shorter is column else (column, scaled)


def _in_products(linear: Jaxpr, versions: set[Var]) -> bool:
    """Whether matrices are read in products with vectors or matrices alone, along one axis."""
    if any(o in versions for o in linear.outs):
        return False
    for e in linear.eqns:
        read = [a in versions for a in e.inputs]
        if not any(read):
            continue
        prim: Any = e.prim
        if not isinstance(prim, DotGeneral) or all(read):
            return False
        (cx, cy), (bx, _) = prim.dimension_numbers
        if bx or len(cx) != 1 or len(cy) != 1:
            return False
    return True


def _with_products(
    linear: Jaxpr, read: dict[Var, tuple[Sum, int]], firsts: dict[int, Var],
    stacks: dict[Var, Var], number: Var,
) -> list[Eqn]:  # fmt: skip
    """The equations, with products with the first matrices and the stacks of vectors."""
    eqns: list[Eqn] = []
    for e in linear.eqns:
        side = next((k for k, a in enumerate(e.inputs) if a in read), None)
        if side is None:
            eqns.append(e)
            continue
        s, version = read[e.inputs[side]]  # type: ignore[index]
        other = e.inputs[1 - side]
        rows = [stacks[v] for pair in s.terms for v in pair]
        atoms = [firsts[s.number], other, number, *rows]
        run = _Product(e.prim, side, version, s.scales)
        made = trace_closed(run, [a.aval for a in atoms], what="grad")
        (out,) = splice(made, atoms, eqns)
        (last,) = [x for x in eqns if out in x.outs]
        eqns[eqns.index(last)] = Eqn(last.prim, last.inputs, e.outs, e.source)
    return eqns


@dataclass(frozen=True)
class _Product:
    """A product whose operand `side` is a sum, after all iterations before and `version` terms."""

    prim: Any
    side: int
    version: int
    scales: tuple[float, ...]

    def __call__(self, x: Array, t: Array, number: Array, *rows: Array) -> list[Array]:
        contracted = self.prim.dimension_numbers[0]
        mine, other = contracted[self.side][0], contracted[1 - self.side][0]

        def product(a: Array, b: Array, axis_a: int, axis_b: int) -> Array:
            pair = (a, b) if self.side == 0 else (b, a)
            axes = (axis_a, axis_b) if self.side == 0 else (axis_b, axis_a)
            prim = replace(self.prim, dimension_numbers=((axes[:1], axes[1:]), ((), ())))
            return prim(*pair)

        total = product(x, t, mine, other)
        for k, scale in enumerate(self.scales):
            column, row = rows[2 * k : 2 * k + 2]
            inner, outer = (row, column) if mine == 1 else (column, row)
            weights = product(inner, t, 1, other)
            axis = 0 if self.side == 0 else weights.ndim - 1
            done = add(number, scalar(1, _INT)) if k < self.version else number
            before = lt(Iota(axis, _INT, weights.shape)(), Broadcast(weights.shape, ())(done))
            weights = select(before, weights, scalar(0, weights.dtype))
            if abs(scale) != 1:
                weights = mul(weights, scalar(abs(scale), weights.dtype))
            total = (sub if scale < 0 else add)(total, product(outer, weights, 0, axis))
        return [total]
