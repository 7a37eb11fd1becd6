"""The heuristics of fusion: what is kept in registers, recomputed, stored, unrolled.

What passes over finished nests ask for stands with them.
"""

from math import prod

from fnx.core import policy
from fnx.core.aval import ShapedArray
from fnx.core.cost import (
    ELEMENTARY,
    LIBRARY,
    PRODUCTS,
    QUOTIENT,
    RECIPROCAL_ROOT,
    REMAINDER,
    ROOT,
    SIMPLE,
)
from fnx.core.jaxpr import Jaxpr, subjaxprs
from fnx.core.scalar import FUNCTIONS

# Of scalar operations, where they are not one instruction.
_OPERATIONS = {"integer_pow": PRODUCTS, "div": QUOTIENT, "sqrt": ROOT, "rem": REMAINDER}
_OPERATIONS |= {"rsqrt": RECIPROCAL_ROOT, "special": LIBRARY}


def scalar_operations(op: str) -> int:
    """Simple operations that a scalar operation of the Kernel IR takes."""
    return ELEMENTARY.operations if op in FUNCTIONS else _OPERATIONS.get(op, SIMPLE).operations


def is_small(shape: tuple[int, ...]) -> bool:
    return prod(shape) <= policy.SMALL


def is_bulk(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a part is at least half of an array."""
    return 2 * prod(part) >= prod(whole) > 0


def spreads(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether an array is so much larger than the one that it repeats that storing that costs little."""
    return not is_small(part) and prod(whole) >= policy.SPREAD * prod(part)


def is_small_aval(aval: ShapedArray) -> bool:
    return is_small(aval.shape)


def inlined(cost: int, uses: int) -> bool:
    """Whether a value is computed again by each reader, rather than stored for them."""
    return (
        uses <= 1
        or cost == 0
        or (cost <= policy.CHEAP and cost * uses <= policy.CHEAP * policy.CHEAP_USES)
    )


def work(jaxpr: Jaxpr) -> int:
    """The operations of a jaxpr of small values, roughly."""
    total = 0
    for e in jaxpr.eqns:
        total += sum([v.aval.size for v in e.outs])
        total += getattr(e.prim, "length", 1) * sum(map(work, subjaxprs(e.prim)))
    return total


def is_unrolled_loop(length: int, body: Jaxpr) -> bool:
    """Whether a loop inside a step of a batch is written out, so that the step stays straight."""
    stacked = all([is_small((length, v.aval.size)) for v in body.outs])
    return length > 0 and stacked and length * work(body) <= policy.UNROLLED_WORK
