"""pmap and shard_map: SPMD, one function on the parts of arrays that lie on many devices.

The function is traced as the program of one device (interpreters/spmd.py). Where that pays, each device is
a thread with its own parts (interpreters/primitives/members.py); else the program is batched over named
axes, and computes for all in turn: the local case of exchange (interpreters/batch_transport.py).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.array import Array, as_array
from fnx.core.errors import (
    InvalidValue,
    ShapeError,
    TypeMismatch,
    entrance,
)
from fnx.core.interpreter import Tracer, current, evaluate
from fnx.interpreters.batching import batch
from fnx.interpreters.primitives.members import (
    Cut,
    cut_parts,
    joined,
    run_batched,
)
from fnx.interpreters.spmd import bound_axes, spmd
from fnx.ops.structure.basic import reshape, slice_axis
from fnx.process.constraints import (
    constrained,
    flatten_specs,
    names_of,
    specs_of_arguments,
)
from fnx.process.devices import devices as all_devices
from fnx.process.devices import local_device_count, ranks
from fnx.process.mesh import (
    MORE_DEVICES,
    Infer,
    Mesh,
    PartitionSpec,
    get_abstract_mesh,
    get_mesh,
    set_mesh,
    spec_names,
)
from fnx.process.one_member import checking, is_compiled, of_all, one_member
from fnx.process.placement import placed
from fnx.process.shardings import NamedSharding, mapped_over
from fnx.process.spread import mesh_spans
from fnx.pytree import operations
from fnx.pytree.flatten_fun import check_callable, flatten_arrays, name_of, wraps
from fnx.transforms.jit import BACKEND, Jitted, jit
from fnx.transforms.static_args import integers
from fnx.transforms.vmap import flatten_axes, map_elements, place_result

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
    place = partial(_place, devices, name_of(fun))
    in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes

    @wraps(fun)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        places = {k % len(args) for k in static}
        dynamic = tuple([x for k, x in enumerate(args) if k not in places])

        def call(*xs: Any, **named: Any) -> Any:
            it = iter(xs)
            return fun(*[x if k in places else next(it) for k, x in enumerate(args)], **named)

        call.__name__, call.__wrapped__ = name_of(fun), fun  # type: ignore[attr-defined]
        axes = in_axes
        if isinstance(axes, tuple) and len(axes) == len(args):
            axes = tuple([a for k, a in enumerate(axes) if k not in places])
        return map_elements(
            call, dynamic, kwargs, axes, out_axes, axis_name, axis_size, place, "pmap", _map_devices
        )

    if ranks:
        return _of_ranks(fun, axis_name, in_axes, out_axes, static)
    donated = integers(donate_argnums, "donate_argnums")  # type: ignore[arg-type]
    jitted: Jitted = jit(mapped, static_argnums=static, donate_argnums=donated)
    along = lambda out: flatten_axes(out_axes, out, "pmap out_axes")
    jitted.places = lambda out, avals: mapped_over(avals, along(out), axis_name, devices)

    @entrance
    @wraps(fun)
    def pmap_f(*args: Any, **kwargs: Any) -> Any:
        return jitted(*args, **kwargs)

    pmap_f.lower, pmap_f.trace = jitted.lower, jitted.trace  # type: ignore[attr-defined]
    return pmap_f


def _of_ranks(fun: Callable, name: Any, in_axes: Any, out_axes: Any, static: Any) -> Callable:
    """`pmap` where several processes work together: each maps over its own devices' elements.

    The named axis is that of all devices of all processes; collectives meet within a process first.
    """
    name = "<devices>" if name is None else name
    from fnx.core.transport import in_force, use
    from fnx.lowering.transport.local import Local
    from fnx.lowering.transport.mpi import Ranks

    count = ranks[0].size * local_device_count()
    jitted = jit(spmd(fun, {name: count}), static_argnums=static)

    @wraps(fun)
    def of_ranks(*args: Any, **kwargs: Any) -> Any:
        places = {k % len(args) for k in static}
        axes = in_axes if isinstance(in_axes, tuple) else (in_axes,) * len(args)
        leaves, treedef = operations.tree_flatten((args, kwargs))
        along: list = []
        for k, (x, a) in enumerate(zip(args, axes, strict=True)):
            n = len(operations.tree_leaves(x))
            along += [None] * n if k in places else flatten_axes((a,), (x,), "pmap in_axes")
        along += [0] * (len(leaves) - len(along))
        sizes = {np.shape(x)[a] for x, a in zip(leaves, along) if a is not None}
        local = local_device_count()
        if sizes != {local}:
            raise InvalidValue(
                f"pmap of {name_of(fun)} over an axis of sizes {sorted(sizes)}; expected {local}, as "
                f"many as this process has devices: each of {ranks[0].size} processes maps over its own"
            )

        def member(k: int, transport: Any) -> tuple[list, Any]:
            given = [x if a is None else _taken(x, k, a) for x, a in zip(leaves, along)]
            mine, named = operations.tree_unflatten(treedef, given)
            with use({name: transport}):
                return operations.tree_flatten(jitted(*mine, **named))

        if local == 1:
            made = [member(0, ranks[0])]
        else:
            run = lambda k: member(k, Ranks(in_force("<local>", "pmap"), ranks[0]))
            made = Local(local, _PATIENCE).run("<local>", run, range(local))
        structure = made[0][1]
        dummy = operations.tree_unflatten(structure, [object() for _ in made[0][0]])
        wanted = flatten_axes(out_axes, dummy, "pmap out_axes")
        outs = [
            xs[0] if to is None else as_array(np.stack([np.asarray(x) for x in xs], to))
            for to, *xs in zip(wanted, *[leaves for leaves, _ in made])
        ]
        return operations.tree_unflatten(structure, outs)

    return of_ranks


_PATIENCE = 1e6  # seconds that threads of a rank wait for each other: other ranks may be slow


def _taken(x: Any, k: int, axis: int) -> Array:
    """Element k along an axis."""
    return _element(as_array(x), axis % np.ndim(x), k)


def _map_devices(
    fn: Callable, size: int, args: Sequence[Array], places: Sequence[int | None]
) -> tuple[list[Array], list[int | None]]:
    """As `batch`, with a device for each element: results, and the axis of the elements in each."""
    name = getattr(size, "name", None)
    name = f"<pmap {len(bound_axes())}>" if name is None else name

    def one(*xs: Array) -> list[Array]:
        # A part has one element of the axis.
        given = [
            x if k is None else reshape(x, x.shape[:k] + x.shape[k + 1 :])
            for x, k in zip(xs, places)
        ]
        return [reshape(x, (1, *x.shape)) for x in fn(*given)]

    cuts: list[Cut] = [
        tuple([(name,) if j == k else () for j in range(x.ndim)]) for x, k in zip(args, places)
    ]
    member = one_member(one, {name: int(size)}, list(args), cuts, "pmap", BACKEND)
    if member is None:
        return batch(fn, size, args, places)
    along: list[int | None] = []

    def outs(ranks: list[int], found: Sequence) -> list[Cut]:
        along.extend([0 if n else None for n in found])
        return [((name,) if n else (), *[()] * (r - 1)) for r, n in zip(ranks, found)]

    made = of_all(*member, outs)
    return [
        x if k == 0 else reshape(x, x.shape[1:]) for x, k in zip(made, along, strict=True)
    ], along


def _check_devices(size: int, devices: Sequence[Any] | None, name: str) -> None:
    count = len(all_devices() if devices is None else devices)
    if size > count:
        raise InvalidValue(
            f"pmap of {name} over an axis of size {size} needs {size} devices, but there are only "
            f"{count}. {MORE_DEVICES} Or use fnx.vmap."
        )


def _place(devices: Any, name: str, size: int, x: Array, axis: int | None, to: int | None) -> Array:
    """A result of all elements, along the axis `to`; that of the first one, for None."""
    _check_devices(size, devices, name)
    if to is None:
        return x if axis is None else _element(x, axis, 0)
    return place_result(size, x, axis, to, "pmap")


def _element(x: Array, axis: int, k: int) -> Array:
    shape = x.shape[:axis] + x.shape[axis + 1 :]
    return reshape(slice_axis(x, k, k + 1, axis), shape)


# --- shard_map ---------------------------------------------------------------------------------


def shard_map(
    f: Callable | None = None,
    /,
    mesh: Any = None,
    in_specs: Any = Infer,
    out_specs: Any = None,
    *,
    axis_names: Any = frozenset(),
    check_vma: bool = True,
    check_rep: bool | None = None,
) -> Callable:
    """The function that applies `f` to each device's part of its arguments, and joins the results.

    `in_specs`, a pytree prefix of the arguments, says for each of their axes along which axes of `mesh`
    it is cut (PartitionSpec; None: all devices get what it is, the whole array or a Python value), by
    default as it lies on the mesh; `out_specs` likewise how parts of results lie side by side. Inside,
    collectives speak of the mesh's axes (of those in `axis_names`, if given). ValueError for axes that
    cannot be cut evenly; and, if `check_vma`, for results that differ between devices where `out_specs`
    says that they are equal: without it, the first device's is taken. Derivatives taken inside `f` with
    respect to what all devices have alike are then those of all devices, summed, as in JAX; without
    `check_vma` they are each device's.

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
        return _mapped(f, args, axes, mesh, in_specs, out_specs, check)

    if not ranks:
        return shard_map_f
    jitted = jit(shard_map_f)

    @wraps(f)
    def of_ranks(*args: Any) -> Any:
        alone = current.get() is not evaluate or not mesh_spans(
            get_mesh() if mesh is None else mesh
        )
        return shard_map_f(*args) if alone else jitted(*args)

    return of_ranks


def _mapped(
    f: Callable,
    args: tuple,
    axes: dict[str, int],
    mesh: Any,
    in_specs: Any,
    out_specs: Any,
    check: bool,
) -> Any:
    """The results of all devices, side by side."""
    whole_mesh = get_mesh() if mesh is None else mesh
    given, treedef = operations.tree_flatten(args)
    cut, specs = specs_of_arguments(in_specs, args, axes, name_of(f))
    what = "arguments of a function under shard_map"
    leaves, _ = flatten_arrays([x for x, c in zip(given, cut) if c], what)
    ins = [_cut_of(x, s, axes, f"in_specs, {name_of(f)}") for x, s in zip(leaves, specs)]
    structures: list = []
    wanted: list[PartitionSpec] = []

    def flat(*xs: Array) -> list[Array]:
        it = iter(xs)
        full = [next(it) if c else x for x, c in zip(given, cut)]
        with nullcontext() if mesh is None else set_mesh(mesh):
            found = f(*operations.tree_unflatten(treedef, full))
        outs, structure = flatten_arrays(found, f"results of {name_of(f)}")
        structures.append(structure)
        return outs

    def outs_of(ranks: list[int], found: Sequence) -> list[Cut]:
        dummy = operations.tree_unflatten(structures[0], [object() for _ in ranks])
        wanted.extend(flatten_specs(out_specs, dummy, "out_specs"))
        return [_cut_to(r, n, s, axes, check, name_of(f)) for r, n, s in zip(ranks, found, wanted)]

    is_mesh = isinstance(whole_mesh, Mesh)
    far = is_mesh and mesh_spans(whole_mesh)
    traced = is_compiled() or any([isinstance(x, Tracer) for x in leaves])
    lie = constrained if far or (traced and not bound_axes()) else placed
    if is_mesh and lie is constrained:
        leaves = [constrained(x, NamedSharding(whole_mesh, s)) for x, s in zip(leaves, specs)]
    member = one_member(flat, axes, leaves, ins, name_of(f), BACKEND, check)
    if member is None and far:
        raise _untraced(name_of(f))
    if member is None:
        structures.clear()
        exploration, names = config.exploration.get(), [names_of(s) for s in specs]
        over = batch if exploration is None else exploration.batch(f, "shard_map", batch)
        parts = [cut_parts(x, c, axes) for x, c in zip(leaves, ins)]
        with checking(axes, check):
            outs, found = run_batched(flat, list(axes.items()), parts, names, over)
        cuts = outs_of([x.ndim - len(n) for x, n in zip(outs, found)], found)
        results = [joined(x, n, c, axes) for x, n, c in zip(outs, found, cuts, strict=True)]
    else:
        results = of_all(*member, outs_of, far)
    if is_mesh:
        results = [lie(x, NamedSharding(whole_mesh, s)) for x, s in zip(results, wanted)]
    return operations.tree_unflatten(structures[0], results)


def _untraced(name: str) -> InvalidValue:
    return InvalidValue(
        f"shard_map of {name} over devices of several processes: it asks for numbers of its arguments, "
        "changes references or has effects; expected a function that can be traced"
    )


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
    bound = () if names else bound_axes()  # by a shard_map around it
    return {n: size for n, size in mesh.shape.items() if (n in names if names else n not in bound)}


def _cut_of(x: Array, spec: PartitionSpec, axes: dict[str, int], what: str) -> Cut:
    """The names along which each axis of an array is cut; checked."""
    where = spec_names(spec)
    unknown = names_of(spec) - set(axes)
    if unknown:
        raise InvalidValue(f"shard_map {what}: {spec} names {unknown}, not among the axes {axes}")
    if len(where) > x.ndim:
        raise ShapeError(
            f"shard_map {what}: {spec} is longer than the rank of {x.aval.str_short()}"
        )
    cut = (*where, *[()] * (x.ndim - len(where)))
    for size, names in zip(x.shape, cut):
        parts = math.prod(axes[n] for n in names)
        if size % parts:
            raise ShapeError(
                f"shard_map {what}: {spec} cuts an axis of {x.aval.str_short()} of size {size} into "
                f"{parts} parts; expected a multiple of {parts}"
            )
    return cut


def _cut_to(
    rank: int, found: Iterable, spec: PartitionSpec, axes: dict[str, int], check: bool, name: str
) -> Cut:
    """The names along which parts of a result, which differ along the axes `found`, are put together."""
    where = spec_names(spec)
    if len(where) > rank:
        raise ShapeError(
            f"shard_map out_specs, {name}: {spec} is longer than the rank of the result, {rank}; for one "
            "axis more, along which those of the devices lie, return x[None]"
        )
    wanted = [n for names in where for n in names]
    if set(wanted) - set(axes):
        raise InvalidValue(f"shard_map out_specs, {name}: {spec} names axes that are not in {axes}")
    for n in [n for n in axes if n in found and n not in wanted]:
        if check:
            raise InvalidValue(
                f"shard_map out_specs, {name}: {spec} says that a result is the same along mesh axis "
                f"{n!r}, but it may differ. Name the axis, reduce over it (psum, pmean), gather it with "
                "all_gather(..., to='invarying'), or pass check_vma=False to take the first device's."
            )
    return (*where, *[()] * (rank - len(where)))


__all__ = ["Mesh", "pmap", "shard_map"]
