"""Sharding constraints: how values of a program are to lie on the devices of a mesh."""

from collections.abc import Sequence
from typing import Any

from fnx.core.array import Array, as_array
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.jaxpr import Jaxpr
from fnx.interpreters.primitives.sharding_constraint import ShardingConstraint
from fnx.process.mesh import AbstractMesh, Mesh, PartitionSpec, get_mesh, spec_names
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


def named(sharding: Any) -> Any:
    """A sharding of the mesh that was set, where it names axes or a mesh without devices."""
    sharding = getattr(sharding, "sharding", sharding)  # of a Format: layouts are as they are
    if isinstance(sharding, PartitionSpec):
        mesh = get_mesh()
        if mesh.empty and any(spec_names(sharding)):
            raise InvalidValue(
                f"{sharding} names axes, and no mesh was set. Expected a NamedSharding(mesh, spec), or "
                "that it is asked for within set_mesh(mesh)."
            )
        return NamedSharding(mesh, sharding)
    if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, AbstractMesh):
        mesh = get_mesh()  # whose devices are meant
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
    asked = [e for e in jaxpr.eqns if isinstance(e.prim, ShardingConstraint)]
    first = {e.inputs[0]: e.prim.sharding for e in reversed(asked)}
    rest = asked[0].prim.sharding.update(spec=()) if asked else SingleDeviceSharding()
    return [first.get(v, rest) for v in jaxpr.inputs]


def laid(tree: Any, shardings: Any) -> Any:
    """A tree of arrays, and of what is none, which lie as shardings (a prefix) say."""
    leaves, structure = operations.tree_flatten(tree)
    pairs = zip(leaves, spread(shardings, tree))
    return structure.unflatten([x if p is None else constrained(as_array(x), p) for x, p in pairs])
