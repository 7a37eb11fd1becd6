"""Windows: where gather reads and scatter writes; JAX's dimension numbers and what follows from them."""

import enum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fnx.core import dtypes, scalar
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.recipe import Operand
from fnx.core.scalar import Expr

Shape = tuple[int, ...]
_INT = np.dtype(np.int64)


class GatherDimensionNumbers(NamedTuple):
    """Which axes of a gather's operand, indices and result belong together.

    The result has an axis for each axis of the indices but the last (the index vector), and, at
    `offset_dims`, the axes of the window that is read at each index. `collapsed_slice_dims` are
    operand axes of window size 1 that the result lacks; entry k of an index vector counts along
    operand axis `start_index_map[k]`; `operand_batching_dims` go in step with the axes
    `start_indices_batching_dims` of the indices.

    >>> rows = lax.GatherDimensionNumbers((1,), (0,), (0,))  # whole rows, by their numbers
    >>> lax.gather(jnp.arange(6).reshape(3, 2), jnp.array([[2], [0]]), rows, (1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int64)
    """

    offset_dims: Shape
    collapsed_slice_dims: Shape
    start_index_map: Shape
    operand_batching_dims: Shape = ()
    start_indices_batching_dims: Shape = ()


class ScatterDimensionNumbers(NamedTuple):
    """As `GatherDimensionNumbers`, for a scatter: updates take the place of the gather's result.

    >>> one = lax.ScatterDimensionNumbers((), (0,), (0,))  # single elements, by their numbers
    >>> lax.scatter(jnp.zeros(3), jnp.array([[2]]), jnp.array([7.0]), one)
    Array([0., 0., 7.], dtype=float64)
    """

    update_window_dims: Shape
    inserted_window_dims: Shape
    scatter_dims_to_operand_dims: Shape
    operand_batching_dims: Shape = ()
    scatter_indices_batching_dims: Shape = ()


class GatherScatterMode(enum.Enum):
    """What happens to windows that are not wholly inside: moved inside, filled or dropped, or never.

    >>> rows = lax.GatherDimensionNumbers((), (0,), (0,))
    >>> lax.gather(jnp.arange(3), jnp.array([[9]]), rows, (1,), mode=lax.GatherScatterMode.CLIP)
    Array([2], dtype=int64)
    """

    CLIP = enum.auto()
    FILL_OR_DROP = enum.auto()
    PROMISE_IN_BOUNDS = enum.auto()

    @staticmethod
    def from_any(mode: "str | GatherScatterMode | None") -> "GatherScatterMode":
        """The mode of a name ("clip", "fill", "drop", "promise_in_bounds"); None is fill or drop."""
        if isinstance(mode, GatherScatterMode):
            return mode
        try:
            return _MODES[mode]
        except KeyError:
            known = ", ".join(repr(m) for m in _MODES if m)
            raise InvalidValue(f"unknown mode {mode!r}; expected one of {known}") from None


_MODES: dict[str | None, GatherScatterMode] = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
}
FILL = GatherScatterMode.FILL_OR_DROP


def as_gather(dims: ScatterDimensionNumbers) -> GatherDimensionNumbers:
    """The numbers of the gather that reads the windows which a scatter writes."""
    return GatherDimensionNumbers(*dims)


def as_scatter(dims: GatherDimensionNumbers) -> ScatterDimensionNumbers:
    """The numbers of the scatter that writes the windows which a gather reads."""
    return ScatterDimensionNumbers(*dims)


class Windows:
    """One window per index vector of `indices` in an operand, and where each lies in the result.

    The operand's axes split into three runs: those before the first axis that an index or a partial
    window touches, the `block` of touched axes, and those after. The positions of all windows in
    the flattened block are one small array of integers, so that NumPy's `take` does the rest.
    """

    def __init__(self, dims: GatherDimensionNumbers, operand: Shape, indices: Shape, sizes: Shape):
        self.dims, self.operand, self.indices, self.sizes = dims, operand, indices, sizes
        gone = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
        self.window_dims = tuple(d for d in range(len(operand)) if d not in gone)
        self.batch_shape = indices[:-1]
        rank = len(self.batch_shape) + len(self.window_dims)
        self.check(rank)
        self.batch_axes = tuple(a for a in range(rank) if a not in dims.offset_dims)
        shape = [0] * rank
        for axis, n in zip(self.batch_axes, self.batch_shape, strict=True):
            shape[axis] = n
        for axis, d in zip(dims.offset_dims, self.window_dims, strict=True):
            shape[axis] = sizes[d]
        self.shape = tuple(shape)
        self.single = all(n == 1 for n in self.batch_shape)
        self.limits = [operand[d] - sizes[d] for d in dims.start_index_map]
        self._plan()

    def check(self, rank: int) -> None:
        dims, operand, sizes = self.dims, self.operand, self.sizes
        gone = (*dims.collapsed_slice_dims, *dims.operand_batching_dims)
        groups = gone, dims.start_index_map
        problem = None
        if len(sizes) != len(operand) or any(
            not 0 <= s <= max(n, 1) for s, n in zip(sizes, operand, strict=False)
        ):
            problem = "slice sizes must be one per axis of the operand, and at most its length"
        elif any(not 0 <= d < len(operand) for g in groups for d in g):
            problem = f"axes of the operand must lie in [0, {len(operand)})"
        elif any(len(set(g)) < len(g) for g in groups):
            problem = "axes of the operand must be distinct"
        elif len(dims.offset_dims) != len(self.window_dims):
            problem = (
                f"the windows have {len(self.window_dims)} axes that are neither collapsed nor "
                "batching; as many offset (update window) axes are expected"
            )
        elif sorted(set(dims.offset_dims)) != list(dims.offset_dims):
            problem = "offset (update window) axes must be sorted and distinct"
        elif any(not 0 <= a < rank for a in dims.offset_dims):
            problem = f"offset (update window) axes must lie in [0, {rank})"
        elif self.indices[-1:] != (len(dims.start_index_map),):
            problem = "the last axis of the indices must have one entry per indexed operand axis"
        elif any(sizes[d] > 1 for d in (*dims.collapsed_slice_dims, *dims.operand_batching_dims)):
            problem = "windows must have size 1 along collapsed and batching axes"
        elif len(dims.operand_batching_dims) != len(dims.start_indices_batching_dims) or any(
            operand[d] != self.indices[a]
            for d, a in zip(dims.operand_batching_dims, dims.start_indices_batching_dims)
        ):
            problem = "batching axes of operand and indices must come in pairs of equal length"
        if problem:
            raise ShapeError(
                f"{problem}; the operand has shape {operand}, the indices {self.indices}, the "
                f"windows {sizes}, with {dims}"
            )

    def _plan(self) -> None:
        dims, operand, sizes = self.dims, self.operand, self.sizes
        partial = [d for d in self.window_dims if sizes[d] != operand[d]]
        touched = [*dims.collapsed_slice_dims, *dims.operand_batching_dims, *partial]
        lo, hi = (min(touched), max(touched) + 1) if touched else (0, 0)
        self.before, self.block, self.after = operand[:lo], operand[lo:hi], operand[hi:]
        self.lo, self.hi = lo, hi
        self.strides = [0] * len(operand)
        stride = 1
        for d in reversed(range(lo, hi)):
            self.strides[d] = stride
            stride *= operand[d]
        self.block_size = stride
        inner = [d for d in self.window_dims if lo <= d < hi]
        self.inner_shape = tuple(sizes[d] for d in inner)
        # As computed, the result's axes are: before, batch, inner, after. `perm` gives the result.
        axis_of = dict(zip(self.window_dims, dims.offset_dims, strict=True))
        outer = [axis_of[d] for d in self.window_dims if d < lo]
        made = [*outer, *self.batch_axes, *(axis_of[d] for d in inner)]
        made += [axis_of[d] for d in self.window_dims if d >= hi]
        self.made = tuple(made)
        self.perm = None if made == sorted(made) else tuple(made.index(k) for k in range(len(made)))
        # One index along one axis, and nothing else: the index is the position.
        self.plain = (
            len(dims.start_index_map) == 1 and touched == [*dims.start_index_map] and not inner
        )
        self.offsets: Any = None
        for k, d in enumerate(inner):
            steps = np.arange(sizes[d]) * self.strides[d]
            self._offset(steps.reshape(-1, *(1,) * (len(inner) - 1 - k)))
        for d, a in zip(dims.operand_batching_dims, dims.start_indices_batching_dims):
            steps = np.arange(operand[d]) * self.strides[d]
            rank = len(self.batch_shape) + len(inner)
            self._offset(steps.reshape(-1, *(1,) * (rank - 1 - a)))

    def _offset(self, steps: np.ndarray) -> None:
        self.offsets = steps if self.offsets is None else self.offsets + steps

    # --- of numbers -----------------------------------------------------------------------------

    def positions(self, indices: np.ndarray, mode: GatherScatterMode) -> tuple[Any, Any]:
        """Positions in the block, shape (*batch, *inner); and which windows are inside, or None."""
        if indices.dtype != _INT:
            indices = indices.astype(_INT)
        if self.plain:
            start = indices.reshape(self.batch_shape)
            if mode is GatherScatterMode.PROMISE_IN_BOUNDS:
                return start, None  # `take` clips
            return self._one(start, mode, self.limits[0])
        total = inside = None
        for k, d in enumerate(self.dims.start_index_map):
            start, good = self._one(indices[..., k], mode, self.limits[k])
            if good is not None:
                inside = good if inside is None else inside & good
            if self.lo <= d < self.hi:
                stride = self.strides[d]
                part = start if stride == 1 else start * stride
                total = part if total is None else total + part
        if total is None:
            total = np.zeros(self.batch_shape, _INT)
        if self.inner_shape:
            total = total.reshape(*self.batch_shape, *(1,) * len(self.inner_shape))
        if self.offsets is not None:
            total = total + self.offsets
        return total, inside

    @staticmethod
    def _one(start: np.ndarray, mode: GatherScatterMode, limit: int) -> tuple[Any, Any]:
        """Starts along one axis, moved inside; and which were inside already, or None for all."""
        if mode is FILL:
            good = (start >= 0) & (start <= limit)
            if good.all():
                return start, None
            return np.where(good, start, 0), good
        return np.minimum(np.maximum(start, 0), limit), None

    def box(self, indices: np.ndarray) -> tuple[tuple[slice, ...], bool]:
        """The only window (where `single`) as slices of the operand; and whether it is inside."""
        starts = [0] * len(self.operand)
        inside = True
        for i, d, limit in zip(
            indices.reshape(-1).tolist(), self.dims.start_index_map, self.limits, strict=True
        ):
            starts[d] = min(max(i, 0), limit)
            inside = inside and starts[d] == i
        return tuple([slice(s, s + n) for s, n in zip(starts, self.sizes)]), inside

    # --- of expressions -------------------------------------------------------------------------

    def element(self, indices: Operand, index: tuple[Expr, ...], mode: GatherScatterMode) -> tuple:
        """The operand's index of element `index` of the result; and whether its window is inside."""
        batch = [index[a] for a in self.batch_axes]
        at: list[Expr] = [scalar.size(0)] * len(self.operand)
        inside = scalar.const(True, "bool")
        for k, d in enumerate(self.dims.start_index_map):
            start = scalar.cast(indices(*batch, scalar.size(k)), "int64")
            limit = scalar.size(self.limits[k])
            if mode is FILL:
                zero = scalar.size(0)
                inside = scalar.logical_and(inside, scalar.compare("ge", start, zero))
                inside = scalar.logical_and(inside, scalar.compare("le", start, limit))
            at[d] = scalar.clamp(scalar.size(0), start, limit)
        for d, a in zip(self.dims.operand_batching_dims, self.dims.start_indices_batching_dims):
            at[d] = batch[a]
        for d, axis in zip(self.window_dims, self.dims.offset_dims, strict=True):
            at[d] = scalar.add(at[d], index[axis])
        return tuple(at), inside


@lru_cache(maxsize=4096)
def windows(dims: GatherDimensionNumbers, operand: Shape, indices: Shape, sizes: Shape) -> Windows:
    """The windows of a gather; remembered."""
    return Windows(dims, operand, indices, sizes)


@lru_cache(maxsize=4096)
def scatter_windows(
    dims: ScatterDimensionNumbers, operand: Shape, indices: Shape, updates: Shape
) -> Windows:
    """The windows of a scatter; remembered."""
    sizes = [1] * len(operand)
    gone = (*dims.inserted_window_dims, *dims.operand_batching_dims)
    kept = [d for d in range(len(operand)) if d not in gone]
    if len(kept) != len(dims.update_window_dims):
        raise ShapeError(
            f"the operand of shape {operand} has {len(kept)} axes that are neither inserted nor "
            f"batching; as many update window axes are expected, not {dims.update_window_dims}"
        )
    for d, axis in zip(kept, dims.update_window_dims, strict=True):
        if not 0 <= axis < len(updates):
            raise ShapeError(
                f"update window axis {axis} does not exist in updates of shape {updates}"
            )
        sizes[d] = updates[axis]
    found = windows(as_gather(dims), operand, indices, tuple(sizes))
    if found.shape != updates:
        raise ShapeError(
            f"updates of shape {updates} do not fit: indices of shape {indices} with {dims} need "
            f"updates of shape {found.shape}"
        )
    return found


def check_indices(name: str, dtype: np.dtype) -> None:
    """Raise TypeMismatch unless indices are integers."""
    if not dtypes.is_integer(dtype):
        raise TypeMismatch(
            f"{name} needs indices of an integer dtype, not {dtype}; convert them with .astype(int)"
        )


def default_fill(dtype: np.dtype) -> Any:
    """What a gather gives outside of its operand: nan, the least int, the largest uint, True."""
    kind = dtypes.kind(dtype)
    if kind in "fc":
        return np.nan
    if kind == "b":
        return True
    info = dtypes.iinfo(dtype)
    return info.min if kind == "i" else info.max
