"""The watch of a rank: a thread that notices that others will not come, and says where everybody is.

Input: what this rank waits for (lowering/transport/mpi.py), and what the watches of other ranks tell.
Output: a line of text where a rank has waited long; the end of the job where a rank waits for one that has
ended its program, or for longer than the setting `exchange_timeout`.
Costs: a look a few times a second, in which nothing is sent while nobody waits long.
"""

import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fnx.core import config, policy
from fnx.core.source import is_internal
from fnx.lowering.transport import mpi

_EVERY = 0.2  # seconds between looks


class Watch(threading.Thread):
    """Looks after this rank. `end(what)` ends the job with a message, `see(where)` tells the sentinel."""

    def __init__(self, comm: Any, end: Callable[[str], None], see: Callable[[str], None]):
        super().__init__(daemon=True, name="fnx ranks")
        self.comm, self.end, self.see = comm, end, see
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.main = threading.main_thread().ident
        self.ended: set[int] = set()
        self.places: dict[int, str] = {}
        self.told: float | None = None  # when the exchange that was spoken of began
        self.asked: float | None = None
        self.sent: list[Any] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(_EVERY):
            self.hear()
            self.look()
            self.see(self.place().removeprefix("is elsewhere ") or "nowhere")

    def send(self, kind: str, to: int, text: str = "") -> None:
        self.sent = [r for r in self.sent if not r.Test()]
        self.sent.append(self.comm.isend((kind, text), dest=to))

    def hear(self) -> None:
        """Take what other watches told."""
        status = mpi.world().Status()
        while self.comm.Iprobe(status=status):
            sender = status.Get_source()
            kind, text = self.comm.recv(source=sender)
            if kind == "ended":
                self.ended.add(sender)
            elif kind == "where":
                self.send("here", sender, self.place())
            else:
                self.places[sender] = text

    def look(self) -> None:
        """Whether this rank has waited too long."""
        waits = mpi.waiting.get(self.main)
        if waits is None:
            return
        transport, what, since, patient = waits
        if mpi.waiting.get(self.main) is not waits:
            return
        seconds, others = time.monotonic() - since, transport.world_ranks()
        gone = sorted(self.ended & set(others))
        if gone and seconds > 5 * _EVERY:
            self.end(
                f"waits in {what}, and rank {gone[0]} has ended its program without coming there"
                f"{self.line()}"
            )
        if patient:
            return
        timeout = config.exchange_timeout.value
        say = (
            min(policy.PATIENCE_WITH_RANKS, timeout / 2) if timeout else policy.PATIENCE_WITH_RANKS
        )
        if seconds > say and self.asked != since:
            self.asked = since
            self.places.clear()
            for k in others:
                if k != self.rank:
                    self.send("where", k)
        elif seconds > say + 3 * _EVERY and self.told != since:
            self.told = since
            sys.stderr.write(
                f"fnx.distributed: rank {self.rank} of {self.size} {self.story(what, seconds)}\n"
            )
            sys.stderr.flush()
        if timeout and seconds > timeout:
            self.end(self.story(what, seconds))

    def story(self, what: str, seconds: float) -> str:
        """Where this rank waits, and where the others are."""
        lines = [f"has waited {seconds:.0f} s for other ranks in {what}{self.line()}"]
        lines += [f"  rank {k} {self.places[k]}" for k in sorted(self.places)]
        silent = sorted(set(range(self.size)) - set(self.places) - {self.rank})
        lines += [f"  rank {k} does not answer" for k in silent]
        return "\n".join(lines)

    def place(self) -> str:
        """What this rank does, and where."""
        waits = mpi.waiting.get(self.main)
        if self.stopped.is_set() or self.rank in self.ended:
            return "has ended its program"
        return f"waits in {waits[1]}{self.line()}" if waits else f"is elsewhere{self.line()}"

    def line(self) -> str:
        """The line of the user's that the main thread is at."""
        frame = sys._current_frames().get(self.main or 0)
        while frame is not None:
            name = frame.f_code.co_filename
            if not is_internal(name) and not name.startswith("<") and "runpy" not in name:
                return f" at {name}:{frame.f_lineno} ({frame.f_code.co_name})"
            frame = frame.f_back
        return ""

    def leave(self) -> None:
        """Tell the others that this rank's program has ended, and stay until all have."""
        self.ended.add(self.rank)
        for k in range(self.size):
            if k != self.rank:
                self.send("ended", k)
        all_here = self.comm.Ibarrier()
        while not all_here.Test():
            time.sleep(_EVERY / 40)
        self.stopped.set()
        self.join()
        self.hear()
        for request in self.sent:
            request.Wait()


__all__ = ["Watch"]
