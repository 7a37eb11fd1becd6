"""Elements that are found by loops of their own, such as samples that are drawn until one is accepted."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr

from .kernel import Fill, Let, Loop, Stmt, Store, While
from .stacks import at, each_item, finish, loop, place, prod, work
from .values import Handle, Shape, Stored

if TYPE_CHECKING:
    from .build import Builder


class _Loops:
    """Statements, in the order in which `repeat` is called."""

    def __init__(self) -> None:
        self.body: list[Stmt] = []

    def repeat(
        self,
        init: Sequence[Expr],
        more: Callable[..., Expr],
        step: Callable[..., Sequence[Expr]],
    ) -> Sequence[Expr]:
        carried = [scalar.var(e.dtype, "c") for e in init]
        outer, self.body = self.body, []
        yields = list(step(*carried))
        inner, self.body = self.body, outer
        self.body.append(While([], more(*carried), inner, carried, list(init), yields, poll=False))
        return carried


def search(builder: "Builder", r: recipe.Search, out: Handle, name: str) -> None:
    target = place(builder, out)
    rounds = r.rounds

    def element(index: tuple[Expr, ...], *found: Expr) -> list[Stmt]:
        loops = _Loops()
        made = r.fn(loops.repeat, *found, *index)
        return [*loops.body, Store(target.buffer, target.position(r.shape, index), made)]

    if out.size and rounds is None:
        each_item(builder, r.shape, element, name, parallel=True)
    elif out.size:
        lead, inner = r.shape[: rounds.lanes], r.shape[rounds.lanes :]
        found, done = (work(builder, dtype, prod(inner)) for dtype in (rounds.dtype, "bool"))

        def lane(index: tuple[Expr, ...]) -> list[Stmt]:
            def last(k: Expr) -> list[Stmt]:
                value = scalar.load(found.buffer, k, rounds.dtype)
                return element((*index, *unraveled(k, inner)), value)

            return [*_rounds(rounds, index, inner, found, done), loop(prod(inner), last)]

        each_item(builder, lead, lane, name)
    finish(builder, out)


def _rounds(
    r: recipe.Rounds, lane: tuple[Expr, ...], inner: Shape, found: Stored, done: Stored
) -> list[Stmt]:
    """Draw for all elements of a lane, as vectors, until each has accepted a number."""
    n, yes, no = scalar.size(prod(inner)), scalar.const(True, "bool"), scalar.const(False, "bool")
    start = list(r.start(*lane))
    carried, waiting = [scalar.var(e.dtype, "c") for e in start], scalar.var("bool", "waiting")
    k, every = scalar.var("int64", "k"), scalar.var("bool", "every")
    value, accepted = r.draw(carried, *lane, *unraveled(k, inner))
    had = scalar.load(done.buffer, k, "bool")
    kept = scalar.select(accepted, value, scalar.load(found.buffer, k, r.dtype))
    has = scalar.apply("or", had, accepted)
    names = [scalar.var(r.dtype, "kept"), scalar.var("bool", "has")]
    stores = [Store(found.buffer, k, names[0]), Store(done.buffer, k, names[1])]
    yields = [scalar.apply("and", every, names[1])]
    body = [Let(names, [kept, has]), *stores]
    each = Loop(k, n, body, [every], [yes], yields, vector=True)
    following = [*r.step(carried), scalar.apply("not", every)]
    search = While([], waiting, [each], [*carried, waiting], [*start, yes], following, poll=False)
    return [
        Fill(at(found), n, scalar.const(-1, r.dtype)),
        Fill(at(done), n, no),
        search,
    ]


def unraveled(k: Expr, shape: Shape) -> tuple[Expr, ...]:
    """The index of element `k` in row-major order."""
    index: list[Expr] = []
    for n in reversed(shape[1:]):
        k, i = scalar.divmod_size(k, n)
        index.append(i)
    return (*([k] if shape else []), *reversed(index))
