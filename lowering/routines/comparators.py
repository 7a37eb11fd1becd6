"""The orders that sorts know, as expressions of the values of two items; and networks that sort few."""

from collections.abc import Callable, Sequence

from fnx.core import scalar
from fnx.core.scalar import Expr

from .batched_matrices import is_complex

Values = Sequence[Expr]
Less = Callable[[Values, Values], Expr]


def either(a: Expr, b: Expr) -> Expr:
    return scalar.node("or", "bool", (a, b))


def negated(a: Expr) -> Expr:
    return scalar.apply("not", a)


def before(a: Expr, b: Expr) -> Expr:
    """Whether a comes before b: nans last, complex numbers by their parts as NumPy does."""
    if a.dtype == "bool":
        return scalar.logical_and(negated(a), b)
    if is_complex(a.dtype):
        return _complex_before(a, b)
    if "float" not in a.dtype:
        return scalar.compare("lt", a, b)
    return scalar.logical_and(scalar.compare("eq", a, a), negated(scalar.compare("ge", a, b)))


def _complex_before(a: Expr, b: Expr) -> Expr:
    """Parts in order; numbers with a nan come last, those with a real nan after the others."""
    ar, ai, br, bi = (scalar.apply(p, x) for x in (a, b) for p in ("real", "imag"))
    a_good, b_nan = scalar.compare("eq", ai, ai), scalar.compare("ne", bi, bi)
    only_b = scalar.logical_and(b_nan, a_good)
    equal = either(scalar.compare("lt", ai, bi), only_b)
    nans = scalar.logical_and(scalar.compare("ne", ar, ar), scalar.compare("ne", br, br))
    same = either(scalar.compare("eq", ar, br), nans)
    found = scalar.select(same, equal, scalar.compare("ne", br, br))
    found = scalar.select(scalar.compare("gt", ar, br), only_b, found)
    return scalar.select(scalar.compare("lt", ar, br), either(a_good, b_nan), found)


def by_keys(count: int) -> Less:
    """The order by the first `count` values, the later ones among equals of the earlier."""

    def less(a: Values, b: Values) -> Expr:
        found = before(a[count - 1], b[count - 1])
        for k in range(count - 2, -1, -1):
            equal = negated(before(b[k], a[k]))
            found = either(before(a[k], b[k]), scalar.logical_and(equal, found))
        return found

    return less


def descending(a: Values, b: Values) -> Expr:
    return before(b[0], a[0])


def less(a: Values, b: Values) -> Expr:
    return scalar.compare("lt", a[0], b[0])


def greater(a: Values, b: Values) -> Expr:
    return scalar.compare("gt", a[0], b[0])


def network(items: list[list[Expr]], less: Less) -> list[list[Expr]]:
    """The items sorted by exchanges of neighbours, which keep the order of equals."""
    items = list(items)
    for turn in range(len(items)):
        for k in range(turn % 2, len(items) - 1, 2):
            a, b = items[k], items[k + 1]
            swap = less(b, a)
            items[k] = [scalar.select(swap, y, x) for x, y in zip(a, b, strict=True)]
            items[k + 1] = [scalar.select(swap, x, y) for x, y in zip(a, b, strict=True)]
    return items
