"""The transport between threads of one process: shared slots and a barrier.

Each member lays a reference to its array into its slot, all meet, each computes its own result from all
slots, and all meet again before a slot may change: a bulk-synchronous superstep (Valiant 1990).

Input: arrays of one shape and dtype, one from each member.
Output: each member's result, a new array.
Legal when: each member runs in a thread of its own, and all make the same exchanges in the same order.
A member that raises, or returns while others wait for it, ends the others at once.
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


class _Meeting:
    """A barrier whom those who were let go do not see broken: others may end the axis meanwhile."""

    def __init__(self, size: int):
        self.size, self.here, self.round, self.broken = size, 0, 0, False
        self.changed = threading.Condition()

    def wait(self, timeout: float) -> bool:
        """Whether all came."""
        with self.changed:
            if self.broken:
                return False
            mine, self.here = self.round, self.here + 1
            if self.here == self.size:
                self.here, self.round = 0, mine + 1
                self.changed.notify_all()
            else:
                self.changed.wait_for(lambda: self.broken or self.round != mine, timeout)
            if self.round == mine:
                self.broken = True
                self.changed.notify_all()
            return self.round != mine

    def abort(self) -> None:
        with self.changed:
            self.broken = True
            self.changed.notify_all()


class _Shared:
    """What the members of one axis, or of one group of it, have in common."""

    def __init__(self, ranks: Sequence[int], timeout: float, above: "_Shared | None" = None):
        self.timeout, self.ranks = timeout, ranks
        self.slots: list[Any] = [None] * len(ranks)
        self.meeting = _Meeting(len(ranks))
        self.left: list[int] = [] if above is None else above.left
        self.groups: dict[Groups, list[_Shared]] = {}
        # The whole axis fails together: its groups have this in common.
        self.failures: list[BaseException] = [] if above is None else above.failures
        self.lock: Any = threading.Lock() if above is None else above.lock

    def meet(self, what: str) -> None:
        """Wait for all members; TransportError if one failed or does not come."""
        if self.meeting.wait(self.timeout):
            return
        with self.lock:
            cause = self.failures[0] if self.failures else None
            gone = [k for k in self.left if k in self.ranks]
        why = f"a member did not come within {self.timeout:g} s"
        if cause is not None:
            why = f"another member failed: {cause!r}"
        elif gone:
            why = f"member {gone[0]} has ended its program without coming there"
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

    def leave(self, rank: int) -> None:
        """Let those fail who wait for a member that has ended, or will."""
        with self.lock:
            self.left.append(rank)
            everyone = [self]
            for one in everyone:
                if rank in one.ranks:
                    one.meeting.abort()
                everyone += [s for some in one.groups.values() for s in some]

    def split(self, groups: Groups) -> list["_Shared"]:
        """What the members of each group have in common."""
        with self.lock:
            if groups not in self.groups:
                ranks = [[self.ranks[k] for k in g] for g in groups]
                self.groups[groups] = [_Shared(r, self.timeout, self) for r in ranks]
                for one in self.groups[groups]:
                    if self.failures or not set(self.left).isdisjoint(one.ranks):
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
            with np.errstate(all="ignore"):
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
        shared = _Shared(range(self.size), self.timeout)
        results: list[Any] = [None] * self.size

        def member(rank: int) -> None:
            try:
                with use({name: Member(shared, rank)}):
                    results[rank] = program(*[a[rank] for a in args])
                shared.leave(rank)
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
