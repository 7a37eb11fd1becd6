"""The CUDA backend: a jaxpr's plan, its kernels as text and as machine code, and its runs on a device."""

import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from fnx.core import config, scalar
from fnx.core.array import Array, ConcreteArray
from fnx.core.backend import Memory
from fnx.core.jaxpr import Jaxpr
from fnx.core.threads.fork_safety import cached_property
from fnx.lowering import pipeline, report
from fnx.lowering.ir import printer, verifier

from . import device_code, kernel_printer, schedule, simulator
from . import plan as plans
from .device_buffer import DeviceBuffer, described
from .driver import Driver
from .executable import Executable, grid_of
from .target import CudaTarget
from .thresholds import LIMITS, SIMULATED, Limits


@lru_cache(maxsize=1)
def driver() -> Driver:
    """The driver of this process: a GPU's, or the simulator's where Numba was told to simulate."""
    if simulator.is_simulated():
        from .simulated_driver import SimulatedDriver

        return SimulatedDriver()
    from .gpu_driver import GpuDriver

    return GpuDriver()


def limits() -> Limits:
    """How work is laid out; a few threads where each is one of Python's."""
    return SIMULATED if simulator.is_simulated() else LIMITS


class Compiled:
    """A jaxpr as kernels: called with a list of arrays, it gives a list of arrays on the device."""

    def __init__(self, jaxpr: Jaxpr, donated: Sequence[int] = ()):
        self.jaxpr, self.donated = jaxpr, tuple(donated)
        self.seconds: dict[str, float] = {}
        clock = time.perf_counter()
        self.program, self.notes = pipeline.build(jaxpr, donated, CudaTarget())
        if config.check.value:
            verifier.check(self.program)
        self.seconds["build"], clock = time.perf_counter() - clock, time.perf_counter()
        self.limits = limits()
        self.plan = schedule.plan(self.program, self.limits)
        self.printed = {k: kernel_printer.printed(k, self.limits) for k in self.plan.kernels()}
        scalar.forget()
        self.seconds["emit"] = time.perf_counter() - clock

    @cached_property
    def _executable(self) -> Executable:
        return Executable(self.plan, self.limits, driver(), self.printed)

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        run = self._executable
        overwritten = set(self.program.aliases.values())
        inputs = [self._on_device(x, k in overwritten) for k, x in enumerate(args)]
        aliases, outs = self.program.aliases, self.jaxpr.out_avals
        buffers: list[DeviceBuffer] = []
        for j, aval in enumerate(outs):
            if j in aliases:
                memory = inputs[aliases[j]].memory
            else:
                what = f"result {j} of {self.program.name}, {described(aval)}"
                memory = run.driver.allocate(max(aval.size, 1) * aval.dtype.itemsize, what)
            buffers.append(DeviceBuffer(aval.shape, aval.dtype, memory, run.driver))
        fresh = [b.memory for j, b in enumerate(buffers) if j not in aliases]
        run([b.memory for b in inputs], fresh)
        self._give_up(args)
        return [ConcreteArray(b, a.weak_type) for b, a in zip(buffers, outs, strict=True)]  # type: ignore[arg-type]

    def _on_device(self, x: Any, overwritten: bool) -> DeviceBuffer:
        """The numbers of an argument; a copy where they are overwritten, and another array has them too."""
        value = x._value
        if type(value) is not DeviceBuffer:
            return DeviceBuffer.of(value, driver())
        # The array's own reference, `value`, and that of the call: no more.
        return value.copied() if overwritten and sys.getrefcount(value) > 3 else value

    def _give_up(self, args: Sequence[Any]) -> None:
        """Delete what was donated, and a result lies in."""
        for k in set(self.program.aliases.values()):
            if not args[k].is_deleted():
                args[k].delete()

    # --- to look at ------------------------------------------------------------------------------

    def ahead_of_time(self, device: str) -> list[device_code.Code]:
        """Machine code of all kernels for a device that need not be there, kept on disk."""
        device_code.capability(device)
        return [device_code.cubin(p, device) for p in self.printed.values()]

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
        text = report.report(self.program, [*self.notes, *self.plan.notes], self.seconds)
        kernels = self.plan.kernels()
        shapes = {k.shape: sum(x.shape == k.shape for x in kernels) for k in kernels}
        said = ", ".join(f"{n} {shape}" for shape, n in shapes.items()) or "none"
        return f"{text}\nkernels of the GPU: {said}"

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
