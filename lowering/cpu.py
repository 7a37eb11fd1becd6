"""The CPU backend: the pipeline from a jaxpr to a callable, as a list of named passes."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from fnx.core import config, scalar
from fnx.core.array import Array, ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.errors import FnxError
from fnx.core.jaxpr import Jaxpr, Var
from fnx.lowering import failure, fuse, memory, report
from fnx.lowering.build import Builder, dtype_name
from fnx.lowering.kernel import Buffer, Program
from fnx.lowering.report import MemoryAnalysis
from fnx.lowering.values import Handle, Registers, Stored


@contextmanager
def _deep_recursion() -> Iterator[None]:
    """Long chains of fused equations are nested calls; Python's own frames need no C stack."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 50_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def build(jaxpr: Jaxpr) -> tuple[Program, list[str]]:
    """The Kernel IR of a jaxpr, with its memory planned; and notes for the report."""
    builder = Builder()
    inputs, handles = [], []
    for k, var in enumerate(jaxpr.inputs):
        dtype, shape = dtype_name(var.aval.dtype), var.aval.shape
        buffer = Buffer(f"in{k}", dtype, max(var.aval.size, 1), "argument", k)
        inputs.append(buffer)
        stored = Stored(buffer, owned=False)
        handle = Handle(shape, dtype, stored)
        if fuse.is_small(shape):
            loads = [scalar.load(buffer, scalar.size(i), dtype) for i in range(var.aval.size)]
            handle.state = Registers(loads)
        handles.append(handle)
    outputs, targets = [], {}
    for k, atom in enumerate(jaxpr.outs):
        dtype = dtype_name(atom.aval.dtype)
        buffer = Buffer(f"out{k}", dtype, max(atom.aval.size, 1), "argument", len(inputs) + k)
        outputs.append(buffer)
        if type(atom) is Var and not fuse.is_small(atom.aval.shape):
            targets.setdefault(atom, Stored(buffer))
    results = builder.jaxpr(jaxpr, handles, targets)
    for handle, buffer in zip(results, outputs, strict=True):
        if handle.size:
            builder.store_into(handle, Stored(buffer))
    total = memory.plan(builder.block, builder.buffers)
    return Program(jaxpr.name or "f", inputs, outputs, builder.block, total), builder.notes


def _spec(aval: ShapedArray) -> tuple:
    return aval.shape, dtype_name(aval.dtype), aval.weak_type


class Compiled:
    """A jaxpr as native code: called with a list of arrays, it gives a list of arrays.

    `seconds` holds the time of each pass, `program` the Kernel IR, `emitted` the LLVM IR.
    """

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr
        self.seconds: dict[str, float] = {}
        self.program: Program | None = None
        with _deep_recursion():
            for stage in (self._build, self._check, self._emit, self._load):
                start = time.perf_counter()
                try:
                    stage()
                except (FnxError, MemoryError):
                    raise
                except Exception as error:
                    name = stage.__name__[1:]
                    raise failure.failed(name, jaxpr, self.program, error) from error
                self.seconds[stage.__name__[1:]] = time.perf_counter() - start
        scalar.forget()

    # --- the passes

    def _build(self) -> None:
        self.program, self.notes = build(self.jaxpr)

    def _check(self) -> None:
        if config.check.value:
            from fnx.lowering import check

            check.check(self.program)

    def _emit(self) -> None:
        from fnx.lowering import emit_llvm

        self.emitted = emit_llvm.emit(self.program)

    def _load(self) -> None:
        from fnx.lowering import load

        self.executable = load.load(
            self.emitted,
            inputs=[_spec(v.aval) for v in self.jaxpr.inputs],
            outputs=[_spec(v.aval) for v in self.jaxpr.outs],
            workspace_bytes=self.program.workspace,
        )
        self.executable.details = lambda: report.largest(self.program)

    # --- calls

    @property
    def fast(self) -> Any:
        """The quickest call: NotImplemented where the arguments do not fit exactly."""
        return self.executable.fast

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        outs = self.executable.fast(args)
        if outs is NotImplemented:
            values = self.executable([x._value for x in args])  # type: ignore[attr-defined]
            weak = [v.aval.weak_type for v in self.jaxpr.outs]
            outs = [ConcreteArray(v, w) for v, w in zip(values, weak, strict=True)]
        return outs

    def kernel_text(self) -> str:
        from fnx.lowering import show

        return show.show(self.program)

    def numba_text(self) -> str:
        from fnx.lowering import emit_numba

        return emit_numba.emit(self.program).source

    def llvm_text(self) -> str:
        return self.emitted.text

    def asm(self) -> str:
        return self.executable.asm()

    def report(self) -> str:
        return report.report(self.program, self.notes, self.seconds)

    def memory_analysis(self) -> MemoryAnalysis:
        return report.memory_analysis(self.program)


class Backend:
    """Compiles jaxprs for this machine's CPU."""

    name = "cpu"

    def compile(self, jaxpr: Jaxpr, donated: Any = ()) -> Compiled:
        return Compiled(jaxpr)


backend = Backend()
