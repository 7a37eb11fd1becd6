"""Transports: how members of a named axis exchange arrays, and which transport is in force.

The members of an axis run the same program, each on its own data (SPMD: single program, multiple data;
Darema 1988). A collective that stays an equation is performed by the `Transport` that is in force for the
name of its axis when the program runs: `with use({"i": transport}): ...`. It is a context variable: a
member that is a thread has its own. Programs do not hold a transport, so that all members, and later
runs with another transport, share one compiled program.
"""

from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import numpy as np

from fnx.core.errors import FnxError, UnboundAxis
from fnx.core.threads.atomic import during, setter

Groups = tuple[tuple[int, ...], ...]


class Transport(Protocol):
    """One member's end of an exchange between `size` members, of which it is number `rank`.

    All members call the same methods in the same order with arrays of one shape and dtype (MPI 4.1,
    ch. 6). Arguments are buffers on the host, C contiguous and not to be written or kept; results are new
    arrays. What cannot be done any more, because a member failed, left, or does something else, raises
    `TransportError` in every member that waits: none waits for ever.
    """

    rank: int
    size: int

    def all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        """All members' `x` combined elementwise by `op`: "sum", "max" or "min"; equal in all members."""
        ...

    def all_gather(self, x: np.ndarray) -> np.ndarray:
        """All members' `x`, stacked along a new axis 0."""
        ...

    def reduce_scatter(self, x: np.ndarray, op: str) -> np.ndarray:
        """Row `rank` of what `all_reduce` gives; `x` has `size` rows."""
        ...

    def all_to_all(self, x: np.ndarray) -> np.ndarray:
        """Row k is row `rank` of member k's `x`, which has `size` rows."""
        ...

    def permute(self, x: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
        """`x` of member a where (a, rank) is one of `pairs`, zeros if none is."""
        ...

    def broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        """`x` of member `root`."""
        ...

    def barrier(self) -> None:
        """Wait until all members are here."""
        ...

    def split(self, groups: Groups) -> "Transport":
        """The transport between the members of this member's group, ranked as they stand in it."""
        ...


class MissingTransport(UnboundAxis):
    """A program with a collective was run, and no transport is in force for its axis."""


class TransportError(FnxError, RuntimeError):
    """An exchange failed: another member failed, does something else, or does not come."""


# Where the caller of an exchange, native code, wants its result; a transport may put it elsewhere.
destination: ContextVar[np.ndarray | None] = ContextVar("fnx_destination", default=None)


def blank(x: np.ndarray) -> np.ndarray:
    """Memory for a result of this array's type: where it is wanted, if that is known."""
    wanted = destination.get()
    if wanted is None or wanted is x or wanted.shape != x.shape or wanted.dtype != x.dtype:
        return np.empty(x.shape, x.dtype)
    return wanted


_NONE: Mapping[Hashable, Transport] = {}
_in_force: ContextVar[Mapping[Hashable, Transport]] = ContextVar("fnx_transports", default=_NONE)
_set_in_force = setter(_in_force)


@contextmanager
def use(transports: Mapping[Hashable, Transport]) -> Iterator[None]:
    """Perform collectives over these named axes by these transports, beside those in force already."""
    with during(_set_in_force, {**_in_force.get(), **transports}):
        yield


def in_force(axis_name: Hashable, what: str) -> Transport:
    """The transport for a named axis; MissingTransport, which names the collective, if there is none."""
    found = _in_force.get()
    if axis_name not in found:
        known = ", ".join(map(repr, found)) or "none"
        raise MissingTransport(
            f"{what} over the axis {axis_name!r}: unbound axis name: {axis_name}. No vmap, pmap or "
            f"shard_map binds it, and no transport is in force for it (for: {known}). Run each member's "
            f"program within `with fnx.core.transport.use({{{axis_name!r}: transport}})`."
        )
    return found[axis_name]


__all__ = [
    "MissingTransport",
    "Transport",
    "TransportError",
    "blank",
    "destination",
    "in_force",
    "use",
]
