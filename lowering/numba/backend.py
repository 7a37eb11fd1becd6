"""The Numba backend: the Kernel IR of a portable target, printed as Python, compiled by numba.njit.

It is the portable path, what a reader can step through, and the check of the other printer. A program
that calls the host or a library runs as plain Python, iteration by iteration.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import config, scalar
from fnx.core.array import Array, ConcreteArray
from fnx.core.backend import Memory
from fnx.core.jaxpr import Jaxpr
from fnx.core.threads.fork_safety import cached_property
from fnx.lowering import pipeline, report
from fnx.lowering.ir import printer, verifier
from fnx.lowering.portable import PortableTarget

from . import program_printer


class Compiled:
    """A jaxpr as a function that Numba compiled: called with a list of arrays, it gives a list."""

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr
        self.seconds: dict[str, float] = {}
        clock = time.perf_counter()
        self.program, self.notes = pipeline.build(jaxpr, (), PortableTarget())
        self.seconds["build"], clock = time.perf_counter() - clock, time.perf_counter()
        if config.check.value:
            verifier.check(self.program)
        self.printed = program_printer.emit(self.program)
        scalar.forget()
        self.seconds["emit"] = time.perf_counter() - clock

    @cached_property
    def _function(self) -> Callable:
        return self.printed.function()

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        avals = self.jaxpr.out_avals
        given = [program_printer.flat(x._value) for x in args]  # type: ignore[attr-defined]
        results = [np.zeros(max(a.size, 1), a.dtype) for a in avals]
        with np.errstate(all="ignore"):
            self._function(*given, *map(program_printer.flat, results))
        return [
            ConcreteArray(x[: a.size].reshape(a.shape), a.weak_type)
            for x, a in zip(results, avals, strict=True)
        ]

    def kernel_text(self) -> str:
        return printer.show(self.program)

    def numba_text(self) -> str:
        return self.printed.source

    def report(self) -> str:
        return report.report(self.program, self.notes, self.seconds)

    def memory_analysis(self) -> Any:
        return report.memory_analysis(self.program)


class Backend:
    """Compiles jaxprs with Numba."""

    name = "numba"
    memory = Memory()

    def compile(self, jaxpr: Jaxpr, donated: Any = (), simplified: Any = None) -> Compiled:
        return Compiled(simplified() if simplified else jaxpr)


backend = Backend()
