"""pmap and shard_map: SPMD, one function on the parts of arrays that lie on many devices.

All devices are one CPU here, so that both are batching over named axes, compiled as one program: the
local case of exchange, in which a collective is array operations along the batch axis of the members
(interpreters/collectives.py). For one member's program alone see interpreters/spmd.py.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fnx.core.array import Array, is_array_like
from fnx.core.axis_size import AxisSize
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.interpreters.batching import batch
from fnx.ops.base.permute import Transpose
from fnx.ops.structure.basic import broadcast_axis, move_axis, reshape, slice_axis
from fnx.process.devices import devices as all_devices
from fnx.process.mesh import (
    MORE_DEVICES,
    Mesh,
    NamedSharding,
    PartitionSpec,
    get_abstract_mesh,
    spec_names,
)
from fnx.process.placement import placed
from fnx.pytree import operations
from fnx.pytree.flatten_fun import check_callable, flatten_arrays, name_of, wraps
from fnx.transforms.jit import Jitted, jit
from fnx.transforms.static_args import integers
from fnx.transforms.vmap import map_elements, place_result

# --- pmap ---------------------------------------------------------------------------------------


def pmap(
    fun: Callable,
    axis_name: Any = None,
    *,
    in_axes: Any = 0,
    out_axes: Any = 0,
    static_broadcasted_argnums: int | Iterable[int] = (),
    devices: Sequence[Any] | None = None,
    backend: str | None = None,
    axis_size: int | None = None,
    donate_argnums: int | Iterable[int] = (),
    global_arg_shapes: Any = None,
) -> Callable:
    """The function that maps `fun` over an axis of its arguments, one element a device, compiled.

    As `jit(vmap(fun))`, with collectives over `axis_name`; arguments of `static_broadcasted_argnums` are
    Python values that all share. With `out_axes` None the result of element 0 is returned. ValueError
    if the mapped axis is longer than there are devices: see the setting `num_devices`.

    >>> fnx.pmap(lambda x: 2 * x)(jnp.ones((1, 3)))
    Array([[2., 2., 2.]], dtype=float64)
    """
    del backend, global_arg_shapes
    check_callable(fun, "pmap")
    static = integers(static_broadcasted_argnums, "static_broadcasted_argnums")  # type: ignore
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)

    @wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        places = {k % len(args) for k in static}
        dynamic = tuple([x for k, x in enumerate(args) if k not in places])

        def call(*xs: Any, **named: Any) -> Any:
            it = iter(xs)
            return fun(*[x if k in places else next(it) for k, x in enumerate(args)], **named)

        call.__name__ = name_of(fun)
        axes = in_axes
        if isinstance(axes, tuple) and len(axes) == len(args):
            axes = tuple([a for k, a in enumerate(axes) if k not in places])
        return map_elements(
            call, dynamic, kwargs, axes, out_axes, axis_name, axis_size, place, "pmap"
        )

    def place(size: int, x: Array, axis: int | None, to: int | None) -> Array:
        _check_devices(size, devices, name_of(fun))
        if to is None:
            return x if axis is None else _element(x, axis, 0)
        return place_result(size, x, axis, to, "pmap")

    donated = integers(donate_argnums, "donate_argnums")  # type: ignore[arg-type]
    jitted: Jitted = jit(mapped, static_argnums=static, donate_argnums=donated)

    @wraps(fun)
    def pmap_f(*args: Any, **kwargs: Any) -> Any:
        return jitted(*args, **kwargs)

    pmap_f.lower, pmap_f.trace = jitted.lower, jitted.trace  # type: ignore[attr-defined]
    return pmap_f


def _check_devices(size: int, devices: Sequence[Any] | None, name: str) -> None:
    count = len(all_devices() if devices is None else devices)
    if size > count:
        raise InvalidValue(
            f"pmap of {name} over an axis of size {size} needs {size} devices, but there are only "
            f"{count}. {MORE_DEVICES} Or use fnx.vmap."
        )


def _element(x: Array, axis: int, k: int) -> Array:
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return reshape(slice_axis(x, k, k + 1, axis), shape)


# --- shard_map ---------------------------------------------------------------------------------


def shard_map(
    f: Callable | None = None,
    /,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
    *,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
    check_rep: bool | None = None,
) -> Callable:
    """The function that applies `f` to each device's part of its arguments, and joins the results.

    `in_specs`, a pytree prefix of the arguments, says for each of their axes along which axes of `mesh`
    it is cut (PartitionSpec; None: not cut, all devices get the whole); `out_specs` likewise how parts of
    results lie side by side. Inside, collectives speak of the mesh's axes (of those in `axis_names`, if
    given). ValueError for axes that cannot be cut evenly; and, if `check_vma`, for results that differ
    between devices where `out_specs` says that they are equal: without it, the first device's is taken.
    Derivatives taken inside `f` are those of each device's function, as in JAX with check_vma=False:
    sum them yourself.

    >>> P, mesh = fnx.P, fnx.make_mesh((1,), ("x",))
    >>> fnx.shard_map(lambda a: 2 * a, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(jnp.ones(2))
    Array([2., 2.], dtype=float64)
    """
    if f is None:
        return lambda g: shard_map(
            g, mesh, in_specs, out_specs, axis_names=axis_names, check_vma=check_vma, check_rep=check_rep
        )  # fmt: skip
    check_callable(f, "shard_map")
    check = check_vma if check_rep is None else check_rep

    @wraps(f)
    def shard_map_f(*args: Any) -> Any:
        axes = _manual_axes(mesh, axis_names, name_of(f))
        given, treedef = operations.tree_flatten(args)
        specs = _flatten_specs(in_specs, args, "in_specs")
        # Whatever is not cut may be no array: a function, a setting.
        cut = [bool(_names(s)) or is_array_like(x) for x, s in zip(given, specs)]
        specs = [s for s, c in zip(specs, cut) if c]
        parts = _all_parts([x for x, c in zip(given, cut) if c], specs, axes, name_of(f))
        structures: list = []

        def flat(*xs: Array) -> list[Array]:
            it = iter(xs)
            full = [next(it) if c else x for x, c in zip(given, cut)]
            outs, structure = flatten_arrays(
                f(*operations.tree_unflatten(treedef, full)), f"results of {name_of(f)}"
            )
            structures.append(structure)
            return outs

        outs, found = _run(flat, list(axes.items()), parts, [_names(s) for s in specs])
        dummy = operations.tree_unflatten(structures[0], [object() for _ in outs])
        wanted = _flatten_specs(out_specs, dummy, "out_specs")
        joined = [_join(x, k, s, axes, check, name_of(f)) for x, k, s in zip(outs, found, wanted)]
        if isinstance(mesh, Mesh):
            joined = [placed(x, NamedSharding(mesh, s)) for x, s in zip(joined, wanted)]
        return operations.tree_unflatten(structures[0], joined)

    return shard_map_f


def _manual_axes(mesh: Any, axis_names: Any, name: str) -> dict[str, int]:
    mesh = get_abstract_mesh() if mesh is None else mesh
    if not hasattr(mesh, "axis_names"):
        raise TypeMismatch(f"shard_map of {name}: expected a Mesh, got {type(mesh).__name__}")
    if mesh.empty:
        raise InvalidValue(
            f"shard_map of {name} has no mesh. Pass mesh=..., or call it within set_mesh(mesh)."
        )
    names = {axis_names} if isinstance(axis_names, str) else set(axis_names)
    missing = names - set(mesh.axis_names)
    if missing:
        raise InvalidValue(f"shard_map axis_names {missing} are not axes of {mesh}")
    return {n: size for n, size in mesh.shape.items() if not names or n in names}


def _flatten_specs(specs: Any, tree: Any, what: str) -> list[PartitionSpec]:
    """One PartitionSpec for each leaf of `tree`, from a pytree prefix of them."""
    found: list[PartitionSpec] = []

    def is_leaf(s: Any) -> bool:
        return s is None or isinstance(s, PartitionSpec)

    def spread(spec: Any, part: Any) -> None:
        spec = PartitionSpec() if spec is None else spec
        if not isinstance(spec, PartitionSpec):
            raise TypeMismatch(f"shard_map {what} must be PartitionSpecs, got {spec!r}")
        found.extend([spec] * len(operations.tree_leaves(part)))

    try:
        operations.tree_map(spread, specs, tree, is_leaf=is_leaf)
    except ValueError as error:
        raise InvalidValue(
            f"shard_map {what} must be a pytree prefix of what it describes: {specs!r} does not fit "
            f"{operations.tree_structure(tree)}"
        ) from error
    return found


def _names(spec: PartitionSpec) -> set[str]:
    return {name for names in spec_names(spec) for name in names}


def _all_parts(
    given: list, specs: list[PartitionSpec], axes: dict[str, int], name: str
) -> list[Array]:
    leaves, _ = flatten_arrays(given, "arguments of a function under shard_map")
    return [_cut(x, s, axes, f"in_specs, {name}") for x, s in zip(leaves, specs)]


def _cut(x: Array, spec: PartitionSpec, axes: dict[str, int], what: str) -> Array:
    """All devices' parts: an axis for each mesh axis that `spec` names, in the mesh's order, in front."""
    where = spec_names(spec)
    unknown = _names(spec) - set(axes)
    if unknown:
        raise InvalidValue(f"shard_map {what}: {spec} names {unknown}, not among the axes {axes}")
    if len(where) > x.ndim:
        raise ShapeError(
            f"shard_map {what}: {spec} is longer than the rank of {x.aval.str_short()}"
        )
    shape: list[int] = []
    position: dict[str, int] = {}
    local = []
    for size, names in zip(x.shape, where + [()] * (x.ndim - len(where))):
        parts = math.prod(axes[n] for n in names)
        if size % parts:
            raise ShapeError(
                f"shard_map {what}: {spec} cuts an axis of {x.aval.str_short()} of size {size} into "
                f"{parts} parts; expected a multiple of {parts}"
            )
        for n in names:
            position[n] = len(shape)
            shape.append(axes[n])
        local.append(len(shape))
        shape.append(size // parts)
    order = [position[n] for n in axes if n in position]
    return Transpose((*order, *local))(reshape(x, tuple(shape)))


def _run(
    fn: Callable, axes: list[tuple[str, int]], parts: list[Array], names: list[set[str]]
) -> tuple[list[Array], list[list[str]]]:
    """Results for all devices, and the mesh axes between which each differs: its leading axes."""
    if not axes:
        outs = list(fn(*parts))
        return outs, [[] for _ in outs]
    (name, size), inner = axes[0], axes[1:]
    found: list[list[list[str]]] = []

    def members(*xs: Array) -> list[Array]:
        outs, more = _run(fn, inner, list(xs), names)
        found.append(more)
        return outs

    outs, where = batch(
        members, AxisSize(size, name, True), parts, [0 if name in n else None for n in names]
    )
    outs = [x if k is None else move_axis(x, k, 0) for x, k in zip(outs, where)]
    return outs, [more if k is None else [name, *more] for k, more in zip(where, found[0])]


def _join(
    x: Array, found: list[str], spec: PartitionSpec, axes: dict[str, int], check: bool, name: str
) -> Array:
    """Parts of a result side by side, as `spec` says."""
    where, rank = spec_names(spec), x.ndim - len(found)
    if len(where) > rank:
        raise ShapeError(f"shard_map out_specs, {name}: {spec} is longer than the rank {rank}")
    wanted = [n for names in where for n in names]
    if set(wanted) - set(axes):
        raise InvalidValue(f"shard_map out_specs, {name}: {spec} names axes that are not in {axes}")
    for n in [n for n in found if n not in wanted]:
        if check:
            raise InvalidValue(
                f"shard_map out_specs, {name}: {spec} says that a result is the same along mesh axis "
                f"{n!r}, but it may differ. Name the axis, reduce over it (psum, pmean), or pass "
                "check_vma=False to take the first device's."
            )
        x = _element(x, found.index(n), 0)
        found = [m for m in found if m != n]
    for n in [n for n in wanted if n not in found]:
        x = broadcast_axis(x, axes[n], 0)
        found = [n, *found]
    order, shape = [], []
    for k in range(rank):
        names = where[k] if k < len(where) else ()
        order += [*(found.index(n) for n in names), len(found) + k]
        shape.append(x.shape[len(found) + k] * math.prod(axes[n] for n in names))
    return reshape(Transpose(tuple(order))(x), tuple(shape))


__all__ = ["Mesh", "pmap", "shard_map"]
