"""What a slot of lane refill does in a step: straight code, though its loop may have another one inside.

A loop inside, over the times at which a solution is wanted, say, is made one with the loop around it: a
step is what comes before the loop inside, one iteration of that, and what comes after, which counts once
the loop inside has ended. So no slot waits for others at the end of a loop inside. What comes before is
computed again in each of its iterations, from carries that change only at the end.

Arrays that are carried stay in memory, each in the row of its batch element. A step says where something
is to be written, and what; another loop over the slots writes it.

Source: loop flattening (von Hanxleden & Kennedy 1992).
Input: a while loop.
Output: up to three jaxprs of small values, and what they write to arrays.
Legal when: of an array that is carried, parts are replaced, and none is read afterwards in the same step.
Pays when: what is around a loop inside takes at most `FLATTENED` times as long as an iteration of it.
Costs: what is around a loop inside, in each of its iterations.
"""

from collections.abc import Callable, Sequence

from fnx.core import recipe
from fnx.core.def_use import definitions
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.planning import fusion_policy


class NotStraight(Exception):  # a signal, not an error
    """A step has more than operations on registers, and parts of arrays that are replaced."""


@dataclass(frozen=True)
class Piece:
    """Straight code: `jaxpr` has so many small results, and then the operands of what is written.

    `writes`: updates in their order, each with the number of the carry that it updates.
    """

    jaxpr: Jaxpr
    results: int
    writes: tuple[tuple[Eqn, int], ...]


@dataclass(frozen=True)
class Inside:
    """A loop inside a step. `before` computes its operands but arrays, and then what `after` reads.

    `arrays`: which carry of the loop around it each of its carries is, None for small ones.
    """

    loop: recipe.While
    before: Jaxpr
    body: Piece
    arrays: tuple[int | None, ...]


@dataclass(frozen=True)
class Step:
    """A step of a loop: `after` has its carries, from inputs of its body, by number in `given`, from small
    results of the loop inside, and from what is computed before that.
    """

    inside: Inside | None
    given: tuple[int, ...]
    after: Piece


def needed(eqns: Sequence[Eqn], atoms: Sequence[Atom]) -> tuple[Eqn, ...]:
    """The equations that `atoms` depend on."""
    wanted = set(atoms)
    kept = []
    for e in reversed(eqns):
        if not wanted.isdisjoint(e.outs):
            kept.append(e)
            wanted.update(a for a in e.inputs if type(a) is Var)
    return tuple(kept[::-1])


def step_of(loop: recipe.While, is_small: Callable[[tuple[int, ...]], bool]) -> Step:
    """What a loop does in a step."""
    body: Jaxpr = loop.body
    carry = body.inputs[loop.body_consts :]
    arrays = {v: k for k, v in enumerate(carry) if not is_small(v.aval.shape)}
    numbers = [arrays.get(v) for v in carry]
    _look_at_condition(loop, numbers)
    loops = [e for e in body.eqns if e.prim.name == "while"]
    if len(loops) > 1:
        raise NotStraight
    if loops:
        own = loops[0].prim.parts(loops[0].inputs)[-1]
        if any(a not in arrays and not is_small(a.aval.shape) for a in own):
            raise NotStraight  # an array that the loop inside makes for itself
        return _flattened(body, loops[0], arrays, numbers)
    straight = _piece(body.inputs, body.eqns, body.outs, arrays, numbers)
    return Step(None, tuple(range(len(body.inputs))), straight)


def _flattened(
    body: Jaxpr, eqn: Eqn, arrays: dict[Var, int], numbers: Sequence[int | None]
) -> Step:
    """A step of a loop with another one inside."""
    inner: recipe.While = eqn.prim.lower(*eqn.inputs)  # type: ignore[assignment]
    iteration = fusion_policy.work(inner.body) + fusion_policy.work(inner.cond)
    if fusion_policy.work(body) > (thresholds.FLATTENED + 1) * iteration:
        raise NotStraight
    n = inner.cond_consts + inner.body_consts
    own = tuple(arrays.get(a) for a in eqn.inputs[n:])  # type: ignore[arg-type]
    changed = [k for k in own if k is not None]
    if len({*changed}) < len(changed):
        raise NotStraight
    _look_at_condition(inner, own)
    # Of an array that the loop inside changes nobody else may read what was there before.
    given = tuple(k for k, v in enumerate(body.inputs) if arrays.get(v) not in changed)
    inputs = [body.inputs[k] for k in given]
    late = {*eqn.outs}
    for e in body.eqns:
        if not late.isdisjoint(e.inputs):
            late.update(e.outs)
    early = [e for e in body.eqns if late.isdisjoint(e.outs)]
    rest = [e for e in body.eqns if e is not eqn and not late.isdisjoint(e.outs)]
    made = [v for e in early for v in e.outs]
    ends = dict(zip(eqn.outs, own, strict=True))
    states = {v: k for v, k in (*arrays.items(), *ends.items()) if k is not None}
    small = [v for v, k in ends.items() if k is None]
    after = _piece([*inputs, *small, *made], rest, body.outs, states, numbers)
    read = {a for e in after.jaxpr.eqns for a in e.inputs} | {*after.jaxpr.outs}
    crossing = [v for v in made if v in read]
    jaxpr = Jaxpr([*inputs, *small, *crossing], after.jaxpr.eqns, after.jaxpr.outs)
    first = [a for a, k in zip(eqn.inputs[n:], own, strict=True) if k is None]
    before = _closed(inputs, early, [*eqn.inputs[:n], *first, *crossing])
    mine = zip(inner.body.inputs[inner.body_consts :], own, strict=True)
    states = {v: k for v, k in mine if k is not None}
    piece = _piece(inner.body.inputs, inner.body.eqns, inner.body.outs, states, own)
    return Step(Inside(inner, before, piece, own), given, Piece(jaxpr, after.results, after.writes))


def _look_at_condition(loop: recipe.While, numbers: Sequence[int | None]) -> None:
    """It is asked before arrays are written, and so may read none."""
    n = loop.cond_consts
    carry = zip(loop.cond.inputs[n:], numbers, strict=True)
    small = [*loop.cond.inputs[:n], *(v for v, number in carry if number is None)]
    _closed(small, loop.cond.eqns, loop.cond.outs)


def _piece(
    inputs: Sequence[Var],
    eqns: Sequence[Eqn],
    outs: Sequence[Atom],
    arrays: dict[Var, int],
    numbers: Sequence[int | None],
) -> Piece:
    """Equations as straight code; `numbers` says which results are which arrays."""
    maker = definitions(eqns)
    writes: list[tuple[Eqn, int]] = []
    for out, number in zip(outs, numbers, strict=True):
        chain = []
        while number is not None and arrays.get(out) != number:  # type: ignore[arg-type]
            e = maker.get(out)  # type: ignore[arg-type]
            if e is None or e.prim.update_kind != "set":
                raise NotStraight
            chain.append((e, number))
            out = e.inputs[0]
        writes += chain[::-1]
    results = [o for o, number in zip(outs, numbers) if number is None]
    operands = [a for e, _ in writes for a in e.inputs[1:]]
    return Piece(_closed(inputs, eqns, [*results, *operands]), len(results), tuple(writes))


def _closed(inputs: Sequence[Var], eqns: Sequence[Eqn], outs: Sequence[Atom]) -> Jaxpr:
    """The part of a jaxpr that has these results, if it does without other inputs."""
    kept = needed(eqns, outs)
    known = {*inputs, *(v for e in kept for v in e.outs)}
    if any(
        type(a) is Var and a not in known for a in (*outs, *(a for e in kept for a in e.inputs))
    ):
        raise NotStraight
    return Jaxpr(inputs, kept, outs)
