"""Divergent control flow: vmap of a loop or a branch that each batch element takes in its own way.

A loop whose condition differs between batch elements becomes a `Scan` without carries, whose iterations
are the batch elements: each runs its loop to its own end, and compilers may run several side by side. A
branch on large values, too: only one side runs then. On small values both sides are computed and one is
selected, which vectorises; but loops run only for the batch elements that go there (`guarded`). What
acts on the world outside (`io_callback`) runs for those batch elements alone that come to it (`must_part`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fnx.core import dtypes, policy
from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.axis_size import axis_name_of
from fnx.core.errors import MissingRule
from fnx.core.jaxpr import Eqn, Jaxpr, Var, eval_jaxpr, made_once, subjaxprs
from fnx.core.primitive import Primitive
from fnx.core.recipe import Host
from fnx.interpreters.batching import axis_names, place_axis
from fnx.interpreters.control_flow import ScanRecord
from fnx.interpreters.operands import given, only
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.trace import trace_closed
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.elementwise.select import and_, lt, select_n
from fnx.ops.structure.basic import zeros
from fnx.ops.structure.join import Iota

Mask = tuple[bool, ...]


def choose(index: Array, cases: Sequence[Array]) -> Array:
    """Batch element by batch element, one of the cases."""
    if cases[0].ndim > 1:
        index = Broadcast(cases[0].shape, (0,))(index)
    return select_n(index, *cases) if len(cases) > 1 else cases[0]


def may_part(prim: Primitive, size: int) -> bool:
    """Whether batch elements may take a primitive that carries jaxprs one after the other.

    They may not if they speak to each other, to the user, or to Python, which would be called for
    each batch element.
    """
    if axis_name_of(size) is not None and axis_name_of(size) in axis_names(prim):
        return False
    return not prim.effects and not any([_calls_host(j) for j in subjaxprs(prim)])


def must_part(prim: Primitive, size: int) -> bool:
    """Whether batch elements have to take it one after the other: it acts on what is outside of programs,
    for those alone that come to it.
    """
    if not any([_acts(j) for j in subjaxprs(prim)]):
        return False
    if axis_name_of(size) is not None and axis_name_of(size) in axis_names(prim):
        raise MissingRule(
            f"vmap of a {prim.name} that batch elements take in different ways, with a function that has "
            f"side effects and a collective over {axis_name_of(size)!r} in it. Expected: the call outside "
            f"of the {prim.name}, or debug.callback, which all batch elements call."
        )
    return True


@made_once
def _acts(jaxpr: Jaxpr) -> bool:
    return any(e.prim.acts or any(map(_acts, subjaxprs(e.prim))) for e in jaxpr.eqns)


@made_once
def _calls_host(jaxpr: Jaxpr) -> bool:
    return any(_is_host(e) for e in jaxpr.eqns)


class _Operand:
    """What a `lower` rule may know of an operand before its elements are asked for."""

    def __init__(self, aval: Any):
        self.shape, self.dtype = aval.shape, dtypes.NAME[aval.dtype]
        self.ndim = len(aval.shape)


def _is_host(eqn: Eqn) -> bool:
    inner = list(subjaxprs(eqn.prim))
    if inner:
        return any(_calls_host(j) for j in inner)
    recipe = eqn.prim.lower(*[_Operand(a.aval) for a in eqn.inputs])  # type: ignore[misc]
    return isinstance(recipe, Host)


def one_by_one(
    scan: type[ScanRecord], prim: Primitive, backend: Any, size: int, args: Sequence, batched: Mask
) -> list:
    """Results of a primitive for all batch elements, with these in front; `batched` says which operands
    have them, in front too.
    """
    shared = [x for x, b in zip(args, batched) if not b]
    own = only(batched, args)
    avals = [x.aval.update(shape=x.shape[1:]) if b else x.aval for x, b in zip(args, batched)]
    key = ("one batch element", prim, batched, *avals)
    body = next(subjaxprs(prim)).once(key, lambda: _one_element(prim, avals, batched))
    site = getattr(prim, "site", None)
    more = {
        "site": site and site.counting("member"),
        "progress": getattr(prim, "progress", False),
    }
    loop = scan(body, len(shared), 0, int(size), backend=backend, divergent=True, **more)
    return list(loop(*shared, *own))


def _one_element(prim: Primitive, avals: Sequence, batched: Mask) -> Jaxpr:
    inputs = [Var(a) for a in avals]
    outs = [Var(a) for a in prim.abstract(*avals)]
    rest = [v for v, b in zip(inputs, batched) if not b]
    return Jaxpr([*rest, *only(batched, inputs)], [Eqn(prim, inputs, outs)], outs, name=prim.name)


def batch_of_counts(scan: ScanRecord, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
    """A scan whose batch elements have numbers of iterations of their own."""
    if not must_part(scan, size) and not may_part(scan, size):
        rows = Iota(0, args[0].dtype, (scan.length,))()
        return _masked(scan).batch(size, (*args, rows), (*axes, None))
    batched = given(axes)
    place = [x if k is None else place_axis(size, x, k, 0) for x, k in zip(args, axes)]
    outs = one_by_one(type(scan), scan, scan.backend, size, place, batched)
    return tuple(outs), (0,) * len(outs)


def _masked(scan: ScanRecord) -> ScanRecord:
    """The scan of all iterations, with a further row, their numbers; those too many change nothing.

    They read zeros: their rows may hold anything, of which derivatives could make nan.
    """
    body = scan.jaxpr

    def run(*args: Array) -> list[Array]:
        *own, t = args
        on = lt(t, own[0])
        consts, carry, xs = scan.parts(own)
        outs = eval_jaxpr(body, [*consts, *carry, *(_where(on, x, zeros(x.aval)) for x in xs)])
        rest = [zeros(y.aval) for y in outs[scan.carry :]]
        return [_where(on, y, x) for x, y in zip([*carry, *rest], outs, strict=True)]

    key = ("masked", scan.consts, scan.carry)
    avals = [*body.in_avals, body.in_avals[0]]
    masked = body.once(key, lambda: trace_closed(run, avals, what="vmap", name=body.name))
    return replace(scan, jaxpr=masked, counted=False)


def _where(on: Array, x: Array, y: Array) -> Array:
    flag = Broadcast(x.shape, ())(on) if x.shape else on
    return select_n(flag, y, x)


# --- branches ----------------------------------------------------------------------------------


def worth_parting(branches: Sequence[Jaxpr]) -> bool:
    """Whether a branch costs so much, without others beside it, that it should only run if taken."""
    return any(_elements(b) >= policy.BRANCH_WORK for b in branches)


@made_once
def _elements(jaxpr: Jaxpr) -> int:
    """The elements of large values that a jaxpr computes."""
    total = 0
    for e in jaxpr.eqns:
        sizes = [v.aval.size for v in (*e.inputs, *e.outs)]
        total += max(sizes, default=0) if max(sizes, default=0) >= policy.BRANCH_ELEMENTS else 0
        iterations = getattr(e.prim, "length", 1)
        total += iterations * sum(map(_elements, subjaxprs(e.prim)))
    return total


@made_once
def guarded(jaxpr: Jaxpr) -> Jaxpr | None:
    """With a first input, a bool without which no loop with a condition runs; None if there is none.

    The results are then of no use.
    """
    jaxpr = simplify(jaxpr)
    on = Var(ShapedArray((), dtypes.bool_))
    eqns, found = [], False
    for e in jaxpr.eqns:
        prim: Any = e.prim
        if prim.name == "masked_while":
            prim = prim.loop
        if prim.name == "while":
            n = prim.cond_consts
            prim = replace(prim, cond_jaxpr=_and(prim.cond_jaxpr), cond_consts=n + 1)
            e, found = Eqn(prim, [on, *e.inputs], e.outs, e.source), True
        elif prim.name == "cond" and any(guarded(b) for b in prim.branches):
            branches = [guarded(b) or Jaxpr([on, *b.inputs], b.eqns, b.outs) for b in prim.branches]
            inputs = [e.inputs[0], on, *e.inputs[1:]]
            e, found = Eqn(prim.with_branches(branches), inputs, e.outs, e.source), True
        eqns.append(e)
    return Jaxpr([on, *jaxpr.inputs], eqns, jaxpr.outs, name=jaxpr.name) if found else None


@made_once
def _and(cond: Jaxpr) -> Jaxpr:
    def both(on: Array, *args: Array) -> list[Array]:
        return [and_(on, eval_jaxpr(cond, args)[0])]

    avals = [ShapedArray((), dtypes.bool_), *cond.in_avals]
    return trace_closed(both, avals, name=cond.name)
