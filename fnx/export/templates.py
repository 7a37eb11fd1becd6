"""One program for all sizes: traced at a few, and the numbers in it that differ found as polynomials.

Trees of jaxprs (`encoding.py`) that were traced at different sizes are laid over each other. What is a
number in all of them, and not the same, is a polynomial of degree 2 at most in the dimension variables, or
its inverse; there is one sample more than coefficients, which it must meet. Whatever else differs is an
error.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.errors import InvalidValue
from fnx.export.dimensions import Monomial, SymbolicScope

Sizes = dict[str, int]
# What variables are while a program is traced: primes, and multiples of small powers for constraints.
_CANDIDATES = (
    11,
    13,
    17,
    19,
    23,
    29,
    31,
    37,
    12,
    16,
    24,
    32,
    40,
    48,
    56,
    64,
    96,
    128,
    192,
    256,
    1,
    2,
    3,
    4,
    8,
)


def monomials(names: Sequence[str]) -> list[Monomial]:
    """All of degree 2 at most."""
    found: list[Monomial] = [()]
    for degree in (1, 2):
        found += itertools.combinations_with_replacement(sorted(names), degree)
    return found


def sample_sizes(names: Sequence[str], scope: SymbolicScope | None) -> list[Sizes]:
    """Sizes to trace at: as many as coefficients and one more, and such as determine these."""
    names = sorted(names)
    count, found = len(monomials(names)) + 1, []
    rows: list[list[int]] = []
    for sizes in _assignments(names):
        if scope is not None and scope.broken(sizes):
            continue
        row = [_value(m, sizes) for m in monomials(names)]
        independent = np.linalg.matrix_rank(np.array([*rows, row], float)) > len(rows)
        if independent or len(rows) == count - 1:
            rows.append(row)
            found.append(sizes)
        if len(found) == count:
            return found
    raise InvalidValue(
        f"the constraints {', '.join(scope.texts) if scope else ''} leave too few sizes to export for; "
        "expected constraints that leave many"
    )


def _assignments(names: Sequence[str]) -> Iterator[Sizes]:
    """Combinations of the candidates; first such in which no two variables are equal."""
    combinations = itertools.islice(itertools.product(_CANDIDATES, repeat=len(names)), 100_000)
    for values in sorted(combinations, key=lambda v: len(set(v)) < len(v)):
        yield dict(zip(names, values, strict=True))


def _value(monomial: Monomial, sizes: Sizes) -> int:
    total = 1
    for name in monomial:
        total *= sizes[name]
    return total


# --- trees laid over each other ----------------------------------------------------------------


class Overlay:
    """The template of the trees of one program at `samples`."""

    def __init__(self, samples: Sequence[Sizes]):
        self.samples = samples
        self.monomials = monomials(list(samples[0]))
        rows = [[_value(m, s) for m in self.monomials] for s in samples]
        self.matrix = np.array(rows, float)

    def of(self, trees: Sequence[Any]) -> Any:
        """The common tree, in which ["size", ...] and ["inverse", ...] stand for numbers that differ."""
        first = trees[0]
        if all(t == first and type(t) is type(first) for t in trees):
            return first
        if all(type(t) is int for t in trees):
            return ["size", *self._terms(trees, trees)]
        if all(type(t) is list and len(t) == len(first) for t in trees):
            if first and first[0] == "number" and all(t[:3] == first[:3] for t in trees):
                return self._number(trees)
            if first and first[0] == "array":
                raise self._error([f"a constant of shape {tuple(t[3])}" for t in trees])
            return [self.of(parts) for parts in zip(*trees, strict=True)]
        if all(type(t) is list for t in trees):
            raise self._error([f"{len(t)} operations or parameters" for t in trees])
        raise self._error(trees)

    def _number(self, trees: Sequence[list]) -> list:
        """A number of rank 0: an integer, or a float that is a size or the inverse of one."""
        tag, name, weak, _ = trees[0]
        values = [t[3] for t in trees]
        if type(values[0]) is int:
            return [tag, name, weak, self.of(values)]
        numbers = [float.fromhex(v[1]) for v in values]
        if all(x == int(x) for x in numbers):
            return [tag, name, weak, ["size", *self._terms([int(x) for x in numbers], numbers)]]
        sizes = [round(1 / x) if x else 0 for x in numbers]
        rounded = [float(np.asarray(1 / n, dtypes.canonical(name))) if n else 0.0 for n in sizes]
        if rounded != numbers:
            raise self._error(numbers)
        return [tag, name, weak, ["inverse", *self._terms(sizes, numbers)]]

    def _terms(self, values: Sequence[int], shown: Sequence[Any]) -> list:
        """Pairs of monomial and coefficient."""
        found, *_ = np.linalg.lstsq(self.matrix, np.array(values, float), rcond=None)
        terms = [
            [list(m), int(c)] for m, c in zip(self.monomials, np.rint(found), strict=True) if c
        ]
        if [_sum(terms, s) for s in self.samples] != list(values):
            raise self._error(shown)
        return terms

    def _error(self, values: Sequence[Any]) -> InvalidValue:
        shown = "; ".join(f"{v!s:.60} for {s}" for v, s in list(zip(values, self.samples))[:3])
        return InvalidValue(
            f"a program of symbolic sizes contains what is no polynomial of them of degree 2: {shown}. "
            "Export it for sizes that are numbers, or pass what depends on them as an argument"
        )


def _sum(terms: Sequence[list], sizes: Sizes) -> int:
    return sum([c * _value(tuple(m), sizes) for m, c in terms])


def at(template: Any, sizes: Sizes) -> Any:
    """The tree of a template for these sizes."""
    if type(template) is not list or not template:
        return template
    if template[0] == "size":
        return _sum(template[1:], sizes)
    if template[0] == "inverse":
        return ["float", (1 / _sum(template[1:], sizes)).hex()]
    return [at(part, sizes) for part in template]
