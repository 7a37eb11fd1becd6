"""Primitives of JAX's that are functions of other primitives here: bound, they call these.

Jaxprs have the equations that the functions make. Names without a function are there to be compared
with, and to register rules for; binding them says that there is none.
"""

from collections.abc import Callable
from typing import Any

from fnx.core.array import Array
from fnx.interpreters.primitives.user_primitives import Primitive
from fnx.lax import gathers, linalg, parameterized, platforms, reductions, shapes
from fnx.numpy.arrays.util import to_array


class Composed(Primitive):
    """A primitive that is a function of others.

    >>> lax.tile_p.bind(jnp.array([1, 2]), reps=(2,))
    Array([1, 2, 1, 2], dtype=int64)
    """

    def __init__(self, name: str, fun: Callable, multiple_results: bool = False):
        super().__init__(name)
        self.fun, self.multiple_results = fun, multiple_results

    def bind(self, *args: Any, **params: Any) -> Any:
        """The function's result, of arrays or numbers."""
        out = self.fun(*map(to_array, args), **params)
        return list(out) if self.multiple_results else out


def _scatter_sub(
    x: Array, indices: Array, updates: Array, dimension_numbers: Any, mode: Any = None, **_: Any
) -> Array:
    return gathers.scatter_sub(x, indices, updates, dimension_numbers, mode=mode)


def _approx_top_k(
    x: Array, k: int, reduction_dimension: int = -1, is_max_k: bool = True, **_: Any
) -> Any:
    search = reductions.approx_max_k if is_max_k else reductions.approx_min_k
    return search(x, k, reduction_dimension)


after_all_p = Composed("after_all", platforms.after_all)
approx_top_k_p = Composed("approx_top_k", _approx_top_k, multiple_results=True)
create_token_p = Composed("create_token", platforms.create_token)
householder_product_p = Composed("householder_product", linalg.householder_product)
mulhi_p = Composed("mulhi", parameterized.mulhi)
optimization_barrier_p = Composed("optimization_barrier", lambda *xs: xs, multiple_results=True)
scatter_sub_p = Composed("scatter-sub", _scatter_sub)
stack_p = Composed("stack", lambda *xs, axis: shapes.stack(xs, axis))
tile_p = Composed("tile", shapes.tile)
unstack_p = Composed("unstack", shapes.unstack, multiple_results=True)

# There is no function for these.
NAMES = (
    "dce_sink device_put eq_to le_to lt_to ragged_all_to_all reduce reduce_window rng_bit_generator "
    "rng_uniform select_and_scatter sharding_constraint stage"
)
globals().update({f"{name}_p": Primitive(name) for name in NAMES.split()})
