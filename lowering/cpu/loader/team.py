"""Teams: one loaded program run for all members of named axes at once, each by a thread of its own.

A program's exchanges name their record, which says what they do (`record`), and the record the partition of
members into groups within which they do it. A `Team` has the memory and the threads (runtime/team.py);
teams are kept for the next run, and one that a program calls back from within gets another.
"""

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from contextvars import copy_context
from typing import Any

import numpy as np

from fnx.core.transport import TransportError
from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.jit.session import once
from fnx.lowering.cpu.loader import progress
from fnx.lowering.cpu.loader.native_calls import no_memory
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.runtime import call_wrapper_loader, host_callbacks, thread_pool
from fnx.lowering.cpu.runtime import team_layout as at

Partition = tuple[tuple[int, ...], ...]  # members, by number, in groups


@once
def _code() -> code_cache.Code:
    from fnx.lowering.cpu.runtime import interrupts, team

    imports = {"fnx_poll": interrupts.address(), "fnx_pool_busy": thread_pool.pool().busy}
    code = code_cache.code(team.text, team.exports(), imports, kind="glue", name="team")
    code_cache.keep_forever(code.keep)
    key = ctypes.PYFUNCTYPE(ctypes.c_int64)(code.addresses[team.SETUP])()
    wrapper = call_wrapper_loader.get()
    if wrapper is not None:
        ctypes.c_int64.from_address(wrapper.address["fnx_member_key"]).value = key
    return code


def address(name: str) -> int:
    """The address of a function of the run time of teams."""
    return _code().addresses[name]


class Nothing:
    """The code of a program that does nothing."""

    imports: tuple[str, ...] = ()
    origin = "memory"
    llvm_seconds = load_seconds = 0.0

    def __init__(self) -> None:
        self.addresses = {"entry": address("fnx_team_nothing")}


def _function(name: str, result: Any) -> Any:
    return ctypes.PYFUNCTYPE(result, ctypes.c_void_p)(address(name))


# --- what exchanges do -------------------------------------------------------------------------

_KINDS = {
    "reduce": at.REDUCE,
    "gather": at.GATHER,
    "reduce_scatter": at.REDUCE_SCATTER,
    "all_to_all": at.ALL_TO_ALL,
    "permute": at.PERMUTE,
    "index": at.INDEX,
}


def record(name: str) -> np.ndarray:
    """The words of an exchange, of the text "kind|site|partition|op|dtype|count|bytes|sources".

    `count` elements are what a member gets from another; `bytes` are those of its input.
    """
    kind, site, comm, op, dtype, count, size, sources = name.split("|")
    item = np.dtype(dtype).itemsize if dtype else 1
    count_, combine = int(count), 0
    if op:
        function, pairs = _combining(op, dtype)
        combine, count_, item = address(function), count_ * pairs, item // pairs
    words = [int(site), int(comm), _KINDS[kind], count_, item, combine, int(size)]
    return np.array([*words, *map(int, filter(None, sources.split(",")))], np.int64)


def _combining(op: str, dtype: str) -> tuple[str, int]:
    """The function that combines arrays of a dtype, and how many numbers an element is."""
    from fnx.lowering.cpu.runtime.team_reductions import SUMMED_AS

    if dtype == "bool":
        return {"sum": "max_uint8", "max": "max_uint8", "min": "min_uint8"}[op], 1
    if op == "sum":
        return f"add_{SUMMED_AS.get(dtype, dtype)}", 2 if dtype.startswith("complex") else 1
    return f"{op}_{dtype}", 1


# --- teams -------------------------------------------------------------------------------------


def _zeros(size: int) -> np.ndarray:
    """Zeros from a line of the cache on."""
    raw = np.zeros(size + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    return raw[offset : offset + size]


_programs: weakref.WeakSet["TeamProgram"] = weakref.WeakSet()
_in_use: dict[int, np.ndarray] = {}  # memory that threads look at while they sleep, by its address


def _forget() -> None:
    """In a forked child, where no team has its threads."""
    _in_use.clear()
    for program in _programs:
        program._free.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Team:
    """Memory and threads for so many members, who exchange arrays within these partitions."""

    def __init__(self, size: int, partitions: Sequence[Partition]):
        self.size = size
        self.memory = _zeros(at.TEAM_BYTES + size * at.MEMBER_BYTES)
        self.base = self.memory.ctypes.data
        self.words = self.memory.view(np.int64)
        first = self.base + at.TEAM_BYTES
        self._keep: list[np.ndarray] = []
        self._slots: list[np.ndarray] = []
        cpus = thread_pool.available_cpus()
        self._set(0, {at.SIZE: size, at.MEMBERS: first, at.ALONE: cpus < 2 * size})
        # Who has no processor of its own had better sleep at once.
        self._set(0, {at.LOOK: thresholds.OFFERS if size <= cpus else 1})
        pairs = np.zeros((size, max(1, len(partitions)), 2), np.int64)
        for c, groups in enumerate(partitions):
            for group in groups:
                pairs[list(group), c, 0] = self._group(group)
                pairs[list(group), c, 1] = range(len(group))
        self._keep.append(pairs)
        for k in range(size):
            comms = pairs.ctypes.data + k * pairs.strides[0]
            self._set(self.member(k), {at.TEAM: self.base, at.RANK: k, at.COMMS: comms})
        self._stop = _function("fnx_team_stop", None)
        _in_use[self.base] = self.memory
        self.started = _function("fnx_team_start", ctypes.c_int64)(self.base)

    def _set(self, place: int, values: dict[int, int]) -> None:
        for offset, value in values.items():
            self.words[(place + offset) // 8] = value

    def member(self, k: int) -> int:
        """Where the member's words begin, in bytes."""
        return at.TEAM_BYTES + k * at.MEMBER_BYTES

    def _group(self, members: Sequence[int]) -> int:
        slots = _zeros(len(members) * at.SLOT_BYTES)
        numbers = np.array(members, np.int64)
        group = _zeros(at.GROUP_BYTES)
        group.view(np.int64)[:3] = len(members), slots.ctypes.data, numbers.ctypes.data
        self._keep += [slots, numbers, group]
        self._slots.append(slots)
        return group.ctypes.data

    def reset(self) -> None:
        """After a failure, members may have come to different exchanges: all begin anew."""
        for slots in self._slots:
            slots[:] = 0

    def word(self, place: int) -> int:
        return int(self.words[place // 8])

    def why(self) -> list[int]:
        return [self.word(at.WHY + 8 * k) for k in range(5)]

    def __del__(self) -> None:
        """End the threads; where that cannot be, they keep their memory."""
        if self.base in _in_use and hasattr(self, "started"):
            self._set(0, {at.SIZE: self.started})
            self._stop(self.base)
            del _in_use[self.base]


class TeamProgram:
    """A program of one member, called with the arrays of all: `run(inputs, outputs)` fills `outputs`.

    `places` says of each site, an exchange by number, what it is and where the user wrote it; `what`
    is the program, for who interrupts it; `blank()` gives memory for the results of all members.
    """

    def __init__(
        self,
        program: Any,
        size: int,
        partitions: Sequence[Partition],
        places: list[str],
        what: str,
        blank: Callable[[], list[np.ndarray]],
    ):
        self.program, self.size, self.blank = program, size, blank
        self.partitions, self.places, self.what = tuple(partitions), places, what
        self._free: list[tuple[Team, np.ndarray, list[progress.Slowest]]] = []
        self._run: Any = None
        _programs.add(self)

    def _new(self) -> tuple[Team, np.ndarray, list[progress.Slowest]]:
        team = Team(self.size, self.partitions)
        if team.started < self.size:
            raise TransportError(f"{self.size} devices need threads; {team.started} could be had")
        program = self.program
        count = len(program.inputs) + len(program.outputs)
        pointers = np.zeros((self.size, max(count, 1)), np.uint64)
        try:
            spaces = [_zeros(max(program.workspace_bytes, 64)) for _ in range(self.size)]
        except MemoryError:
            raise no_memory(program.workspace_bytes, program.details()) from None
        entry = program.code.addresses["entry"]
        records = []
        for k, space in enumerate(spaces):
            params, told = program.beside()
            words = {at.ENTRY: entry, at.PARAMS: params.ctypes.data}
            words |= {at.ARGUMENTS: pointers.ctypes.data + k * pointers.strides[0]}
            words |= {at.WORKSPACE: space.ctypes.data}
            team._set(team.member(k), words)
            team._keep += [params, space]
            records.append(told)
        return team, pointers, [progress.Slowest(loop) for loop in zip(*records)]

    def run(self, inputs: Sequence[Sequence[np.ndarray]], outputs: Sequence[Sequence]) -> None:
        """Run all members: on their arrays, contiguous and of the program's types."""
        if self._run is None:
            self._run = _function("fnx_team_run", ctypes.c_int32)
        try:
            kept = self._free.pop()
        except IndexError:
            kept = self._new()
        team, pointers, records = kept
        for k, (given, made) in enumerate(zip(inputs, outputs)):
            row = [x.__array_interface__["data"][0] for x in (*given, *made)]
            if row:
                pointers[k] = row
        threads: list[int] = []
        if self.program._callbacks:  # settings of the caller's are those of all members
            threads = [team.word(team.member(k) + at.THREAD) for k in range(1, self.size)]
        try:
            host_callbacks.contexts.update({t: copy_context() for t in threads})
            with progress.watching(records) if records else nullcontext():
                failed = self._run(team.base)
                if failed:
                    self._raise(team)
        except KeyboardInterrupt as error:
            progress.tell(error, [self.what])
            raise
        finally:
            for t in threads:  # threads of others may have their numbers later
                host_callbacks.contexts.pop(t, None)
            if team.word(at.FAILED) & 1:
                team.reset()
            self._free.append(kept)

    def _raise(self, team: Team) -> None:
        errors = [self._error(team, k) for k in range(self.size)]
        kind, member, site, other, elsewhere = team.why()
        if kind == at.MEMBER_FAILED and errors[member] is None:
            status = team.word(team.member(member) + at.STATUS)
            self.program._raise(status)
        first = next((e for e in errors if e is not None), None)
        if first is not None:
            raise first
        if kind == at.INTERRUPTED:
            raise KeyboardInterrupt
        here = f"device {member} waits in {self._place(site)}"
        if kind == at.LEFT_EARLY:
            there = f"device {other} has ended its program without coming there"
        elif elsewhere == site:
            there = f"device {other} does not come there"
        else:
            there = f"device {other} is in {self._place(elsewhere)}"
        raise TransportError(
            f"devices do not make the same exchanges: {here}, but {there}. Collectives must be reached by "
            "all devices in the same order: where a branch or a loop has one, let its condition be equal "
            "on all (of lax.pmax, say)."
        )

    def _error(self, team: Team, k: int) -> BaseException | None:
        thread = team.word(team.member(k) + at.THREAD)
        return host_callbacks.take_error(thread if k else threading.get_ident())

    def _place(self, site: int) -> str:
        return self.places[site] if 0 <= site < len(self.places) else "no exchange"


def can_wait() -> bool:
    """Whether threads can sleep here until another one wakes them."""
    return thread_pool._can_wait()


def processors() -> int:
    """How many processors there are for members."""
    return thread_pool.available_cpus()
