"""The transport between threads of one process: shared slots and a barrier.

Each member lays a reference to its array into its slot, all meet, each computes its own result from all
slots, and all meet again before a slot may change: a bulk-synchronous superstep (Valiant 1990).

Input: arrays of one shape and dtype, one from each member.
Output: each member's result, a new array.
Legal when: each member runs in a thread of its own, and all make the same exchanges in the same order.
A member that raises ends the others at once; one that returns early is missed when their time is over.
Costs: two barriers an exchange; a reduction is computed by every member.
"""

import threading
from collections.abc import Callable, Hashable, Sequence
from contextvars import copy_context
from functools import reduce
from typing import Any

import numpy as np

from fnx.core.transport import Groups, TransportError, use

_OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


class _Shared:
    """What the members of one axis, or of one group of it, have in common."""

    def __init__(self, size: int, timeout: float, above: "_Shared | None" = None):
        self.timeout = timeout
        self.slots: list[Any] = [None] * size
        self.meeting = threading.Barrier(size)
        self.groups: dict[Groups, list[_Shared]] = {}
        # The whole axis fails together: its groups have this in common.
        self.failures: list[BaseException] = [] if above is None else above.failures
        self.lock: Any = threading.Lock() if above is None else above.lock

    def meet(self, what: str) -> None:
        """Wait for all members; TransportError if one failed or does not come."""
        try:
            self.meeting.wait(self.timeout)
        except threading.BrokenBarrierError:
            with self.lock:
                cause = self.failures[0] if self.failures else None
            late = f"a member did not come within {self.timeout:g} s"
            why = late if cause is None else f"another member failed: {cause!r}"
            raise TransportError(f"{what} between {len(self.slots)} threads: {why}") from cause

    def abort(self, error: BaseException | None = None) -> None:
        """Let all who wait, and who will, fail."""
        with self.lock:
            if error is not None:
                self.failures.append(error)
            everyone = [self]
            for one in everyone:
                one.meeting.abort()
                everyone += [s for some in one.groups.values() for s in some]

    def split(self, groups: Groups) -> list["_Shared"]:
        """What the members of each group have in common."""
        with self.lock:
            if groups not in self.groups:
                self.groups[groups] = [_Shared(len(g), self.timeout, self) for g in groups]
                if self.meeting.broken:
                    for one in self.groups[groups]:
                        one.meeting.abort()
            return self.groups[groups]


class Member:
    """The transport of one member."""

    def __init__(self, shared: _Shared, rank: int):
        self.shared, self.rank = shared, rank
        self.size = len(shared.slots)

    def exchange(self, what: tuple, x: np.ndarray, fn: Callable[[list[np.ndarray]], Any]) -> Any:
        """`fn` of all members' arrays; `what`, which says what is done, must be the same in all."""
        shared = self.shared
        shared.slots[self.rank] = ((*what, x.shape, x.dtype), x)
        shared.meet(what[0])
        try:
            given = [said for said, _ in shared.slots]
            if any(said != given[0] for said in given):
                raise TransportError(f"members of one exchange disagree: {given}")
            return np.array(fn([y for _, y in shared.slots]), x.dtype)
        except BaseException as error:
            shared.abort(error)
            raise
        finally:
            if not shared.meeting.broken:
                shared.meet(what[0])

    def all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        return self.exchange(("all_reduce", op), x, lambda ys: reduce(_OPS[op], ys))

    def all_gather(self, x: np.ndarray) -> np.ndarray:
        return self.exchange(("all_gather",), x, np.stack)

    def reduce_scatter(self, x: np.ndarray, op: str) -> np.ndarray:
        rows = lambda ys: reduce(_OPS[op], [y[self.rank] for y in ys])
        return self.exchange(("reduce_scatter", op), x, rows)

    def all_to_all(self, x: np.ndarray) -> np.ndarray:
        return self.exchange(("all_to_all",), x, lambda ys: np.stack([y[self.rank] for y in ys]))

    def permute(self, x: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
        source = {b: a for a, b in pairs}.get(self.rank)
        mine = lambda ys: np.zeros_like(x) if source is None else ys[source]
        return self.exchange(("permute", tuple(pairs)), x, mine)

    def broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        return self.exchange(("broadcast", root), x, lambda ys: ys[root])

    def barrier(self) -> None:
        self.shared.meet("barrier")

    def split(self, groups: Groups) -> "Member":
        (k,) = [k for k, group in enumerate(groups) if self.rank in group]
        return Member(self.shared.split(groups)[k], groups[k].index(self.rank))


class Local:
    """An axis of `size` members that are threads of this process.

    `timeout`, in seconds, is how long a member waits for the others in one exchange.
    """

    def __init__(self, size: int, timeout: float = 60.0):
        self.size, self.timeout = size, timeout

    def run(self, name: Hashable, program: Callable[..., Any], *args: Sequence) -> list:
        """`program(arg[k], ...)` in a thread for each member k; what they return.

        The transport is in force under the name. If members fail, the first one's error is raised.
        """
        shared = _Shared(self.size, self.timeout)
        results: list[Any] = [None] * self.size

        def member(rank: int) -> None:
            try:
                with use({name: Member(shared, rank)}):
                    results[rank] = program(*[a[rank] for a in args])
            except BaseException as error:
                shared.abort(error)

        threads = [
            threading.Thread(target=copy_context().run, args=(member, k), daemon=True)
            for k in range(self.size)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if shared.failures:
            raise shared.failures[0]
        return results


__all__ = ["Local", "Member"]
