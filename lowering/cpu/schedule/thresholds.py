"""Numbers that were measured on CPUs, or asked of this one; policy that any target shares is elsewhere.

What generation and transformations ask for is a `Machine`; the rest is asked for in this room alone.
"""

from dataclasses import replace

from fnx.lowering.cpu.processor import features
from fnx.lowering.transform.machine import Machine

CPU = Machine(
    line=64,
    vector=64,
    vector_bits=128,
    side_by_side=4,
    far_bytes=1 << 20,
    far_read=1 << 11,
    near_bytes=1 << 18,
    streamed_bytes=1 << 19,
    stack_bytes=3 << 16,
    window_bytes=1 << 15,
    windows_bytes=3 << 15,
    window_gain=1 << 15,
    rows_at_once=4,
    batch_sums=640,
    far_batch=1 << 19,
    nest_work=1 << 20,
    parallel_work=1 << 18,
    parallel_reduction=1 << 19,
    parts=64,
    strip_parts=16,
    least_strips=8,
)

SHORT_ROW = 20  # bytes of a trailing axis, of 4 elements at least, whose rows are vectors;
COSTLY_ROW = 48  # bytes of one of which costly functions are computed, unless it is long
PACKED_ROW = (
    4  # consecutive elements of a problem's row from which on blocks of problems go row by row,
)
PACKED_WRITE = 8  # where problems are so many elements apart that LLVM does not do it itself:
PACKED_READ = 6  # writing, and reading
TILED = 400  # cache lines from which on transposed access goes tile by tile
TILE = (64, 16)  # elements of a tile: along what is read contiguously, and across
POLLED_WORK = 1 << 30  # operations of a loop, about a second, in which Ctrl-C should be heard
LEAST_ELEMENTS = 4  # from which on loops of batch elements run side by side
SLOTS = (32, 16)  # at most so many, for a light step and a heavy one
HEAVY_STEP = 64  # operations of a step from which on it is heavy
ELEMENTS_PER_SLOT = 4  # batch elements that such a piece has for each slot, at least


def machine() -> Machine:
    """This CPU, with the width of its vectors."""
    return replace(CPU, vector_bits=features.vector_bits())


def slots(elements: int, step: int) -> int:
    """How many batch elements run side by side, if a step takes so many operations: a power of two."""
    return min(SLOTS[step > HEAVY_STEP], 1 << (elements - 1).bit_length())


def few(slots: int) -> int:
    """Slots that are not worth another sweep, while there are elements for the free ones."""
    return slots // 4


def shares(elements: int, slots: int) -> tuple[int, int]:
    """Batch elements in a piece of work, and pieces."""
    pieces = min(CPU.strip_parts, max(1, elements // (slots * ELEMENTS_PER_SLOT)))
    share = -(-elements // pieces)
    return share, -(-elements // share)
