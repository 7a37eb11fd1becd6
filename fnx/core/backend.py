"""What compiles jaxprs, as `Jit` and loops hold it, and what is asked of the machine behind it."""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple, Protocol

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Jaxpr, Var

Compiled = Callable[[Sequence[Array]], Sequence[Array]]


class Memory(NamedTuple):
    """How far the memory of a machine is, for those who choose between storing and computing again."""

    near: int = 5 << 19  # bytes which stay in a cache of a core, or nearly so, from loop to loop
    near_row: int = 12 << 10  # bytes of a row of independent columns that stay there strip by strip
    stacks: int = 1 << 29  # bytes of a loop's stacks, at most, that memory is spent on to save time


@dataclass(frozen=True)
class Machine:
    """Sizes of caches and registers, and how much work is worth sharing out, in the unit of each field."""

    line: int  # bytes of a cache line: what lies within one costs one access
    way: int  # bytes: lines so far apart are in one set of the nearest cache
    stagger: int  # bytes between large buffers of which elements would be in one set
    vector: int  # bytes of the widest vector: shorter rows are written out
    vector_bits: int  # of a register, as the processor says: strips are of whole vectors
    side_by_side: int  # vectors of accumulators, so that sums need not wait for each other
    far_bytes: int  # of an array from which on it does not stay in a core's own cache: rather compute again
    far_read: int  # elements of an array from which on it matters in which order it is read
    near_bytes: int  # that stay in a core's own cache, beside others
    streamed_bytes: int  # of what a sweep touches, from which on it does not stay there
    stack_bytes: (
        int  # of a strip's arrays on the stack, at most: threads of others may have small stacks
    )
    window_bytes: int  # of a sliding window, at most: it stays in the nearest cache,
    windows_bytes: int  # and of all windows of an iteration
    window_gain: int  # bytes of arrays that are handed on from which on windows of them are kept
    rows_at_once: (
        int  # rows that are added together to accumulators in memory: fewer loads of these
    )
    batch_sums: (
        int  # sums of products over a batch, at most: their vectors stay in the nearest cache,
    )
    far_batch: int  # where the factors would take so many bytes
    nest_work: int  # operations, loads too, from which on threads share a nest: 10 us, or more
    parallel_work: int  # multiplications from which on a loop of routines is shared out to threads
    parallel_reduction: (
        int  # operations from which on a reduction is made of parts that threads share
    )
    parts: int  # of such a reduction, at most: their results are added up one after the other
    strip_parts: int  # pieces of work for threads of loops that go strip by strip, at most
    least_strips: int  # strips of iterations in such a piece, at least


PORTABLE = Machine(
    line=64,
    way=1 << 12,
    stagger=0,
    vector=16,
    vector_bits=128,
    side_by_side=1,
    far_bytes=1 << 20,
    far_read=1 << 11,
    near_bytes=1 << 18,
    streamed_bytes=1 << 19,
    stack_bytes=3 << 16,
    window_bytes=1 << 15,
    windows_bytes=3 << 15,
    window_gain=1 << 15,
    rows_at_once=1,
    batch_sums=0,
    far_batch=1 << 62,
    nest_work=1 << 62,
    parallel_work=1 << 62,
    parallel_reduction=1 << 62,
    parts=1,
    strip_parts=1,
    least_strips=1,
)


class Donated(NamedTuple):
    """Donated inputs of a program by number: those that a result replaces, with it; those of no use."""

    replaced: dict[int, int]
    useless: tuple[int, ...]


def donation(jaxpr: Jaxpr, donated: Sequence[int]) -> Donated:
    """Which donated inputs are gone after a call, as JAX pairs them with results.

    An input has the result of its shape and dtype that comes first, else one of as many bytes; one that
    nothing reads is left alone, and one without a result of as many elements is of no use.
    """
    if not donated:
        return Donated({}, ())
    read = {a for e in jaxpr.eqns for a in e.inputs if type(a) is Var} | {*jaxpr.outs}
    left = [k for k in donated if jaxpr.inputs[k] in read]
    results, replaced = dict(enumerate([v.aval for v in jaxpr.outs])), {}
    for key in (_type, _bytes):
        for j, aval in list(results.items()):
            k = next((k for k in left if key(jaxpr.inputs[k].aval) == key(aval)), None)
            if k is not None:
                left.remove(k)
                del results[j]
                replaced[k] = j
    sizes = [prod(a.shape) for a in results.values()]
    return Donated(
        replaced, tuple([k for k in left if prod(jaxpr.inputs[k].aval.shape) not in sizes])
    )


def _type(aval: ShapedArray) -> tuple:
    return aval.shape, aval.dtype


def _bytes(aval: ShapedArray) -> int:
    return prod(aval.shape) * aval.dtype.itemsize


class Backend(Protocol):
    """Makes functions on concrete arrays of jaxprs."""

    @property
    def memory(self) -> Memory:
        """That of the machine which runs them."""
        ...

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: tuple[int, ...] = (),
        simplified: Callable[[], Jaxpr] | None = None,
    ) -> Compiled:
        """`simplified` makes the jaxpr that is compiled, where the given one is not known already."""
        ...
