"""Kernels for dense matrices by name: which module writes which, and what they call."""

from typing import NamedTuple


class Module(NamedTuple):
    """The routines of one LLVM module, which are compiled together, and those that they call."""

    routines: tuple[str, ...]
    calls: tuple[str, ...] = ()


MODULES = {
    "gemm": Module(("gemm", "gemm_minus")),
    "gemv": Module(("gemv",)),
    "gemv_pair": Module(("gemv_pair",)),
    "factorizations": Module(("solve_left", "solve_right", "cholesky", "lu"), ("gemm_minus",)),
    "cholesky_derivatives": Module(
        ("cholesky_tangent", "cholesky_cotangent"), ("gemm_minus", "solve_right")
    ),
}
ROUTINES = {routine: module for module, known in MODULES.items() for routine in known.routines}


def name(routine: str, dtype: str) -> str:
    """What a routine is called in machine code."""
    return f"fnx_{routine}_{dtype}"
