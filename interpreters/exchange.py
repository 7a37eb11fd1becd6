"""Exchanges: collectives between members that run at once, with what they are known to be numbered.

Lowering to point-to-point communication of a fixed layout (MPI 4.1, ch. 6): the program of one member
speaks of names of axes; for a team of members, numbered in row-major order along all axes, each
collective becomes the arrangement of its operand in rows, an `Exchange` of these within the groups of a
partition of the members, and the arrangement of what comes back.

Input: one member's jaxpr, and the axes.
Output: the jaxpr with exchanges; the partitions they name by number; what and where each of them is.
Legal when: all names of collectives are those of the axes.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, Jaxpr
from fnx.core.primitive import Primitive
from fnx.core.recipe import Library, Operand, Recipe
from fnx.core.source import Source
from fnx.ops.structure.basic import convert, move_axis, reshape

from .collectives import (
    AllGather,
    AllToAll,
    AxisIndex,
    Collective,
    PPermute,
    ReduceScatter,
)
from .rewrite import splice, with_jaxprs
from .trace import trace_closed

Partition = tuple[tuple[int, ...], ...]
_ROWS = {"gather": (0, 1), "reduce_scatter": (1, 0), "all_to_all": (1, 1)}  # axes before a batch's
_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Exchange(Primitive):
    """What members of a group give each other: `site` numbers the exchanges of a program.

    `kind`: "reduce", "gather", "reduce_scatter", "all_to_all", "permute" or "index"; `op` is that of
    reductions; `partition` the number of the partition whose groups have `size` members; `sources`, of a
    permutation, whose operand each member of a group gets, -1 for zeros.
    """

    kind: str
    site: int
    partition: int
    size: int
    op: str = ""
    sources: tuple[int, ...] = ()
    name = "exchange"
    exchanges = True

    def input_output_aliases(self) -> dict[int, int]:
        return {0: 0} if self.kind == "reduce" else {}

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        if self.kind == "index":
            return (ShapedArray((), np.dtype(np.int32)),)
        (x,) = avals
        if self.kind == "gather":
            return (x.update(shape=(self.size, *x.shape)),)
        return (x.update(shape=x.shape[1:]),) if self.kind == "reduce_scatter" else (x,)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        # Rows stay in front; the batch axis goes with what is in them.
        rows_in, rows_out = _ROWS.get(self.kind, (0, 0))
        return (self(move_axis(args[0], axes[0], rows_in)),), (rows_out,)

    def lower(self, *operands: Operand) -> Recipe:
        params = (self.kind, self.site, self.partition, self.size, self.op, self.sources)
        return Library("exchange", operands, params)


class _Rows:
    """Exchanges by the members of a partition's groups."""

    def __init__(self, site: int, partition: int, size: int):
        self.what, self.size = (site, partition, size), size

    def reduced(self, kind: str, x: Array, op: str) -> Array:
        """A reduction; of halves in float32, so that sums are rounded once."""
        exchange = Exchange(kind, *self.what, op)
        if x.dtype.name not in _HALVES:
            return exchange(x)
        return convert(exchange(convert(x, np.dtype(np.float32))), x.dtype)


def _expressed(prim: Any, x: Array, rows: _Rows) -> Array:
    """A collective as an exchange of rows, and what arranges them."""
    what = rows.what
    if isinstance(prim, PPermute):
        source = {b: a for a, b in prim.perm}
        return Exchange(
            "permute", *what, sources=tuple([source.get(k, -1) for k in range(rows.size)])
        )(x)
    if isinstance(prim, AllGather):
        d, out = prim.all_gather_dimension, Exchange("gather", *what)(x)
        return _merged(move_axis(out, 0, d), d) if prim.tiled else move_axis(out, 0, d)
    if isinstance(prim, ReduceScatter):
        return rows.reduced("reduce_scatter", _parts(x, prim.scatter_dimension, prim), "sum")
    if isinstance(prim, AllToAll):
        c, out = prim.concat_axis, Exchange("all_to_all", *what)(_parts(x, prim.split_axis, prim))
        return _merged(move_axis(out, 0, c), c) if prim.tiled else move_axis(out, 0, c)
    return rows.reduced("reduce", x, getattr(prim, "op", "sum"))


def _parts(x: Array, axis: int, prim: Any) -> Array:
    """The parts along an axis that go to each member, as rows."""
    if prim.tiled:
        shape, n = x.shape, prim.axis_size
        x = reshape(x, (*shape[:axis], n, shape[axis] // n, *shape[axis + 1 :]))
    return move_axis(x, axis, 0)


def _merged(x: Array, axis: int) -> Array:
    """An axis and the one behind it as one."""
    shape = x.shape
    return reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


class _Exchanges:
    """Numbers partitions and sites while a program is rewritten."""

    def __init__(self, axes: Mapping[Hashable, int], call: Callable[[Primitive], Primitive]):
        self.axes, self.call = axes, call
        self.partitions: dict[Partition, int] = {}
        self.places: list[str] = []

    def jaxpr(self, jaxpr: Jaxpr) -> Jaxpr:
        """The jaxpr, and those in it, with exchanges for collectives."""
        eqns: list[Eqn] = []
        outs = {}
        for e in jaxpr.eqns:
            atoms = [outs.get(a, a) for a in e.inputs]
            if isinstance(e.prim, Collective):
                new = splice(self._made(e), atoms, eqns)
                outs.update(zip(e.outs, new, strict=True))
            else:
                eqns.append(
                    Eqn(with_jaxprs(self.call(e.prim), self.jaxpr), atoms, e.outs, e.source)
                )
        return jaxpr.with_eqns(eqns, [outs.get(o, o) for o in jaxpr.outs])  # type: ignore

    def _made(self, e: Eqn) -> Jaxpr:
        prim: Any = e.prim
        avals = [a.aval for a in e.inputs]

        def express(*xs: Array) -> list[Array]:
            names = prim.axis_names
            groups = self._groups(names, prim.groups)
            number = self.partitions.setdefault(groups, len(self.partitions))
            site = len(self.places)
            self.places.append(_place(prim.name, avals, e.source))
            size = len(groups[0])
            if isinstance(prim, AxisIndex):
                return [Exchange("index", site, number, size).apply()[0]]
            return [_expressed(prim, xs[0], _Rows(site, number, size))]

        return trace_closed(express, avals)

    def _groups(self, names: Sequence[Hashable], groups: Any) -> Partition:
        """The members that a collective over these axes is between."""
        shape = tuple(self.axes.values())
        order = list(self.axes)
        numbers = np.arange(prod(shape)).reshape(shape)
        along = [order.index(n) for n in names]
        rest = [k for k in range(len(shape)) if k not in along]
        rows = numbers.transpose(*rest, *along).reshape(-1, prod(shape[k] for k in along))
        if groups is not None:
            rows = np.concatenate([rows[:, list(g)] for g in groups])
        return tuple([tuple(map(int, row)) for row in rows])


def _place(name: str, avals: Sequence[ShapedArray], source: Source | None) -> str:
    of = f" of {avals[0].update(weak_type=False).str_short()}" if avals else ""
    return f"{name}{of}" + (f" at {source}" if source is not None else "")


def exchanging(
    jaxpr: Jaxpr, axes: Mapping[Hashable, int], call: Callable[[Primitive], Primitive]
) -> tuple[Jaxpr, list[Partition], list[str]]:
    """One member's jaxpr with exchanges, their partitions, and where the user wrote each.

    `call` makes of an equation's primitive what is rewritten in its place.
    """
    made = _Exchanges(axes, call)
    new = made.jaxpr(jaxpr)
    return new, list(made.partitions), made.places


__all__ = ["Exchange", "Partition", "exchanging"]
