"""How values of a program are to lie on the devices of a mesh: constraints, and specs of a `shard_map`."""

from collections.abc import Sequence
from typing import Any

from fnx.core.array import Array, as_array, is_array_like
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.core.jaxpr import Jaxpr
from fnx.interpreters.jvp import JVPTracer
from fnx.interpreters.primitives.sharding_constraint import ShardingConstraint
from fnx.interpreters.trace import StageTracer
from fnx.process.mesh import (
    AbstractMesh,
    Infer,
    Mesh,
    PartitionSpec,
    get_abstract_mesh,
    get_mesh,
    make_mesh,
    spec_names,
)
from fnx.process.one_member import is_compiled
from fnx.process.placement import placed
from fnx.process.shardings import NamedSharding, SingleDeviceSharding
from fnx.process.spread import mesh_spans
from fnx.pytree import operations


def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """The leaves of a pytree, which lie as shardings (a pytree prefix of them) say.

    A PartitionSpec is of the mesh that was set. In compiled functions the devices of the mesh compute
    their parts, which need not be of one size there; elsewhere axes that cannot be cut evenly are a
    ValueError.

    >>> lax.with_sharding_constraint(jnp.arange(3), None)
    Array([0, 1, 2], dtype=int64)
    """
    leaves, structure = operations.tree_flatten(x)
    places = spread(shardings, x)
    even = not is_compiled()
    return structure.unflatten([constrained(as_array(a), p, even) for a, p in zip(leaves, places)])


def spread(shardings: Any, tree: Any) -> list:
    """A sharding or None for each leaf of a tree."""
    is_leaf = lambda s: s is None or isinstance(s, PartitionSpec)
    return operations.broadcast_prefix(shardings, tree, is_leaf=is_leaf)


def constrained(x: Array, sharding: Any, even: bool = True) -> Array:
    """An array that lies as a sharding says, in parts of one size if `even`; itself where none is named."""
    sharding = named(sharding)
    if isinstance(sharding, str | int | float):
        raise TypeMismatch(
            f"with_sharding_constraint to {sharding!r}; expected a sharding, a PartitionSpec or None"
        )
    if not is_cut(sharding):
        return placed(x, sharding)
    sharding.check(x.aval, even or mesh_spans(sharding.mesh))
    spec = [*sharding.spec, *[None] * (x.ndim - len(sharding.spec))]
    free = tuple([k for k, s in enumerate(spec) if s is PartitionSpec.UNCONSTRAINED])
    names: Sequence[Any] = spec_names(spec)
    return placed(ShardingConstraint(sharding, tuple(names), free)(x), sharding)


def _mesh_meant() -> Mesh:
    """The mesh that was set; where that is one without devices, of the first of all."""
    mesh, abstract = get_mesh(), get_abstract_mesh()
    if not mesh.empty or abstract.empty:
        return mesh
    return make_mesh(abstract.axis_sizes, abstract.axis_names, abstract.axis_types)


def named(sharding: Any) -> Any:
    """A sharding of the mesh that was set, where it names axes or a mesh without devices."""
    sharding = getattr(sharding, "sharding", sharding)  # of a Format: layouts are as they are
    if isinstance(sharding, PartitionSpec):
        mesh = _mesh_meant()
        if mesh.empty and any(spec_names(sharding)):
            raise InvalidValue(
                f"{sharding} names axes, and no mesh was set. Expected a NamedSharding(mesh, spec), or "
                "that it is asked for within set_mesh(mesh)."
            )
        return NamedSharding(mesh, sharding)
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):
        mesh = _mesh_meant()
        sharding = sharding.update(mesh=mesh) if mesh.abstract_mesh == sharding.mesh else sharding
    return sharding


def is_cut(sharding: Any) -> bool:
    """Whether arrays that lie so have parts on several devices."""
    return (
        isinstance(sharding, NamedSharding)
        and isinstance(sharding.mesh, Mesh)
        and sharding.mesh.size > 1
    )


def constrained_all(xs: Sequence[Array], places: Sequence[Any]) -> list[Array]:
    """Arrays, each of which lies as its sharding says."""
    return [constrained(x, p) for x, p in zip(xs, places, strict=True)]


def input_shardings(jaxpr: Jaxpr) -> list[Any]:
    """How the inputs of a program are to lie: as it says, whole on its mesh, or else on one device."""
    asked = [(e.inputs, e.prim) for e in jaxpr.eqns]
    places = [(xs[0], p.sharding) for xs, p in asked if isinstance(p, ShardingConstraint)]
    first = dict(reversed(places))
    rest = places[0][1].update(spec=()) if places else SingleDeviceSharding()
    return [first.get(v, rest) for v in jaxpr.inputs]


def laid(tree: Any, shardings: Any) -> Any:
    """A tree of arrays, and of what is none, which lie as shardings (a prefix) say."""
    leaves, structure = operations.tree_flatten(tree)
    pairs = zip(leaves, spread(shardings, tree))
    return structure.unflatten([x if p is None else constrained(as_array(x), p) for x, p in pairs])


# --- specs of a shard_map ------------------------------------------------------------------------

_AS_IT_IS = PartitionSpec()  # what None means


def flatten_specs(specs: Any, tree: Any, what: str) -> list[PartitionSpec]:
    """One PartitionSpec for each leaf of `tree`, from a pytree prefix of them."""
    found: list[PartitionSpec] = []

    def is_leaf(s: Any) -> bool:
        return s is None or isinstance(s, PartitionSpec)

    def spread(spec: Any, part: Any) -> None:
        spec = _AS_IT_IS if spec is None else spec
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
    for spec in found:
        if sum(map(len, spec_names(spec))) > len(names_of(spec)):
            raise InvalidValue(
                f"shard_map {what}: {spec} cuts more than one axis along one of the mesh; expected each "
                "name once"
            )
    return found


def names_of(spec: PartitionSpec) -> set[str]:
    """The names of all axes of a mesh along which an array is cut."""
    return {name for names in spec_names(spec) for name in names}


def specs_of_arguments(
    in_specs: Any, args: tuple, axes: dict[str, int], name: str
) -> tuple[list[bool], list[PartitionSpec]]:
    """Which leaves of a function's arguments are arrays, and the specs of these along axes of a mesh."""
    leaves = operations.tree_leaves(args)
    if in_specs is Infer:
        specs = [_lying(x, axes, name) for x in leaves]
    else:
        specs = flatten_specs(in_specs, args, "in_specs")
    cut = [_is_part(x, s) for x, s in zip(leaves, specs)]
    return cut, [s for s, c in zip(specs, cut) if c]


def _lying(x: Any, axes: dict[str, int], name: str) -> PartitionSpec:
    """How an argument of a `shard_map` lies along axes of a mesh, where its `in_specs` do not say it."""
    while isinstance(x, JVPTracer):
        x = x.primal
    place = getattr(x, "placed", None)
    if isinstance(x, StageTracer):
        made = next((e.prim for e in x.owner.eqns if x._var in e.outs), None)
        place = made.sharding if isinstance(made, ShardingConstraint) else None
    if place is None and isinstance(x, Tracer):
        raise InvalidValue(
            f"shard_map of {name} without in_specs, of a value inside {x.owner.what} of which it is not "
            "known how it lies; expected in_specs, or with_sharding_constraint around the value"
        )
    spec = getattr(place, "spec", ())
    entries = [tuple([n for n in names if n in axes]) for names in spec_names(spec)]
    return PartitionSpec(*[e[0] if len(e) == 1 else e or None for e in entries])


def _is_part(x: Any, spec: PartitionSpec) -> bool:
    """Whether an argument is an array of which devices get parts, or the whole.

    Others are as they are: functions, settings, numbers that are meant as Python's.
    """
    python = spec is _AS_IT_IS and isinstance(x, int | float | complex)
    return bool(names_of(spec)) or (is_array_like(x) and not python)
