"""Recipes: what a primitive tells lowering about its outputs; the only words that the two share.

A `lower` rule gets its operands as pull arrays, `Operand`s: `x.shape`, `x.dtype`, and `x(*index)`,
the expression of one element. It answers with one recipe, or a tuple of one per output. Whether an
operand is stored or computed on the fly where it is read is lowering's choice, not the rule's.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fnx.core.fast_dataclasses import dataclass
from fnx.core.scalar import Expr
from fnx.core.source import LoopSite

Shape = tuple[int, ...]


class Operand(Protocol):
    """A pull array: called with one int64 expression per axis, it gives an element."""

    shape: Shape
    dtype: str

    def __call__(self, *index: Expr) -> Expr: ...


class Recipe:
    """Base of all recipes."""


@dataclass(frozen=True, eq=False)
class Point(Recipe):
    """Element `index` of the output is `fn(*index)`."""

    fn: Callable[..., Expr]


@dataclass(frozen=True, eq=False)
class Reshape(Recipe):
    """The output has the operand's elements in row-major order."""

    operand: Operand


@dataclass(frozen=True, eq=False)
class Piece:
    """A box of the output, `lo[k] <= index[k] < hi[k]`, and its elements, by the output's index."""

    lo: Shape
    hi: Shape
    fn: Callable[..., Expr]


@dataclass(frozen=True, eq=False)
class Pieces(Recipe):
    """Disjoint boxes that cover the output (concatenate, pad)."""

    pieces: tuple[Piece, ...]


def around(shape: Shape, low: Shape, high: Shape) -> list[tuple[Shape, Shape]]:
    """Disjoint boxes that cover an array without a box: two slabs an axis, later ones narrower."""
    found = []
    for k, n in enumerate(shape):
        before, after, rest = low[:k], high[:k], shape[k + 1 :]
        zeros = (0,) * len(rest)
        if low[k] > 0:
            found.append(((*before, 0, *zeros), (*after, low[k], *rest)))
        if high[k] < n:
            found.append(((*before, high[k], *zeros), (*after, n, *rest)))
    return found


@dataclass(frozen=True, eq=False)
class Fold(Recipe):
    """Folds over `axes` of an iteration space `shape`; outputs are indexed by the other axes.

    `fn(*index)` gives the values at a point, `combine(accumulators, values)` the next accumulators,
    all tuples with one entry per output; `init` are expressions. `reassociate` allows any order of
    combination (sums and products of floats). Axes are in order, however they were named.
    """

    shape: Shape
    axes: tuple[int, ...]
    init: tuple[Expr, ...]
    fn: Callable[..., tuple[Expr, ...]]
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]
    reassociate: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", tuple(sorted(self.axes)))


@dataclass(frozen=True, eq=False)
class Cumulative(Recipe):
    """As Fold along one axis of `shape`, where every partial result is an element of the output."""

    shape: Shape
    axis: int
    reverse: bool
    init: tuple[Expr, ...]
    fn: Callable[..., tuple[Expr, ...]]
    combine: Callable[[tuple[Expr, ...], tuple[Expr, ...]], tuple[Expr, ...]]


@dataclass(frozen=True, eq=False)
class Update(Recipe):
    """The operand, with elements replaced, in the row-major order of `shape` (scatter, `.at[]`).

    For each index of `shape`: `target(*index)` gives (predicate, output index); where the predicate
    holds, the element becomes `combine(old, value(*index))`, or `value` when `combine` is None.
    `unique` says that no element is written twice, `runs` that updates of an element follow one another
    along the first axis. Written in place where the operand dies.
    """

    operand: Operand
    shape: Shape
    target: Callable[..., tuple[Expr, tuple[Expr, ...]]]
    value: Callable[..., Expr]
    combine: Callable[[Expr, Expr], Expr] | None = None
    unique: bool = False
    runs: bool = False
    box: tuple[Shape, Shape] | None = None  # it changes all of lo <= index < hi, in that order


@dataclass(frozen=True, eq=False)
class Products(Recipe):
    """Sums of products of two operands' elements, which `left` and `right` read: convolutions.

    out[index[:kept]] = sum over index[kept:] of left(*index) * right(*index), index within `shape`;
    `place(*index[:kept])` is the index in the output, every element of which has one such point.
    Positions are sums of multiples of the index in each operand; nothing is read conditionally.
    """

    operands: tuple[Operand, Operand]
    shape: Shape
    kept: int
    left: Callable[..., Expr]
    right: Callable[..., Expr]
    place: Callable[..., tuple[Expr, ...]]


class Repeat(Protocol):
    """A loop: `more` and `step` of what is carried; the values for which there is no more."""

    def __call__(
        self,
        init: Sequence[Expr],
        more: Callable[..., Expr],
        step: Callable[..., Sequence[Expr]],
    ) -> Sequence[Expr]: ...


@dataclass(frozen=True, eq=False)
class Search(Recipe):
    """Element `index` of the output, of `shape`, is `fn(repeat, *index)`, by loops of its own.

    `fn` may use `repeat`, and inside a step of it too, as often as it needs. After `rounds` it is
    `fn(repeat, *states, *index)`, with the states of the element that all of them left.
    """

    shape: Shape
    fn: Callable[..., Expr]
    batch_axes: int = 0
    rounds: tuple["Rounds", ...] = ()


@dataclass(frozen=True, eq=False)
class Rounds:
    """What elements with the first `Search.batch_axes` indices in common do together, before `Search.fn`.

    Each has states, `states` at first. In a round `draw(carried, states, *index)` gives an element's
    next ones, and whether it is done; rounds end when all are. Between two of them `carried`, which all
    have in common and `start(*index[:batch_axes])` makes, becomes `step(carried)`.
    """

    states: tuple[Expr, ...]
    start: Callable[..., Sequence[Expr]]
    step: Callable[[Sequence[Expr]], Sequence[Expr]]
    draw: Callable[..., tuple[Sequence[Expr], Expr]]


@dataclass(frozen=True, eq=False)
class Library(Recipe):
    """A library routine on stored operands, by name, with static parameters."""

    name: str
    operands: tuple[Operand, ...]
    params: Any = None


@dataclass(frozen=True, eq=False)
class Host(Recipe):
    """The primitive's own `impl`, called back from native code on stored operands."""


# --- regions: jaxprs that become loops, branches, or part of the program around them ------------------


@dataclass(frozen=True, eq=False)
class Call(Recipe):
    """Run `jaxpr` on the operands."""

    jaxpr: Any


@dataclass(frozen=True, eq=False)
class Branch(Recipe):
    """Operand 0, an int32, clamped to the range, says which jaxpr runs on the other operands."""

    jaxprs: Sequence[Any]


@dataclass(frozen=True, eq=False)
class While(Recipe):
    """Operands: constants of the condition, constants of the body, carry. Results: the carry."""

    cond: Any
    cond_consts: int
    body: Any
    body_consts: int
    site: LoopSite | None = None
    progress: bool = False


@dataclass(frozen=True, eq=False)
class Loop(Recipe):
    """Operands: constants, carry, xs; `jaxpr`: (constants, carry, x) -> (carry, y), `length` times.

    Results: the last carry, then the stacked ys. `reverse` runs from the last x to the first. With
    `counted`, the first constant says how many iterations are run; the other rows of ys hold anything.
    """

    jaxpr: Any
    consts: int
    carry: int
    length: int
    reverse: bool = False
    counted: bool = False
    site: LoopSite | None = None
    progress: bool = False
