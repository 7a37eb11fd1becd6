"""Products of matrices whose axes are cut into groups, and descriptions of how products are computed."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.lax.elementwise import ge, lt
from fnx.lax.parameterized import select
from fnx.lax.products import dot_general
from fnx.lax.reductions import cumsum
from fnx.lax.shapes import broadcast_in_dim, iota
from fnx.numpy.arrays.util import to_array
from fnx.ops.structure.basic import move_axis, zeros

__all__ = ["DotAlgorithm", "RaggedDotDimensionNumbers", "Tolerance", "ragged_dot_general"]


class DotAlgorithm(NamedTuple):
    """How a product is to be computed; accepted, and computed in the dtype of the operands.

    >>> how = lax.DotAlgorithm(float, float, float)
    >>> lax.dot(jnp.ones(2), jnp.ones(2), precision=how)
    Array(2., dtype=float64)
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class Tolerance(NamedTuple):
    """What error is accepted of an elementary function; accepted, as errors are smaller.

    >>> lax.exp(jnp.array([0.0]), accuracy=lax.Tolerance(rtol=1e-3))
    Array([1.], dtype=float64)
    """

    atol: float = 0.0
    rtol: float = 0.0
    ulps: int = 0


class RaggedDotDimensionNumbers:
    """Which axes `ragged_dot_general` contracts, which one of `lhs` is in groups, which of `rhs` has them.

    >>> lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0]).lhs_ragged_dimensions
    (0,)
    """

    def __init__(
        self,
        dot_dimension_numbers: Any,
        lhs_ragged_dimensions: Sequence[int],
        rhs_group_dimensions: Sequence[int],
    ):
        contracted, batch = dot_dimension_numbers
        self.dot_dimension_numbers = (tuple(map(tuple, contracted)), tuple(map(tuple, batch)))
        self.lhs_ragged_dimensions = tuple(lhs_ragged_dimensions)
        self.rhs_group_dimensions = tuple(rhs_group_dimensions)


def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Products where one axis of `lhs` consists of groups, one after the other, of `group_sizes`.

    A free axis: each group with its own part of `rhs`, along the group axis. A contracted one: a product
    for each group, along a first axis of the result. A batch axis: as without groups. Rows behind the last
    group are zero. ShapeError for other numbers of such axes; ValueError for a `group_offset`.

    >>> numbers = lax.RaggedDotDimensionNumbers((((1,), (0,)), ((), ())), [1], [])
    >>> x = jnp.array([[1.0, 2.0, 4.0]])
    >>> lax.ragged_dot_general(x, jnp.ones((3, 1)), jnp.array([1, 2]), numbers).ravel()
    Array([1., 6.], dtype=float64)
    """
    del out_sharding
    x, y, sizes = (
        to_array(a, "ragged_dot_general", k) for k, a in enumerate((lhs, rhs, group_sizes))
    )
    if group_offset is not None:
        raise InvalidValue("ragged_dot_general with group_offset; expected all groups")
    numbers = ragged_dot_dimension_numbers
    (left, right), (left_batch, right_batch) = numbers.dot_dimension_numbers
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise ShapeError(
            f"ragged_dot_general with lhs_ragged_dimensions={numbers.lhs_ragged_dimensions}; expected one"
        )
    (ragged,) = numbers.lhs_ragged_dimensions
    expected = 0 if ragged in left_batch or ragged in left else 1
    if len(numbers.rhs_group_dimensions) != expected:
        raise ShapeError(
            f"ragged_dot_general with rhs_group_dimensions={numbers.rhs_group_dimensions}; expected "
            f"{expected}, since axis {ragged} of lhs is {'free' if expected else 'not free'}"
        )
    options = precision, preferred_element_type
    if ragged in left_batch:
        return dot_general(x, y, numbers.dot_dimension_numbers, *options)
    apart = _groups_apart(x, sizes, ragged, left_batch)
    left, left_batch = (tuple([k + 1 for k in axes]) for axes in (left, left_batch))
    if not expected:
        out = dot_general(apart, y, ((left, right), (left_batch, right_batch)), *options)
        return move_axis(out, len(left_batch), 0)
    (group,) = numbers.rhs_group_dimensions
    dims = (((0, *left), (group, *right)), (left_batch, right_batch))
    return dot_general(apart, y, dims, *options)


def _groups_apart(x: Array, sizes: Array, axis: int, batch: tuple[int, ...]) -> Array:
    """`x` once for each group, along a new first axis, with zeros outside of the group.

    `sizes` are of shape (groups,), or have the batch axes in front.
    """
    groups, n = sizes.shape[-1], x.shape[axis]
    lead = sizes.shape[:-1]
    if lead not in ((), tuple([x.shape[k] for k in batch])):
        raise ShapeError(
            f"ragged_dot_general with group_sizes of shape {sizes.shape}; expected (groups,), or the batch "
            f"axes {tuple([x.shape[k] for k in batch])} in front of it"
        )
    shape = (*lead, groups, n)
    front = tuple(range(len(lead)))
    ends = cumsum(sizes, len(lead))
    place = broadcast_in_dim(iota(sizes.dtype, n), shape, (len(shape) - 1,))
    start, end = (broadcast_in_dim(v, shape, (*front, len(lead))) for v in (ends - sizes, ends))
    mine = move_axis(ge(place, start) & lt(place, end), len(lead), 0)
    full = (groups, *x.shape)
    axes = (0, *[k + 1 for k in (batch if lead else ())], axis + 1)
    # broadcast_in_dim needs rising axes: batch axes and the ragged one may lie in any order.
    order = sorted(range(len(axes)), key=axes.__getitem__)
    mine = mine.transpose(order)
    rows = broadcast_in_dim(x, full, tuple(range(1, len(full))))
    chosen = broadcast_in_dim(mine, full, tuple([axes[k] for k in order]))
    return select(chosen, rows, zeros(rows.aval.strong()))
