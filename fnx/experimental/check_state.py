"""What checks have found so far, while a program is traced with them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fnx import numpy
from fnx.core.array import Array, ConcreteArray, as_written
from fnx.experimental.checks import Error, Site

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see


class State:
    """What the checks so far have found: the first site that failed, and each site's values.

    `iterations` are those in which it failed of the loops around it within this part of the program.

    >>> from fnx.experimental.check_state import State
    >>> State().error().get() is None
    True
    """

    def __init__(self) -> None:
        self.code: Array = as_written(ConcreteArray(np.zeros((), np.int32)))
        self.sites: list[Placed] = []
        self.values: list[tuple[Array, ...]] = []
        self.iterations: list[Any] = []

    def add(self, site: Site, good: Any, values: Sequence[Array]) -> None:
        code = jnp.where(good, np.int32(0), np.int32(1))
        self.merge(Found([(site, ())], [len(values)], 0), [code, *values])

    def merge(self, found: "Found", leaves: Sequence[Any], loop: str = "") -> None:
        """Take over the state of a part of the program that ran after what is known.

        That of a loop has the iteration that failed behind it.
        """
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
    """What a state's leaves are: sites, the number of values of each, and of iterations behind them.

    >>> from fnx.experimental.check_state import State
    >>> State().found()
    Found(sites=[], counts=[], depth=0)
    """

    sites: list[Placed]
    counts: list[int]
    depth: int


__all__ = ["Found", "State"]
