"""Variation: along which axes of a mesh a member's values vary, and derivatives that know of it.

In the program of one member (`shard_map`) a value varies along the axes that its type names; along the
others it is one value, of which each member has a copy. Transposition takes copies for values of their
own, so that the cotangents of the copies sum up to that of the value. Where a user hands in the cotangent
of such a value each copy gets an equal part, and where a user gets one it is the sum.

Input: cotangents, and the types of what they belong to.
Output: the same, as transposition or as the user has them.
Legal when: all members exchange alike; axes along which nothing varies are left alone.
Costs: an exchange of each cotangent of what does not vary, at the end and not within loops.
"""

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.axis_size import axis_name_of
from fnx.core.config import checked_axes
from fnx.core.cost import SELECTION
from fnx.core.errors import TangentMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, eval_jaxpr
from fnx.core.recipe import Operand, Point, Recipe
from fnx.ops.base.linear import Linear
from fnx.ops.elementwise.arithmetic import div
from fnx.ops.structure.basic import reshape, scalar, slice_axis

from .batching import axis_names, place_axis
from .operands import given, only, spread
from .spmd import Name, axis_size
from .trace import trace

Names = frozenset[Name]


@dataclass(frozen=True)
class PCast(Linear):
    """The operand, whose type says that it varies along `names`, or, not `varying`, that it does not."""

    names: tuple[Name, ...]
    varying: bool = True
    name = "pcast"
    cost = SELECTION

    @property
    def axis_names(self) -> tuple[Name, ...]:
        """Names to which it means something: where members are a batch that types speak of."""
        return tuple([n for n in self.names if n in checked_axes.get()])

    def vary(self, names: frozenset) -> frozenset:
        return names.union(self.names) if self.varying else names.difference(self.names)

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (x,)

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return x

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return cts

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        (x,), (axis,), name = args, axes, axis_name_of(size)
        rest = PCast(tuple([n for n in self.names if n != name]), self.varying)
        if name is not None and name in self.axis_names:
            if self.varying:
                x, axis = place_axis(size, x, axis, 0), 0
            elif axis is not None:
                shape = x.shape[:axis] + x.shape[axis + 1 :]
                x, axis = reshape(slice_axis(x, 0, 1, axis), shape), None
        return (rest(x) if rest.names else x,), (axis,)

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        return Point(x)


def cast(x: Array, names: Names) -> Array:
    """An array whose type says that it varies along `names`, and no others."""
    if not checked_axes.get():
        return x
    more, fewer = names - x.aval.vma, x.aval.vma - names
    x = PCast(_ordered(more))(x) if more else x
    return PCast(_ordered(fewer), False)(x) if fewer else x


def like(x: Array, aval: ShapedArray) -> Array:
    """An array whose type says that it varies at least as what `aval` is the type of."""
    more = aval.vma - x.aval.vma if checked_axes.get() else None
    return PCast(_ordered(more))(x) if more else x


def _ordered(names: Iterable[Name]) -> tuple[Name, ...]:
    return tuple(sorted(names, key=str))


def shared(ct: Array, count: int) -> Array:
    """The part of a cotangent that each of so many copies of a value has: the same for all."""
    return div(ct, scalar(count, ct.dtype)) if count > 1 else ct


def moving(eqns: Iterable[Eqn]) -> Names:
    """The axes along which something in a derivative varies."""
    checked = checked_axes.get()
    found: set[Name] = set()
    if checked:
        for e in eqns:
            found.update(*[a.aval.vma for a in (*e.inputs, *e.outs)], axis_names(e.prim))
    return checked.intersection(found)


def parted(cts: Sequence, avals: Sequence[ShapedArray], names: Names) -> Sequence:
    """Cotangents of values of types `avals` as those of all members' copies."""
    if not names:
        return cts
    return [
        None if ct is None else shared(ct, prod([axis_size(n) for n in names - a.vma]))
        for ct, a in zip(cts, avals, strict=True)
    ]


def together(cts: Sequence, avals: Sequence[ShapedArray], names: Names) -> list:
    """Of cotangents of all members' copies, those of the values of types `avals`."""
    return [ct if ct is None else _sum(ct, a, names) for ct, a in zip(cts, avals, strict=True)]


def _sum(ct: Array, aval: ShapedArray, names: Names) -> Array:
    from .collectives import PSum  # here, since most programs have none

    missing = _ordered(names - aval.vma)
    return cast(PSum(missing)(ct) if missing else ct, aval.vma)


def pulled(
    pull: Callable[[Sequence], Sequence],
    cts: Sequence,
    outs: Sequence[ShapedArray],
    ins: Sequence[ShapedArray],
    eqns: Iterable[Eqn],
) -> Sequence:
    """What `pull`, the transpose of linear `eqns`, makes of cotangents of `outs`: those of `ins`."""
    if not checked_axes.get():
        return pull(cts)
    names = moving(eqns)
    return together(pull(parted(cts, outs, names)), ins, names)


def rules_of_members(
    fwd: Callable, bwd: Callable, results: Callable[[], int], outs: Sequence[ShapedArray],
    ins: Sequence[ShapedArray], names: Names, what: str,
) -> tuple[Callable, Callable]:  # fmt: skip
    """A user's two rules, as `bwd` is one of cotangents of all members' copies, along `names`.

    Types say along which axes values vary in the rules, too, wherever these are called.
    """
    checked, kept = checked_axes.get(), []

    def forward(*values: Any) -> list:
        types = [*[a.vma for a in ins], *[Names()] * (len(values) - len(ins))]
        found, kept[:] = _checked(fwd, values, types, checked)
        return found

    def backward(*values: Any) -> list:
        n = len(values) - results()
        cts = together(values[n:], outs, names)
        types = [*kept[len(outs) :], *[a.vma for a in outs]]
        found, vary = _checked(bwd, (*values[:n], *cts), types, checked)
        check_variations(vary, found, ins, what)
        return list(parted(found, ins, names))

    return forward, backward


def _checked(
    fn: Callable, values: Sequence, types: Sequence[Names], checked: Names
) -> tuple[list, list[Names]]:
    """Results of a function, where types say along which axes values vary; and along which these do."""
    if checked_axes.get() >= checked:
        outs = list(fn(*values))
        return outs, [Names() if x is None else x.aval.vma for x in outs]
    mask, made = given(values), []

    def run(*xs: Array) -> list[Array]:
        outs = fn(*spread(mask, xs))
        made[:] = given(outs)
        return only(made, outs)

    xs = only(mask, values)
    avals = [x.aval.varying(names) for x, names in zip(xs, only(mask, types), strict=True)]
    token = checked_axes.set(checked)
    try:
        jaxpr, consts = trace(run, avals, what="a rule")
    finally:
        checked_axes.reset(token)
    outs = eval_jaxpr(jaxpr, [*consts, *xs])
    return list(spread(made, outs)), list(spread(made, [a.vma for a in jaxpr.out_avals], Names()))


def check_variations(
    vary: Sequence[Names], cts: Sequence, avals: Sequence[ShapedArray], what: str
) -> None:
    """Raise for cotangents that vary along axes of the mesh along which what they belong to does not."""
    for names, ct, aval in zip(vary, cts, avals, strict=True):
        if ct is not None and not names <= aval.vma:
            raise TangentMismatch(
                f"{what} varies along the mesh axes {said(names)}, but belongs to what varies along "
                f"{said(aval.vma)}; sum it over the members (psum), or let that vary, too, with "
                "lax.pcast(x, names, to='varying')"
            )


def check_cotangents(cts: Sequence, avals: Sequence[ShapedArray], what: str) -> None:
    """The same, of cotangents whose types say how they vary."""
    if checked_axes.get():
        vary = [Names() if ct is None else ct.aval.vma for ct in cts]
        check_variations(vary, cts, avals, what)


def along(aval: ShapedArray) -> Names:
    """The axes that are checked along which values of a type vary."""
    return aval.vma & checked_axes.get()


def said(names: Names) -> str:
    """Names of axes as errors write them."""
    return ", ".join(sorted(map(str, names))) or "none"
