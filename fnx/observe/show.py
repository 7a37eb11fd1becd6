"""`fnx.show`: a function's jaxpr, coloured and drawn, with the user's lines; or a tree with its types."""

from collections.abc import Callable
from functools import partial
from typing import Any

from fnx.core.jaxpr import ClosedJaxpr, Jaxpr
from fnx.core.source import name_of
from fnx.interpreters.primitives.jit import Jit
from fnx.observe.displays import jaxprs, markup, trees
from fnx.observe.displays.graphs import graph
from fnx.transforms.make_jaxpr import make_jaxpr


class Shown:
    """A jaxpr to look at: text when it is printed, HTML with a graph in a notebook.

    >>> shown = fnx.show(fnx.grad(jnp.sin))(1.0)
    >>> "cos" in str(shown) and "<svg" in shown._repr_html_()
    True
    """

    def __init__(self, jaxpr: Jaxpr, name: str):
        self.jaxpr, self.name = jaxpr, name

    def __str__(self) -> str:
        return jaxprs.plain(jaxprs.Printer().lines(self.jaxpr))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        size = jaxprs.count(self.jaxpr)
        kinds = f"{', '.join([a.str_short() for a in self.jaxpr.in_avals])} → "
        kinds += ", ".join([a.str_short() for a in self.jaxpr.out_avals])
        title = markup.head(self.name, f"{kinds[:400]}; {markup.counted(size, 'equation')}")
        drawn = markup.folded("graph", graph(self.jaxpr), shown=True)
        return markup.page(title, self._listings(), drawn)

    def _listings(self) -> str:
        """The jaxpr; of a derivative by reverse mode, what computes values beside what goes back."""
        adjoint = jaxprs.adjoint_part(self.jaxpr)
        if not adjoint:
            return jaxprs.listing(jaxprs.Printer().lines(self.jaxpr))
        primal, back = jaxprs.Printer().sides(self.jaxpr, adjoint)
        sides = [
            f'<div class="side">{markup.span("soft", title)}{jaxprs.listing(lines)}</div>'
            for title, lines in (("primal", primal), ("adjoint", back))
        ]
        return f'<div class="sides">{"".join(sides)}</div>'


def show(x: Any, /, **options: Any) -> Any:
    """Of a function, the one that shows its jaxpr for some arguments; of a pytree, its leaves' types.

    Each equation names, and in a notebook links to, the line that wrote it. `options` are those of
    `fnx.make_jaxpr`. The object is text when it is printed, and HTML with a graph in a notebook.

    >>> fnx.show(lambda x: x * 2.0)(1.0).jaxpr
    { lambda ; a:f64[]*. let b:f64[]* = mul a 2.0:f64[]* in (b,) }
    >>> fnx.show([jnp.ones((2, 3)), 0])
    [0]  f64[2,3]
    [1]  int: 0
    """
    if isinstance(x, ClosedJaxpr):
        return Shown(x.jaxpr, x.jaxpr.name or "jaxpr")
    if isinstance(x, Jaxpr):
        return Shown(x, x.name or "jaxpr")
    if callable(x) and (isinstance(x, partial) or trees.is_leaf(x)):
        return _showing(x, options)
    return trees.Tree(x)


def _showing(f: Callable, options: dict) -> Callable[..., Shown]:
    make = make_jaxpr(f, **options)

    def shown(*args: Any, **kwargs: Any) -> Shown:
        """The function's jaxpr for these arguments, to look at."""
        return Shown(_within(make(*args, **kwargs).jaxpr), name_of(f))

    return shown


def _within(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr of a function that is jitted as a whole; of any other one itself."""
    while len(jaxpr.eqns) == 1:
        (eqn,) = jaxpr.eqns
        if type(eqn.prim) is not Jit or (eqn.inputs, eqn.outs) != (jaxpr.inputs, jaxpr.outs):
            break
        jaxpr = eqn.prim.jaxpr
    return jaxpr


__all__ = ["Shown", "show"]
