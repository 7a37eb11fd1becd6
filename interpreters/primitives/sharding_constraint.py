"""The primitive that says how an array is to lie on devices: no more than its operand for all else."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray, see_placed
from fnx.core.aval import ShapedArray
from fnx.core.cost import FREE
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Jaxpr, Var
from fnx.core.recipe import Operand, Point, Recipe
from fnx.ops.base.linear import Linear
from fnx.ops.structure.basic import move_axis

Names = tuple[str, ...]


@dataclass(frozen=True)
class ShardingConstraint(Linear):
    """The operand, which lies as `sharding` says: along `cut`, the names of mesh axes for each axis.

    An axis without names is whole, but for those in `free`, which may lie anyhow.
    """

    sharding: Any
    cut: tuple[Names, ...]
    free: tuple[int, ...] = ()
    name = "sharding_constraint"
    cost = FREE
    transparent = "final"
    on_devices = "values"

    def applied(self, atoms: Sequence[Atom]) -> Jaxpr:
        """What remains of it in a program for one."""
        x = Var(atoms[0].aval)
        return Jaxpr([x], [], [x])

    def abstract(self, x: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        return (x,)

    def apply(self, *args: Array) -> tuple[Array, ...]:
        (x,) = Linear.apply(self, *args)
        if type(x) is not ConcreteArray:
            return (x,)
        found = ConcreteArray(x._value, x.weak_type)
        found.placed = self.sharding
        see_placed()
        return (found,)

    def __call__(self, *args: Array) -> Any:
        return self.apply(*args)[0]

    def impl(self, x: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return x

    def transpose(self, cts: tuple, x: Any) -> tuple:  # type: ignore[override]
        return (self(cts[0]),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        # The members of a batch lie anyhow.
        free, spec = (0, *[k + 1 for k in self.free]), self.sharding.spec
        sharding = self.sharding.update(spec=(None, *spec))
        new = ShardingConstraint(sharding, ((), *self.cut), free)
        return (new(move_axis(args[0], axes[0], 0)),), (0,)

    def lower(self, x: Operand) -> Recipe:  # type: ignore[override]
        return Point(x)

    def partition(self, grid: Any, parts: list) -> list:
        (p,) = parts
        wanted = self.cut_in(grid)
        asked = {n for names in wanted for n in names}
        kept = [o if asked.isdisjoint(o) else () for o in p.cut]
        cut = [o if k in self.free else c for k, (o, c) in enumerate(zip(kept, wanted))]
        return [grid.lay(p, tuple(cut))]

    def wish(self, grid: Any, known: Sequence) -> list:
        return [self.cut_in(grid)]

    def cut_in(self, grid: Any) -> tuple[Names, ...]:
        """The names along which it is cut, but for those of axes with one member."""
        return tuple([tuple([n for n in names if n in grid.sizes]) for names in self.cut])

    def params(self) -> dict[str, Any]:
        return {"sharding": self.sharding, "unconstrained_dims": self.free}


__all__ = ["ShardingConstraint"]
