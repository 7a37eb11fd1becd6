"""Long loops whose arrays change as a whole in each round, in blocks: only block by block are they kept.

To go back over a block, its rounds are run again from the arrays at its beginning, and only of this one
block is there something kept for each round: for n rounds about twice the square root of n states
instead of n. That is worth it where computing a round again costs less than what it would store.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isqrt
from typing import TYPE_CHECKING

from fnx.core.array import Array
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.ops.basic import zeros
from fnx.ops.join import Concatenate
from fnx.ops.permute import Reshape
from fnx.ops.slice import Slice

from .call import given
from .costs import ROUND, recompute_cost
from .residuals import PRESS, Split

if TYPE_CHECKING:
    from .scan import Scan

LONG = 48  # rounds
STATE = 1 << 12  # bytes stored for each round
TOTAL = 1 << 22  # bytes stored for all of them
AGAIN = 1.5  # bytes of computing again, for a byte stored


def length_of_blocks(scan: "Scan", parts: Split) -> int | None:
    """Of how many rounds a block should be; None if each round should store what it does."""
    n = len(scan.jaxpr.outs)
    stored = [v.aval.nbytes for v in parts.forward.outs[n:]]
    if scan.length < LONG or scan.counted or scan.lanes or scan.effects:
        return None
    if sum(stored) < STATE or sum(stored) * scan.length < TOTAL:
        return None
    made = scan.with_jaxpr(parts.forward, scan.consts, scan.carry)
    again, _, _ = made.prune((*[False] * n, *[True] * len(stored)))
    cost = sum(max(ROUND, recompute_cost(e, True)) for e in again.jaxpr.eqns)
    inner = any(e.prim.name == "scan" for e in again.jaxpr.eqns)
    if cost >= sum(stored) * (PRESS if inner else AGAIN):
        return None
    root = isqrt(scan.length)
    sizes = range(max(root // 2, 2), 2 * root)
    return min(sizes, key=lambda b: (scan.length // b + b + scan.length % b, abs(b - root)))


def in_blocks(scan: "Scan", size: int) -> "Scan":
    """A loop over blocks of so many rounds, as many as there are; its rows are theirs."""
    key = ("blocks", scan, size)
    if key not in scan.jaxpr.memo:
        inner = replace(scan, length=size)
        inputs = [Var(a) for a in inner.abstract_operands()]
        outs = [Var(a) for a in inner.abstract(*[v.aval for v in inputs])]
        body = Jaxpr(inputs, [Eqn(inner, inputs, outs)], outs, name=scan.jaxpr.name)
        scan.jaxpr.memo[key] = replace(scan, jaxpr=body, length=scan.length // size)
    return scan.jaxpr.memo[key]


def linearize_in_blocks(scan: "Scan", size: int, primals: tuple, tangents: tuple) -> tuple:
    """The derivative of all whole blocks, then that of the rounds left."""
    blocks = in_blocks(scan, size)
    whole, rest = blocks.length * size, scan.length % size
    first = rest if scan.reverse else 0  # of the rows in blocks

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

    outs, touts = blocks.linearize(folded(primals), folded(tangents))
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
    last, tlast = tail.linearize(left(primals, outs[:n]), left(tangents, touts[:n]))
    pairs = list(zip(ys, last[n:]))
    joined = [_joined(scan, *pair) for pair in pairs]
    tjoined = []
    for pair, tpair in zip(pairs, zip(tys, tlast[n:])):
        full = [zeros(y.aval.tangent()) if t is None else t for y, t in zip(pair, tpair)]
        tjoined.append(_joined(scan, *full) if any(given(tpair)) else None)
    return (*last[:n], *joined), (*tlast[:n], *tjoined)


def _reshape(x: Array, shape: tuple[int, ...]) -> Array:
    return Reshape(shape)(x)


def _joined(scan: "Scan", a: Array, b: Array) -> Array:
    return Concatenate(0)(*((b, a) if scan.reverse else (a, b)))
