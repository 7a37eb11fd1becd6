"""The primitive of SPMD programs: one member's jaxpr, applied to the parts of arrays that members have.

It has two meanings of one result. As a call it is batching over named axes, one program that computes for
all members in turn (`whole`). As a team of threads, where that pays, each member runs its own part at the
same time, and collectives are exchanges (exchange.py). Derivatives and batches of it are again programs of
one member.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.axis_size import AxisSize
from fnx.core.backend import Backend
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import current, use
from fnx.core.jaxpr import Jaxpr, eval_jaxpr, made_once
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Operand, Recipe
from fnx.interpreters.analysis.uniformity import Uniformity, uniformity
from fnx.interpreters.analysis.work import exchanges, work
from fnx.interpreters.batching import axis_names, batch, batch_jaxpr, place_axis
from fnx.interpreters.closure_conversion import HigherOrder, with_inputs
from fnx.interpreters.collectives import PSum
from fnx.interpreters.jvp import jvp_jaxpr
from fnx.interpreters.linearize import transpose_jaxpr
from fnx.interpreters.operands import check_operands, given, only, spread, undefined
from fnx.interpreters.passes.compiled import run
from fnx.interpreters.reverse.split_call import split_call
from fnx.interpreters.spmd import Spmd
from fnx.interpreters.trace import trace_closed
from fnx.interpreters.variation import shared
from fnx.ops.base.permute import Transpose
from fnx.ops.structure.basic import (
    broadcast_axis,
    move_axis,
    reshape,
)
from fnx.ops.structure.slice import Slice

from .jit import Jit, has_effects
from .linear_solve import solved_as_one
from .member_team import Axes, Cut, Running, names_of, part_shape, whole_shape

# --- parts of arrays ---------------------------------------------------------------------------


@dataclass(frozen=True)
class OfFirst(Slice):
    """Along an axis of members what the first has: all have it, and equal parts of its cotangent."""

    axis: int = 0

    @staticmethod
    def along_axis(x: Array, k: int) -> Array:
        """What the first member along axis k has."""
        end = (*x.shape[:k], 1, *x.shape[k + 1 :])
        return OfFirst((0,) * x.ndim, end, None, k)(x)

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        k, n = self.axis, x.shape[self.axis]
        ct = shared(reshape(cts[0], x.shape[:k] + x.shape[k + 1 :]), n)
        return (broadcast_axis(ct, n, k),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (OfFirst.along_axis(move_axis(args[0], axes[0], 0), self.axis + 1),), (0,)


def cut_parts(x: Array, cut: Cut, axes: dict) -> Array:
    """All members' parts: an axis for each name in `cut`, in the order of the axes, in front."""
    shape: list[int] = []
    position: dict[Hashable, int] = {}
    local = []
    for size, names in zip(x.shape, cut, strict=True):
        for n in names:
            position[n] = len(shape)
            shape.append(axes[n])
        local.append(len(shape))
        shape.append(size // prod(axes[n] for n in names))
    order = [position[n] for n in axes if n in position]
    return Transpose((*order, *local))(reshape(x, tuple(shape)))


def run_batched(
    fn: Callable,
    axes: Sequence[tuple[Hashable, int]],
    parts: list,
    names: list,
    over: Callable = batch,
) -> tuple[list[Array], list[list[Hashable]]]:
    """Results for all members, and the axes along which each differs: its leading axes."""
    if not axes:
        outs = list(fn(*parts))
        return outs, [[] for _ in outs]
    (name, size), inner = axes[0], axes[1:]
    found: list[list[list[Hashable]]] = []

    def members(*xs: Array) -> list[Array]:
        outs, more = run_batched(fn, inner, list(xs), names, over)
        found.append(more)
        return outs

    places = [0 if name in n else None for n in names]
    outs, where = over(members, AxisSize(size, name, True), parts, places)
    outs = [x if k is None else move_axis(x, k, 0) for x, k in zip(outs, where)]
    return outs, [more if k is None else [name, *more] for k, more in zip(where, found[0])]


def joined(x: Array, found: list, cut: Cut, axes: dict) -> Array:
    """Parts side by side; along axes that `cut` does not name, those of the first member."""
    wanted = [n for names in cut for n in names]
    for n in [n for n in found if n not in wanted]:
        k = found.index(n)
        x = reshape(OfFirst.along_axis(x, k), x.shape[:k] + x.shape[k + 1 :])
        found = [m for m in found if m != n]
    for n in [n for n in wanted if n not in found]:
        x = broadcast_axis(x, axes[n], 0)
        found = [n, *found]
    order, shape_ = [], []
    for k, names in enumerate(cut):
        order += [*(found.index(n) for n in names), len(found) + k]
        shape_.append(x.shape[len(found) + k] * prod(axes[n] for n in names))
    return reshape(Transpose(tuple(order))(x), tuple(shape_))


# --- the primitive -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Members(HigherOrder):
    """`jaxpr` is one member's; `ins` and `outs` say how operands and results are cut into parts.

    A result that is not cut along an axis is what the first member along it has.
    """

    jaxpr: Jaxpr
    axes: Axes
    ins: tuple[Cut, ...]
    outs: tuple[Cut, ...]
    of: str = "f"
    backend: Backend | None = field(default=None, compare=False, repr=False)
    name = "shard_map"
    on_devices = "members"
    jaxpr_fields = ("jaxpr",)
    transparent = "final"

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return has_effects(self.jaxpr)

    def applied(self, atoms: Sequence) -> Jaxpr:
        """What it is within a program for all in turn."""
        return self.whole()

    @property
    def axis_names(self) -> frozenset:
        """The names of axes around it that it speaks of."""
        inside = frozenset([n for e in self.jaxpr.eqns for n in axis_names(e.prim)])
        return inside - frozenset([n for n, _ in self.axes])

    @property
    def size(self) -> int:
        return prod(n for _, n in self.axes)

    def params(self) -> dict[str, Any]:
        return {"jaxpr": self.jaxpr, "axes": self.axes, "in": self.ins, "out": self.outs}

    def converted(self, values: tuple, more: Sequence, operands: tuple) -> tuple[Primitive, tuple]:
        cuts = [((),) * v.aval.ndim for v in values]
        jaxpr = with_inputs(self.jaxpr, values, 0)
        return replace(self, jaxpr=jaxpr, ins=(*cuts, *self.ins)), (*more, *operands)

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        sizes = dict(self.axes)
        expected = [
            a.update(shape=whole_shape(a.shape, c, sizes))
            for a, c in zip(self.jaxpr.in_avals, self.ins, strict=True)
        ]
        check_operands(f"shard_map of {self.of}", avals, expected)
        return tuple(
            [
                a.update(shape=whole_shape(a.shape, c, sizes)).varying(a.vma.difference(sizes))
                for a, c in zip(self.jaxpr.out_avals, self.outs, strict=True)
            ]
        )

    # --- within a program of parts

    def partition(self, grid: Any, parts: list) -> list:
        """In a program of members along the same axes, what they do; else on whole operands."""
        sizes = {n: size for n, size in self.axes if size > 1}
        if any(grid.sizes.get(n) != size for n, size in sizes.items()):
            return grid.evaluate(self.whole(), parts)
        plain = lambda cut: tuple([tuple([n for n in names if n in sizes]) for names in cut])
        given = [grid.lay(p, plain(c)).x for p, c in zip(parts, self.ins)]
        with_one = {n for n, size in self.axes if size == 1}
        outs = eval_jaxpr(_without_axes(self.jaxpr, tuple(with_one)), given)
        shapes = grid.shapes(self, parts)
        found = []
        for x, shape, cut, names in zip(outs, shapes, self.outs, varying(self)):
            p = grid.part(x, shape, plain(cut))
            own = [n for n in sizes if n in names and n not in names_of(cut)]
            found.append(grid.first(p, own) if own else p)
        return found

    # --- as one program for all

    def whole(self) -> Jaxpr:
        """The program that computes for all members in turn."""
        return _whole(self.jaxpr, self.axes, self.ins, self.outs)

    def as_call(self) -> Jit:
        """The same, as a call."""
        return Jit(self.whole(), self.of, self.backend)

    def impl(self, *values: np.ndarray) -> tuple:
        if self.runs_apart:
            outs = _team(self).run(values)
            return tuple(
                [ConcreteArray(x, a.weak_type) for x, a in zip(outs, self.jaxpr.out_avals)]
            )
        return run(self.whole(), self.backend, [ConcreteArray(v) for v in values])

    def lower(self, *operands: Operand) -> Recipe:
        return Call(self.whole())

    # --- as a team

    @property
    def runs_apart(self) -> bool:
        """Whether each member had better have a thread of its own."""
        team = getattr(self.backend, "team", None)
        if team is None or config.disable_jit.value or self.effects or self.axis_names:
            return False
        pays = self.backend.team_pays  # type: ignore[union-attr]
        inner = self.jaxpr
        return pays(self.size, work(inner), exchanges(inner)) and _is_uniform(
            inner, self.axes, self.ins
        )

    # --- rules

    @property
    def named(self) -> Any:
        """Binds the names of the axes: rules of users within the jaxpr are functions that speak of them."""
        return use(Spmd(current.get(), dict(self.axes)))

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        with self.named:
            jaxpr, mask = jvp_jaxpr(self.jaxpr, given(tangents))
        ins = (*self.ins, *only(given(tangents), self.ins))
        prim = replace(self, jaxpr=jaxpr, ins=ins, outs=(*self.outs, *only(mask, self.outs)))
        outs = prim(*primals, *only(given(tangents), tangents))
        n = len(mask)
        return outs[:n], spread(mask, outs[n:])

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        nonzero = given(tangents)
        with self.named:
            forward, linear, kept, mask = _parts(self.jaxpr, nonzero, self.ins)
        n = len(self.jaxpr.outs)
        everywhere = (tuple([name for name, _ in self.axes]),)
        residuals = tuple([(*everywhere, *[()] * (a.ndim - 1)) for a in forward.out_avals[n:]])
        known = replace(self, jaxpr=forward, outs=(*self.outs, *residuals))
        outs = known(*primals)
        ins = (*[self.ins[k] for k in kept], *residuals, *only(nonzero, self.ins))
        later = replace(self, jaxpr=linear, ins=ins, outs=tuple(only(mask, self.outs)))
        touts = later(*[primals[k] for k in kept], *outs[n:], *only(nonzero, tangents))
        return outs[:n], spread(mask, touts)

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        linear, nonzero = undefined(args), given(cts)
        with self.named:
            jaxpr, mask = _transposed(self.jaxpr, linear, nonzero, self.axes, self.ins, self.outs)
        values = [a for a, lin in zip(args, linear) if not lin]
        ins = [c for c, lin in zip(self.ins, linear) if not lin]
        back = only(mask, only(linear, self.ins))
        prim = replace(self, jaxpr=jaxpr, ins=(*ins, *only(nonzero, self.outs)), outs=tuple(back))
        outs = prim(*values, *only(nonzero, cts))
        return spread(linear, spread(mask, outs))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        with self.named:
            jaxpr, mask = batch_jaxpr(self.jaxpr, size, given(axes))
        args = [x if k is None else place_axis(size, x, k, 0) for x, k in zip(args, axes)]
        ins = [c if k is None else ((), *c) for c, k in zip(self.ins, axes)]
        outs = [((), *c) if m else c for c, m in zip(self.outs, mask)]
        prim = replace(self, jaxpr=jaxpr, ins=tuple(ins), outs=tuple(outs))
        return prim(*args), spread(mask, [0] * sum(mask))


@made_once
def _whole(jaxpr: Jaxpr, axes: Axes, ins: tuple[Cut, ...], outs: tuple[Cut, ...]) -> Jaxpr:
    sizes = dict(axes)

    def fn(*xs: Array) -> list[Array]:
        parts = [cut_parts(x, c, sizes) for x, c in zip(xs, ins, strict=True)]
        made, found = run_batched(
            lambda *ys: eval_jaxpr(jaxpr, ys), axes, parts, [names_of(c) for c in ins]
        )
        return [joined(x, f, c, sizes) for x, f, c in zip(made, found, outs, strict=True)]

    avals = [a.update(shape=whole_shape(a.shape, c, sizes)) for a, c in zip(jaxpr.in_avals, ins)]
    return trace_closed(fn, avals, what="shard_map", name=jaxpr.name)


@made_once
def _without_axes(jaxpr: Jaxpr, names: tuple[Hashable, ...]) -> Jaxpr:
    """The program of the only member along these axes, without exchanges along them."""
    if not names:
        return jaxpr

    def fn(*xs: Array) -> list[Array]:
        one = [(n, 1) for n in names]
        outs, found = run_batched(lambda *ys: eval_jaxpr(jaxpr, ys), one, list(xs), [[]] * len(xs))
        return [reshape(x, x.shape[len(f) :]) for x, f in zip(outs, found)]

    return trace_closed(fn, jaxpr.in_avals, name=jaxpr.name)


@made_once
def _is_uniform(jaxpr: Jaxpr, axes: Axes, ins: tuple[Cut, ...]) -> bool:
    """Whether all members make the same exchanges; where they may not, none of them is one."""
    del axes
    return uniformity(jaxpr, [names_of(c) for c in ins])[1]


@made_once
def _parts(
    jaxpr: Jaxpr, nonzero: tuple[bool, ...], ins: tuple[Cut, ...]
) -> tuple[Jaxpr, Jaxpr, tuple, tuple]:
    """The two halves of a derivative; what one hands to the other has an axis in front, for members."""
    parts = split_call(jaxpr, nonzero)
    n, kept = len(jaxpr.outs), parts.inputs

    def forward(*xs: Array) -> list[Array]:
        outs = eval_jaxpr(parts.forward, xs)
        return [*outs[:n], *[reshape(x, (1, *x.shape)) for x in outs[n:]]]

    first = trace_closed(forward, jaxpr.in_avals, name=jaxpr.name)
    m = len(first.outs) - n

    def linear(*xs: Array) -> list[Array]:
        middle = xs[len(kept) : len(kept) + m]
        residuals = [reshape(x, x.shape[1:]) for x in middle]
        return eval_jaxpr(parts.linear, [*xs[: len(kept)], *residuals, *xs[len(kept) + m :]])

    avals = [jaxpr.in_avals[k] for k in kept]
    avals += [*first.out_avals[n:], *parts.linear.in_avals[len(kept) + m :]]
    later = trace_closed(linear, avals, name=jaxpr.name)
    vary = [names_of(c) for c in ins]
    found, (middle, _) = Uniformity(), uniformity(first, vary)
    found.jaxpr(later, [*[vary[k] for k in kept], *middle[n:], *only(nonzero, vary)])
    return first, solved_as_one(later, found.solves), tuple(kept), tuple(parts.mask)


@made_once
def _transposed(
    jaxpr: Jaxpr, linear: tuple, nonzero: tuple, axes: Axes, ins: tuple, outs: tuple
) -> tuple[Jaxpr, tuple[bool, ...]]:
    """Backwards: what went to all members comes back as a sum, what all gave as one in equal parts."""
    back, mask = transpose_jaxpr(jaxpr, linear, nonzero)
    names = [n for n, _ in axes]
    cuts = only(mask, only(linear, ins))
    seeds = only(nonzero, outs)
    n = len(back.inputs) - len(seeds)

    def fn(*xs: Array) -> list[Array]:
        cts = [
            shared(x, prod([size for a, size in axes if a not in names_of(c)]))
            for x, c in zip(xs[n:], seeds)
        ]
        found = eval_jaxpr(back, [*xs[:n], *cts])
        missing = [tuple([a for a in names if a not in names_of(c)]) for c in cuts]
        return [PSum(m)(x) if m else x for x, m in zip(found, missing)]

    return trace_closed(fn, back.in_avals, name=jaxpr.name), mask


def varying(prim: Members) -> list[frozenset]:
    """The axes along which each result may differ."""
    return uniformity(prim.jaxpr, [names_of(c) for c in prim.ins])[0]


def _team(prim: Members) -> Running:
    key = ("team", prim.axes, prim.ins, prim.outs, prim.backend, config.progress.value)
    return prim.jaxpr.once(key, lambda: Running(prim))


__all__ = [
    "Axes",
    "Cut",
    "Members",
    "cut_parts",
    "joined",
    "names_of",
    "part_shape",
    "run_batched",
    "varying",
]
