"""vmap: a function of one batch element becomes a function of all at once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fnx.core import config
from fnx.core.array import Array, is_array_like
from fnx.core.axis_size import AxisSize
from fnx.core.errors import InvalidValue, TypeMismatch, entrance
from fnx.core.interpreter import current
from fnx.interpreters import batching
from fnx.interpreters.batching import from_elt, to_elt
from fnx.interpreters.vmappable import is_vmappable, vmappables
from fnx.pytree import operations
from fnx.pytree.flatten_fun import check_callable, flatten_arrays, name_of, wraps
from fnx.pytree.key_paths import keystr
from fnx.transforms.mutable_refs import Ref, RefGiven, ref_like, taken_out, write

_PYTHON = frozenset((bool, int, float, complex))


def flatten_axes(axes: Any, tree: Any, what: str, is_leaf: Any = None) -> list[int | None]:
    """One axis (or None) a leaf of `tree`, from a pytree prefix of axes."""
    missing = object()
    marked = operations.tree_map(
        lambda a: missing if a is None else a, axes, is_leaf=lambda a: a is None
    )
    found: list = []

    def check(axis: Any) -> None:
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, (int, np.integer))):
            raise TypeMismatch(f"{what} must be integers or None, got {axis!r}")

    def spread(axis: Any, part: Any) -> None:
        axis = None if axis is missing else axis
        check(axis)
        if axis is None or axis >= 0 or is_leaf is not None:
            found.extend([axis] * len(operations.tree_leaves(part, is_leaf)))
        else:  # counted from the end, where arrays of keys have an axis of words
            from fnx.numpy.arrays.key_arrays import is_keys

            leaves = operations.tree_leaves(part, is_leaf=is_keys)
            found.extend(axis - is_keys(x) for x in leaves)

    try:
        operations.tree_map(spread, marked, tree)
    except ValueError as error:
        for axis in operations.tree_leaves(axes):  # what is no axis is told before where it stands
            check(axis)
        raise InvalidValue(
            f"{what} must be a pytree prefix of what it describes: {axes!r} does not fit "
            f"{operations.shown(operations.tree_structure(tree))}"
        ) from error
    return found


def vmap(
    fun: Callable,
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: Any = None,
    axis_size: int | None = None,
    spmd_axis_name: Any = None,
    sum_match: bool = False,
) -> Callable:
    """The function that maps `fun` over an axis of its arguments, for all elements at once.

    `in_axes` is an axis, None (not mapped), or a pytree prefix of the positional arguments; keyword
    arguments are mapped over axis 0. `out_axes` likewise, of the result.

    TypeError for `in_axes` of another kind; ValueError for axes that an argument lacks, and for
    sizes that differ.

    >>> fnx.vmap(jnp.dot)(jnp.ones((4, 3)), jnp.ones((4, 3)))
    Array([3., 3., 3., 3.], dtype=float64)
    """
    del spmd_axis_name, sum_match  # they speak of devices, and of how JAX types sums
    check_callable(fun, "vmap")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    if in_axes is not None and not isinstance(in_axes, (int, np.integer, tuple)):
        raise TypeMismatch(
            "vmap in_axes must be an integer, None, or a tuple with an entry for each argument, got "
            f"{in_axes!r}"
        )

    @wraps(fun)
    @entrance
    def vmap_f(*args: Any, **kwargs: Any) -> Any:
        try:
            if vmappables:
                return _map_registered(fun, args, kwargs, in_axes, out_axes, axis_name, axis_size)
            return map_elements(fun, args, kwargs, in_axes, out_axes, axis_name, axis_size, _place)
        except RefGiven:
            return _map_refs(fun, args, kwargs, in_axes, out_axes, axis_name, axis_size)

    return vmap_f


def _map_refs(
    fun: Callable,
    args: tuple,
    kwargs: dict,
    in_axes: Any,
    out_axes: Any,
    name: Any,
    size: int | None,
) -> Any:
    """vmap of a function that gets mutable references: what they hold is an argument and a result."""
    what = f"vmap of {name_of(fun)}"
    refs, others, joined = taken_out((args, kwargs), what, rows=True)
    if not refs:
        raise RefGiven(f"a Ref was given to {what} where arrays are expected")
    axes = flatten_axes(in_axes, args, "vmap in_axes")
    axes += [0] * (len(refs) + len(others) - len(axes))
    held = [type(x) is Ref for x in operations.tree_leaves((args, kwargs))]
    places = [k for k, h in zip(axes, held) if h]

    def pure(values: list, *others: Any) -> tuple:
        given = list(map(ref_like, refs, values))
        positional, named = joined(given, others)
        out = fun(*positional, **named)
        return [r.value for r in given], out

    pure.__name__ = name_of(fun)
    rest = [k for k, h in zip(axes, held) if not h]
    values = [r.value for r in refs]
    ends, out = map_elements(
        pure, (values, *others), {}, (places, *rest), (places, out_axes), name, size, _place
    )
    write(refs, ends)
    return out


class _Elsewhere(NamedTuple):
    """Stands, as a tree without leaves, where a value of a registered type does."""


def _map_registered(
    fun: Callable,
    args: tuple,
    kwargs: dict,
    in_axes: Any,
    out_axes: Any,
    name: Any,
    size: int | None,
) -> Any:
    """vmap where types are registered that are mapped by rules of their own."""
    given, treedef = operations.tree_flatten((args, kwargs), is_vmappable)
    axes = flatten_axes(in_axes, args, "vmap in_axes", is_vmappable)
    axes += [0] * (len(given) - len(axes))
    own = [(x, k) for x, k in zip(given, axes) if is_vmappable(x)]
    sizes = {x.shape[k] for x, k in own if k is not None} | ({size} - {None})
    if len(sizes) > 1:
        raise InvalidValue(
            f"vmap of {name_of(fun)} got inconsistent sizes for axes of "
            f"{', '.join(sorted({type(x).__name__ for x, _ in own}))}, or axis_size: {sorted(sizes)}. "
            "They must be equal; use in_axes to choose other axes, or None."
        )
    size = next(iter(sizes), None)
    inside: list = []
    out_axes_of_others: list = []

    def elements(*args: Any, **kwargs: Any) -> list:
        me, those = current.get(), iter(own)
        put = lambda x: to_elt(me, *next(those)) if type(x) is _Elsewhere else x
        positional, named = operations.tree_map(
            put, (args, kwargs), is_leaf=lambda x: type(x) is _Elsewhere
        )
        outs, structure = operations.tree_flatten(fun(*positional, **named), is_vmappable)
        dummy = operations.tree_unflatten(structure, outs)
        wanted = flatten_axes(out_axes, dummy, "vmap out_axes", is_vmappable)
        inside[:] = me, list(zip(outs, wanted)), structure
        out_axes_of_others[:] = [k for x, k in inside[1] if not is_vmappable(x)]
        return [x for x in outs if not is_vmappable(x)]

    elements.__name__ = name_of(fun)
    others = [_Elsewhere() if is_vmappable(x) else x for x in given]
    args, kwargs = operations.tree_unflatten(treedef, others)
    found = map_elements(elements, args, kwargs, in_axes, out_axes_of_others, name, size, _place)
    me, outs, structure = inside
    it = iter(found)
    whole = [from_elt(me, _place, x, k) if is_vmappable(x) else next(it) for x, k in outs]
    return operations.tree_unflatten(structure, whole)


Place = Callable[[int, Array, int | None, int | None], Array]


def map_elements(
    fun: Callable,
    args: tuple,
    kwargs: dict,
    in_axes: Any,
    out_axes: Any,
    axis_name: Any,
    axis_size: int | None,
    place: Place,
    what: str = "vmap",
    batch: Callable = batching.batch,
) -> Any:
    """`fun(*args, **kwargs)` of all; `place` puts each result's batch axis where `out_axes` says."""
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise InvalidValue(
            f"{what} in_axes must be an int, None, or a tuple with one entry for each of the "
            f"{len(args)} positional arguments of {name_of(fun)}; got {len(in_axes)} entries"
        )
    given, treedef = operations.tree_flatten((args, kwargs))
    axes = flatten_axes(in_axes, args, f"{what} in_axes")
    axes += [0] * (len(given) - len(axes))
    # What is not mapped is handed on as it is, unless NumPy's: a number that Python branches on, a
    # function, a setting.
    kept = () if what == "pmap" else _PYTHON
    mapped = [
        k is not None or (is_array_like(x) and type(x) not in kept) for x, k in zip(given, axes)
    ]
    leaves, _ = flatten_arrays(
        [x for x, m in zip(given, mapped) if m], f"arguments of a function under {what}"
    )
    axes = [k for k, m in zip(axes, mapped) if m]
    numbers = [n for n, m in enumerate(mapped) if m]
    label = lambda n: _place_of(args, kwargs, numbers[n])
    axes, size = _mapped_axes(leaves, axes, axis_size, f"{what} of {name_of(fun)}", label)
    structures: list = []

    def flat(*xs: Array) -> list[Array]:
        it = iter(xs)
        full = [next(it) if m else x for x, m in zip(given, mapped)]
        positional, named = operations.tree_unflatten(treedef, full)
        arrays, structure = flatten_arrays(fun(*positional, **named), f"results of {name_of(fun)}")
        structures.append(structure)
        return arrays

    devices = what == "pmap"
    sized: int = AxisSize(size, axis_name, devices) if devices or axis_name is not None else size
    outs, found = _explored(fun, what, batch)(flat, sized, leaves, axes)
    dummy = operations.tree_unflatten(structures[0], [object() for _ in outs])
    wanted = flatten_axes(out_axes, dummy, f"{what} out_axes")
    if place is _place:
        _check_unmapped(found, wanted, dummy, what)
    placed = [place(size, x, k, to) for x, k, to in zip(outs, found, wanted, strict=True)]
    return operations.tree_unflatten(structures[0], placed)


def _check_unmapped(found: list, wanted: list, dummy: Any, what: str) -> None:
    """Raise for a result that has a batch axis where `out_axes` says that it has none."""
    for j, (k, to) in enumerate(zip(found, wanted, strict=True)):
        if k is not None and to is None:
            path = operations.tree_flatten_with_path(dummy)[0][j][0]
            raise InvalidValue(
                f"at {what} out_axes{keystr(path)}, got axis spec None but output was batched on axis "
                f"{k}: the result differs between batch elements; give it an axis"
            )


def _explored(fun: Callable, what: str, batch: Callable) -> Callable:
    """What runs a function for all members: `batch` at once, or one by one while somebody looks."""
    exploration = config.exploration.get()
    return batch if exploration is None else exploration.batch(fun, what, batch)


def _place(size: int, x: Array, axis: int | None, to: int | None) -> Array:
    if to is None:
        return x
    return place_result(size, x, axis, to)


def place_result(size: int, x: Array, axis: int | None, to: int, what: str = "vmap") -> Array:
    """A result with its batch axis at `to`, which may count from the end."""
    rank = x.ndim if axis is not None else x.ndim + 1
    if not -rank <= to < rank:
        raise InvalidValue(f"{what} out_axes={to} is out of range for a result of rank {rank}")
    return batching.place_axis(size, x, axis, to % rank)


def _place_of(args: tuple, kwargs: dict, n: int) -> str:
    """What messages call a leaf of the arguments, by number."""
    path = operations.tree_leaves_with_path((args, kwargs))[n][0]
    return f"{('args', 'kwargs')[path[0].idx]}{operations.keystr(path[1:])}"


def _mapped_axes(
    leaves: list[Array],
    axes: list[int | None],
    axis_size: int | None,
    what: str,
    label: Callable[[int], str],
) -> tuple[list[int | None], int]:
    """Which axis of each leaf is mapped, counted from the first, and how many members there are."""
    sizes: dict[int, list[int]] = {}  # and the leaves that have them, by number
    out: list[int | None] = []
    for n, (x, k) in enumerate(zip(leaves, axes, strict=True)):
        if k is None:
            out.append(None)
            continue
        if not -x.ndim <= k < x.ndim:
            raise InvalidValue(
                f"{what} was asked to map axis {k} of {label(n)}, which has shape {x.shape} and {x.ndim} "
                "axes. Use in_axes=None for arguments that are not mapped."
            )
        k %= x.ndim
        sizes.setdefault(x.shape[k], []).append(n)
        out.append(k)
    if axis_size is not None:
        sizes.setdefault(axis_size, []).append(-1)
    if not sizes:
        raise InvalidValue(
            f"{what} needs at least one mapped argument, or axis_size; all in_axes are None"
        )
    if len(sizes) > 1:
        named = lambda n: "axis_size" if n < 0 else f"{label(n)} {leaves[n].aval.str_short()}"
        each = "; ".join(f"{size} of {', '.join(map(named, some))}" for size, some in sizes.items())
        raise InvalidValue(
            f"{what}: {what.split()[0]} got inconsistent sizes for array axes to be mapped: {each}. They "
            "must be equal; use in_axes to choose other axes, or None."
        )
    return out, next(iter(sizes))
