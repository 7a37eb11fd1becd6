"""Checks of an evaluation's arrays: one flag for all, and a second evaluation where it is raised.

The flag is a reduction that fuses with the elements that it is about, so that these need no memory of their
own. Where it is raised, equations run again from what is in memory anyway, and tell which check failed
first, at which element, and of what operands.
"""

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from fnx import numpy
from fnx.control_flow import cond
from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, Literal, Var
from fnx.core.source import members_of
from fnx.experimental.check_state import Checks
from fnx.experimental.checks import Site
from fnx.lax.parameterized import stop_gradient
from fnx.numpy.arrays.key_arrays import is_keys
from fnx.pytree import operations

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see

Bad = Callable[[list, list], Array]  # of an equation's operands and results: which elements are bad


@dataclass(frozen=True, eq=False)
class ElementCheck:
    """A check of each element of an equation: its place among all checks, and of what it tells."""

    eqn: Eqn
    bad: Bad
    place: int
    site: Site
    given: list[int]  # the operands of which it tells
    line: str

    @property
    def avals(self) -> list[ShapedArray]:
        """The number of the first bad element, and its operands."""
        operands = [self.eqn.inputs[k].aval for k in self.given]
        return [_NUMBER, *[a.update(shape=(), weak_type=False) for a in operands]]

    def first(self, values: list, bad: Array) -> list[Array]:
        """The values of `avals`."""
        k = jnp.argmax(jnp.ravel(bad)).astype(np.int64)
        given = [values[j] for j in self.given]
        found = [jnp.ravel(x)[k] if x.ndim else x for x in given]
        return [k, *(jnp.asarray(x, a.dtype) for x, a in zip(found, self.avals[1:]))]


class ArrayChecks:
    """Those of one evaluation of a jaxpr; what they find is told when it closes.

    >>> from fnx.experimental.array_checks import ArrayChecks
    >>> from fnx.experimental.check_state import Checks
    >>> ArrayChecks(Checks()).checks
    []
    """

    def __init__(self, all_checks: Checks) -> None:
        self.all_checks = all_checks
        self.checks: list[ElementCheck] = []
        self.masks: dict[tuple[int, ...], Array] = {}

    def add(self, text: str, line: str, eqn: Eqn, bad: Bad, values: list, outs: list) -> None:
        """A check of each element; its site tells of the first bad one, and of its operands."""
        mask = bad(values, outs)
        shape = np.shape(mask)
        if 0 in shape:
            return
        given = [k for k, v in enumerate(values) if v.aval.shape in ((), shape) and not is_keys(v)]
        count = operations.tree_structure(((0,) * (1 + len(given)), {}))
        site = Site(text + line, count, shape, True, tuple(members_of(eqn.source, shape)))
        check = ElementCheck(eqn, bad, self.all_checks.reserve(), site, given, line)
        if not shape:  # evaluated at once: it costs no more than to ask whether it must be
            self.all_checks.fill(check.place, site, ~mask, check.first(values, mask))
            return
        self.checks.append(check)
        before = self.masks.get(shape)
        self.masks[shape] = mask if before is None else before | mask

    def close(self, eqns: list[Eqn], read: Callable[[Any], Array]) -> None:
        """The values of all checks, in a branch that runs where one of them failed."""
        if not self.checks:
            return
        again, operands = _slice(eqns, self.checks)
        xs = [stop_gradient(read(v)) for v in operands]
        avals = [a for c in self.checks for a in (_FLAG, *c.avals)]
        flag = reduce(jnp.logical_or, [jnp.any(m) for m in self.masks.values()])

        def tell(*xs: Array) -> list[Array]:
            return self._evaluate(again, dict(zip(operands, xs)))

        def good(*_: Array) -> list[Array]:
            return [as_array(jnp.zeros(a.shape, a.dtype)) for a in avals]

        found = list(cond(flag, tell, good, *xs))
        told = []
        for c in self.checks:
            failed, *rest = (found.pop(0) for _ in range(1 + len(c.avals)))
            self.all_checks.fill(c.place, c.site, ~failed, rest)
            told.append(failed)
        # Sums of products may be rounded otherwise when they are evaluated again.
        names = ", ".join(sorted({c.eqn.prim.name for c in self.checks}))
        text = f"nan or division by zero by one of these primitives: {names}.{self.checks[-1].line}"
        self.all_checks.add(Site(text), ~flag | reduce(jnp.logical_or, told), ())

    def _evaluate(self, eqns: list[Eqn], env: dict[Var, Any]) -> list[Array]:
        def read(a: Any) -> Array:
            return a.value if isinstance(a, Literal) else env[a]

        for eqn in eqns:
            env.update(zip(eqn.outs, eqn.prim.apply(*map(read, eqn.inputs)), strict=True))
        found = []
        for c in self.checks:
            values = [read(a) for a in c.eqn.inputs]
            bad = c.bad(values, [env.get(v) for v in c.eqn.outs])
            found += [jnp.any(bad), *c.first(values, bad)]
        return found


def _slice(eqns: list[Eqn], checks: list[ElementCheck]) -> tuple[list[Eqn], list[Var]]:
    """The equations that run again for these checks, and the variables from which they do.

    What costs little for an element runs again; other results are in memory.
    """
    of_checks = {id(c.eqn) for c in checks}
    needed: dict[Var, None] = {}  # in an order that is the same in each process
    again: list[Eqn] = []
    for eqn in reversed(eqns):
        cheap = (eqn.prim.elementwise or eqn.prim.moves) and not eqn.prim.effects
        run = cheap and (id(eqn) in of_checks or any(v in needed for v in eqn.outs))
        if id(eqn) in of_checks and not run:
            needed.update(dict.fromkeys(eqn.outs))
        if run:
            again.append(eqn)
        if run or id(eqn) in of_checks:
            needed.update((a, None) for a in eqn.inputs if isinstance(a, Var))
    made = {v for e in again for v in e.outs}
    return again[::-1], [v for v in needed if v not in made]


_NUMBER, _FLAG = ShapedArray((), np.dtype(np.int64)), ShapedArray((), np.dtype(bool))

__all__ = ["ArrayChecks"]
