"""shard_map under its older name, which is fnx.shard_map; and `smap`, for one axis of the mesh."""

from collections.abc import Callable
from typing import Any

from fnx.core.errors import TypeMismatch
from fnx.process.mesh import Infer, PartitionSpec
from fnx.pytree import operations
from fnx.pytree.flatten_fun import check_callable
from fnx.transforms.shard_map import shard_map

__all__ = ["shard_map", "smap"]


def smap(
    f: Callable | None = None, /, *, in_axes: Any = Infer, out_axes: Any, axis_name: Any
) -> Callable:
    """The function that applies `f` to each device's part along one axis of the mesh that was set.

    `in_axes` says which axis of each argument is cut (None: all devices get the whole), a number or a tuple
    with a pytree prefix for each argument; by default it is as arguments lie. `out_axes` says along which
    axis results are joined.

    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("x",))):
    ...     fnx.smap(lambda a: 2 * a, in_axes=0, out_axes=0, axis_name="x")(jnp.ones(2))
    Array([2., 2.], dtype=float64)
    """
    if f is None:
        return lambda g: smap(g, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    check_callable(f, "smap")
    if isinstance(axis_name, list | tuple):
        raise TypeMismatch(f"smap with axis_name={axis_name!r}; expected the name of one axis")
    if not (in_axes is None or in_axes is Infer or isinstance(in_axes, int | tuple)):
        raise TypeMismatch(
            "smap in_axes must be an integer, None, or a tuple with an entry for each argument, got "
            f"{in_axes!r}"
        )

    def spec(axis: Any) -> PartitionSpec:
        if axis is not None and (type(axis) is not int or axis < 0):
            raise TypeMismatch(f"smap along axis {axis!r}; expected None or a number, from 0")
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, axis_name)

    specs = lambda axes: operations.tree_map(spec, axes, is_leaf=lambda a: a is None)
    ins = Infer if in_axes is Infer else specs(in_axes)
    return shard_map(f, in_specs=ins, out_specs=specs(out_axes), axis_names={axis_name})
