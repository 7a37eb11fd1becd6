"""Stages of compilation ahead of time, to look at and to call: Traced, Lowered, Compiled."""

from importlib import import_module
from typing import Any

from fnx.core.array import as_array
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.interpreter import Tracer
from fnx.core.jaxpr import ClosedJaxpr
from fnx.interpreters.passes.compiled import compiled
from fnx.interpreters.passes.simplify import simplify
from fnx.process.cost_analysis import cost_analysis
from fnx.pytree import operations
from fnx.transforms.make_jaxpr import ShapeDtypeStruct, unflatten_types
from fnx.transforms.static_args import Static
from fnx.transforms.traced_program import Empty, Program, backend_of, check_options


def _struct(aval: Any) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


@dataclass(frozen=True)
class ArgInfo:
    """What a program knows of an argument: its shape and dtype, and whether it is donated."""

    shape: tuple[int, ...]
    dtype: Any
    donated: bool
    weak_type: bool = False


class _Stage:
    """What all stages have: the types of arguments and results."""

    def __init__(self, program: Program, treedef: Any, static: Static):
        self.program, self.treedef, self.static = program, treedef, static

    @property
    def out_info(self) -> Any:
        """Shapes and dtypes of the results."""
        avals = self.program.jaxpr.out_avals
        shapes = [_struct(a) for a in Empty.within(self.program.empty.outs, avals)]
        return unflatten_types(self.program.structure, shapes)

    @property
    def args_info(self) -> Any:
        """An `ArgInfo` for each dynamic argument: (positional, by name)."""
        first, given = len(self.program.consts), self.program.jaxpr.in_avals
        donated = [k in self.program.donated for k in range(first, len(given))]
        infos = [
            ArgInfo(a.shape, a.dtype, is_donated, a.weak_type)
            for a, is_donated in zip(
                self._avals(),
                Empty.within(dict.fromkeys(self.program.empty.inputs, False), donated),
                strict=True,
            )
        ]
        return operations.tree_unflatten(self.treedef, infos)

    @property
    def in_avals(self) -> Any:
        """The types of the dynamic arguments: (positional, by name)."""
        return operations.tree_unflatten(self.treedef, self._avals())

    def _avals(self) -> list:
        given = self.program.jaxpr.in_avals[len(self.program.consts) :]
        return Empty.within(self.program.empty.inputs, given)

    in_tree = property(lambda self: self.treedef)
    out_tree = property(lambda self: self.program.structure)
    fun_name = property(lambda self: self.program.name)

    def cost_analysis(self) -> dict[str, float]:
        """Estimates: flops, transcendental functions, and bytes of arguments and results."""
        return cost_analysis(simplify(self.program.jaxpr, final=True))


class Traced(_Stage):
    """A traced function: its `jaxpr`, and `lower()`."""

    @property
    def jaxpr(self) -> ClosedJaxpr:
        return ClosedJaxpr(self.program.jaxpr, self.program.consts)

    def lower(self, *, lowering_platforms: Any = None) -> "Lowered":
        """The next stage."""
        del lowering_platforms
        return Lowered(self.program, self.treedef, self.static)


class Lowered(_Stage):
    """A program before it is compiled.

    `as_text(dialect)` shows it as "jaxpr", "kernel" (the Kernel IR), "numba" (runnable Python),
    "llvm", "asm", "cuda" (the kernels of a GPU as Python for Numba-CUDA) or "ptx".
    """

    def as_text(self, dialect: str | None = None, *, debug_info: bool = False) -> str:
        """The program in one of its languages; ValueError for an unknown one."""
        del debug_info
        if dialect in (None, "jaxpr"):
            return str(self.program.jaxpr)
        methods = {
            "kernel": "kernel_text",
            "numba": "numba_text",
            "llvm": "llvm_text",
            "asm": "asm",
            "cuda": "cuda_text",
            "ptx": "ptx_text",
        }
        if dialect not in methods:
            raise InvalidValue(
                f"unknown dialect {dialect!r}; expected one of jaxpr, {', '.join(methods)}"
            )
        found = self._for_a_gpu() if dialect in ("cuda", "ptx") else self.program.compiled()
        show = getattr(found, methods[dialect], None)
        if show is None:
            raise InvalidValue(
                f"this backend has no dialect {dialect!r}; expected one that it goes through"
            )
        text = show()
        return getattr(text, "source", text)

    def _for_a_gpu(self) -> Any:
        """The program's kernels, whatever it is compiled for."""
        return compiled(self.program.jaxpr, backend_of("cuda"), self.program.donated)

    def compiler_ir(self, dialect: str | None = None) -> str:
        """The text of a dialect, LLVM's by default."""
        return self.as_text(dialect or "llvm")

    def compile(self, compiler_options: Any = None, *, device: str | None = None) -> "Compiled":
        """The next stage: native code.

        `device`: a compute capability ("sm_90") for which the kernels are compiled and kept on disk, too;
        there need be no GPU.
        """
        check_options(compiler_options)
        if device is not None:
            self._for_a_gpu().ahead_of_time(device)
        self.program.compiled()
        return Compiled(self.program, self.treedef, self.static)

    def __str__(self) -> str:
        return self.as_text()


class Compiled(_Stage):
    """A compiled program, called with arguments of the types that it was compiled for, without static ones.

    `seconds` tells how long tracing and each pass of the compiler took.
    """

    @property
    def seconds(self) -> dict[str, float]:
        return {**self.program.seconds, **self.program.compiled().seconds}

    def as_text(self) -> str:
        """The assembly."""
        return Lowered.as_text(self, "asm")  # type: ignore[arg-type]

    def report(self) -> str:
        """Kernels, fusion, library and host calls, buffers and bytes."""
        native = self.program.compiled()
        return native.report() if hasattr(native, "report") else "evaluated, not compiled"

    def memory_analysis(self) -> Any:
        """Bytes of arguments, results, workspace."""
        native = self.program.compiled()
        return native.memory_analysis() if hasattr(native, "memory_analysis") else None

    @property
    def input_shardings(self) -> Any:
        """How the dynamic arguments are to lie: (positional, by name)."""
        program, constraints = self.program, import_module("fnx.process.constraints")
        found = constraints.input_shardings(program.jaxpr)[len(program.consts) :]
        empty = dict.fromkeys(program.empty.inputs, constraints.SingleDeviceSharding())
        return operations.tree_unflatten(self.treedef, Empty.within(empty, found))

    @property
    def output_shardings(self) -> Any:
        """How the results lie, in their structure."""
        program = self.program
        one = import_module("fnx.process.shardings").SingleDeviceSharding()
        places = getattr(program.compiled(), "places", (None,) * len(program.jaxpr.outs))
        empty = dict.fromkeys(program.empty.outs, one)
        found = [one if p is None else p for p in places]
        return operations.tree_unflatten(program.structure, Empty.within(empty, found))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, treedef = operations.tree_flatten((args, kwargs))
        if treedef != self.treedef and self.static.any:  # static ones may be given, too
            args, kwargs, _ = self.static.split(args, kwargs)
            leaves, treedef = operations.tree_flatten((args, kwargs))
        if treedef != self.treedef:
            raise TypeMismatch(
                f"a compiled function was called with arguments of structure "
                f"{operations.shown(treedef)}; it was compiled for {operations.shown(self.treedef)}"
            )
        program = self.program
        arrays = [as_array(x) for x in leaves]
        if any(isinstance(x, Tracer) for x in arrays):
            raise TypeMismatch(
                f"a compiled function ({program.name}) was called inside a transformation; expected "
                "arrays. Call the jitted function instead."
            )
        arrays = Empty.without(program.empty.inputs, arrays)
        wanted = program.jaxpr.in_avals[len(program.consts) :]
        for x, aval in zip(arrays, wanted, strict=True):
            if not x.aval.like(aval):
                raise TypeMismatch(
                    f"a compiled function was called with an argument of type {x.aval}; it was "
                    f"compiled for {aval}. Convert the argument, or call the jitted function."
                )
        return program.build(program(arrays))
