"""The local transport: all members of a named axis in one program, along the batch axis of its arrays.

The methods are those of the protocol (`core/transport.py`), for all members at once: an array holds theirs
along axis 0, and an exchange is operations along it. With each result comes the axis of its members, None
if all have the same. `vmap`, `pmap` and `shard_map` compile this case.
"""

from collections.abc import Callable, Sequence

from fnx.core.array import Array
from fnx.core.fast_dataclasses import dataclass
from fnx.core.transport import Groups
from fnx.ops.base.broadcast import Sum
from fnx.ops.reduction.reduction import Max, Min
from fnx.ops.structure.basic import full, move_axis, reshape, slice_axis
from fnx.ops.structure.join import Concatenate

from .batching import batch, place_axis

Members = tuple[Array, int | None]  # an array, and the axis of its members
_REDUCTIONS = {"sum": Sum, "max": Max, "min": Min}


@dataclass(frozen=True)
class BatchTransport:
    """Exchanges between `size` members, whose arrays are the rows of one."""

    size: int

    def all_reduce(self, x: Array, op: str) -> Members:
        """All members' rows combined elementwise by `op`: "sum", "max" or "min"."""
        return _REDUCTIONS[op]((0,))(x), None

    def all_gather(self, x: Array) -> Members:
        """All members' rows, stacked along axis 0: the array itself, which every member has."""
        return x, None

    def reduce_scatter(self, x: Array, op: str, axis: int = 0) -> Members:
        """Part k along `axis` of a row, of what `all_reduce` gives, for member k."""
        return self.all_reduce(x, op)[0], axis

    def all_to_all(self, x: Array) -> Members:
        """Row k of a member is the row of its own number of member k."""
        return move_axis(x, 0, 1), 0

    def permute(self, x: Array, pairs: Sequence[tuple[int, int]]) -> Members:
        """The row of member a for b where (a, b) is one of `pairs`, zeros if none is."""
        source = {b: a for a, b in pairs}
        return take_rows(x, [source.get(k) for k in range(self.size)]), 0

    def broadcast(self, x: Array, root: int) -> Members:
        """The row of member `root`."""
        return reshape(slice_axis(x, root, root + 1, 0), x.shape[1:]), None

    def within(self, groups: Groups, x: Array, across: Callable) -> Members:
        """`across(rows, transport)` of each group by itself: the groups are mapped over."""
        order = [k for group in groups for k in group]
        count, size = len(groups), len(groups[0])
        rows = reshape(take_rows(x, order), (count, size, *x.shape[1:]))

        def one(v: Array) -> list[Array]:
            out, axis = across(v, BatchTransport(size))
            return [place_axis(size, out, axis, 0)]

        outs, axes = batch(one, count, [rows], [0])
        out = place_axis(count, outs[0], axes[0], 0)
        out = reshape(out, (count * size, *out.shape[2:]))
        return take_rows(out, [order.index(k) for k in range(len(order))]), 0


def take_rows(x: Array, order: Sequence[int | None]) -> Array:
    """Rows of `x` in an order that is known; None is a row of zeros. Runs of rows are slices."""
    parts, k = [], 0
    while k < len(order):
        first, n = order[k], 1
        while k + n < len(order) and order[k + n] == (None if first is None else first + n):
            n += 1
        if first is None:
            parts.append(full((n, *x.shape[1:]), 0, x.dtype))
        else:
            parts.append(x if n == x.shape[0] else slice_axis(x, first, first + n, 0))
        k += n
    return parts[0] if len(parts) == 1 else Concatenate(0)(*parts)
