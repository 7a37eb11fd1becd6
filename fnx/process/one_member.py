"""Programs of one of several devices: how they are traced, and how all devices' results come about."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from fnx.core import config
from fnx.core.array import Array
from fnx.core.config import checked_axes, set_checked_axes
from fnx.core.errors import ConcretizationTypeError, NonConcreteBooleanIndexError
from fnx.core.interpreter import current
from fnx.core.jaxpr import eval_jaxpr
from fnx.core.threads.atomic import during
from fnx.interpreters.primitives.jit import has_effects
from fnx.interpreters.primitives.members import (
    Cut,
    Members,
    cut_parts,
    joined,
    names_of,
    part_shape,
    run_batched,
    varying,
)
from fnx.interpreters.spmd import bound_axes, spmd
from fnx.interpreters.trace import CapturedRefs, Stage, trace


def one_member(
    fn: Callable,
    axes: dict,
    args: list[Array],
    cuts: list[Cut],
    name: str,
    backend: Any,
    checked: bool = False,
) -> tuple[Members, list[Array]] | None:
    """The program of one of several devices, whose results are not joined yet, and its operands.

    Types in it say along which of the axes values vary, if that is to be `checked`.
    None where there is none: for one device, or where `fn` needs to see numbers, or changes references.
    """
    watched = config.debug_nans.value or config.debug_infs.value or config.disable_jit.value
    if math.prod(axes.values()) < 2 or watched or not set(axes).isdisjoint(bound_axes()):
        return None
    avals = [
        x.aval.update(shape=part_shape(x.shape, c, axes)) for x, c in zip(args, cuts, strict=True)
    ]
    if checked:
        avals = [a.varying(a.vma | names_of(c)) for a, c in zip(avals, cuts)]
    try:
        with checking(axes, checked):
            jaxpr, consts = trace(spmd(fn, axes), avals, what="shard_map", name=name)
    except ConcretizationTypeError:
        return None
    except (NonConcreteBooleanIndexError, CapturedRefs):
        return None
    if has_effects(jaxpr):
        return None
    ins = tuple([((),) * x.ndim for x in consts] + cuts)
    prim = Members(jaxpr, tuple(axes.items()), ins, (), name, backend)
    return prim, [*consts, *args]


@contextmanager
def checking(axes: dict, checked: bool) -> Iterator[None]:
    """Within it types say along which of the axes values vary, if that is to be `checked`."""
    with during(set_checked_axes, checked_axes.get().union(axes) if checked else frozenset()):
        yield


def within_a_loop() -> bool:
    """Whether this is traced as a part of the body of a loop, which members may run at once."""
    return any(it.what.startswith("the body") for it in _stages())


def is_compiled() -> bool:
    """Whether this is traced as a part of a program, and not computed at once."""
    return any(it.parent is None for it in _stages())


def _stages() -> Iterator[Stage]:
    """Those around this place."""
    it: Any = current.get()
    while it is not None:
        if isinstance(it, Stage):
            yield it
        it = it.parent or getattr(it, "outer", None)


def of_all(
    prim: Members, operands: list[Array], outs: Callable, apart: bool = False
) -> list[Array]:
    """Results of all devices: at once where that pays, or may pay for a loop around; else in turn.

    `outs` gives how each result is cut, of ranks, and of the axes along which each may differ: as is
    found, or as its type says, where types do.
    """
    axes = dict(prim.axes)
    may = [v | a.vma.intersection(axes) for v, a in zip(varying(prim), prim.jaxpr.out_avals)]
    ranks = [a.ndim for a in prim.jaxpr.out_avals]
    apart = apart or within_a_loop()
    if apart or replace(prim, outs=tuple([((),) * r for r in ranks])).runs_apart:
        cuts = outs(ranks, may)
        return list(replace(prim, outs=tuple(cuts)).apply(*operands))
    parts = [cut_parts(x, c, axes) for x, c in zip(operands, prim.ins)]
    names = [{n for names in c for n in names} for c in prim.ins]
    made, found = run_batched(lambda *xs: eval_jaxpr(prim.jaxpr, xs), prim.axes, parts, names)
    # Batching takes what rules of users give for different; what is known of the program counts, too.
    differ = [
        [n for n in axes if n in a.vma or (n in f and n in v)]
        for f, v, a in zip(found, varying(prim), prim.jaxpr.out_avals, strict=True)
    ]
    cuts = outs(ranks, differ)
    return [joined(x, f, c, axes) for x, f, c in zip(made, found, cuts, strict=True)]
