"""Undo loops: the reverse sweep over a loop that restores arrays as it goes.

Nobody keeps those arrays for each iteration: the loop gets their last values. Its transpose runs from
the other end, as the restoration of the arrays does, and restores them as it goes. To run it forward,
the arrays are first restored to their first values, then updated again.

Source: Griewank & Walther 2008, ch. 12.
Input: the linear part of a scan whose forward part updates arrays in place.
Output: the primitive `UndoLoop`, and its transpose.
Legal when: the undo log has what was overwritten.
Pays when: the arrays would otherwise be stacked.
Costs: a write for each overwritten element on the way back.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, Jaxpr, Var, eval_jaxpr
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Operand, Recipe
from fnx.interpreters.analysis.updates import chain
from fnx.interpreters.batching import batch_jaxpr, place_axis
from fnx.interpreters.control_flow import ScanRecord
from fnx.interpreters.jvp import jvp_jaxpr
from fnx.interpreters.operands import check_operands, given, only, spread
from fnx.interpreters.passes.compiled import run
from fnx.interpreters.passes.dce import dce, used_inputs
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.reverse.split_call import split_call
from fnx.interpreters.rewrite import bind_into, live, splice

from .residuals import Split
from .scan_transpose import Undo, transpose_linear
from .undo_log import Rewind, go_back_over, record


@dataclass(frozen=True)
class UndoLoop(Primitive):
    """`loop`, of whose rows the first are no operands: they are made in each iteration by `undo`.

    Operands: constants, tangents carried, arrays after the last iteration, the other rows. The first
    `known` constants are values, the rest tangents. `undo`: (values, arrays after an iteration, rows) ->
    `versions` of each array, first to last.
    """

    loop: ScanRecord
    undo: Jaxpr
    known: int
    versions: tuple[int, ...]
    rows: int  # of the known rows besides the versions; tangents follow
    name = "rewound"
    multiple_results = True

    def params(self) -> dict[str, Any]:
        return {"jaxpr": self.loop.jaxpr, "undo": self.undo, "length": self.loop.length}

    def parts(self, values: Sequence) -> tuple[Any, Any, Any, Any]:
        """Constants, carry, arrays, rows of the operands, or of what runs parallel to them."""
        n = self.loop.consts
        m = n + self.loop.carry
        last = m + len(self.versions)
        return values[:n], values[n:m], values[m:last], values[last:]

    def _pieces(self, values: Sequence) -> tuple[Any, Any, Any, Any]:
        """Constants, carry, versions, rows of the loop's inputs."""
        consts, carry, xs = self.loop.parts(values)
        n = sum(self.versions)
        return consts, carry, xs[:n], xs[n:]

    def lasts(self, versions: Sequence) -> list:
        """Of each array's versions the last."""
        ends = np.cumsum(self.versions)
        return [versions[k - 1] for k in ends]

    def abstract_operands(self) -> list[ShapedArray]:
        """The types of the operands."""
        consts, carry, versions, _ = self._pieces(self.loop.jaxpr.in_avals)
        rows = self.loop.abstract_operands()[len(consts) + len(carry) + len(versions) :]
        return [*consts, *carry, *self.lasts(versions), *rows]

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        check_operands(self.name, avals, self.abstract_operands())
        return self.loop.abstract(*self.loop.abstract_operands())

    # --- the way it is made for -------------------------------------------------------------------

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        return self.rewind(cts, *args)[0]

    def rewind(self, cts: tuple, *args: Any) -> tuple[tuple, tuple]:
        """Cotangents of the operands, and the arrays before the first iteration."""
        consts, carry, lasts, rows = self.parts(args)
        whole = (*consts, *carry, *(None,) * sum(self.versions), *rows)
        undo = Undo(self.undo, self.versions, self.known, self.rows, tuple(lasts))
        found, firsts = transpose_linear(self.loop, cts, whole, undo)
        a, b, _, d = self._pieces(found)
        return (*a, *b, *(None for _ in lasts), *d), firsts

    def prune(self, used: tuple[bool, ...]) -> tuple["UndoLoop", tuple, tuple]:
        """Without operands that nobody needs; all results stay."""
        return (*self.loop.jaxpr.once(("prune", self), self._pruned), (True,) * len(used))

    def _pruned(self) -> tuple["UndoLoop", tuple]:
        body = dce(self.loop.jaxpr, [True] * len(self.loop.jaxpr.outs))
        reads = used_inputs(body)
        consts, carry, versions, rows = self._pieces(reads)
        starts = np.cumsum((0, *self.versions))
        kept = [any(versions[a:b]) for a, b in pairwise(starts)]
        every = [k for k, n in zip(kept, self.versions) for _ in range(n)]
        undo = dce(self.undo, every)
        read = used_inputs(undo)
        n, m = self.known, self.known + len(self.versions)
        consts = [a or b for a, b in zip(consts, (*read[:n], *(True,) * len(consts)))]
        consts[:1] = [True] if self.loop.counted else consts[:1]
        keep = [a or b for a, b in zip(rows, (*read[m:], *(True,) * len(rows)))]
        ins = (*consts, *(True for _ in carry), *kept, *keep)
        whole = [*consts, *(True for _ in carry), *every, *keep]
        inputs = [*only(consts[:n], undo.inputs[:n]), *only(kept, undo.inputs[n:m])]
        inputs += only(keep[: self.rows], undo.inputs[m:])
        body = Jaxpr(only(whole, body.inputs), body.eqns, body.outs, name=body.name)
        return replace(
            self,
            loop=self.loop.with_jaxpr(body, sum(consts), self.loop.carry),
            undo=Jaxpr(inputs, undo.eqns, undo.outs, name=undo.name),
            known=sum(consts[:n]),
            versions=tuple(only(kept, self.versions)),
            rows=sum(keep[: self.rows]),
        ), ins

    # --- forward ----------------------------------------------------------------------------------

    @property
    def jaxpr(self) -> Jaxpr:
        """Plain loops that do the same."""
        key = ("forward", self)
        return self.undo.once(key, lambda: _forward(self))

    transparent = "final"

    def impl(self, *values: np.ndarray) -> tuple:
        return run(self.jaxpr, self.loop.backend, [ConcreteArray(v) for v in values])

    def lower(self, *operands: Operand) -> Recipe:
        return Call(self.jaxpr)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        jaxpr, mask = jvp_jaxpr(self.jaxpr, given(tangents))
        outs = eval_jaxpr(jaxpr, [*primals, *only(given(tangents), tangents)])
        return tuple(outs[: len(mask)]), spread(mask, outs[len(mask) :])

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        parts = split_call(self.jaxpr, given(tangents))
        n = len(self.jaxpr.outs)
        outs = eval_jaxpr(parts.forward, primals)
        kept: list[Array] = [primals[k] for k in parts.inputs]
        touts = eval_jaxpr(parts.linear, [*kept, *outs[n:], *only(given(tangents), tangents)])
        return tuple(outs[:n]), spread(parts.mask, touts)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        jaxpr, mask = batch_jaxpr(self.jaxpr, size, given(axes))
        args = tuple([x if k is None else place_axis(size, x, k, 0) for x, k in zip(args, axes)])
        return tuple(eval_jaxpr(jaxpr, args)), spread(mask, [0] * sum(mask))


def _forward(r: UndoLoop) -> Jaxpr:
    """Back without tangents, keeping what that overwrites; then forward."""
    operands = [Var(a) for a in r.abstract_operands()]
    consts, carry, lasts, rows = r.parts(operands)
    if not lasts:
        eqns: list[Eqn] = []
        outs = bind_into(eqns, r.loop, operands)
        return simplify(Jaxpr(operands, eqns, outs))
    undo, loop, n, count = r.undo, r.loop, r.known, len(lasts)
    arrays = undo.inputs[n : n + count]
    starts = np.cumsum((0, *r.versions[:-1]))
    firsts = [undo.outs[k] for k in starts]
    maker = definitions(undo.eqns)
    rewinds = [Rewind(a, tuple(chain(maker, a, b) or ())) for a, b in zip(arrays, firsts)]
    eqns = list(undo.eqns)
    olds = [[record(eqns, s, s.items()) for s in w.steps] for w in rewinds]
    kept = list(dict.fromkeys(v for own in olds for found in own for v in found))
    outs = [*firsts, *kept]
    back = loop.with_jaxpr(Jaxpr(undo.inputs, live(eqns, outs), outs, name=undo.name), n, count)
    back = replace(back, reverse=not loop.reverse)
    redo, begin, values = go_back_over(undo, rewinds, olds, set(undo.inputs) - set(arrays))

    inputs = [Var(v.aval) for v in loop.jaxpr.inputs]
    in_c, in_k, _, in_x = r._pieces(inputs)
    state, again = [Var(a.aval) for a in arrays], [Var(v.aval) for v in kept]
    body: list[Eqn] = []
    made = [values.get(v, v) for v in undo.outs]  # type: ignore[call-overload]
    from_undo = [*undo.inputs[:n], *begin, *undo.inputs[n + count :], *kept]
    versions = splice(
        Jaxpr(from_undo, redo, made), [*in_c[:n], *state, *in_x[: r.rows], *again], body
    )
    touts = splice(loop.jaxpr, [*in_c, *in_k, *versions, *in_x], body)
    m = loop.carry
    inputs = [*in_c, *in_k, *state, *in_x[: r.rows], *again, *in_x[r.rows :]]
    results = [*touts[:m], *r.lasts(versions), *touts[m:]]
    onward = loop.with_jaxpr(
        Jaxpr(inputs, body, results, name=loop.jaxpr.name), loop.consts, m + count
    )

    whole: list[Eqn] = []
    done = bind_into(whole, back, [*consts[:n], *lasts, *rows[: r.rows]])
    xs = [*rows[: r.rows], *done[count:], *rows[r.rows :]]
    final = bind_into(whole, onward, [*consts, *carry, *done[:count], *xs])
    return simplify(Jaxpr(operands, whole, [*final[:m], *final[m + count :]]))


def undo_loop_of(loop: ScanRecord, parts: Split, known: int, extra: bool = False) -> UndoLoop:
    """A linear loop with what restores its arrays.

    `known` of its constants are values; the first is not among the inputs of `parts` if `extra`.
    """
    assert parts.undo is not None
    key = ("undo", known, extra)

    def make() -> Jaxpr:
        v, read = parts.undo.inputs, len(parts.inputs)
        if extra:
            v, read = (Var(loop.jaxpr.inputs[0].aval), *v), read + 1
        end = read + len(parts.restored)
        inputs = [*v[:known], *v[read:end], *v[known:read], *v[end:]]
        return Jaxpr(inputs, parts.undo.eqns, parts.undo.outs, name=loop.jaxpr.name)

    undo = parts.undo.once(key, make)
    rows = len(undo.inputs) - known - len(parts.restored)
    return UndoLoop(loop, undo, known, parts.versions, rows)
