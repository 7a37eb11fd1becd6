"""shard_map under its older name, which is fnx.shard_map; and `smap`, for one axis of the mesh."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from fnx.core.errors import TypeMismatch
from fnx.process.mesh import PartitionSpec
from fnx.pytree.operations import tree_map
from fnx.transforms.shard_map import shard_map

__all__ = ["shard_map", "smap"]


def smap(
    f: Callable | None = None, /, *, in_axes: Any, out_axes: Any, axis_name: Hashable
) -> Callable:
    """`shard_map` along one axis of the mesh that is set: which axis of each argument and result it cuts.

    `in_axes` and `out_axes` are, as those of vmap, pytree prefixes of numbers, or None for what is not cut.

    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("x",))):
    ...     y = fnx.smap(lambda a: 2 * a, in_axes=0, out_axes=0, axis_name="x")(jnp.ones(2))
    >>> y
    Array([2., 2.], dtype=float64)
    """
    if f is None:
        return partial(smap, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)  # type: ignore[return-value]
    if isinstance(axis_name, (tuple, list)):
        raise TypeMismatch(f"smap with axis_name={axis_name!r}; expected one name")

    def spec(axis: Any) -> PartitionSpec:
        if axis is None:
            return PartitionSpec()
        if not isinstance(axis, int) or axis < 0:
            raise TypeMismatch(
                f"smap of axis {axis!r}; expected the number of an axis, at least 0, or None"
            )
        return PartitionSpec(*[None] * axis, axis_name)

    specs = partial(tree_map, spec, is_leaf=lambda axis: axis is None)
    return shard_map(f, in_specs=specs(in_axes), out_specs=specs(out_axes), axis_names={axis_name})
