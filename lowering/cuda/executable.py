"""Runs a plan: launches, host calls, loops of the host, on memory that a driver has given."""

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.threads.fork_safety import cached_property
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Buffer
from fnx.lowering.ir.number_formats import itemsize

from . import libraries
from .driver import Argument, Driver, Launch, Memory
from .kernels import kernel_printer, plan, scalar
from .kernels.kernel_printer import Printed
from .kernels.thresholds import Limits

_STORED = {d: text.removeprefix("np.") for d, text in scalar.STORED.items()} | {"bool": "uint8"}
Places = dict[Buffer, tuple[Memory, int]]


def stored(dtype: str) -> str:
    """The dtype as which numbers lie in memory."""
    return _STORED[dtype]


def grid_of(k: plan.Kernel, limits: Limits) -> tuple[int, int]:
    """How many blocks there are along both dimensions."""
    sizes = [max(traversal.extent(n), 1) for _, n in k.axes]
    if k.shape == "single":
        return 1, 1
    if k.shape == "block":
        return min(int(np.prod(sizes, dtype=np.int64)), limits.blocks), 1
    if k.shape == "flat":
        count = int(np.prod(sizes, dtype=np.int64))
        return min(-(-count // limits.threads), limits.blocks), 1
    if k.shape == "square":
        assert k.staged is not None
        down, across = -(-sizes[-2] // k.staged.rows), -(-sizes[-1] // limits.tile[0])
        count = int(np.prod([*sizes[:-2], down, across]))
        return min(count, limits.blocks), 1
    across = min(-(-sizes[-1] // limits.tile[0]), limits.blocks)
    down = -(-int(np.prod(sizes[:-1], dtype=np.int64)) // limits.tile[1])
    return across, max(min(down, limits.blocks // across), 1)


class Executable:
    """A plan with its kernels as a driver has loaded them."""

    def __init__(
        self,
        planned: plan.Plan,
        limits: Limits,
        driver: Driver,
        printed: dict[plan.Kernel, Printed] | None = None,
    ):
        self.plan, self.limits, self.driver = planned, limits, driver
        self._libraries: dict[plan.Host, Callable | None] = {}
        self._idle: list[_Run] = []
        self._workspace = f"the workspace of {planned.program.name}"
        self.printed = printed or {k: kernel_printer.printed(k, limits) for k in planned.kernels()}

    @cached_property
    def _functions(self) -> dict[plan.Kernel, Any]:
        loaded = self.driver.load([*self.printed.values()], self.plan.program.name)
        return dict(zip(self.printed, loaded, strict=True))

    def library(self, s: plan.Host) -> Callable | None:
        """What computes a call of the host on the GPU, if something does; found once."""
        if s not in self._libraries:
            self._libraries[s] = libraries.function(s.call)
        return self._libraries[s]

    def workspace(self) -> Memory | None:
        """Memory of a call, when the kernels are loaded: what fails before numbers change fails here."""
        assert self._functions is not None
        size = self.plan.workspace
        return self.driver.allocate(size, self._workspace) if size else None

    def __call__(
        self, inputs: Sequence[Memory], outputs: Sequence[Memory], work: Memory | None
    ) -> None:
        """Compute the outputs: memory for each of them, which may be an input's."""
        arrays = [*inputs, *outputs]
        addresses = [work.address if work else 0, *[m.address for m in arrays]]
        run = self._run(addresses)
        run(addresses, work, arrays)
        self._idle.append(run)

    def _run(self, addresses: list[int]) -> "_Run":
        """What no other thread uses, best of the same addresses."""
        idle = self._idle
        try:
            for k, run in enumerate(idle):
                if run.addresses == addresses:
                    return idle.pop(k)
            return idle.pop(0) if len(idle) >= self.limits.kept else _Run(self)
        except IndexError:  # another thread took it
            return _Run(self)


def _launches(steps: Sequence[plan.Step], ahead: int) -> int:
    """How many launches steps are, of both branches where that is few; negative where they are more."""
    total = 0
    for s in steps:
        inner = 1
        if isinstance(s, plan.For) and isinstance(s.extent, int):
            inner = s.extent * _launches(s.body, ahead)
        elif isinstance(s, plan.If):
            both = [_launches(block, ahead) for block in (s.then, s.orelse)]
            inner = sum(both) if min(both) >= 0 and sum(both) <= ahead else -1
        elif not isinstance(s, plan.Kernel):
            return -1
        if inner < 0:
            return -1
        total += inner
    return total


class _Run:
    """Calls of an executable, one after another: launches and graphs stay, and where their arrays lie.

    Graphs hold addresses: they are recorded anew when an array lies elsewhere than in the call before.
    """

    def __init__(self, executable: Executable):
        self.executable, self.driver = executable, executable.driver
        self.limits = executable.limits
        program = executable.plan.program
        self.arrays: list[Buffer] = [*program.inputs, *program.outputs]
        self.places: Places = {}
        self.work: Memory | None = None
        self.addresses: list[int] = []  # of the workspace and the arrays, in the last call
        # By the number of an address: the launches that get it, as which argument, and how far from it.
        self.uses: list[list[tuple[Launch, int, int]]] = [[] for _ in range(len(self.arrays) + 1)]
        self.launches: dict[plan.Kernel, Launch] = {}
        self.graphs: dict[tuple[plan.Step | None, int], Callable[[], None] | None] = {}
        self.recording = False
        self.repeats = 0  # calls since an array moved
        count = _launches(executable.plan.steps, self.limits.ahead)
        self.is_worth_a_graph = 3 <= count <= self.limits.graph
        self.started: set[plan.Step] = set()  # loops of which a round has run
        self.sequence: list[Launch] = []  # of a plan that is nothing else, when all are bound

    def __call__(self, addresses: list[int], work: Memory | None, arrays: Sequence[Memory]) -> None:
        if addresses != self.addresses:
            self.move(addresses)
        steps = self.executable.plan.steps
        graph = None
        if self.repeats > 1 and self.is_worth_a_graph:
            graph = self.graph(None, steps, 1)
        self.repeats += 1
        if graph:
            graph()
        elif self.sequence:
            for launch in self.sequence:
                launch()
        else:
            self.work = work
            self.places = dict(zip(self.arrays, [(m, 0) for m in arrays], strict=True))
            self.steps(steps)
            self.work, self.places = None, {}  # whose memory goes when nobody else has it
            if all(isinstance(s, plan.Kernel) for s in steps):
                self.sequence = [self.launches[s] for s in steps]  # type: ignore[index]

    def move(self, addresses: list[int]) -> None:
        """Tell launches where the arrays of this call lie."""
        self.graphs.clear()
        self.repeats = 0
        for uses, before, now in zip(self.uses, self.addresses, addresses, strict=False):
            if before != now:
                for launch, argument, offset in uses:
                    launch.move(argument, now + offset)
        self.addresses = addresses

    def place(self, b: Buffer) -> tuple[Memory, int]:
        found = self.places.get(b)
        if found is None:
            assert self.work is not None
            found = self.places[b] = self.work, b.place
        return found

    def steps(self, steps: Sequence[plan.Step]) -> None:
        for s in steps:
            match s:
                case plan.Kernel():
                    self.launch(s)
                case plan.Host():
                    self.host(s)
                case plan.For():
                    self.loop(s)
                case plan.While():
                    self.loop_while(s)
                case plan.If():
                    self.branch(s)
                case plan.Library():
                    self.library(s)
                case _:
                    raise NotImplementedError(f"no way to run {type(s).__name__}")

    def launch(self, k: plan.Kernel) -> None:
        found = self.launches.get(k)
        if found is None:
            found = self.launches[k] = self.bound(k)
        found()

    def bound(self, k: plan.Kernel) -> Launch:
        """A kernel with its arguments, which is told when they lie elsewhere."""
        printed = self.executable.printed[k]
        arguments = []
        for b, is_array in zip(printed.buffers, printed.arrays, strict=True):
            memory, offset = self.place(b)
            arguments.append(Argument(memory, offset, stored(b.dtype), max(b.size, 1), is_array))
        function = self.executable._functions[k]
        launch = self.driver.bind(function, grid_of(k, self.limits), printed.threads, arguments)
        number = {b: n + 1 for n, b in enumerate(self.arrays)}
        for position, (b, a) in enumerate(zip(printed.buffers, arguments, strict=True)):
            self.uses[number.get(b, 0)].append((launch, position, a.offset))
        return launch

    def library(self, s: plan.Library) -> None:
        """Copy bytes: the one call that portable routines make."""
        if s.call.symbol != "libm:memcpy":
            raise NotImplementedError(f"no library for {s.call.symbol} on a GPU")
        (target, source), count = s.offsets, int(s.call.args[2].attr)
        places = []
        for buffer, index in (target, source):
            memory, offset = self.place(buffer)
            places.append((memory, offset + index * itemsize(buffer.dtype)))
        self.driver.copy(*places[0], *places[1], count)

    def loop(self, s: plan.For) -> None:
        count = s.extent if isinstance(s.extent, int) else int(self.scalar(s.extent))
        if count >= self.limits.rounds and not self.recording:
            if s not in self.started:
                self.first_round(s)
                count -= 1
            together = self.together(s, count)
            graph = self.graph(s, s.body, together)
            if graph:
                for _ in range(count // together):
                    graph()
                count %= together
        for _ in range(count):
            self.steps(s.body)

    def first_round(self, s: plan.For) -> None:
        """A round by itself: what is loaded when it is first launched must not be within a recording."""
        self.recording = (
            _launches(s.body, self.limits.ahead) > 0
        )  # loops inside make no graphs then
        try:
            self.steps(s.body)
        finally:
            self.recording = False
            self.started.add(s)

    def together(self, s: plan.For, count: int) -> int:
        """The rounds of a graph: recording one takes as long as launching it, so their number's root."""
        launches = _launches(s.body, self.limits.ahead)
        if launches < 1:
            return 1
        return min(max(isqrt(count // launches), 1), max(self.limits.graph // launches, 1))

    def loop_while(self, s: plan.While) -> None:
        """Rounds by twice as many, where those that are not wanted do nothing; else one by one."""
        self.steps(s.before)
        again, count = [*s.body, *s.before], 1
        ahead = self.limits.ahead if _launches(again, self.limits.ahead) > 0 else 1
        while self.scalar(s.condition):
            graph = self.graph(s, again, ahead) if 1 < ahead == count else None
            if graph:
                graph()
                continue
            for _ in range(count):
                self.steps(again)
            count = min(2 * count, ahead)

    def branch(self, s: plan.If) -> None:
        """One of two lists of steps; both, of which one does nothing, where asking takes longer."""
        if _launches([s], self.limits.ahead) >= 0:
            self.steps(s.then)
            self.steps(s.orelse)
        else:
            self.steps(s.then if self.scalar(s.condition) else s.orelse)

    def graph(
        self, s: plan.Step | None, steps: Sequence[plan.Step], rounds: int
    ) -> Callable[[], None] | None:
        """The launches of some rounds as a graph, where they are launches only; None: of all steps."""
        if (s, rounds) not in self.graphs:
            found = None
            launches = _launches(steps, self.limits.ahead) * rounds
            assert self.executable._functions  # loaded before a graph is recorded
            if not self.recording and 1 < launches <= self.limits.graph:
                self.recording = True
                try:
                    found = self.driver.record(lambda: self.steps([*steps] * rounds))
                finally:
                    self.recording = False
            self.graphs[s, rounds] = found
        return self.graphs[s, rounds]

    def scalar(self, slot: tuple[Buffer, int]) -> Any:
        """A number that the device has left."""
        buffer, index = slot
        memory, offset = self.place(buffer)
        return self.download(memory, offset, buffer.dtype, index, ())[()]

    def download(
        self, memory: Memory, offset: int, dtype: str, index: int, shape: tuple[int, ...]
    ) -> np.ndarray:
        place = offset + index * itemsize(dtype)
        return self.driver.download(memory, place, shape, dtypes.canonical(dtype))

    def by_library(self, run: Callable, call: Any, places: Sequence[tuple[Memory, int]]) -> None:
        """Compute a call by a library of the vendor's, in place of the host."""
        arrays = [
            libraries.array(memory, offset, shape, stored(dtype))
            for (memory, offset), (_, shape, dtype) in zip(
                places, (*call.inputs, *call.outputs), strict=True
            )
        ]
        count = len(call.inputs)
        with libraries.on_stream(self.driver.handle):
            for target, value in zip(arrays[count:], run(arrays[:count]), strict=True):
                target[...] = value

    def host(self, s: plan.Host) -> None:
        """Call Python with copies, and copy back what it gives."""
        call = s.call
        places = []
        for (ref, _, dtype), (buffer, index) in zip(
            (*call.inputs, *call.outputs), s.offsets, strict=True
        ):
            if buffer is not ref.buffer:
                index = int(self.scalar((buffer, index)))
            memory, offset = self.place(ref.buffer)
            places.append((memory, offset + index * itemsize(dtype)))
        count = len(call.inputs)
        library = self.executable.library(s)
        if library and self.driver.handle is not None:
            what = f"{call.name}, a library's,"
            self.driver.call(what, self.by_library, library, call, places)
            return
        given = [
            self.driver.download(memory, offset, shape, dtypes.canonical(dtype))
            for (memory, offset), (_, shape, dtype) in zip(places, call.inputs, strict=False)
        ]
        results = call.callback(*given)
        if not isinstance(results, (tuple, list)):
            results = (results,)
        for (memory, offset), (_, shape, dtype), x in zip(
            places[count:], call.outputs, results, strict=True
        ):
            value = np.asarray(x, dtypes.canonical(dtype)).reshape(shape)
            if value.size:
                self.driver.upload(memory, offset, value)
