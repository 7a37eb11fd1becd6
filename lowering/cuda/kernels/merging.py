"""Sorting by many threads: runs are merged by ranks, every element by a thread of its own.

An element's place in two merged runs is its place in its own run and how many elements of the other run
go before it, which a binary search tells. Each pass doubles the runs; equal elements of the first go first,
so the order is stable. The passes are a loop around one kernel, to which the length of a run is a number.

Source: merging by ranks (Shiloach & Vishkin 1981).
"""

from collections.abc import Callable, Sequence

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Let, Loop, Stmt, While

Values = Sequence[Expr]
_ONE = scalar.size(1)


def _named(values: Values) -> tuple[list[Expr], Stmt]:
    names = [scalar.var(e.dtype, "v") for e in values]
    return names, Let(names, list(values))


def _least(a: Expr, b: Expr) -> Expr:
    return scalar.apply("min", a, b)


def passes(n: int) -> int:
    """How many passes sort n elements."""
    return (n - 1).bit_length()


def loop(count: int, width: int, total: int, one: Callable[[Expr, Expr, Expr], list[Stmt]]) -> Stmt:
    """Passes from one half of buffers of 2 * total elements to the other, the first half first.

    one(width, source, target) are the statements of a pass, from where the halves begin.
    """
    w, h = scalar.var("int64", "w"), scalar.var("int64", "h")
    target = scalar.sub(scalar.size(total), h)
    t = scalar.counter("t", max(count, 1))
    start = [scalar.const(width, "int64"), scalar.size(0)]
    return Loop(t, scalar.size(count), one(w, h, target), [w, h], start, [scalar.add(w, w), target])


def placed(
    length: int,
    width: Expr,
    i: Expr,
    read: Callable[[Expr], Values],
    less: Callable[[Values, Values], Expr],
    put: Callable[[Expr, Values], list[Stmt]],
) -> list[Stmt]:
    """Put the i-th of `length` elements, in runs of `width`, where it goes in runs twice as long."""
    n, twice = scalar.size(length), scalar.add(width, width)
    start = scalar.apply("and", i, scalar.apply("neg", twice))
    middle = _least(scalar.add(start, width), n)
    end = _least(scalar.add(start, twice), n)
    is_left = scalar.compare("lt", i, middle)
    mine, let = _named(read(i))
    first = scalar.select(is_left, middle, start)  # of the other run
    low, high = scalar.var("int64", "l"), scalar.var("int64", "h")
    between = scalar.apply("shift_right_logical", scalar.add(low, high), scalar.const(1, "int64"))
    (at,), let_at = _named([between])
    other, let_other = _named(read(at))
    goes_before = scalar.select(is_left, less(other, mine), scalar.apply("not", less(mine, other)))
    yields = [
        scalar.select(goes_before, scalar.add(at, _ONE), low),
        scalar.select(goes_before, high, at),
    ]
    search = While(
        [],
        scalar.compare("lt", low, high),
        [let_at, let_other],
        [low, high],
        [first, scalar.select(is_left, end, middle)],
        yields,
    )
    own = scalar.sub(i, scalar.select(is_left, start, middle))
    place = scalar.add(scalar.add(start, own), scalar.sub(low, first))
    return [let, search, *put(place, mine)]
