"""Buffer assignment: one workspace a program, in which buffers with disjoint lifetimes share bytes.

Arrays of the same size, a multiple of a way of the nearest cache, would have their elements of an index in
one set of it, and a nest that reads more of them than there are ways would evict what it still needs;
loads would seem to read what stores to other arrays have not finished. A few lines between them help.

Source: liveness, Muchnick 1997, ch. 8 and 16; best fit by decreasing size (XLA's heap simulator); padding
between arrays, Rivera & Tseng 1998.
Input: the statements of a program and its workspace buffers.
Output: the place of each buffer, and the bytes of the workspace.
Legal when: two buffers that are alive at one statement never overlap; what is known around a loop lives
through all of it.
Pays when: always.
Costs: time that grows with the square of the number of buffers; the lines between large buffers.
"""

from collections.abc import Callable

from fnx.core import policy
from fnx.core.backend import PORTABLE, Machine
from fnx.lowering.ir import traversal
from fnx.lowering.ir.expressions import buffers_read
from fnx.lowering.ir.kernel import Buffer, Loop, Nest, Stmt, While
from fnx.lowering.ir.number_formats import itemsize

ALIGN = 64


def plan(
    body: list[Stmt],
    buffers: list[Buffer],
    machine: Machine = PORTABLE,
    at_once: Callable[[Loop], bool] = lambda loop: False,
) -> int:
    """Give each workspace buffer its place; the bytes of the workspace.

    `at_once` says of a loop whether its iterations run at the same time, each at a pace of its own.
    """
    lives = _lifetimes(body, at_once)
    placed: list[tuple[int, int, int, int]] = []  # offset, bytes, first, last
    total = 0
    order = [b for b in buffers if b.space == "global" and b in lives]
    for b in sorted(order, key=lambda b: -b.size * itemsize(b.dtype)):
        size = _apart(-(-b.size * itemsize(b.dtype) // ALIGN) * ALIGN, machine)
        first, last = lives[b]
        busy = sorted((o, s) for o, s, f, l in placed if not (l < first or last < f))
        offset = 0
        for o, s in busy:
            if offset + size <= o:
                break
            offset = max(offset, o + s)
        b.place = offset
        placed.append((offset, size, first, last))
        total = max(total, offset + size)
    return total


def _apart(size: int, machine: Machine) -> int:
    """The bytes of a buffer, and of lines after it if the next one would lie a multiple of ways away."""
    beside = size % machine.way
    near = min(beside, machine.way - beside) < policy.WAY_PART * machine.way
    return size + machine.stagger if near and size >= policy.STAGGERED_WAYS * machine.way else size


def _lifetimes(body: list[Stmt], at_once: Callable[[Loop], bool]) -> dict[Buffer, tuple[int, int]]:
    """First and last statement, in program order, that touch each buffer.

    A buffer that is known only inside a loop lives within an iteration, since its first touch there
    writes it. One that is also known before or after the loop lives through all of it, and so does each
    where iterations run at once: some may have left a buffer while others still read it.
    """
    lives: dict[Buffer, tuple[int, int]] = {}
    loops: list[tuple[int, int]] = []  # inner ones before those around them
    together: list[tuple[int, int]] = []  # loops whose iterations run at once
    clock = 0

    def touch(found: set[Buffer]) -> None:
        for b in found:
            first, _ = lives.get(b, (clock, clock))
            lives[b] = (first, clock)

    def visit(stmts: list[Stmt], is_inside: bool = False) -> None:
        nonlocal clock
        for s in stmts:
            clock += 1
            start = clock
            touch(touched(s))
            is_together = not is_inside and isinstance(s, Loop) and at_once(s)
            for block in traversal.blocks(s):
                visit(block, is_inside or is_together)
            clock += 1
            touch(touched(s))
            if is_together:
                together.append((start, clock))
            if isinstance(s, (Loop, While)):
                loops.append((start, clock))

    visit(body)
    for start, end in together:
        for b, (first, last) in lives.items():
            if start <= first and last <= end:
                lives[b] = (start, end)
    for start, end in loops:
        for b, (first, last) in lives.items():
            if first < start <= last <= end or start <= first <= end < last:
                lives[b] = (min(first, start), max(last, end))
    return lives


def touched(s: Stmt) -> set[Buffer]:
    """The buffers that a statement itself reads or writes, not those of its blocks."""
    found = set(traversal.writes(s)) | {ref.buffer for ref in traversal.references(s)}
    exprs = [] if isinstance(s, Nest) else traversal.expressions(s)
    exprs += [ref.index for ref in traversal.references(s)]
    return found | buffers_read(exprs)
