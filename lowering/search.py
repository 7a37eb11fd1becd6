"""Elements that are found by loops of their own, such as samples that are drawn until one is accepted."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from fnx.core import recipe, scalar
from fnx.core.scalar import Expr

from .kernel import Loop, Stmt, Store, While
from .stacks import each_item, finish, loop, place, prod
from .values import Handle, Shape

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

    def element(index: tuple[Expr, ...], *most: Expr) -> list[Stmt]:
        loops = _Loops()
        found = r.fn(loops.repeat, *most, *index)
        return [*loops.body, Store(target.buffer, target.position(r.shape, index), found)]

    def lane(index: tuple[Expr, ...]) -> list[Stmt]:
        counting, most = _counted(r, index)
        inner = r.shape[r.lanes :]
        make = lambda k: element((*index, *unraveled(k, inner)), most)
        return [counting, loop(prod(inner), make)]

    if out.size and r.count is None:
        each_item(builder, r.shape, element, name, parallel=True)
    elif out.size:
        each_item(builder, r.shape[: r.lanes], lane, name)
    finish(builder, out)


def _counted(r: recipe.Search, lane: tuple[Expr, ...]) -> tuple[Stmt, Expr]:
    """The loop that finds the largest count of a lane, and that count."""
    assert r.count is not None
    inner, loops = r.shape[r.lanes :], _Loops()
    k, most = scalar.var("int64", "k"), scalar.var("int64", "most")
    found = r.count(loops.repeat, *lane, *unraveled(k, inner))
    yields = [scalar.apply("max", most, found)]
    size = scalar.size(prod(inner))
    return Loop(k, size, loops.body, [most], [scalar.size(0)], yields), most


def unraveled(k: Expr, shape: Shape) -> tuple[Expr, ...]:
    """The index of element `k` in row-major order."""
    index: list[Expr] = []
    for n in reversed(shape[1:]):
        k, i = scalar.divmod_size(k, n)
        index.append(i)
    return (*([k] if shape else []), *reversed(index))
