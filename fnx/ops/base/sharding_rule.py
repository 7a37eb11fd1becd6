"""Rules of sharding: which axes of a primitive's operands and results are cut together.

An axis has a *factor*, a name that all axes share which are cut alike (the factors of Shardy's rules, and
of an einsum): of a product of matrices "ij, jk -> ik" there are three. An axis without one must be whole.

`Primitive.sharding(*avals)` is a primitive's rule, a `Factors`, or None where all operands must be whole.
Primitives that read elements from other places along an axis have `along(grid, parts)` besides, which may
know how to do that with what neighbours have: `grid` is the partitioner (interpreters/partition), whose
`window`, `moved`, `join`, `apply` and `choose` it calls.
"""

from collections.abc import Callable, Mapping, Sequence
from math import gcd, prod
from typing import Any

Axes = tuple[Any, ...]
Combine = tuple[Any, Any]
"""How what members computed along an axis that disappears becomes the whole.

"sum", "max", "min", or the class of reductions of which one is applied to all members' results; and what
stands in for elements that are not there.
"""
_NOTHING: Mapping[Any, Any] = {}


class Factors:
    """The factors of each operand's and each result's axes.

    `combined`: how axes that are reduced are, by factor. `multiple`: numbers that a factor's number of
    parts must divide. `local`: the primitive for parts, of how many parts factors have, if it is another.
    """

    __slots__ = ("combined", "local", "multiple", "operands", "results")

    def __init__(
        self,
        operands: tuple[Axes, ...],
        results: tuple[Axes, ...],
        combined: Mapping[Any, Combine] = _NOTHING,
        multiple: Mapping[Any, int] = _NOTHING,
        local: Callable[[Mapping[Any, int]], Any] | None = None,
    ):
        self.operands, self.results = operands, results
        self.combined, self.multiple, self.local = combined, multiple, local


def part(size: int, parts: int) -> int:
    """The elements of an axis that each member has room for; the last ones may have fewer."""
    return -(-size // parts)


def axis_by_axis(rank: int, *ranks: int) -> Factors:
    """Operands of these ranks, and a result, of one shape; those of rank 0 beside them."""
    axes = tuple(range(rank))
    return Factors(tuple([axes if n == rank else () for n in ranks]), (axes,))


def all_but(rank: int, whole: Sequence[int], operands: int = 1, results: int = 1) -> Factors:
    """Operands and results of one rank, whose axes are cut alike but for those that must be whole."""
    axes = tuple([None if k in whole else k for k in range(rank)])
    return Factors((axes,) * operands, (axes,) * results)


def reduced_axes(rank: int, axes: Sequence[int], op: Any, identity: Any) -> Factors:
    """The reduction of an operand over axes."""
    kept = tuple([k for k in range(rank) if k not in axes])
    return Factors((tuple(range(rank)),), (kept,), dict.fromkeys(axes, (op, identity)))


def reshape_factors(old: Sequence[int], new: Sequence[int]) -> tuple[Axes, Axes, dict[Any, int]]:
    """The factors of a shape and of another of as many elements, and what their parts must divide.

    Axes that are as long together go with each other: of each such group the outermost may be cut.
    """
    left: list[Any] = [None] * len(old)
    right: list[Any] = [None] * len(new)
    multiple: dict[Any, int] = {}
    i = j = 0
    while i < len(old) and j < len(new):
        k, m = i + 1, j + 1
        while prod(old[i:k]) != prod(new[j:m]):
            if prod(old[i:k]) < prod(new[j:m]):
                k += 1
            else:
                m += 1
        a = next((d for d in range(i, k) if old[d] != 1), i)
        b = next((d for d in range(j, m) if new[d] != 1), j)
        left[a] = right[b] = a
        if k - a > 1 or m - b > 1:
            multiple[a] = gcd(old[a], new[b])
        i, j = k, m
    return tuple(left), tuple(right), multiple


__all__ = ["Factors", "all_but", "axis_by_axis", "part", "reduced_axes", "reshape_factors"]
