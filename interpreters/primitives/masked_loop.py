"""Masked loops: a batched loop in which ended members are masked becomes one loop for each member.

Libraries that want one condition for a whole batch reduce it themselves, over all members, and keep under
a mask what members had that are done (Equinox's `while_loop`, say). Each member then waits for the slowest
one, and its state goes through memory in every iteration. Where the mask is what ends a member, its loop
is its own: members run apart from each other, side by side in vectors
(lowering/cpu/schedule/lane_refill.py).

What is asked of all members inside the body, "has any had to begin anew?", is the same for each of them.
Where such a flag never rises again, a first loop over all members runs until none has it.

It stays one loop over all members for derivatives and further batches, which know rules that users gave.

Source: if-conversion, backwards (Allen et al. 1983); loop splitting (Allen & Kennedy 2001, ch. 5).
Input: a while loop of one member, which operands are batched, and the operands themselves.
Output: a loop over all members until flags are down and masks say what conditions say; loops of members.
Legal when: `masks.Proof` finds it so; a step is straight code, or has a masked loop inside that is.
Pays when: there are `MEMBERS`, and a step fits into registers, but for arrays of which it replaces parts.
Costs: the body twice, if there are flags.
"""

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from fnx.core import policy
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.backend import Backend
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Jaxpr, eval_jaxpr
from fnx.core.recipe import Operand, Recipe
from fnx.interpreters.batching import batch_jaxpr
from fnx.interpreters.closure_conversion import HigherOrder, captured
from fnx.interpreters.control_flow import WhileRecord
from fnx.interpreters.operands import only
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.elementwise.select import and_, lt, select_n
from fnx.ops.reduction.reduction import Max, ReduceOr
from fnx.ops.structure.basic import broadcast_axis, scalar

from .divergent import one_by_one
from .masks import Apart, Proof, without_flags
from .numbering import holds_question
from .scan import Scan

Mask = tuple[bool, ...]


@dataclass(frozen=True)
class MaskedLoop(HigherOrder):
    """`loop`, of all members, until it is compiled; `member` is that of one, with operands `batched`."""

    loop: WhileRecord
    member: WhileRecord
    batched: Mask
    size: int
    backend: Backend | None = field(default=None, compare=False, repr=False)
    name = "masked_while"
    transparent = "final"

    @property
    def public(self) -> Any:
        return self.loop.public

    def params(self) -> dict[str, Any]:
        return self.loop.params()

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        return self.loop.abstract(*avals)

    def impl(self, *values: np.ndarray) -> tuple:
        return self.loop.impl(*values)

    def lower(self, *operands: Operand) -> Recipe:
        return self.loop.lower(*operands)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        return self.loop.jvp(primals, tangents)

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        return self.loop.linearize(primals, tangents)  # type: ignore[attr-defined]

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        return self.loop.transpose(cts, *args)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return self.loop.batch(size, args, axes)

    def applied(self, atoms: Sequence[Atom]) -> Jaxpr:
        """The jaxpr that it is compiled as, for these operands: which are numbers, which are the same."""
        found = Proof(self.member, self.batched, atoms).apart()
        avals = [a.aval for a in atoms]
        if found is None:
            parts = without_flags(self.loop, atoms)
            run = partial(_in_two, self.loop, *parts) if parts is not None else self.loop
            return trace_closed(lambda *xs: list(run(*xs)), avals, name=self.member.name)
        return trace_closed(lambda *xs: _run(self, found, xs), avals, name=self.member.name)


def masked(
    loop: WhileRecord, member: WhileRecord, batched: Mask, size: int
) -> MaskedLoop | WhileRecord:
    """The loop of all members, as one that may become loops of each if it may be of this kind."""
    carry = member.parts(batched)[2]
    plain = size < policy.MEMBERS or not any(carry) or not holds_question(member.cond_jaxpr)
    if plain or captured(loop) or captured(member):
        return loop
    return MaskedLoop(loop, member, batched, int(size), member.backend)


def _run(prim: MaskedLoop, apart: Apart, args: Sequence[Array]) -> list[Array]:
    """The results, member by member."""
    c, b, carry = prim.loop.parts(args)
    if apart.pending is not None:
        carry = _together(prim, apart.pending)(*c, *b, *b, *carry)
    mask = prim.member.parts(prim.batched)[2]
    own = [
        Reshape((x.shape[0], 1, *x.shape[1:]))(x) if m else x
        for x, m in zip([*c, *b, *carry], prim.batched, strict=True)
    ]
    n = len(c) + len(b)
    operands = [*own[:n], *own, scalar(0, np.dtype(np.int64))]
    batched = (*prim.batched[:n], *prim.batched, False)
    outs = one_by_one(Scan, apart.loop, prim.backend, prim.size, operands, batched)
    *outs, count = outs
    most = Max((0,))(count)
    shared = iter(_shared(prim, apart, most, [*c, *b, *carry]))
    found = []
    for k, (x, y, m) in enumerate(zip(carry, outs, mask, strict=True)):
        if not m:
            found.append(next(shared))
            continue
        y = Reshape(x.shape)(y)
        if k in apart.settled:
            done = lt(count, most)
            value = broadcast_axis(scalar(apart.settled[k], x.dtype), prim.size, 0)
            y = select_n(done, y, value)
        found.append(y)
    return found


def _in_two(loop: WhileRecord, flags: Jaxpr, rest: WhileRecord, *args: Array) -> Sequence[Array]:
    """While flags are up the loop, and what is left of it from then on."""
    n, m = loop.cond_consts, loop.body_consts
    c, b, carry = loop.parts(args)

    def goes(*xs: Array) -> list[Array]:
        (on,) = eval_jaxpr(loop.cond_jaxpr, [*xs[:n], *xs[n + m :]])
        (some,) = eval_jaxpr(flags, xs[n:])
        return [and_(on, some)]

    avals = [*loop.cond_jaxpr.in_avals[:n], *loop.body_jaxpr.in_avals]
    cond = trace_closed(goes, avals, name=loop.cond_jaxpr.name)
    first = type(loop)(cond, n + m, loop.body_jaxpr, m, loop.backend, loop.most)
    return rest(*c, *b, *first(*c, *b, *b, *carry))


def _together(prim: MaskedLoop, pending: Jaxpr) -> WhileRecord:
    """The loop of all members while something is pending that concerns all of them."""
    loop = prim.loop
    n, m = loop.cond_consts, loop.body_consts
    asks = batch_jaxpr(_spread(pending, prim.batched), prim.size, prim.batched, True)[0]

    def goes(*args: Array) -> list[Array]:
        (on,) = eval_jaxpr(loop.cond_jaxpr, [*args[:n], *args[n + m :]])
        (some,) = eval_jaxpr(asks, args)
        return [and_(on, ReduceOr((0,))(some))]

    avals = [*loop.cond_jaxpr.in_avals[:n], *loop.body_jaxpr.in_avals]
    cond = trace_closed(goes, avals, name=loop.cond_jaxpr.name)
    return type(loop)(cond, n + m, loop.body_jaxpr, m, loop.backend, loop.most)


def _spread(pending: Jaxpr, batched: Mask) -> Jaxpr:
    """Of members whose values have no axis of size 1 in front."""

    def run(*args: Array) -> list[Array]:
        own = [Reshape((1, *x.shape))(x) if m else x for x, m in zip(args, batched, strict=True)]
        (found,) = eval_jaxpr(pending, own)
        return [Reshape(())(found)]

    avals = [
        a.update(shape=a.shape[1:]) if m else a
        for a, m in zip(pending.in_avals, batched, strict=True)
    ]
    return trace_closed(run, avals, name=pending.name)


def _shared(prim: MaskedLoop, apart: Apart, most: Array, args: Sequence[Array]) -> Sequence[Array]:
    """What all members share, after as many iterations as the longest loop has."""
    if apart.shared is None:
        return []
    mask = prim.member.parts(prim.batched)[2]
    n = len(args) - len(mask)
    consts = only([not m for m in prim.batched[:n]], args[:n])
    start = only([not m for m in mask], args[n:])
    k = len(start)

    def goes(*xs: Array) -> list[Array]:
        return [lt(xs[-1], xs[0])]

    def step(*xs: Array) -> list[Array]:
        new = eval_jaxpr(apart.shared, xs[:-1])
        return [*new, add(xs[-1], scalar(1, np.dtype(np.int64)))]

    carried = [x.aval for x in start]
    count = most.aval
    cond = trace_closed(goes, [count, *carried, count])
    body = trace_closed(step, [*[x.aval for x in consts], *carried, count])
    loop = type(prim.loop)(cond, 1, body, len(consts), prim.backend)
    return loop(most, *consts, *start, scalar(0, np.dtype(np.int64)))[:k]


__all__ = ["MaskedLoop", "masked"]
