"""What checks have found so far, while a program is traced with them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fnx import numpy
from fnx.core.array import Array, ConcreteArray, as_written
from fnx.experimental.checks import Error, Site

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see


class Checks:
    """The checks of a part of the program, in its order; what some found is told later (`fill`).

    >>> from fnx.experimental.check_state import Checks
    >>> Checks().outcome().error().get() is None
    True
    """

    def __init__(self) -> None:
        self.parts: list[Part | None] = []

    def add(self, site: Site, good: Any, values: Sequence[Array]) -> None:
        """A check of which `values` tell, if it is not good."""
        self.fill(self.reserve(), site, good, values)

    def reserve(self) -> int:
        """A place for a check that is evaluated after others that follow it."""
        self.parts.append(None)
        return len(self.parts) - 1

    def fill(self, place: int, site: Site, good: Any, values: Sequence[Array]) -> None:
        code = jnp.where(good, np.int32(0), np.int32(1))
        self.parts[place] = Found([(site, ())], [len(values)], 0), [code, *values], ""

    def merge(self, found: "Found", leaves: Sequence[Any], loop: str = "") -> None:
        """Checks of a part of this part; those of a loop have the iteration that failed behind them."""
        self.parts.append((found, leaves, loop))

    def outcome(self) -> "Outcome":
        """What they found, all told."""
        outcome = Outcome()
        for part in self.parts:
            assert part is not None, "a check that was never evaluated"
            outcome.merge(*part)
        return outcome


class Outcome:
    """What checks have found: the first site that failed, and each site's values.

    `iterations` are those in which it failed of the loops around it within this part of the program.

    >>> from fnx.experimental.check_state import Outcome
    >>> Outcome().found()
    Found(sites=[], counts=[], depth=0)
    """

    def __init__(self) -> None:
        self.code: Array = as_written(ConcreteArray(np.zeros((), np.int32)))
        self.sites: list[Placed] = []
        self.values: list[tuple[Array, ...]] = []
        self.iterations: list[Any] = []

    def merge(self, found: "Found", leaves: Sequence[Any], loop: str = "") -> None:
        """Take over what was found in a part of the program that ran after what is known."""
        code, rest = leaves[0], list(leaves[1:])
        offset = np.int32(len(self.sites))
        fresh = jnp.where(code == 0, np.int32(0), code + offset)
        earlier = self.code != 0
        self.code = jnp.where(earlier, self.code, fresh)
        around = (loop,) if loop else ()
        self.sites += [(site, (*around, *loops)) for site, loops in found.sites]
        for n in found.counts:
            self.values.append(tuple(rest[:n]))
            del rest[:n]
        inner = [*rest[found.depth :], *rest[: found.depth]]  # outermost first
        for k, number in enumerate(inner):
            if k < len(self.iterations):
                self.iterations[k] = jnp.where(earlier, self.iterations[k], number)
            else:
                self.iterations.append(number)

    def leaves(self) -> list[Array]:
        return [self.code, *(v for site in self.values for v in site), *self.iterations]

    def found(self) -> "Found":
        return Found(self.sites, [len(v) for v in self.values], len(self.iterations))

    def error(self) -> Error:
        """As users see it: each site with its values, and the iterations of its loops."""
        sites = [replace(s, loops=(*loops, *s.loops)) for s, loops in self.sites]
        values = []
        for (site, loops), own in zip(self.sites, self.values, strict=True):
            k = len(own) - len(site.loops)
            values.append((*own[:k], *self.iterations[: len(loops)], *own[k:]))
        return Error(self.code, values, tuple(sites))


Placed = tuple[Site, tuple[str, ...]]  # a site, and the loops around it


class Found(NamedTuple):
    """What an outcome's leaves are: sites, the number of values of each, and of iterations behind them.

    >>> from fnx.experimental.check_state import Checks
    >>> Checks().outcome().found()
    Found(sites=[], counts=[], depth=0)
    """

    sites: list[Placed]
    counts: list[int]
    depth: int


Part = tuple[Found, Sequence[Any], str]  # what it is of, its leaves, and the loop that it is

__all__ = ["Checks", "Found", "Outcome"]
