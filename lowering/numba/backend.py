"""The Numba backend: the Kernel IR of a portable target, printed as Python, compiled by Numba.

It is the portable path, what a reader can step through, and the check of the other printer. Where Numba's
own variable NUMBA_DISABLE_JIT is set, the printed source runs as plain Python.
"""

import time
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from fnx.core import config, scalar
from fnx.core.array import Array, ConcreteArray
from fnx.core.backend import Memory, donation
from fnx.core.errors import FnxError
from fnx.core.jaxpr import Jaxpr
from fnx.core.threads.fork_safety import cached_property
from fnx.core.threads.whole_imports import whole
from fnx.lowering import pipeline, report, reproducer
from fnx.lowering.cpu.loader import native_calls
from fnx.lowering.cpu.loader.progress import interrupted, watched
from fnx.lowering.ir import printer, verifier
from fnx.lowering.ir.kernel import Program

from . import program_printer
from .target import ThreadedTarget


class Compiled:
    """A jaxpr as a function that Numba compiled: called with a list of arrays, it gives a list."""

    def __init__(self, jaxpr: Jaxpr, donated: tuple[int, ...] = ()):
        self.jaxpr, self.donated = jaxpr, donated
        self.seconds: dict[str, float] = {}
        self.began: dict[str, float] = {}
        self._replaced = donation(jaxpr, donated).replaced
        self._types = native_calls.types_of(jaxpr)
        self.program: Program | None = None
        for stage in ("build", "emit", "load"):
            start = self.began[stage] = time.perf_counter()
            try:
                with native_calls.deep_recursion():
                    getattr(self, f"_{stage}")()
            except (FnxError, MemoryError):
                raise
            except Exception as error:
                raise reproducer.failed(stage, jaxpr, self.program, error) from error
            self.seconds[stage] = time.perf_counter() - start
        scalar.forget()

    def _build(self) -> None:
        self.program, self.notes = pipeline.build(self.jaxpr, self.donated, ThreadedTarget())
        if config.check.value:
            verifier.check(self.program)

    def _emit(self) -> None:
        self.printed = program_printer.emit(self.program)

    def _load(self) -> None:
        whole("numba")
        from . import load

        if load.jit_is_disabled():
            self.executable = None
            self._run: Callable = self._interpreted
            return
        self.executable = load.load(self.printed, self.program, *self._types)
        self.executable.details = lambda: report.largest(self.program)
        fast, records = self.executable.fast, self.executable.records
        self._run = watched(fast, records) if records else fast

    def _interpreted(self, leaves: Sequence[Any]) -> list[ConcreteArray]:
        """The printed source as plain Python."""
        aliases = self.program.aliases
        given = [
            np.require(getattr(x, "_value", x), d, "C")
            for x, (_, d, _) in zip(leaves, self._types[0])
        ]
        avals = [a for k, a in enumerate(self._types[1]) if k not in aliases]
        results = [np.empty(max(prod(shape), 1), dtype) for shape, dtype, _ in avals]
        self.printed([*given, *results])
        return [
            ConcreteArray(x[: prod(shape)].reshape(shape), weak)
            for x, (shape, _, weak) in zip(results, avals, strict=True)
        ]

    # --- calls

    @cached_property
    def fast(self) -> Any:
        """The quickest call: NotImplemented where the arguments do not fit exactly."""
        return native_calls.donating(self._run, self._types, self.program.aliases, self._replaced)

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        try:
            return native_calls.called(self, self._types, args)
        except KeyboardInterrupt as error:
            interrupted(error, self.jaxpr)
            raise

    # --- texts

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

    def compile(
        self, jaxpr: Jaxpr, donated: Any = (), simplified: Callable[[], Jaxpr] | None = None
    ) -> Compiled:
        return Compiled(simplified() if simplified else jaxpr, tuple(donated))


backend = Backend()
