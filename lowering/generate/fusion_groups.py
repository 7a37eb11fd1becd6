"""Fusion groups: values over one iteration space that share a loop nest (`nests.py` makes it).

Source: multi-output fusion of XLA; loop fusion, Allen & Kennedy 2001, ch. 6. A group is open while
values of its shape may still join. A member may read other members at its own index, where they are in
registers; whoever reads a member otherwise closes the group first. Closing it emits one nest, in which
only those members are stored that somebody outside needs.
"""

from collections.abc import Callable, Iterable
from typing import Any

from fnx.core import policy, scalar
from fnx.core.jaxpr import Eqn, Var
from fnx.core.recipe import Fold
from fnx.core.scalar import Expr
from fnx.lowering.ir.expressions import nodes
from fnx.lowering.ir.kernel import Buffer, Stmt

from .values import Shape, Value


def squeezed(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def places(shape: Shape) -> list[tuple[Expr | None, ...]]:
    """The elements of one problem: their numbers along short axes, None along long ones."""
    found: list[tuple] = [()]
    for n in shape:
        along = [None] if n > policy.SMALL else [scalar.size(k) for k in range(n)]
        found = [(*at, i) for at in found for i in along]
    return found


class Member:
    """A value of the group, how an element of it is computed and where it is stored."""

    __slots__ = ("at", "destination", "expr", "fn", "name", "number", "shape", "value")

    def __init__(
        self,
        shape: Shape,
        fn: Callable[..., Expr],
        value: Value | None,
        number: int,
        name: str,
        destination: Callable[..., tuple[Any, Expr]] | None = None,
        at: tuple[Expr | None, ...] | None = None,
    ):
        self.shape, self.fn, self.value, self.number = shape, fn, value, number
        self.name, self.destination = name, destination
        self.at = at  # the index along axes that the group has not, of one element of a problem
        self.expr: Expr


class Reduction:
    """A reduction of the group: its recipe and the values of its results."""

    __slots__ = ("name", "recipe", "results")

    def __init__(self, recipe: Fold, results: list[Value], name: str):
        self.recipe, self.results, self.name = recipe, results, name

    def is_stored(self, builder: Any) -> bool:
        """Whether its results, though accumulated in registers, are too many to be handed on in them."""
        return False

    def stores(self, builder: Any, results: list[list[Expr]]) -> list[Stmt]:
        """What its nest ends with if they are stored."""
        return []

    def settle(self, builder: Any, results: list[list[Expr]]) -> None:
        """Its results are in registers: for each element one of each value."""
        for k, value in enumerate(self.results):
            builder.settle_registers(value, [r[k] for r in results])


class Group:
    """One iteration space, its index variables, and what is computed at each point.

    At a point of a group of problems may be several elements of a value, which has more axes: short ones.
    """

    def __init__(self, shape: Shape):
        self.shape = squeezed(shape)
        self.vars = [scalar.counter("i", n) for n in self.shape]
        self.members: list[Member] = []
        self.reductions: list[Reduction] = []
        self.axes: tuple[int, ...] | None = None  # of the reductions, in the squeezed shape
        self.points: set[tuple[int, ...]] = set()  # ids of indices besides the plain one
        self.open = True
        self.nodes: set[Expr] = set()  # of what is computed problem by problem
        self.others: set[Expr] = set()  # of what is computed point by point
        self.regional = False  # whether members choose by index near their edges

    def index(
        self,
        shape: Shape,
        values: list[Expr] | None = None,
        at: tuple[Expr | None, ...] | None = None,
    ) -> tuple[Expr, ...]:
        """The index of an array of `shape` at the group's point; `at`: along axes it has not."""
        rest = iter(self.vars if values is None else values)
        if at is not None:
            return tuple(next(rest) if i is None else i for i in at)
        zero = scalar.size(0)
        return tuple(zero if n == 1 else next(rest) for n in shape)

    def indices(self, shape: Shape) -> list[tuple[Expr, ...]]:
        """The indices of all elements of an array of `shape` at the group's point."""
        if squeezed(shape) == self.shape:
            return [self.index(shape)]
        return [self.index(shape, at=at) for at in places(shape)]

    def covers(self, shape: Shape, index: tuple[Expr, ...]) -> bool:
        """Whether `index` is the group's own point."""
        if not self.open:
            return False
        pairs = list(zip(index, shape, strict=True))
        key = tuple(id(i) for i, n in pairs if n != 1)
        if self.nodes and any(n <= policy.SMALL for _, n in pairs):
            if all(i.op == "size" for i, n in pairs if n <= policy.SMALL):
                key = tuple(id(i) for i, n in pairs if n > policy.SMALL)
        return key == tuple(map(id, self.vars)) or key in self.points

    def allow(self, values: list[Expr]) -> None:
        self.points.add(tuple(map(id, values)))

    def add_element(
        self, value: Value, fn: Callable[..., Expr], expr: Expr, number: int, name: str, at: Any
    ) -> None:
        """One more element of a problem."""
        member = Member(value.shape, fn, value, number, name, at=at)
        member.expr = expr
        self.members.append(member)
        self.nodes.update(nodes([expr], self.nodes))

    def note(self, exprs: Iterable[Expr]) -> None:
        """Count what a point computes, too; or a problem, which counts what it has in common once."""
        counted = self.nodes or self.others
        counted.update(nodes(exprs, counted))

    def totals(self) -> bool:
        """Whether all that is reduced is reduced to single numbers, part by part if need be."""
        return self.axes is None or len(self.axes) == len(self.shape)

    def is_full(self) -> bool:
        """Whether a point or a problem has so many operations that what follows is better done apart."""
        return len(self.nodes) > policy.PROBLEM_NODES or len(self.others) > policy.NEST_NODES


class Scope:
    """One jaxpr that is being built: its variables, and how far we are."""

    def __init__(self, outer: "Scope | None" = None):
        self.values: dict[Var, Value] = {}
        self.wished: set[Buffer] = set()  # places of carries that values are to take over
        self.position = 0
        self.outer = outer
        self.groups: list[Group] = []
        self.eqns: tuple[Eqn, ...] = ()
        self.chains: set[int] = set()  # box updates that wait for the next of their chain
        self.lanewise: set[int] = set()  # numbers of equations that are computed lanewise
        self.uses: dict[Var, list[int]] = {}  # numbers of reading equations; -1: an output
        self._waiting: list[Value] = []
        self._pruned = -1  # the position at which those that nobody reads any more were left out

    def add(self, var: Var, value: Value) -> Value:
        """Enter a variable with its value."""
        self.values[var] = value
        self._waiting.append(value)
        return value

    def waiting(self) -> list[Value]:
        """The values that the equation at work reads, or one after it."""
        if self._pruned != self.position:
            self._pruned = self.position
            self._waiting = [h for h in self._waiting if h.last_use >= self.position]
        return self._waiting
