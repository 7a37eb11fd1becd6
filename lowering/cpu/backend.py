"""The CPU backend: the pipeline from a jaxpr to a callable, as a list of named passes.

A program whose code is on disk is recalled by the name of its jaxpr (fingerprint.py) without running the
passes; what they would make of it is made when somebody asks. So the passes are imported where they
are run: a process that recalls its programs needs none of them.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from fnx.core import config, scalar
from fnx.core.array import Array
from fnx.core.backend import Memory, donation
from fnx.core.errors import CompileError, FnxError
from fnx.core.jaxpr import Jaxpr
from fnx.core.threads.fork_safety import cached_property
from fnx.lowering import fingerprint
from fnx.lowering.cpu.loader import executable, load, native_calls
from fnx.lowering.cpu.processor import thresholds

if TYPE_CHECKING:
    from fnx.lowering.cpu.llvm.module_printer import Emitted
    from fnx.lowering.ir.kernel import Program
    from fnx.lowering.report import MemoryAnalysis

Simplified = Callable[[], Jaxpr]


class Compiled:
    """A jaxpr as native code: called with a list of arrays, it gives a list of arrays.

    `simplified` makes the jaxpr that is lowered; a program that was seen before is found by the name
    of the one it is made of. `seconds` and `began` hold the time of each pass, `program` the Kernel IR,
    `emitted` the LLVM IR.
    """

    def __init__(
        self, jaxpr: Jaxpr, donated: tuple[int, ...] = (), simplified: Simplified | None = None
    ):
        self._simplified, self.donated = simplified or (lambda: jaxpr), donated
        self._given = ref(jaxpr)  # which keeps what is made of it
        self._replaced = donation(jaxpr, donated).replaced
        self.seconds: dict[str, float] = {}
        self.began: dict[str, float] = {}
        self._types = native_calls.types_of(jaxpr)
        name = None
        if not (config.check.value or config.progress.value):
            # Rules of users have no name, and are not in what is lowered.
            name = fingerprint.of(jaxpr, donated) or fingerprint.of(self.jaxpr, donated)
        start = time.perf_counter()
        found = load.recall(name, *self._types)
        if found is None:
            found = self._make(name)
        else:
            self.began["recall"], self.seconds["recall"] = start, time.perf_counter() - start
        self.executable = found
        self.executable.details = self._largest

    def _make(self, name: bytes | None) -> Any:
        """The executable, by all passes."""

        def last() -> None:
            p = self.program
            if p.workspace >= executable.FAR:
                raise native_calls.no_memory(p.workspace, self._largest())
            self.executable = load.load(self.emitted, *self._types, p.workspace, name, p.aliases)

        # Meanwhile helpers compile the routines that the program turns out to call.
        with load.session():
            self._run_passes(last)
        scalar.forget()
        return self.executable

    def _run_passes(self, last: Callable[[], None]) -> None:
        passes = {"build": lambda: self.program, "check": self._check, "emit": lambda: self.emitted}
        for stage, run in {**passes, "load": last}.items():
            start = self.began[stage] = time.perf_counter()
            try:
                run()
            except (FnxError, MemoryError):
                raise
            except Exception as error:
                from fnx.lowering import reproducer

                built = self.__dict__.get("_built", (None,))[0]
                raise reproducer.failed(stage, self.jaxpr, built, error) from error
            self.seconds[stage] = time.perf_counter() - start

    # --- the passes

    @cached_property
    def jaxpr(self) -> Jaxpr:
        """What is lowered."""
        return self._simplified()

    @cached_property
    def _built(self) -> tuple["Program", list[str]]:
        from fnx.lowering import pipeline as program
        from fnx.lowering.cpu import target

        with native_calls.deep_recursion():
            return program.build(self.jaxpr, self.donated, target.CpuTarget())

    program = property(lambda self: self._built[0])
    notes = property(lambda self: self._built[1])

    def _check(self) -> None:
        if config.check.value:
            from fnx.lowering.ir import verifier

            verifier.check(self.program)

    @cached_property
    def emitted(self) -> "Emitted":
        from fnx.lowering.cpu.llvm import module_printer

        with native_calls.deep_recursion():
            return module_printer.emit(self.program)

    # --- calls

    @cached_property
    def fast(self) -> Any:
        """The quickest call: NotImplemented where the arguments do not fit exactly."""
        program = self.executable
        fast = program.fast
        if program.records:
            from fnx.lowering.cpu.loader.progress import watched

            fast = watched(fast, program.records)
        return native_calls.donating(fast, self._types, program.aliases, self._replaced)

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        try:
            return native_calls.called(self, self._types, args)
        except KeyboardInterrupt as error:
            from fnx.lowering.cpu.loader.progress import interrupted

            interrupted(error, self._given())
            raise

    def kernel_text(self) -> str:
        from fnx.lowering.ir import printer

        return printer.show(self.program)

    def numba_text(self) -> str:
        from fnx.lowering.numba import program_printer

        return program_printer.emit(self.program).source

    def llvm_text(self) -> str:
        return self.emitted.text

    def asm(self) -> str:
        from fnx.lowering.cpu.jit import compiler

        return compiler.assembly(self.emitted.text)

    def _largest(self) -> str:
        from fnx.lowering import report

        return report.largest(self.program)

    def report(self) -> str:
        from fnx.lowering import report

        return report.report(self.program, self.notes, self.seconds)

    def memory_analysis(self) -> "MemoryAnalysis":
        from fnx.lowering import report

        return report.memory_analysis(self.program)


class Backend:
    """Compiles jaxprs for this machine's CPU."""

    name = "cpu"
    memory = Memory()

    def compile(self, jaxpr: Jaxpr, donated: Any = (), simplified: Simplified | None = None) -> Any:
        """Native code of fnx's own; Numba's, with a warning, where that cannot be made."""
        try:
            return Compiled(jaxpr, tuple(donated), simplified)
        except CompileError as error:
            return _by_numba(error, simplified() if simplified else jaxpr, tuple(donated))

    def team(
        self, jaxpr: Jaxpr, size: int, partitions: Any, places: list[str], results: Sequence[tuple]
    ) -> Any:
        """One member's program, to be run for all members of a team at once.

        `results` are shapes and dtypes of what members make together.
        """
        from fnx.lowering.cpu.loader.progress import described
        from fnx.lowering.cpu.loader.team import Nothing, TeamProgram

        specs = [executable.Spec.of(*spec) for spec in results]
        memory = executable.Executable(Nothing(), [], [], specs, release_gil=False)
        made = Compiled(jaxpr, (), None).executable
        return TeamProgram(made, size, partitions, places, described(jaxpr), lambda: memory(()))

    def team_pays(self, size: int, work: float, exchanges: float) -> bool:
        """Whether threads for so many members, who do so much each, save more time than they cost."""
        from fnx.lowering.cpu.loader import team

        if size < 2 or not team.can_wait():
            return False
        cpus = team.processors()
        crowded = size > cpus
        saved = size * work * (1 - 1 / min(size, cpus))
        each = thresholds.CROWDED_EXCHANGE if crowded else thresholds.EXCHANGE
        return saved > thresholds.TEAM + each * exchanges


def _by_numba(error: CompileError, jaxpr: Jaxpr, donated: tuple[int, ...]) -> Any:
    """The program as the Numba backend compiles it; the first error where that fails, too."""
    try:
        from fnx.lowering.numba import backend as numba

        found = numba.backend.compile(jaxpr, donated)
    except Exception as second:
        error.add_note(f"The Numba backend could not compile it either: {second}")
        raise error from None
    warnings.warn(f"{error}\nIt was compiled by Numba.", RuntimeWarning, stacklevel=2)
    return found


backend = Backend()
