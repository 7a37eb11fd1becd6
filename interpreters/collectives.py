"""Collectives: operations between the members of named axes (MPI 4.1, ch. 6; XLA's collectives).

Each has two meanings of one result. `across` is the local case, all members in one program: a collective
travels down the interpreters to the `Batch` that bound its name, which hands its rule the size with the
name (`AxisSize`); there it becomes operations along the batch axis of the members (`batch_transport.py`).
`exchange` is one member's part: a collective whose name an `Spmd` binds stays an equation, and asks the
transport in force when it runs (core/transport.py), from compiled programs through a host call. For all
other batch axes it is an operation like any other.
"""

from typing import Any, ClassVar

import numpy as np

from fnx.core.array import Array
from fnx.core.aval import ShapedArray
from fnx.core.axis_size import axis_name_of
from fnx.core.config import checked_axes
from fnx.core.errors import InvalidValue, ShapeError
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive
from fnx.core.recipe import Host, Operand, Recipe
from fnx.core.transport import Groups as AllGroups
from fnx.core.transport import Transport, in_force
from fnx.ops.base.linear import Linear
from fnx.ops.elementwise.arithmetic import div, mul
from fnx.ops.elementwise.select import eq
from fnx.ops.structure.basic import convert, move_axis, reshape, scalar
from fnx.ops.structure.join import Iota

from .batch_transport import BatchTransport
from .batching import place_axis
from .spmd import Name

Groups = AllGroups | None

# --- collectives -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Collective(Primitive):
    """An operation between the members of named axes.

    `across(x, members)` performs it on members along axis 0 of `x`; it gives the result and the axis of
    its members, None if all have the same. `exchange(x, transport)` performs one member's part.
    `beside()` is the same collective for operands with one more axis in front.
    """

    exchanges = True
    borrows = True  # its `impl` keeps no operand, so that native code need not copy them for it

    @property
    def axis_names(self) -> tuple[Name, ...]:
        return (self.axis_name,)  # type: ignore[attr-defined]

    @property
    def groups(self) -> Groups:
        return getattr(self, "axis_index_groups", None)

    def across(self, x: Array, members: BatchTransport) -> tuple[Array, int | None]:
        raise NotImplementedError

    def beside(self) -> "Collective":
        return self

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (x,)

    def exchange(self, x: np.ndarray, transport: Transport) -> np.ndarray:
        raise NotImplementedError

    def impl(self, *values: np.ndarray) -> Any:
        (x,) = values
        for name in self.axis_names:
            transport = in_force(name, self.name)
            x = self.exchange(x, transport if self.groups is None else transport.split(self.groups))
        return x

    def lower(self, *operands: Operand) -> Recipe:
        return Host()

    def vary(self, names: frozenset) -> frozenset:
        return names.union(self.axis_names)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        name = axis_name_of(size)
        if name is None or name not in self.axis_names:
            return (self.beside()(move_axis(args[0], axes[0], 0)),), (0,)
        out, axis = _all_members(self, place_axis(size, args[0], axes[0], 0))
        if axis is None and name in checked_axes.get():  # whose type says that it varies
            out, axis = place_axis(size, out, axis, 0), 0
        return (out,), (axis,)


def _all_members(prim: Collective, x: Array) -> tuple[Array, int | None]:
    """The collective on members along axis 0 of `x`, within its groups."""
    members = BatchTransport(x.shape[0])
    if prim.groups is None:
        return prim.across(x, members)
    return members.within(prim.groups, x, prim.across)


def _of_sums(prim: Any, names: frozenset) -> frozenset:
    """Along which axes a reduction over members varies: of groups, each has its own."""
    return names.difference(prim.axes) if prim.groups is None else names.union(prim.axes)


@dataclass(frozen=True)
class PSum(Collective, Linear):
    """The sum over members."""

    axes: tuple[Name, ...]
    axis_index_groups: Groups = None
    name = "psum"

    @property
    def axis_names(self) -> tuple[Name, ...]:
        return self.axes

    def vary(self, names: frozenset) -> frozenset:
        return _of_sums(self, names)

    def across(self, x: Array, members: BatchTransport) -> tuple[Array, int | None]:
        return members.all_reduce(x, "sum")

    def exchange(self, x: np.ndarray, transport: Transport) -> np.ndarray:
        return transport.all_reduce(x, "sum")

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return (self(cts[0]),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return _reduced(self, size, args[0], axes[0])


def _reduced(prim: Any, size: int, x: Array, axis: int | None) -> tuple[tuple, tuple]:
    """The batch rule of reductions, which may be over several names."""
    name = axis_name_of(size)
    if name is None or name not in prim.axes:
        return (prim(x),), (axis,)
    if prim.axis_index_groups is not None:
        out, members = _all_members(prim, place_axis(size, x, axis, 0))
        return (out,), (members,)
    if axis is not None:
        x = _all_members(prim, move_axis(x, axis, 0))[0]
    elif isinstance(prim, PSum):
        x = mul(x, scalar(int(size), x.dtype))
    rest = tuple([a for a in prim.axes if a != name])
    return (type(prim)(rest)(x) if rest else x,), (None,)


@dataclass(frozen=True)
class _PExtremum(Collective):
    """The largest or smallest value of all members."""

    axes: tuple[Name, ...]
    axis_index_groups: Groups = None
    op: ClassVar[str]

    @property
    def axis_names(self) -> tuple[Name, ...]:
        return self.axes

    def vary(self, names: frozenset) -> frozenset:
        return _of_sums(self, names)

    def across(self, x: Array, members: BatchTransport) -> tuple[Array, int | None]:
        return members.all_reduce(x, self.op)

    def exchange(self, x: np.ndarray, transport: Transport) -> np.ndarray:
        return transport.all_reduce(x, self.op)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        # The tangent is shared evenly by all members that have the extremum, as in reduce_max.
        (x,), (t,) = primals, tangents
        out = self(x)
        total = PSum(self.axes, self.axis_index_groups)
        here = convert(eq(x, out), x.dtype)
        return (out,), (total(mul(t, div(here, total(here)))),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return _reduced(self, size, args[0], axes[0])


@dataclass(frozen=True)
class PMax(_PExtremum):
    """The largest of all members."""

    name = "pmax"
    op = "max"


@dataclass(frozen=True)
class PMin(_PExtremum):
    """The smallest of all members."""

    name = "pmin"
    op = "min"


@dataclass(frozen=True)
class PPermute(Collective, Linear):
    """Member b gets the operand of member a for each pair (a, b) of `perm`; the others get zeros."""

    axis_name: Name
    perm: tuple[tuple[int, int], ...]
    name = "ppermute"

    def across(self, x: Array, members: BatchTransport) -> tuple[Array, int | None]:
        return members.permute(x, self.perm)

    def exchange(self, x: np.ndarray, transport: Transport) -> np.ndarray:
        return transport.permute(x, self.perm)

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return (PPermute(self.axis_name, tuple([(b, a) for a, b in self.perm]))(cts[0]),)


@dataclass(frozen=True)
class AllGather(Collective, Linear):
    """The operands of all members, along a new axis or (tiled) one after the other along an old one."""

    all_gather_dimension: int
    axis_index_groups: Groups
    axis_name: Name
    axis_size: int  # of a group if there are groups
    tiled: bool
    name = "all_gather"

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        d, shape = self.all_gather_dimension, x.shape
        if self.tiled:
            return (x.update(shape=(*shape[:d], shape[d] * self.axis_size, *shape[d + 1 :])),)
        return (x.update(shape=(*shape[:d], self.axis_size, *shape[d:])),)

    def beside(self) -> "AllGather":
        d = self.all_gather_dimension + 1
        return AllGather(d, self.axis_index_groups, self.axis_name, self.axis_size, self.tiled)

    def across(self, x: Array, members: BatchTransport) -> tuple[Array, int | None]:
        (out, axis), d = members.all_gather(x), self.all_gather_dimension
        out = move_axis(out, 0, d)
        return (_merge(out, d) if self.tiled else out), axis

    def exchange(self, x: np.ndarray, transport: Transport) -> np.ndarray:
        d, out = self.all_gather_dimension, transport.all_gather(x)
        if self.tiled and d == 0:
            return out.reshape(-1, *x.shape[1:]) if x.size else np.concatenate(list(out))
        return np.concatenate(list(out), d) if self.tiled else np.moveaxis(out, 0, d)

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        d, groups = self.all_gather_dimension, self.axis_index_groups
        back = ReduceScatter(groups, self.axis_name, self.axis_size, d, self.tiled)
        return (back(cts[0]),)


@dataclass(frozen=True)
class ReduceScatter(Collective, Linear):
    """Of the sum over members, member k gets the k-th element, or (tiled) block, along a dimension."""

    axis_index_groups: Groups
    axis_name: Name
    axis_size: int  # of a group if there are groups
    scatter_dimension: int
    tiled: bool
    name = "reduce_scatter"

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        d, n, shape = self.scatter_dimension, self.axis_size, x.shape
        check_divisible("psum_scatter", shape, d, n, self.tiled)
        block = (shape[d] // n,) if self.tiled else ()
        return (x.update(shape=(*shape[:d], *block, *shape[d + 1 :])),)

    def beside(self) -> "ReduceScatter":
        d, groups = self.scatter_dimension + 1, self.axis_index_groups
        return ReduceScatter(groups, self.axis_name, self.axis_size, d, self.tiled)

    def across(self, x: Array, members: BatchTransport) -> tuple[Array, int | None]:
        d = self.scatter_dimension
        if self.tiled:
            x = _cut(x, d + 1, members.size)
        return members.reduce_scatter(x, "sum", d)

    def exchange(self, x: np.ndarray, transport: Transport) -> np.ndarray:
        return transport.reduce_scatter(_parts(x, self.scatter_dimension, self), "sum")

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        d, groups = self.scatter_dimension, self.axis_index_groups
        return (AllGather(d, groups, self.axis_name, self.axis_size, self.tiled)(cts[0]),)


@dataclass(frozen=True)
class AllToAll(Collective, Linear):
    """Member k gets the k-th part along `split_axis` of all, put together along `concat_axis`.

    Parts are elements, and the axis moves; or (tiled) blocks, which lie one after the other.
    """

    axis_index_groups: Groups
    axis_name: Name
    axis_size: int  # of a group if there are groups
    concat_axis: int
    split_axis: int
    tiled: bool
    name = "all_to_all"

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        s, c, n, shape = self.split_axis, self.concat_axis, self.axis_size, list(x.shape)
        check_divisible("all_to_all", x.shape, s, n, self.tiled)
        if self.tiled:
            shape[s] //= n
            shape[c] *= n
        else:
            del shape[s]
            shape.insert(c, n)
        return (x.update(shape=tuple(shape)),)

    def beside(self) -> "AllToAll":
        return self._along(self.split_axis + 1, self.concat_axis + 1)

    def _along(self, split: int, concat: int) -> "AllToAll":
        groups, n = self.axis_index_groups, self.axis_size
        return AllToAll(groups, self.axis_name, n, concat, split, self.tiled)

    def across(self, x: Array, members: BatchTransport) -> tuple[Array, int | None]:
        s, c = self.split_axis, self.concat_axis
        if self.tiled:
            x = _cut(x, s + 1, members.size)
        out, axis = members.all_to_all(move_axis(x, s + 1, 1))
        out = move_axis(out, 1, c + 1)
        return (_merge(out, c + 1) if self.tiled else out), axis

    def exchange(self, x: np.ndarray, transport: Transport) -> np.ndarray:
        out, c = transport.all_to_all(_parts(x, self.split_axis, self)), self.concat_axis
        return np.concatenate(list(out), c) if self.tiled else np.moveaxis(out, 0, c)

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return (self._along(self.concat_axis, self.split_axis)(cts[0]),)

    def params(self) -> dict[str, Any]:
        return {k: v for k, v in super().params().items() if k != "axis_size"}


@dataclass(frozen=True)
class AxisIndex(Collective):
    """The number of the member."""

    axis_name: Name
    name = "axis_index"

    def abstract(self) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (ShapedArray((), np.dtype(np.int32)),)

    def impl(self, *values: np.ndarray) -> Any:
        return np.asarray(in_force(self.axis_name, self.name).rank, np.int32)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (Iota(0, np.dtype(np.int32), (int(size),))(),), (0,)


def _merge(x: Array, axis: int) -> Array:
    """An axis and the one behind it as one."""
    shape = x.shape
    return reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]))


def _cut(x: Array, axis: int, parts: int) -> Array:
    """An axis as two: parts, and what is in them."""
    shape = x.shape
    return reshape(x, (*shape[:axis], parts, shape[axis] // parts, *shape[axis + 1 :]))


def _parts(x: np.ndarray, axis: int, prim: Any) -> np.ndarray:
    """The parts along an axis that go to each member, as rows."""
    if not prim.tiled:
        return np.ascontiguousarray(np.moveaxis(x, axis, 0))
    return np.stack(np.split(x, prim.axis_size, axis))


def check_divisible(what: str, shape: tuple[int, ...], axis: int, parts: int, tiled: bool) -> None:
    """Raise unless an axis can be dealt out to so many members."""
    if not 0 <= axis < len(shape):
        raise InvalidValue(f"{what} along axis {axis} of an operand of shape {shape}")
    if tiled and shape[axis] % parts:
        raise ShapeError(
            f"{what}(tiled=True) along axis {axis} of an operand of shape {shape}; expected a multiple "
            f"of the size of the named axis, {parts}"
        )
    if not tiled and shape[axis] != parts:
        raise ShapeError(
            f"{what} along axis {axis} of an operand of shape {shape}; expected the size of the named "
            f"axis, {parts}. For blocks of several elements use tiled=True."
        )
