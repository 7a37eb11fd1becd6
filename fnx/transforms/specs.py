"""The specs of a `shard_map`: a PartitionSpec for each array, as they are given or as arrays lie."""

from typing import Any

from fnx.core.array import is_array_like
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.interpreters.jvp import JVPTracer
from fnx.interpreters.primitives.sharding_constraint import ShardingConstraint
from fnx.interpreters.trace import StageTracer
from fnx.process.mesh import Infer, PartitionSpec, spec_names
from fnx.pytree import operations

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
) -> list[PartitionSpec]:
    """One for each leaf of the arguments of the function of a name, over axes of a mesh."""
    if in_specs is Infer:
        return [_lying(x, axes, name) for x in operations.tree_leaves(args)]
    return flatten_specs(in_specs, args, "in_specs")


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


def is_cut(x: Any, spec: PartitionSpec) -> bool:
    """Whether an argument is an array of which devices get parts, or the whole."""
    python = spec is _AS_IT_IS and isinstance(x, int | float | complex)
    return bool(names_of(spec)) or (is_array_like(x) and not python)
