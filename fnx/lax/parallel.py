"""Collectives: psum, all_gather, ppermute and their kin, between the members of named axes."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fnx import numpy as jnp
from fnx.core.array import Array
from fnx.core.config import checked_axes
from fnx.core.dtypes import kind, to_inexact
from fnx.core.errors import InvalidValue
from fnx.interpreters import collectives as ops
from fnx.interpreters.spmd import axis_size as _size_of
from fnx.interpreters.variation import cast
from fnx.numpy.arrays.util import canonical_axis, named, to_array
from fnx.ops.base.broadcast import Sum
from fnx.ops.elementwise.convert import convert
from fnx.pytree import operations

__all__ = [
    "all_gather",
    "all_to_all",
    "axis_index",
    "axis_size",
    "pbroadcast",
    "pcast",
    "pmax",
    "pmean",
    "pmin",
    "ppermute",
    "pshuffle",
    "psum",
    "psum_scatter",
    "pswapaxes",
    "pvary",
]

AxisName = Hashable
Tree = Any
_PYTHON = (bool, int, float, complex)


def _names(axis_name: Any) -> tuple[AxisName, ...]:
    """One or several names, each of which is bound."""
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for name in names:
        _size_of(name)
    return names


def _groups(groups: Any, names: tuple[AxisName, ...], even: bool = True) -> ops.Groups:
    """Groups as tuples, checked: each member is in one, and, if `even`, all have one size."""
    if groups is None:
        return None
    found = tuple([tuple([int(k) for k in group]) for group in groups])
    size = axis_size(names)
    if sorted(k for group in found for k in group) != list(range(size)):
        what = f"the axis {names[0]!r}" if len(names) == 1 else f"the axes {names}"
        raise InvalidValue(
            f"axis_index_groups {found} must hold each index of {what}, 0 to {size - 1}, once"
        )
    if even and len({len(group) for group in found}) != 1:
        raise InvalidValue(f"axis_index_groups {found} must be of equal sizes")
    return found


def _is_gathered(names: tuple[AxisName, ...], groups: ops.Groups) -> bool:
    """Whether collectives within groups are made of what all members have."""
    return groups is not None and (len(names) > 1 or len({len(g) for g in groups}) > 1)


class _Group:
    """The group of a member, whose groups are of several named axes, or of different sizes."""

    def __init__(self, names: tuple[AxisName, ...], groups: Any):
        self.names, self.index = names, axis_index(names)
        longest = max(len(g) for g in groups)
        self.table = np.zeros(
            (axis_size(names), longest), np.int32
        )  # the members of each one's group
        self.sizes, self.places = (np.zeros(len(self.table), np.int32) for _ in range(2))
        for group in groups:
            for place, k in enumerate(group):
                self.table[k] = [*group, *[group[0]] * (longest - len(group))]
                self.sizes[k], self.places[k] = len(group), place

    def of(self, table: np.ndarray) -> Array:
        """What a table has for this member."""
        return jnp.asarray(table)[self.index]

    def rows(self, v: Array) -> Array:
        """`v` of the members, in order, along a first axis; the first one's again where there are fewer."""
        return all_gather(v, self.names)[self.of(self.table)]

    def sum(self, v: Array) -> Array:
        rows, size = self.rows(v), self.of(self.sizes)
        known = jnp.arange(rows.shape[0], dtype=size.dtype).reshape((-1, *[1] * v.ndim)) < size
        return jnp.sum(jnp.where(known, rows, jnp.zeros((), v.dtype)), 0, dtype=v.dtype)


def _group_size(names: tuple[AxisName, ...], groups: ops.Groups) -> int:
    return axis_size(names) if groups is None else len(groups[0])


def _map(fn: Callable[[Array], Any], x: Tree, what: str) -> Tree:
    return operations.tree_map(lambda leaf: fn(to_array(leaf, what)), x)


# --- where a member is ---------------------------------------------------------------------------


def axis_size(axis_name: Any) -> int:
    """The number of members of a named axis, or of several together; NameError if one is not bound.

    >>> fnx.vmap(lambda x: x / lax.axis_size("i"), axis_name="i")(jnp.ones(4))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float64)
    """
    if isinstance(axis_name, (tuple, list)):
        size = 1
        for name in axis_name:
            size *= _size_of(name)
        return size
    return _size_of(axis_name)


def axis_index(axis_name: Any) -> Array:
    """The number of the member along a named axis, an int32; of several axes, the last runs fastest.

    >>> fnx.vmap(lambda x: lax.axis_index("i"), axis_name="i")(jnp.ones(3))
    Array([0, 1, 2], dtype=int32)
    """
    names = _names(axis_name)
    index = ops.AxisIndex(names[0])()
    for name in names[1:]:
        index = index * _size_of(name) + ops.AxisIndex(name)()
    return index


# --- reductions --------------------------------------------------------------------------------


def psum(x: Tree, axis_name: Any, *, axis_index_groups: Any = None) -> Tree:
    """The sum over the members of a named axis, or of several, of each leaf; all members get it.

    A Python number or NumPy array is the same in all members, so that `psum(1, name)` is the size of the
    axis, known while tracing. Integers among the names are axes of the operand. NameError for a
    name that is not bound.

    >>> fnx.vmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(jnp.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float64)
    """
    given = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    own = tuple([a for a in given if type(a) is int])
    names = _names(tuple([a for a in given if type(a) is not int]))
    groups = _groups(axis_index_groups, names, even=False)
    group = _Group(names, groups) if _is_gathered(names, groups) else None
    even = group is None or len(set(group.sizes.tolist())) == 1
    size = _group_size(names, groups) if even else group.of(group.sizes)  # type: ignore[union-attr]

    def one(leaf: Any) -> Any:
        if isinstance(leaf, _PYTHON) and not own:
            return leaf * size
        if isinstance(leaf, (np.ndarray, np.generic)) and not own:
            return leaf * np.asarray(size, leaf.dtype if leaf.dtype.kind != "b" else np.int32)
        v = to_array(leaf, "psum")
        v = convert(v, np.dtype(np.int32)) if kind(v.dtype) == "b" else v
        v = Sum(tuple([canonical_axis(a, v.ndim) for a in own]))(v) if own else v
        if group is not None:
            return group.sum(v)
        return ops.PSum(names, groups)(v) if names else v

    return operations.tree_map(one, x)


def pmean(x: Tree, axis_name: Any, *, axis_index_groups: Any = None) -> Tree:
    """The mean over the members of a named axis, or of several; integers make floats.

    >>> fnx.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")(jnp.array([1.0, 3.0]))
    Array([-1.,  1.], dtype=float64)
    """
    count = psum(1, axis_name, axis_index_groups=axis_index_groups)
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)

    def share(v: Any) -> Any:
        own = isinstance(count, Array) and isinstance(v, Array)  # groups of different sizes
        return v / (convert(count, to_inexact(v.dtype)) if own else count)

    return operations.tree_map(share, total)


def _extremum(name: str, prim: Any, which: str, gives: str) -> Callable:
    doc = f"""The {which} over the members of a named axis, or of several, element by element.

    NameError for a name that is not bound.

    >>> fnx.vmap(lambda x: lax.{name}(x, "i"), axis_name="i")(jnp.array([1, 5, 2]))
    Array({gives}, dtype=int64)
    """

    @named(name, doc)
    def fn(x: Tree, axis_name: Any, *, axis_index_groups: Any = None) -> Tree:
        names = _names(axis_name)
        groups = _groups(axis_index_groups, names, even=False)
        if not _is_gathered(names, groups):
            return _map(prim(names, groups), x, name)
        group, reduce = _Group(names, groups), jnp.max if prim is ops.PMax else jnp.min
        return _map(lambda v: reduce(group.rows(v), 0), x, name)

    return fn


pmax = _extremum("pmax", ops.PMax, "largest", "[5, 5, 5]")
pmin = _extremum("pmin", ops.PMin, "smallest", "[1, 1, 1]")


# --- exchanges ---------------------------------------------------------------------------------


def ppermute(x: Tree, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Tree:
    """For each pair (a, b) of `perm`, member b gets `x` of member a; members that get nothing have zeros.

    ValueError if a member would send or get twice, or is none.

    >>> fnx.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")(jnp.array([4, 5, 6]))
    Array([0, 4, 5], dtype=int64)
    """
    names = _names(axis_name)
    pairs = tuple([(int(a), int(b)) for a, b in perm])
    size = axis_size(names)
    for ends in zip(*pairs):
        if len(set(ends)) != len(ends) or not all(0 <= k < size for k in ends):
            raise InvalidValue(
                f"ppermute perm {pairs} must be pairs (source, destination) of members 0 to {size - 1}, "
                "each of which is at most once a source and once a destination"
            )
    if len(names) == 1:
        return _map(ops.PPermute(names[0], pairs), x, "ppermute")
    source = np.full(size, -1)
    for a, b in pairs:
        source[b] = a

    def one(v: Array) -> Array:
        at = jnp.asarray(source)[axis_index(names)]
        return jnp.where(at < 0, jnp.zeros((), v.dtype), all_gather(v, names)[at])

    return _map(one, x, "ppermute")


def pshuffle(x: Tree, axis_name: Any, perm: Sequence[int]) -> Tree:
    """Member k gets `x` of member `perm[k]`; ValueError unless `perm` holds each member once.

    >>> fnx.vmap(lambda x: lax.pshuffle(x, "i", [2, 0, 1]), axis_name="i")(jnp.array([4, 5, 6]))
    Array([6, 4, 5], dtype=int64)
    """
    size = axis_size(_names(axis_name))
    if sorted(perm) != list(range(size)):
        raise InvalidValue(
            f"pshuffle perm {list(perm)} must hold each member, 0 to {size - 1}, once"
        )
    return ppermute(x, axis_name, [(int(a), k) for k, a in enumerate(perm)])


def pbroadcast(x: Tree, axis_name: Any, source: int) -> Tree:
    """All members get `x` of member `source`.

    >>> fnx.vmap(lambda x: x - lax.pbroadcast(x, "i", 0), axis_name="i")(jnp.array([4.0, 5.0]))
    Array([0., 1.], dtype=float64)
    """
    return _map(lambda v: all_gather(v, axis_name)[source], x, "pbroadcast")


def pcast(x: Tree, axis_name: Any = None, *, to: str) -> Tree:
    """`x`, whose type says within `shard_map` that it varies along the axes, where `to` is 'varying'.

    Its cotangents are then each member's own. ValueError for another `to` than 'varying', 'reduced' or
    'unreduced', and for what varies along one of them already.

    >>> fnx.vmap(lambda x: lax.pcast(x, "i", to="varying"), axis_name="i")(jnp.arange(3))
    Array([0, 1, 2], dtype=int64)
    """
    if to not in ("varying", "reduced", "unreduced"):
        raise InvalidValue(f"pcast to={to!r}; expected 'varying', 'reduced' or 'unreduced'")
    names = () if axis_name is None else _names(axis_name)
    if to != "varying":
        return x

    def one(v: Array) -> Array:
        own = checked_axes.get().intersection(names)
        if own & v.aval.vma:
            raise InvalidValue(
                f"pcast to 'varying' along {names} of what varies along {sorted(map(str, v.aval.vma))} "
                "already"
            )
        return cast(v, v.aval.vma | own) if own else v

    return _map(one, x, "pcast")


def pvary(x: Tree, axis_name: Any) -> Tree:
    """`x` itself, as `pcast(x, axis_name, to="varying")`.

    >>> fnx.vmap(lambda x: lax.pvary(x, "i"), axis_name="i")(jnp.arange(3))
    Array([0, 1, 2], dtype=int64)
    """
    return pcast(x, axis_name, to="varying")


def all_gather(
    x: Tree,
    axis_name: Any,
    *,
    axis_index_groups: Any = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> Tree:
    """`x` of all members, stacked along a new `axis`, or with `tiled` one after the other along an old one.

    Its type within `shard_map` says that it varies, unless `to` is 'invarying': ask for that where the
    whole is one value of all members, which has one cotangent, too.

    >>> fnx.vmap(lambda x: lax.all_gather(x, "i"), axis_name="i")(jnp.array([4.0, 5.0]))
    Array([[4., 5.],
           [4., 5.]], dtype=float64)
    """
    names = _names(axis_name)
    groups = _groups(axis_index_groups, names)
    if to not in ("varying", "reduced", "invarying"):
        raise InvalidValue(f"all_gather to={to!r}; expected 'varying', 'reduced' or 'invarying'")

    def one(v: Array) -> Array:
        d = canonical_axis(axis, v.ndim if tiled else v.ndim + 1)
        shape = v.shape
        if _is_gathered(names, groups):
            rows = jnp.moveaxis(_Group(names, groups).rows(v), 0, d)
            return jnp.reshape(rows, (*shape[:d], -1, *shape[d + 1 :])) if tiled else rows
        for name in reversed(names):
            size = _group_size((name,), groups)
            v = ops.AllGather(d, groups, name, size, tiled)(v)
        if not tiled and len(names) > 1:
            v = jnp.reshape(v, (*shape[:d], axis_size(names), *shape[d:]))
        return cast(v, v.aval.vma.difference(names)) if to == "invarying" else v

    return _map(one, x, "all_gather")


def psum_scatter(
    x: Tree,
    axis_name: Any,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Tree:
    """As `psum`, of which member k gets row k of `scatter_dimension`, or with `tiled` block k.

    ValueError if the dimension cannot be dealt out to the members.

    >>> fnx.vmap(lambda x: lax.psum_scatter(x, "i"), axis_name="i")(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([4., 6.], dtype=float64)
    """
    names = _names(axis_name)
    groups = _groups(axis_index_groups, names)

    def one(v: Array) -> Array:
        d = canonical_axis(scatter_dimension, v.ndim)
        ops.check_divisible("psum_scatter", v.shape, d, _group_size(names, groups), tiled)
        if _is_gathered(names, groups):
            group = _Group(names, groups)
            parts = _parts(group.sum(v), d, _group_size(names, groups), tiled)
            return jnp.take(parts, group.of(group.places), axis=d)
        if len(names) > 1 and not tiled:
            sizes = [_size_of(n) for n in names]
            v = jnp.reshape(v, (*v.shape[:d], *sizes, *v.shape[d + 1 :]))
        for name in names:
            v = ops.ReduceScatter(groups, name, _group_size((name,), groups), d, tiled)(v)
        return v

    return _map(one, x, "psum_scatter")


def _parts(v: Array, axis: int, count: int, tiled: bool) -> Array:
    """An array with its parts along an axis, which are elements, or blocks that keep their own axis."""
    if not tiled:
        return v
    return jnp.reshape(v, (*v.shape[:axis], count, v.shape[axis] // count, *v.shape[axis + 1 :]))


def all_to_all(
    x: Tree,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: Any = None,
    tiled: bool = False,
) -> Tree:
    """Member k gets the k-th part along `split_axis` of all members, put together along `concat_axis`.

    Without `tiled` the parts are elements: `split_axis`, of the size of the named axis, disappears,
    and `concat_axis` is new. With it, parts are blocks and stay where they are. ValueError if
    `split_axis` cannot be dealt out to the members.

    >>> fnx.vmap(lambda x: lax.all_to_all(x, "i", 0, 0), axis_name="i")(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array([[1., 3.],
           [2., 4.]], dtype=float64)
    """
    names = _names(axis_name)
    groups = _groups(axis_index_groups, names)
    size = _group_size(names, groups)

    def one(v: Array) -> Array:
        s, c = canonical_axis(split_axis, v.ndim), canonical_axis(concat_axis, v.ndim)
        ops.check_divisible("all_to_all", v.shape, s, size, tiled)
        if len(names) == 1:
            return ops.AllToAll(groups, names[0], size, c, s, tiled)(v)
        v = _parts(v, s, size, tiled)
        if groups is None:
            parts = jnp.take(all_gather(v, names), axis_index(names), axis=s + 1)
        else:
            group = _Group(names, groups)
            parts = jnp.take(group.rows(v), group.of(group.places), axis=s + 1)
        out = jnp.moveaxis(parts, 0, c)
        if not tiled:
            return out
        shape = out.shape
        return jnp.reshape(out, (*shape[:c], shape[c] * shape[c + 1], *shape[c + 2 :]))

    return _map(one, x, "all_to_all")


def pswapaxes(x: Tree, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Tree:
    """Exchange the named axis with an axis of `x` of the same size.

    >>> fnx.vmap(lambda x: lax.pswapaxes(x, "i", 0), axis_name="i")(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int64)
    """
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)
