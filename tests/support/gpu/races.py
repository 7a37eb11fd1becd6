"""Threads of a kernel that meet: one writes what another one reads or writes, with no barrier between.

Such a kernel may give right numbers where threads run one after another, and wrong ones on a GPU. Shared
memory that is read before it is written is found, too.
"""

import threading
from typing import Any, NamedTuple


class Who(NamedTuple):
    """A thread, after so many barriers of its block."""

    block: tuple
    thread: tuple
    barriers: int

    def meets(self, other: "Who") -> bool:
        """Whether nothing says which of two accesses comes first."""
        if (self.block, self.thread) == (other.block, other.thread):
            return False
        return self.block != other.block or self.barriers == other.barriers


class Watch:
    """The accesses of one launch, by address."""

    def __init__(self, name: str):
        self.name = name
        self.lock = threading.Lock()
        self.writes: dict[Any, tuple[Who, bool]] = {}  # the last one, and whether it was atomic
        self.reads: dict[Any, set[Who]] = {}
        self.found: list[str] = []

    def read(self, place: Any, who: Who, what: str) -> None:
        with self.lock:
            last = self.writes.get(place)
            if last and last[0].meets(who):
                self.found.append(f"{self.name}: {what} is read by {who}, written by {last[0]}")
            self.reads.setdefault(place, set()).add(who)

    def write(self, place: Any, who: Who, what: str, atomic: bool = False) -> None:
        with self.lock:
            last = self.writes.get(place)
            if last and last[0].meets(who) and not (atomic and last[1]):
                self.found.append(f"{self.name}: {what} is written by {who} and {last[0]}")
            for other in self.reads.get(place, ()):
                if other.meets(who):
                    self.found.append(f"{self.name}: {what} is written by {who}, read by {other}")
            self.writes[place] = who, atomic


class Watched:
    """An array as a thread sees it."""

    def __init__(self, array: Any, base: Any, watch: Watch, thread: Any, name: str):
        self.array, self.base, self.watch, self.thread, self.name = array, base, watch, thread, name

    def _place(self, index: Any) -> Any:
        if isinstance(self.base, int):  # of the device's memory, which two arguments may share
            return self.base + int(index) * self.array.itemsize
        return self.base, int(index)

    def _said(self, index: Any) -> str:
        return f"{self.name}[{int(index)}]"

    def _checked(self, index: Any) -> Any:
        if not 0 <= int(index) < len(self.array):
            raise IndexError(f"{self.watch.name}: {self._said(index)} of {len(self.array)}")
        return self._place(index)

    def __getitem__(self, index: Any) -> Any:
        place = self._checked(index)
        self.watch.read(place, self.thread.who, self._said(index))
        if not isinstance(self.base, int) and place not in self.watch.writes:
            self.watch.found.append(f"{self.watch.name}: nobody wrote {self._said(index)}")
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.watch.write(self._checked(index), self.thread.who, self._said(index))
        self.array[index] = value

    def update(self, index: Any, new: Any) -> Any:
        """Of an atomic operation."""
        self.watch.write(self._checked(index), self.thread.who, self._said(index), atomic=True)
        old = self.array[index]
        self.array[index] = new(old)
        return old
