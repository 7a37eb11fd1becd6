"""`map` over ranks of MPI, over processes of this machine, or over a client that the user brings.

Whoever is idle takes the next item, so that long items hold up nobody (self-scheduling). Processes of this
machine begin as copies of this one, so that functions and items are there and need not be sent; what they
return is.
"""

import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from multiprocessing.connection import wait
from typing import Any

from tqdm import tqdm

from fnx.core import policy
from fnx.core.errors import InvalidValue, JaxRuntimeError
from fnx.process.devices import ranks

_ASK, _TELL = 1, 2  # tags of messages
_STOP = -1


def map(
    f: Callable,
    items: Iterable,
    *,
    workers: int | None = None,
    client: Any = None,
    retries: int = 2,
    progress: bool | None = None,
) -> list:
    """`[f(x) for x in items]`, computed by many at once, each of whom takes the next item when idle.

    Under `mpiexec` by all ranks, which call it together and all get the results; else by `workers`
    processes of this machine, as many as it has processors, or here if that is one. `client`, a Dask
    client or another executor with `submit`, is used instead if given. An item whose process died is given
    to another one, `retries` times. A bar shows the progress on a terminal, or always, or never. The error
    of the first item that failed is raised.

    >>> fnx.distributed.map(lambda x: x * x, range(5), workers=1)
    [0, 1, 4, 9, 16]
    """
    everything = list(items)
    if workers is not None and workers < 1:
        raise InvalidValue(f"fnx.distributed.map with workers={workers}; expected at least one")
    hidden = None if progress is None else not progress
    first = not ranks or ranks[0].rank == 0
    bar = tqdm(total=len(everything), disable=hidden if first else True, unit="item")
    with bar:
        if client is not None:
            return _by_client(f, everything, client, retries, bar)
        if ranks and ranks[0].size > 1:
            return _by_ranks(f, everything, ranks[0], bar)
        count = min(workers or _processors(), len(everything))
        if count < 2 or not hasattr(os, "fork"):
            return [_here(f, everything, k, bar) for k in range(len(everything))]
        return _Processes(f, everything, count, retries, bar).run()


def _processors() -> int:
    known = getattr(os, "sched_getaffinity", None)
    return len(known(0)) if known else os.cpu_count() or 1


def _here(f: Callable, items: Sequence, k: int, bar: Any) -> Any:
    outcome = _outcome(f, items, k)
    bar.update()
    return _value(outcome, k)


def _outcome(f: Callable, items: Sequence, k: int) -> tuple[bool, Any]:
    """Whether an item could be computed, and its result or error; exits are errors: others wait for us."""
    try:
        return True, f(items[k])
    except BaseException as error:
        error.add_note(f"in item {k} of fnx.distributed.map")
        return False, error


def _value(outcome: tuple[bool, Any], k: int) -> Any:
    good, value = outcome
    if good:
        return value
    raise value


def _sendable(outcome: tuple[bool, Any], k: int) -> bytes:
    """An outcome as bytes; an error, if it cannot be sent."""
    try:
        data = pickle.dumps(outcome)
        if not outcome[0]:
            pickle.loads(data)  # errors with a constructor of their own may not come back
        return data
    except Exception as error:
        kind = "result" if outcome[0] else "error"
        text = f"the {kind} of item {k} of fnx.distributed.map cannot be sent: {error}; it was "
        return pickle.dumps((False, JaxRuntimeError(text + f"{outcome[1]!r:.200}")))


# --- ranks of MPI --------------------------------------------------------------------------------


class _Dealer:
    """Deals out the numbers of items; on rank 0, for all ranks."""

    def __init__(self, comm: Any, count: int, bar: Any):
        self.comm, self.count, self.bar = comm, count, bar
        self.next, self.lock = 0, threading.Lock()
        self.left = comm.Get_size() - 1
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def take(self, failed: bool) -> int:
        """The next item, for one who has done the one before; none after a failure."""
        with self.lock:
            if failed:
                self.next = self.count
            if self.next >= self.count:
                return _STOP
            self.next += 1
            self.bar.update()
            return self.next - 1

    def _serve(self) -> None:
        from fnx.lowering.transport.mpi import world

        status = world().Status()
        while self.left:
            if not self.comm.Iprobe(tag=_ASK, status=status):
                time.sleep(policy.LOOK_FOR_RANKS)
                continue
            failed = self.comm.recv(source=status.Get_source(), tag=_ASK)
            k = self.take(failed)
            self.left -= k == _STOP
            self.comm.send(k, dest=status.Get_source(), tag=_TELL)


def _by_ranks(f: Callable, items: Sequence, here: Any, bar: Any) -> list:
    """All ranks come together; then they wait for as long as the items of others take."""
    wait = partial(here.wait, "fnx.distributed.map")
    comm = wait(here.comm.Dup)
    dealer = _Dealer(comm, len(items), bar) if comm.Get_rank() == 0 else None

    def take(failed: bool) -> int:
        if dealer is not None:
            return dealer.take(failed)
        comm.send(failed, dest=0, tag=_ASK)
        return wait(lambda: comm.recv(source=0, tag=_TELL), patient=True)

    done: dict[int, bytes] = {}
    failed = False
    while (k := take(failed)) != _STOP:
        outcome = _outcome(f, items, k)
        failed = not outcome[0]
        done[k] = _sendable(outcome, k)
    if dealer is not None:
        wait(dealer.thread.join, patient=True)
    gathered = wait(comm.allgather, done, patient=True)
    found = {k: data for each in gathered for k, data in each.items()}
    comm.Free()
    return [_value(pickle.loads(found[k]), k) for k in sorted(found)]


# --- processes of this machine -------------------------------------------------------------------


class _Processes:
    """Workers that are copies of this process."""

    def __init__(self, f: Callable, items: Sequence, count: int, retries: int, bar: Any):
        self.f, self.items, self.retries, self.bar = f, items, retries, bar
        self.context: Any = multiprocessing.get_context("fork")
        self.waiting = list(range(len(items)))[::-1]
        self.tries = [0] * len(items)
        self.results: list[Any] = [None] * len(items)
        self.count = count
        self.busy: dict[Any, tuple[Any, Any]] = {}  # by link, the process and its item

    def run(self) -> list:
        try:
            for _ in range(self.count):
                self._start()
            while self.busy:
                for link in wait(list(self.busy)):
                    self._hear(link)
            return self.results
        finally:
            for link, (process, _) in self.busy.items():
                process.kill()
                process.join()
                link.close()

    def _start(self) -> None:
        """A new worker, with the next item."""
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=self._work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        self.busy[ours] = process, None
        self._give(ours)

    def _work(self, link: Any) -> None:
        while (k := link.recv()) != _STOP:
            link.send_bytes(_sendable(_outcome(self.f, self.items, k), k))

    def _give(self, link: Any) -> None:
        process, _ = self.busy[link]
        k = self.waiting.pop() if self.waiting else _STOP
        self.busy[link] = process, k
        try:
            link.send(k)
        except OSError:
            self._died(link)
            return
        if k == _STOP:
            del self.busy[link]
            link.close()
            process.join()

    def _hear(self, link: Any) -> None:
        _, k = self.busy[link]
        try:
            outcome = pickle.loads(link.recv_bytes())
        except (EOFError, OSError):
            self._died(link)
            return
        self.results[k] = _value(outcome, k)
        self.bar.update()
        self._give(link)

    def _died(self, link: Any) -> None:
        """The item of a worker that died goes to another one."""
        process, k = self.busy.pop(link)
        link.close()
        process.join()
        if k == _STOP:
            return
        self.tries[k] += 1
        if self.tries[k] > self.retries:
            raise JaxRuntimeError(
                f"item {k} of fnx.distributed.map ended its process {self.tries[k]} times (exit code "
                f"{process.exitcode}); expected a function that returns or raises"
            )
        self.waiting.append(k)
        self._start()


# --- clients -------------------------------------------------------------------------------------


def _by_client(f: Callable, items: Sequence, client: Any, retries: int, bar: Any) -> list:
    """By the futures of an executor; those whose workers died are submitted again."""
    if not hasattr(client, "submit"):
        raise InvalidValue(
            f"fnx.distributed.map with client={type(client).__name__}; expected a Dask client, or an "
            "executor with a method submit"
        )
    futures = [client.submit(_item, f, items[k], k) for k in range(len(items))]
    results = []
    for k, future in enumerate(futures):
        for again in range(retries + 1):
            try:
                results.append(_value(future.result(), k))
                break
            except Exception as error:
                if again == retries or not _is_loss(error):
                    raise
                future = client.submit(_item, f, items[k], k)
        bar.update()
    return results


def _item(f: Callable, x: Any, k: int) -> tuple[bool, Any]:
    return _outcome(f, {k: x}, k)  # type: ignore[arg-type]


def _is_loss(error: Exception) -> bool:
    """Whether an error says that a worker died, and not that a function failed."""
    return type(error).__name__ in ("KilledWorker", "BrokenProcessPool", "CancelledError")


__all__ = ["map"]
