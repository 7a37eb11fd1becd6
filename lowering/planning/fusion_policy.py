"""The heuristics of fusion: what is kept in registers, recomputed, stored, unrolled.

What passes over finished nests ask for stands with them.
"""

from math import prod

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

SMALL = 16  # an array of at most so many elements lives in registers, its operations unrolled
UNROLLED_WORK = 512  # a reduction over at most so many points, with small results, is unrolled
UNROLLED_IN_ALL = 1024  # real points of reductions that are unrolled in one program,
OUTLINED = 16  # after which those with more points than this are functions of their own
DEEP = 64  # operations after one another, after which a number in registers gets a name
UNROLLED_AXIS = 8  # a trailing axis up to this is unrolled where that resolves choices by index
CHEAP = 8  # operations an element up to which a value is computed again at each use,
CHEAP_USES = 2  # and at how many uses; the less it costs, the more
FAR_WORK = (
    64  # simple operations an element, over all uses, up to which a far array is computed again,
)
FAR_SOURCES = 2  # of so many other arrays at most
SPREAD = 8  # times that a small array is repeated from which on it is stored before a carry goes
UNROLLED_ROW = 16  # terms of a reduction up to which they are written out for each result
CHAIN = 4  # terms of one that are written out one after the other; more make several chains
INTERLEAVED = 4  # terms side by side up to which vectors hold one of each of several results
WIDE_ROW = 64  # elements of such rows, at least,
HEAVY_ROWS = 128  # and operations of an element of all of them, at most
FEW_LANES = 4  # results along the last axis from which on they are the lanes of a vector
PROBLEM = 64  # elements of a value of one problem, whose operations are written out, at most,
PROBLEM_TERMS = 256  # terms of one of its reductions,
PROBLEM_NODES = 3000  # and operations of a problem in one loop over problems
NEST_NODES = 1500  # operations of an element in one nest: LLVM's time grows with their square,
PULLED = 600  # and those of a value that is computed where it is read
VECTOR_ROW = 8  # elements from which on rows of products with a shared matrix are vectors instead


# Of scalar operations, where they are not one instruction.
_OPERATIONS = {"integer_pow": PRODUCTS, "div": QUOTIENT, "sqrt": ROOT, "rem": REMAINDER}
_OPERATIONS |= {"rsqrt": RECIPROCAL_ROOT, "special": LIBRARY}


def scalar_operations(op: str) -> int:
    """Simple operations that a scalar operation of the Kernel IR takes."""
    return ELEMENTARY.operations if op in FUNCTIONS else _OPERATIONS.get(op, SIMPLE).operations


def is_small(shape: tuple[int, ...]) -> bool:
    return prod(shape) <= SMALL


def is_bulk(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether a part is at least half of an array."""
    return 2 * prod(part) >= prod(whole) > 0


def spreads(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether an array is so much larger than the one that it repeats that storing that costs little."""
    return not is_small(part) and prod(whole) >= SPREAD * prod(part)


def is_small_aval(aval: ShapedArray) -> bool:
    return is_small(aval.shape)


def inlined(cost: int, uses: int) -> bool:
    """Whether a value is computed again by each reader, rather than stored for them."""
    return uses <= 1 or cost == 0 or (cost <= CHEAP and cost * uses <= CHEAP * CHEAP_USES)


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
    return length > 0 and stacked and length * work(body) <= UNROLLED_WORK
