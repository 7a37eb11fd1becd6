"""`jax.experimental.shard_alike`: two trees of arrays that had better lie alike."""

from typing import Any

from fnx.core.array import as_array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.pytree.operations import tree_flatten


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """`x` and `y` themselves, of which JAX's compiler cuts one as the other; fnx decides by itself.

    ValueError for trees or shapes that differ.
    """
    (xs, x_tree), (ys, y_tree) = tree_flatten(x), tree_flatten(y)
    if x_tree != y_tree:
        raise InvalidValue(f"shard_alike of {x_tree} and {y_tree}; expected equal trees")
    for a, b in zip(xs, ys, strict=True):
        if as_array(a).shape != as_array(b).shape:
            raise ShapeError(
                f"shard_alike of arrays of shapes {as_array(a).shape} and {as_array(b).shape}; expected "
                "equal ones"
            )
    return x, y
