"""Elements that are found by loops of their own, such as samples that are drawn until one is accepted."""

from collections.abc import Callable, Sequence
from math import prod

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Shape, Value
from fnx.lowering.ir.kernel import Fill, Loop, LoopKind, Stmt, Store, While

from .batched_matrices import at, each_item, finish, loop, named, place, work


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
        self.body.append(While([], more(*carried), inner, carried, list(init), yields))
        return carried


def search(builder: Generation, r: recipe.Search, out: Value, name: str) -> None:
    """Each element by its own loops; or an item at a time, the rounds of all its elements in turn."""
    destination = place(builder, out)

    def element(index: tuple[Expr, ...], *states: Expr) -> list[Stmt]:
        loops = _Loops()
        made = r.fn(loops.repeat, *states, *index)
        return [*loops.body, Store(destination.buffer, destination.position(r.shape, index), made)]

    if out.size and not r.rounds:
        each_item(builder, r.shape, element, name, parallel=True)
    elif out.size:
        lead, inner = r.shape[: r.batch_axes], r.shape[r.batch_axes :]
        places = [[work(builder, e.dtype, prod(inner)) for e in x.states] for x in r.rounds]

        def item(index: tuple[Expr, ...]) -> list[Stmt]:
            body: list[Stmt] = []
            for rounds, states in zip(r.rounds, places, strict=True):
                body += _rounds(rounds, index, inner, states)

            def last(k: Expr) -> list[Stmt]:
                left = [_load(s, k) for states in places for s in states]
                return element((*index, *unraveled(k, inner)), *left)

            return [*body, loop(prod(inner), last)]

        each_item(builder, lead, item, name)
    finish(builder, out)


def _load(stored: Materialized, k: Expr) -> Expr:
    return scalar.load(stored.buffer, k, stored.buffer.dtype)


def _rounds(
    r: recipe.Rounds, item: tuple[Expr, ...], inner: Shape, states: list[Materialized]
) -> list[Stmt]:
    """Draw for all elements of an item, as vectors, until each is done."""
    n, yes = scalar.size(prod(inner)), scalar.const(True, "bool")
    start = list(r.start(*item))
    carried, waiting = [scalar.var(e.dtype, "c") for e in start], scalar.var("bool", "waiting")
    k, every = scalar.var("int64", "k"), scalar.var("bool", "every")
    before = [_load(s, k) for s in states]
    after, done = r.draw(carried, before, *item, *unraveled(k, inner))
    names, let = named([*after, done], "x")
    stores = [Store(s.buffer, k, x) for s, x in zip(states, names, strict=False)]
    yields = [scalar.apply("and", every, names[-1])]
    each = Loop(k, n, [let, *stores], [every], [yes], yields, kind=LoopKind.VECTORIZED)
    following = [*r.step(carried), scalar.apply("not", every)]
    search = While([], waiting, [each], [*carried, waiting], [*start, yes], following)
    return [*[Fill(at(s), n, e) for s, e in zip(states, r.states, strict=True)], search]


def unraveled(k: Expr, shape: Shape) -> tuple[Expr, ...]:
    """The index of element `k` in row-major order."""
    index: list[Expr] = []
    for n in reversed(shape[1:]):
        k, i = scalar.divmod_size(k, n)
        index.append(i)
    return (*([k] if shape else []), *reversed(index))
