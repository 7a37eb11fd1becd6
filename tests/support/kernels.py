"""Programs of the Kernel IR for tests, built by hand or of functions, and the ways of running them."""

from collections.abc import Callable, Sequence

import numpy as np

import fnx
from fnx.core import dtypes, scalar
from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm import module_printer
from fnx.lowering.cpu.loader import load
from fnx.lowering.ir import kernel, traversal, verifier
from fnx.lowering.ir.kernel import Buffer, Program
from fnx.lowering.numba import program_printer


def canonical(name: str) -> np.dtype:
    return dtypes.canonical(name)


def loop(n: int, body: Callable[[Expr], Sequence[kernel.Stmt]], **options) -> kernel.Loop:
    """for i in range(n): body(i)"""
    index = scalar.var("int64", "i")
    return kernel.Loop(index, scalar.size(n), list(body(index)), **options)


def sum_nest(source: Buffer, n: int, reassociate: bool = True) -> tuple[kernel.Nest, Expr]:
    """The sum of a buffer as a nest with a result, and the result."""
    i, acc = scalar.var("int64", "i"), scalar.var(source.dtype, "acc")
    step = scalar.apply("add", acc, scalar.load(source, i, source.dtype))
    body = kernel.Loop(
        i,
        scalar.size(n),
        [],
        [acc],
        [scalar.const(0, source.dtype)],
        [step],
        reassociate=reassociate,
    )
    return kernel.Nest("sum", [body], results=[acc]), acc


def program(f: Callable, *args) -> Program:
    """The Kernel IR of a jitted function on arguments."""
    lowered = fnx.jit(f).lower(*args)  # held, as a program that is recalled asks for its jaxpr
    return lowered.program.compiled().program


def workspace(f: Callable, *args) -> int:
    """Bytes that a jitted function needs beside its arguments and results."""
    return fnx.jit(f).lower(*args).compile().memory_analysis().temp_size_in_bytes


def count(p: Program, kind: type) -> int:
    """How many statements of a kind a program has."""
    return sum(isinstance(s, kind) for s in traversal.statements(p.body))


def arguments(*specs: tuple[str, str, int], first: int = 0) -> list[Buffer]:
    """Argument buffers of (name, dtype, size), in order."""
    return [
        Buffer(name, dtype, n, "argument", first + k) for k, (name, dtype, n) in enumerate(specs)
    ]


def pointwise(fns: Sequence[Callable[..., Expr]], arrays: Sequence[np.ndarray]) -> Program:
    """One loop: every function of the elements of the arrays gives an output."""
    n = len(arrays[0])
    inputs = arguments(*((f"x{k}", a.dtype.name, n) for k, a in enumerate(arrays)))
    index = scalar.var("int64", "i")
    values = [f(*(scalar.load(b, index, b.dtype) for b in inputs)) for f in fns]
    outputs = arguments(*((f"y{k}", e.dtype, n) for k, e in enumerate(values)), first=len(inputs))
    stores = [kernel.Store(b, index, e) for b, e in zip(outputs, values, strict=True)]
    nest = kernel.Nest(
        "all", [kernel.Loop(index, scalar.size(n), stores, kind=kernel.LoopKind.VECTORIZED)]
    )
    return Program("pointwise", inputs, outputs, [nest])


def native(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run by LLVM IR, after the checks."""
    verifier.check(program)
    emitted = module_printer.emit(program)
    specs = [
        [((b.size,), canonical(b.dtype)) for b in side]
        for side in (program.inputs, program.outputs)
    ]
    return load.load(emitted, *specs, program.workspace)(list(arrays))


def python(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run by the printed Python, interpreted."""
    return program_printer.run(program, arrays, jit=False)


def numba(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Run by the printed Python, compiled by Numba."""
    return program_printer.run(program, arrays, jit=True)
