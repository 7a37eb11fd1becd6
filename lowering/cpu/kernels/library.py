"""Kernels for dense matrices as code in memory, by name.

A process that finds a kernel on disk needs no module that writes kernels: they are imported where there
is none.
"""

from collections.abc import Callable

from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.jit.session import once

from .routine_names import MODULES, ROUTINES, name


def find(symbol: str) -> int | None:
    """The address of a routine by its name in machine code; None if there is no such routine."""
    routine, _, dtype = symbol.removeprefix("fnx_").rpartition("_")
    return address(routine, dtype) if routine in ROUTINES else None


@once
def address(routine: str, dtype: str) -> int:
    """The address of a routine for a dtype."""
    return code(ROUTINES[routine], dtype).addresses[name(routine, dtype)]


@once
def code(module: str, dtype: str) -> code_cache.Code:
    """The loaded code of a module for a dtype."""
    known = MODULES[module]
    imports = {name(r, dtype): address(r, dtype) for r in known.calls}
    if not imports:
        from fnx.lowering.cpu.runtime import thread_pool

        imports = {"fnx_parallel_for": thread_pool.address()}
    exports = [name(r, dtype) for r in known.routines]
    return code_cache.routine(f"{module} {dtype}", lambda: writer(module)(dtype), exports, imports)


def writer(module: str) -> Callable[[str], str]:
    """The function that writes the LLVM IR of a module for a dtype."""
    if module == "gemm":
        from .gemm import text
    elif module == "gemv":
        from .gemv import text
    elif module == "gemv_pair":
        from .gemv_pair import text
    elif module == "factorizations":
        from .factorizations import text
    else:
        from .cholesky_derivatives import text
    return text
