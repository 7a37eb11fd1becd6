"""vmap: a function of one lane becomes a function of all lanes at once."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from fnx import tree_util
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, MissingRule, TypeMismatch
from fnx.flat import check_callable, flatten_arrays, name_of
from fnx.interpreters import batching


def flatten_axes(axes: Any, tree: Any, what: str) -> list[int | None]:
    """One axis (or None) a leaf of `tree`, from a pytree prefix of axes."""
    missing = object()
    marked = tree_util.tree_map(
        lambda a: missing if a is None else a, axes, is_leaf=lambda a: a is None
    )
    found: list = []

    def spread(axis: Any, part: Any) -> None:
        axis = None if axis is missing else axis
        if axis is not None and not isinstance(axis, (int, np.integer)):
            raise TypeMismatch(f"{what} must be integers or None, got {axis!r}")
        found.extend([axis] * len(tree_util.tree_leaves(part)))

    try:
        tree_util.tree_map(spread, marked, tree)
    except ValueError as error:
        raise InvalidValue(
            f"{what} must be a pytree prefix of what it describes: {axes!r} does not fit "
            f"{tree_util.tree_structure(tree)}"
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
    """The function that maps `fun` over an axis of its arguments, for all lanes at once.

    `in_axes` is an axis, None (not mapped), or a pytree prefix of the positional arguments; keyword
    arguments are mapped over axis 0. `out_axes` likewise, of the result.

    >>> import fnx.numpy as jnp
    >>> vmap(jnp.dot)(jnp.ones((4, 3)), jnp.ones((4, 3)))
    Array([3., 3., 3., 3.], dtype=float64)
    """
    del spmd_axis_name, sum_match
    check_callable(fun, "vmap")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)

    @wraps(fun)
    def vmap_f(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise InvalidValue(
                f"vmap in_axes must be an int, None, or a tuple with one entry for each of the "
                f"{len(args)} positional arguments of {name_of(fun)}; got {len(in_axes)} entries"
            )
        leaves, treedef = flatten_arrays((args, kwargs), "arguments of a vmapped function")
        axes = flatten_axes(in_axes, args, "vmap in_axes")
        axes += [0] * (len(leaves) - len(axes))
        axes, size = _mapped_axes(leaves, axes, axis_size, name_of(fun))
        structures: list = []

        def flat(*xs: Array) -> list[Array]:
            given, named = tree_util.tree_unflatten(treedef, xs)
            arrays, structure = flatten_arrays(fun(*given, **named), f"results of {name_of(fun)}")
            structures.append(structure)
            return arrays

        lanes = size if axis_name is None else batching.Lanes(size, axis_name)
        outs, found = batching.batch(flat, lanes, leaves, axes)
        dummy = tree_util.tree_unflatten(structures[0], [0] * len(outs))
        wanted = flatten_axes(out_axes, dummy, "vmap out_axes")
        placed = [_place(size, x, k, to) for x, k, to in zip(outs, found, wanted, strict=True)]
        return tree_util.tree_unflatten(structures[0], placed)

    return vmap_f


def _place(size: int, x: Array, axis: int | None, to: int | None) -> Array:
    if to is None:
        if axis is not None:
            raise InvalidValue(
                "vmap out_axes is None for a result that differs between lanes; give it an axis"
            )
        return x
    rank = x.ndim if axis is not None else x.ndim + 1
    if not -rank <= to < rank:
        raise InvalidValue(f"vmap out_axes={to} is out of range for a result of rank {rank}")
    return batching.place_axis(size, x, axis, to % rank)


def _mapped_axes(
    leaves: list[Array], axes: list[int | None], axis_size: int | None, name: str
) -> tuple[list[int | None], int]:
    sizes: dict[int, list[str]] = {}
    out: list[int | None] = []
    for x, k in zip(leaves, axes, strict=True):
        if k is None:
            out.append(None)
            continue
        if not -x.ndim <= k < x.ndim:
            raise InvalidValue(
                f"vmap of {name} was asked to map axis {k} of an argument of shape {x.shape}, which "
                f"has {x.ndim} axes. Use in_axes=None for arguments that are not mapped."
            )
        k %= x.ndim
        sizes.setdefault(x.shape[k], []).append(x.aval.str_short())
        out.append(k)
    if axis_size is not None:
        sizes.setdefault(axis_size, []).append("axis_size")
    if not sizes:
        raise InvalidValue(
            f"vmap of {name} needs at least one mapped argument, or axis_size; all in_axes are None"
        )
    if len(sizes) > 1:
        text = "; ".join(f"{n} in {', '.join(what)}" for n, what in sizes.items())
        raise InvalidValue(
            f"vmap of {name} got mapped axes of different sizes: {text}. They must be equal; use "
            "in_axes to choose other axes, or None."
        )
    return out, next(iter(sizes))


def pmap(fun: Callable, *args: Any, **kwargs: Any) -> Callable:
    """Not there yet: NotImplementedError, with what to use instead."""
    del args, kwargs
    check_callable(fun, "pmap")
    raise MissingRule(
        f"pmap of {name_of(fun)}: fnx runs on one device, the CPU, and has no pmap yet. Use "
        "fnx.jit(fnx.vmap(...)), which computes all lanes in one native function."
    )
