"""The transport between ranks of MPI, and the one between the threads of all ranks.

Input: arrays of one shape and dtype, one from each rank.
Output: each rank's result, a new array.
Legal when: all ranks make the same exchanges in the same order, each from one thread at a time; with the
setting `check` they tell each other what they come to, and those that differ are an error in all of them.
Costs: one call of MPI an exchange, two where that is checked. What is only moved goes as bytes, so that any
dtype will do; sums of halves are made in float32, and truth values combine as bytes.

`Ranks` is hierarchical (as MPI libraries are within a node): the threads of a rank meet first, the first of
them speaks for all with the other ranks, and all take their part of the answer.
"""

import importlib
from collections.abc import Callable, Sequence
from functools import reduce
from threading import get_ident
from time import monotonic
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.errors import MissingPackage
from fnx.core.source import user_source
from fnx.core.transport import Groups, TransportError, blank

# What each thread waits for, and since when: a communicator, the call, seconds of `monotonic`; and
# whether the others may take as long as they like.
waiting: dict[int | None, tuple["Mpi", str, float, bool]] = {}
_OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum}
_HALVES = ("float16", "bfloat16")
_NOTHING = np.empty(0, np.uint8)


def world() -> Any:
    """mpi4py's MPI; MissingPackage, which says what to install, where there is none."""
    try:
        MPI: Any = importlib.import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        raise MissingPackage(
            f"MPI is not available: {error}. Install it with `pip install fnx[mpi]` (mpi4py and MPICH); on "
            "a cluster, `pip install mpi4py` uses the MPI that is there."
        ) from error
    return MPI


class Mpi:
    """One rank's end of exchanges between the ranks of a communicator of mpi4py's."""

    def __init__(self, comm: Any):
        self.comm, self.rank, self.size = comm, comm.Get_rank(), comm.Get_size()
        self._groups: dict[Groups, Mpi] = {}
        self._kinds: dict[tuple[np.dtype, str], Any] = {}  # MPI's operations

    def _call(self, call: Callable, *args: Any) -> None:
        self.wait(call.__name__, call, *args)

    def wait(self, what: str, call: Callable, *args: Any, patient: bool = False) -> Any:
        """The result of a call that waits for other ranks, who may take their time if `patient`."""
        me = get_ident()
        waiting[me] = self, what, monotonic(), patient
        try:
            return call(*args)
        except world().Exception as error:
            raise TransportError(f"MPI between {self.size} ranks: {error}") from error
        finally:
            waiting.pop(me, None)

    def _check(self, what: str, x: np.ndarray) -> None:
        """With the setting `check`: TransportError in all ranks if they come to different exchanges."""
        if not config.check.value:
            return
        own = f"{what} of {x.dtype.name}{list(x.shape)}"
        found: list[tuple[str, str]] = []

        def compare() -> None:
            found.extend(self.comm.allgather((own, str(user_source() or "an unknown line"))))

        self._call(compare)
        if len({said for said, _ in found}) > 1:
            lines = [f"\n  {k}: {said}, at {line}" for k, (said, line) in enumerate(found)]
            raise TransportError(f"ranks come to different exchanges:{''.join(lines)}")

    def world_ranks(self) -> list[int]:
        """The numbers, among all ranks, of those of the communicator."""
        group, everyone = self.comm.Get_group(), world().COMM_WORLD.Get_group()
        return group.Translate_ranks(list(range(self.size)), everyone)

    def all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        self._check(op, x)
        kind = self._kinds.get((x.dtype, op))
        if kind is None:
            return self._all_reduce_else(x, op)
        made = blank(x)
        self._call(self.comm.Allreduce, x, made, kind)
        return made

    def _all_reduce_else(self, x: np.ndarray, op: str) -> np.ndarray:
        """What MPI does not reduce by itself, or not as is meant here."""
        x = np.asarray(x, order="C")  # of rank 0, too, which np.ascontiguousarray makes rank 1 of
        if op != "sum" and np.issubdtype(x.dtype, np.inexact):
            # MPI does not say what a nan is.
            return np.asarray(_reduced(op, self.all_gather(x)))
        mpi = world()
        if x.dtype.name in _HALVES:
            return self.all_reduce(x.astype(np.float32), op).astype(x.dtype)
        if x.dtype == np.bool_:
            kind = mpi.BAND if op == "min" else mpi.BOR
            made = np.empty(x.shape, np.uint8)
            self._call(self.comm.Allreduce, x.view(np.uint8), made, kind)
            return made.view(np.bool_)
        self._kinds[x.dtype, op] = {"sum": mpi.SUM, "max": mpi.MAX, "min": mpi.MIN}[op]
        return self.all_reduce(x, op)

    def all_gather(self, x: np.ndarray) -> np.ndarray:
        self._check("gather", x)
        made = np.empty((self.size, *x.shape), x.dtype)
        self._call(self.comm.Allgather, _bytes(x), _bytes(made))
        return made

    def reduce_scatter(self, x: np.ndarray, op: str) -> np.ndarray:
        if x.dtype.name in _HALVES:
            return self.reduce_scatter(x.astype(np.float32), op).astype(x.dtype)
        return np.asarray(_reduced(op, self.all_to_all(x))).astype(x.dtype)  # in the order of ranks

    def all_to_all(self, x: np.ndarray) -> np.ndarray:
        self._check("all_to_all", x)
        made = np.empty_like(x, order="C")
        self._call(self.comm.Alltoall, _bytes(x), _bytes(made))
        return made

    def permute(self, x: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
        self._check(f"permute {pairs}", x)
        receives = any(b == self.rank for _, b in pairs)
        made = blank(x) if receives else np.zeros_like(x, order="C")
        waiting = [self.comm.Irecv(_bytes(made), a) for a, b in pairs if b == self.rank]
        waiting += [self.comm.Isend(_bytes(x), b) for a, b in pairs if a == self.rank]
        self._call(world().Request.Waitall, waiting)
        return made

    def broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        self._check(f"broadcast from {root}", x)
        made = np.array(x, order="C")
        self._call(self.comm.Bcast, _bytes(made), root)
        return made

    def barrier(self) -> None:
        self._check("barrier", _NOTHING)
        self._call(self.comm.Barrier)

    def split(self, groups: Groups) -> "Mpi":
        if groups not in self._groups:
            (k,) = [k for k, group in enumerate(groups) if self.rank in group]
            self._groups[groups] = Mpi(self.comm.Split(k, groups[k].index(self.rank)))
        return self._groups[groups]


def _reduced(op: str, rows: np.ndarray) -> Any:
    """Rows combined in their order."""
    with np.errstate(all="ignore"):
        return reduce(_OPS[op], rows)


def _bytes(x: np.ndarray) -> np.ndarray:
    """The numbers of an array as bytes; those of one that is contiguous, in place."""
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


class _ByGathering:
    """Exchanges that move elements, made of gathering from all: where threads speak for each other."""

    rank: int

    def all_gather(self, x: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        raise NotImplementedError

    def reduce_scatter(self, x: np.ndarray, op: str) -> np.ndarray:
        return self.all_reduce(x, op)[self.rank]

    def all_to_all(self, x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(self.all_gather(x)[:, self.rank])

    def permute(self, x: np.ndarray, pairs: tuple[tuple[int, int], ...]) -> np.ndarray:
        source = {b: a for a, b in pairs}.get(self.rank)
        everything = self.all_gather(x)
        return np.zeros_like(x, order="C") if source is None else everything[source].copy()

    def broadcast(self, x: np.ndarray, root: int) -> np.ndarray:
        return self.all_gather(x)[root].copy()


class Ranks(_ByGathering):
    """One thread's end of exchanges between all threads of all ranks.

    Members are numbered rank by rank. `threads` is the transport between those of this rank.
    """

    def __init__(self, threads: Any, ranks: Mpi):
        self.threads, self.ranks = threads, ranks
        self.rank = ranks.rank * threads.size + threads.rank
        self.size = ranks.size * threads.size

    def _among_ranks(
        self, x: np.ndarray, call: Callable[[np.ndarray], np.ndarray], like: Any
    ) -> Any:
        """What the first thread's call makes of `x`, in all threads; `like` has its shape."""
        made = call(x) if self.threads.rank == 0 else np.empty(*like)
        return self.threads.broadcast(made, 0)

    def all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        wide = x.astype(np.float32) if x.dtype.name in _HALVES else x
        here = self.threads.all_reduce(wide, op)
        like = (here.shape, here.dtype)
        return self._among_ranks(here, lambda v: self.ranks.all_reduce(v, op), like).astype(x.dtype)

    def all_gather(self, x: np.ndarray) -> np.ndarray:
        here = self.threads.all_gather(x)
        like = ((self.ranks.size, *here.shape), x.dtype)
        return self._among_ranks(here, self.ranks.all_gather, like).reshape(self.size, *x.shape)

    def barrier(self) -> None:
        self.threads.barrier()
        if self.threads.rank == 0:
            self.ranks.barrier()
        self.threads.barrier()

    def split(self, groups: Groups) -> "Group":
        (mine,) = [group for group in groups if self.rank in group]
        return Group(self, mine)


class Group(_ByGathering):
    """Exchanges within a group of members of an axis, made of gathering from all of the axis."""

    def __init__(self, axis: Ranks, members: Sequence[int]):
        self.axis, self.members = axis, list(members)
        self.rank, self.size = self.members.index(axis.rank), len(members)

    def all_gather(self, x: np.ndarray) -> np.ndarray:
        return self.axis.all_gather(x)[self.members]

    def all_reduce(self, x: np.ndarray, op: str) -> np.ndarray:
        wide = x.astype(np.float32) if x.dtype.name in _HALVES else x
        return np.asarray(_reduced(op, self.all_gather(wide))).astype(x.dtype)

    def barrier(self) -> None:
        self.axis.barrier()

    def split(self, groups: Groups) -> "Group":
        (mine,) = [group for group in groups if self.rank in group]
        return Group(self.axis, [self.members[k] for k in mine])


__all__ = ["Mpi", "Ranks", "world"]
