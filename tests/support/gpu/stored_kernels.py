"""Kernels of a jaxpr whose arrays all lie in memory, laid out as for large arrays."""

from dataclasses import replace
from typing import Any

from fnx.core import scalar
from fnx.lowering import pipeline
from fnx.lowering.cuda import device_code
from fnx.lowering.cuda.kernels import kernel_printer, schedule
from fnx.lowering.cuda.kernels.plan import Kernel
from fnx.lowering.cuda.kernels.thresholds import LIMITS, Limits
from fnx.lowering.cuda.target import CudaTarget
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Loop, While

_FEW = replace(LIMITS, parallel=2)


class Stored:
    """Threads are dealt out from two elements on, unless other limits are given."""

    def __init__(self, jaxpr: Any, limits: Limits = _FEW) -> None:
        class Target(CudaTarget):
            def is_small(self, shape: tuple[int, ...]) -> bool:
                return shape == ()

        self.plan = schedule.plan(pipeline.build(jaxpr, (), Target(limits))[0], limits)
        self.printed = {k: kernel_printer.printed(k, limits) for k in self.plan.kernels()}
        scalar.forget()

    def ahead_of_time(self, device: str) -> list:
        return [device_code.cubin(p, device) for p in self.printed.values()]


def is_elementwise(kernel: Kernel) -> bool:
    """Whether each thread computes elements, with no loop of its own."""
    looped = any(isinstance(s, (Loop, While)) for s in traversal.statements(kernel.body))
    return kernel.shape in ("flat", "tile", "square") and not looped
