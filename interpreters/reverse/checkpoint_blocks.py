"""Two-level checkpointing of scans.

To go back over a block of iterations, these are run again from the arrays at its beginning, and only of
this one block is there something kept for each iteration: for n iterations about twice the square root
of n states instead of n. Blocks are rather short than few, since rows of a block are written and read in
every iteration, and should stay in a cache; states at the beginnings of blocks go through memory rarely.

Source: Griewank & Walther 2008, ch. 12; Chen et al. 2016.
Input: a scan, and the residuals that it would stack.
Output: a scan over blocks, and its linearization.
Legal when: always; iterations are run again with what they had.
Pays when: the loop is `BLOCKED_ITERATIONS`, its stacks would not stay in a core's own cache (`Memory.near`,
or `near_row` where batch elements never meet), and computing an iteration again costs less than
`BLOCKED_RECOMPUTING` times what it would store. Stacks that fit into `Memory.stacks` are fetched again
sooner than most grids are swept again: then the rows of a block must be `BLOCKED_ROWS` at most, which
nearly stay in that cache, and an iteration cost less than `NEAR_RECOMPUTING` times its row.
Costs: one more forward run.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from math import isqrt

import numpy as np

from fnx.core import policy
from fnx.core.array import Array, ConcreteArray
from fnx.core.backend import Memory
from fnx.core.def_use import definitions
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.interpreters.analysis.cost_model import recompute_cost
from fnx.interpreters.control_flow import ScanRecord
from fnx.interpreters.operands import given
from fnx.interpreters.rewrite import bind_into, splice
from fnx.interpreters.trace import StageTracer, trace_closed
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add, mul
from fnx.ops.structure.basic import scalar, zeros
from fnx.ops.structure.join import Concatenate, Iota
from fnx.ops.structure.slice import Slice

from .residuals import Split

_MOVES = ("slice", "squeeze", "reshape", "broadcast_in_dim")


def length_of_blocks(scan: ScanRecord, parts: Split) -> int | None:
    """Of how many iterations a block should be; None if each iteration should store what it does."""
    n = len(scan.jaxpr.outs)
    stored = [v.aval.nbytes for v in parts.forward.outs[n:]]
    if scan.length < policy.BLOCKED_ITERATIONS or scan.counted or scan.divergent or scan.effects:
        return None
    memory = Memory() if scan.backend is None else scan.backend.memory
    if sum(stored) < policy.BLOCKED_STATE or sum(stored) * scan.length < memory.near:
        return None
    if _is_in_strips(scan, parts, memory.near_row):
        return None
    made = scan.with_jaxpr(parts.forward, scan.consts, scan.carry)
    again, _, _ = made.prune((*[False] * n, *[True] * len(stored)))
    cost = sum(max(policy.ITERATION_BYTES, recompute_cost(e, True)) for e in again.jaxpr.eqns)
    inner = any(e.prim.name == "scan" for e in again.jaxpr.eqns)
    if cost >= sum(stored) * (policy.RESIDUAL_PRICE if inner else policy.BLOCKED_RECOMPUTING):
        return None
    _, carry, _ = scan.parts(scan.jaxpr.inputs)
    size = _length(scan.length, sum(v.aval.nbytes for v in carry), sum(stored))
    far = size * sum(stored) > policy.BLOCKED_ROWS
    dear = cost >= sum(stored) * policy.NEAR_RECOMPUTING
    return None if sum(stored) * scan.length <= memory.stacks and (far or dear) else size


def _length(iterations: int, state: int, row: int) -> int:
    """The shortest blocks, after which no iteration is left, that keep hardly more than the least bytes."""
    root = isqrt(iterations)

    def kept(b: int) -> float:
        found = iterations // b * state + (b + iterations % b) * row
        return found * (policy.ODD_BLOCKS if b % 2 else 1)

    sizes = range(max(root // 2, 2), 2 * root)
    best = min(sizes, key=lambda b: (kept(b), abs(b - root)))
    most = policy.SHORT_BLOCKS * kept(best)
    whole = [b for b in sizes if b < best and b % 2 <= best % 2 and not iterations % b]
    return next((b for b in whole if kept(b) <= most), best)


def _is_in_strips(scan: ScanRecord, parts: Split, near_row: int) -> bool:
    """Whether all iterations of a few columns may be run before those of others, with what they store."""
    stored = [v.aval for v in parts.forward.outs[len(scan.jaxpr.outs) :]]
    shape = stored[0].shape
    if any(a.shape != shape for a in stored):
        return False
    if sum([a.dtype.itemsize for a in stored]) * scan.length > near_row:
        return False
    others = [e for e in parts.forward.eqns if not e.prim.elementwise]
    moves = all([e.prim.name in _MOVES for e in others])
    return moves and all([a.aval.shape != shape for e in others for a in e.inputs])


def in_blocks(scan: ScanRecord, size: int, counts: dict[int, int]) -> ScanRecord:
    """A loop over blocks of so many iterations, as many as there are; its rows are theirs.

    Operands that are `counts`, from a number upwards, have the number of the block for a row instead.
    """
    key = ("blocks", scan, size, *counts.items())

    def make() -> ScanRecord:
        inputs = [Var(a) for a in replace(scan, length=size).abstract_operands()]
        operands: list[Atom] = list(inputs)
        eqns: list[Eqn] = []
        starts = []
        for k, first in counts.items():
            inputs[k] = Var(inputs[k].aval.update(shape=()))
            start = trace_closed(partial(_start, size, first), [inputs[k].aval], what="grad")
            starts += splice(start, [inputs[k]], eqns)
            operands[k : k + 1] = bind_into(eqns, Iota(0, inputs[k].aval.dtype, (size,)), [])
        operands[scan.consts : scan.consts] = starts
        inner = replace(_counting_from(scan, size, counts), progress=False)
        outs = bind_into(eqns, inner, operands)
        body = Jaxpr(inputs, eqns, outs, name=scan.jaxpr.name)
        site = scan.site and scan.site.counting(f"block of {size} iterations")
        return replace(scan, jaxpr=body, length=scan.length // size, site=site)

    return scan.jaxpr.once(key, make)


def _counting_from(scan: ScanRecord, size: int, counts: Collection[int]) -> ScanRecord:
    """The iterations of a block. It has for each count a constant more, the first; rows count from 0."""
    body = scan.jaxpr
    inputs, eqns, starts = list(body.inputs), [], []
    for k in counts:
        x, start, row = body.inputs[k], Var(body.inputs[k].aval), Var(body.inputs[k].aval)
        eqns.append(Eqn(add, [start, row], [x]))
        inputs[k] = row
        starts.append(start)
    inputs[scan.consts : scan.consts] = starts
    whole = Jaxpr(inputs, [*eqns, *body.eqns], body.outs, name=body.name)
    return replace(scan, jaxpr=whole, consts=scan.consts + len(starts), length=size)


def linearize_in_blocks(scan: ScanRecord, size: int, primals: tuple, tangents: tuple) -> tuple:
    """The derivative of all whole blocks, then that of the iterations left."""
    front = scan.consts + scan.carry
    lines = {k: count_from(x) for k, x in enumerate(primals) if k >= front}
    counts = {k: n for k, n in lines.items() if n is not None}
    rest = scan.length % size
    whole = scan.length - rest
    first = rest if scan.reverse else 0  # of the rows in blocks
    blocks = in_blocks(scan, size, {k: n + first for k, n in counts.items()})

    def cut(x: Array | None, low: int, high: int) -> Array | None:
        if x is None or (low, high) == (0, x.shape[0]):
            return x
        zeros = (0,) * (x.ndim - 1)
        return Slice((low, *zeros), (high, *x.shape[1:]))(x)

    def folded(values: tuple) -> tuple:
        consts, carry, xs = scan.parts(values)
        rows = [cut(x, first, first + whole) for x in xs]
        rows = [x if x is None else _reshape(x, (blocks.length, size, *x.shape[1:])) for x in rows]
        return (*consts, *carry, *rows)

    whole_primals = [
        _line(blocks.length, 0, x.dtype) if k in counts else x
        for k, x in enumerate(folded(primals))
    ]
    outs, touts = blocks.linearize(tuple(whole_primals), folded(tangents))
    n = scan.carry
    ys, tys = [
        [y if y is None else _reshape(y, (whole, *y.shape[2:])) for y in found[n:]]
        for found in (outs, touts)
    ]
    if not rest:
        return (*outs[:n], *ys), (*touts[:n], *tys)
    low = 0 if scan.reverse else whole

    def left(values: tuple, carry: Sequence) -> tuple:
        consts, _, xs = scan.parts(values)
        return (*consts, *carry, *(cut(x, low, low + rest) for x in xs))

    tail = replace(scan, length=rest)
    end = [
        _line(rest, counts[k] + low, x.dtype) if k in counts else x
        for k, x in enumerate(left(primals, outs[:n]))
    ]
    last, tlast = tail.linearize(tuple(end), left(tangents, touts[:n]))
    pairs = list(zip(ys, last[n:]))
    joined = [_joined(scan, *pair) for pair in pairs]
    tjoined = []
    for pair, tpair in zip(pairs, zip(tys, tlast[n:])):
        full = [zeros(y.aval.tangent()) if t is None else t for y, t in zip(pair, tpair)]
        tjoined.append(_joined(scan, *full) if any(given(tpair)) else None)
    return (*last[:n], *joined), (*tlast[:n], *tjoined)


def count_from(x: Array) -> int | None:
    """The first of integers that count upwards, if a value is known to be such."""
    if x.aval.ndim != 1 or x.dtype.kind not in "iu" or not x.size:
        return None
    if type(x) is ConcreteArray:
        line = x._value
        return int(line[0]) if bool((np.diff(line) == 1).all()) else None
    if type(x) is not StageTracer:
        return None
    maker = definitions(x.owner.eqns)
    e = maker.get(x._var)
    first = 0
    if e is not None and e.prim.name == "add" and type(e.inputs[1]) is Literal:
        first = int(e.inputs[1].value._value)  # type: ignore[attr-defined]
        e = maker.get(e.inputs[0])  # type: ignore[arg-type]
    return first if e is not None and isinstance(e.prim, Iota) else None


def _line(length: int, first: int, dtype: np.dtype) -> Array:
    """Integers that count upwards."""
    return add(Iota(0, dtype, (length,))(), scalar(first, dtype))


def _start(size: int, first: int, number: Array) -> list[Array]:
    """The first of the integers of a block, of its number."""
    dtype = number.aval.dtype
    return [add(mul(number, scalar(size, dtype)), scalar(first, dtype))]


def _reshape(x: Array, shape: tuple[int, ...]) -> Array:
    return Reshape(shape)(x)


def _joined(scan: ScanRecord, a: Array, b: Array) -> Array:
    return Concatenate(0)(*((b, a) if scan.reverse else (a, b)))
