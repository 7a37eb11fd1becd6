"""The CUDA backend: a jaxpr's plan, its kernels as text and as machine code, and its runs on a device."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from fnx.core import config, scalar
from fnx.core.array import Array, ConcreteArray, see_placed
from fnx.core.backend import Memory
from fnx.core.jaxpr import Jaxpr
from fnx.core.threads.fork_safety import cached_property, fork_safe
from fnx.lowering import pipeline, report
from fnx.lowering.ir import printer, verifier

from . import device_code, libraries, simulator
from .device_buffer import DeviceBuffer, described
from .driver import Driver
from .executable import Executable, grid_of
from .kernels import kernel_printer, schedule
from .kernels import plan as plans
from .kernels.thresholds import LIMITS, SIMULATED, Limits
from .target import CudaTarget

drivers: list[Driver] = []  # of this process: none yet, or one
_first = fork_safe(threading.RLock())


def driver() -> Driver:
    """The driver of this process: a GPU's, or the simulator's where Numba was told to simulate."""
    if not drivers:
        with _first:  # one thread makes it: the streams of two would not wait for each other
            if not drivers:
                drivers.append(_made())
    return drivers[0]


def _made() -> Driver:
    see_placed()
    if simulator.is_simulated():
        from .simulated_driver import SimulatedDriver

        return SimulatedDriver()
    from .gpu_driver import GpuDriver

    return GpuDriver()


def limits() -> Limits:
    """How work is laid out; a few threads where each is one of Python's."""
    return SIMULATED if simulator.is_simulated() else LIMITS


class _Result(NamedTuple):
    """What is made of a result of a program."""

    like: DeviceBuffer  # of its type, without memory: the others are copies
    weak_type: bool
    nbytes: int
    alias: int | None  # the argument whose memory it takes over
    what: str  # it is, for errors


class Compiled:
    """A jaxpr as kernels: called with a list of arrays, it gives a list of arrays on the device."""

    def __init__(self, jaxpr: Jaxpr, donated: Sequence[int] = ()):
        self.jaxpr, self.donated = jaxpr, tuple(donated)
        self.seconds: dict[str, float] = {}
        clock = time.perf_counter()
        self.program, self.notes = pipeline.build(jaxpr, donated, CudaTarget(limits()))
        if config.check.value:
            verifier.check(self.program, verifier.GPU)
        self.seconds["build"], clock = time.perf_counter() - clock, time.perf_counter()
        self.limits = limits()
        self.plan = schedule.plan(self.program, self.limits)
        self.printed = {k: kernel_printer.printed(k, self.limits) for k in self.plan.kernels()}
        scalar.forget()
        self.seconds["emit"] = time.perf_counter() - clock

        self._types = [(a.shape, a.dtype, bool(a.weak_type)) for a in jaxpr.in_avals]
        self._overwritten = set(self.program.aliases.values())

    @cached_property
    def _executable(self) -> Executable:
        return Executable(self.plan, self.limits, driver(), self.printed)

    @cached_property
    def _results(self) -> list[_Result]:
        none: Any = None
        return [
            _Result(
                DeviceBuffer(a.shape, a.dtype, none, driver()),
                a.weak_type,
                max(a.size, 1) * a.dtype.itemsize,
                self.program.aliases.get(j),
                f"result {j} of {self.program.name}, {described(a)}",
            )
            for j, a in enumerate(self.jaxpr.out_avals)
        ]

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        inputs = [
            x._value if type(x._value) is DeviceBuffer else DeviceBuffer.of(x._value, driver())  # type: ignore[attr-defined]
            for x in args
        ]
        return self._on_device(args, inputs)

    def placed(self, arrays: Sequence[Array]) -> list[Array]:
        """The same numbers on the device."""
        here = [DeviceBuffer.of(x._value, driver()) for x in arrays]  # type: ignore[attr-defined]
        return [
            ConcreteArray(b, bool(x.weak_type))  # type: ignore[arg-type]
            for b, x in zip(here, arrays, strict=True)
        ]

    def fast(self, args: Sequence[Any]) -> Any:
        """The same for arrays of the types that the program has and that lie here; else NotImplemented."""
        inputs = []
        for x, (shape, dtype, weak_type) in zip(args, self._types, strict=True):
            if type(x) is not ConcreteArray or x.weak_type != weak_type:
                return NotImplemented
            value: Any = x._value
            if type(value) is not DeviceBuffer or value.shape != shape or value.dtype != dtype:
                return NotImplemented
            inputs.append(value)
        value = None  # no reference is left here
        return self._on_device(args, inputs)

    def _on_device(self, args: Sequence[Any], inputs: list[DeviceBuffer]) -> list[Array]:
        """Results of arrays that lie on the device."""
        run = self._executable
        for k in self._overwritten:
            # References: the array's own, that of `inputs`, that of the call. Else another array has
            # them; memory that is lent is another library's array's, too.
            if sys.getrefcount(inputs[k]) > 3 or inputs[k].memory.is_lent:
                inputs[k] = inputs[k].copied()
        memories = [b.memory for b in inputs]
        allocate = run.driver.allocate
        results: list[Any] = []
        fresh = []
        for like, weak_type, nbytes, alias, what in self._results:
            if alias is None:
                memory = allocate(nbytes, what)
                fresh.append(memory)
            else:
                memory = memories[alias]
            results.append(ConcreteArray(like.beside(memory), weak_type))  # type: ignore[arg-type]
        work = run.workspace()
        try:
            run(memories, fresh, work)
        finally:
            if self._overwritten:  # by half a program, where that failed
                self._give_up(args)
        return results

    def _give_up(self, args: Sequence[Any]) -> None:
        """Delete what was donated, and a result lies in."""
        for k in self._overwritten:
            if not args[k].is_deleted():
                args[k].delete()

    # --- to look at ------------------------------------------------------------------------------

    def ahead_of_time(self, device: str) -> list[device_code.Code]:
        """Machine code of all kernels for a device that need not be there, kept on disk."""
        device_code.capability(device)
        return device_code.cubins([*self.printed.values()], device)

    def kernel_text(self) -> str:
        return printer.show(self.program)

    def cuda_text(self) -> str:
        """The source of the kernels, and what the host does with them."""
        head = ["import math\n", "import numba", "import numpy as np", "from numba import cuda"]
        head += ["from numba.cuda import libdevice\n\n"]
        sources = "\n\n".join(p.source for p in self.printed.values())
        return (
            "\n".join(head) + sources + "\n\n" + "\n".join(self._steps(self.plan.steps, 0)) + "\n"
        )

    def _steps(self, steps: list[plans.Step], depth: int) -> list[str]:
        """The plan as comments."""
        lines = []
        for s in steps:
            match s:
                case plans.Kernel():
                    p = self.printed[s]
                    grid = "x".join(map(str, grid_of(s, self.limits)))
                    text = (
                        f"launch {p.name}, {grid} blocks of {'x'.join(map(str, p.threads))} threads"
                    )
                case plans.Host():
                    text = f"host {s.call.name or 'callback'}"
                case plans.Library():
                    text = f"library {s.call.symbol}"
                case plans.For():
                    known = isinstance(s.extent, int)
                    text = f"{s.extent} times" if known else "as often as memory says"
                case plans.While():
                    text = "while memory says so"
                case _:
                    text = "if memory says so, else"
            lines.append(f"# {'  ' * depth}{text}")
            for block in plans.blocks(s):
                lines += self._steps(block, depth + 1)
        return lines

    def ptx_text(self, device: str = "sm_90") -> str:
        return "\n".join(device_code.ptx(p, device) for p in self.printed.values())

    def report(self) -> str:
        text = report.report(
            self.program, [*self.notes, *self.plan.notes, *self._calls()], self.seconds
        )
        for s in plans.walk(self.plan.steps):
            if isinstance(s, plans.Host) and libraries.function(s.call):  # said in a note
                text = text.replace(f"\n  host call {s.call.name}\n", "\n", 1)
        kernels = self.plan.kernels()
        shapes = {k.shape: sum(x.shape == k.shape for x in kernels) for k in kernels}
        said = ", ".join(f"{n} {shape}" for shape, n in shapes.items()) or "none"
        return f"{text}\nkernels of the GPU: {said}"

    def _calls(self) -> list[str]:
        """Who computes what is no kernel."""
        found = []
        for s in plans.walk(self.plan.steps):
            if isinstance(s, plans.Host):
                name = s.call.name or "of Python"
                if libraries.function(s.call):
                    found.append(f"library call {name}: CuPy's, on the GPU")
                else:
                    found.append(f"call of the host, {name}: arrays are copied there and back")
        return found

    def memory_analysis(self) -> Any:
        return report.memory_analysis(self.program)


class Backend:
    """Compiles jaxprs for a GPU."""

    name = "cuda"
    memory = Memory()

    def compile(self, jaxpr: Jaxpr, donated: Any = (), simplified: Any = None) -> Compiled:
        return Compiled(simplified() if simplified else jaxpr, donated)


backend = Backend()
__all__ = ["Backend", "Compiled", "backend", "driver"]
