"""A rule for vmap that is a loop: one element of the batch after the other."""

from collections.abc import Callable
from typing import Any

from fnx.control_flow import map as lax_map
from fnx.pytree import operations
from fnx.transforms.custom_vmap import custom_vmap


def sequential_vmap(f: Callable) -> custom_vmap:
    """The function, for which vmap is a loop over the elements of the batch.

    >>> from fnx.custom_batching import sequential_vmap
    >>> fnx.vmap(sequential_vmap(jnp.sin))(jnp.array([0.0, 1.0])).shape
    (2,)
    """
    mapped = custom_vmap(f)

    @mapped.def_vmap
    def rule(axis_size: int, in_batched: list, *args: Any) -> tuple:
        leaves, treedef = operations.tree_flatten(args)
        marks = operations.tree_leaves(in_batched)
        rows = [x for x, b in zip(leaves, marks, strict=True) if b]

        def one(own: list) -> Any:
            given = iter(own)
            full = [next(given) if b else x for x, b in zip(leaves, marks)]
            return f(*operations.tree_unflatten(treedef, full))

        out = lax_map(one, rows)
        return out, operations.tree_map(lambda _: True, out)

    return mapped
