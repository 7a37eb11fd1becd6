"""Implementations of elementwise primitives that give the bits of compiled programs.

Eager evaluation calls NumPy where results are rounded correctly, and so the same everywhere. Elementary
functions are not: there it calls, as a universal function, the code that programs have of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fnx.core import config
from fnx.core.errors import CompileError
from fnx.core.lazy_imports import find

Function = Callable[..., Any]


def native(
    reference: Function,
    operands: int = 1,
    exact: Mapping[np.dtype, Function] | None = None,
    beside: tuple[np.dtype, ...] = (),
) -> Function:
    """An implementation as compiled code; `reference`, with NumPy, where nothing can be compiled.

    `exact` are dtypes for which there are functions that round correctly; after operands of one dtype
    may come some of dtypes `beside` it. The primitive that is implemented is told to it by `implements`.
    """
    kernels = dict(exact or {})

    def unary(x: np.ndarray) -> Any:
        try:
            kernel = kernels[x.dtype]
        except KeyError:
            kernel = first(x.dtype)
        return kernel(x)

    def binary(x: np.ndarray, y: np.ndarray) -> Any:
        try:
            kernel = kernels[x.dtype]
        except KeyError:
            kernel = first(x.dtype)
        return kernel(x, y)

    def several(x: np.ndarray, *others: np.ndarray) -> Any:
        try:
            kernel = kernels[x.dtype]
        except KeyError:
            kernel = first(x.dtype)
        return kernel(x, *others)

    def first(dtype: np.dtype) -> Function:
        if config.backend.value == "reference":
            return reference
        try:
            make = find("fnx.core.primitive", "compiled_ufunc")
            kernel = make(impl.implemented, (dtype,) * operands + beside)
        except CompileError:  # on other machines, and where a program cannot be compiled
            kernel = reference
        kernels[dtype] = kernel
        return kernel

    impl: Any = {1: unary, 2: binary}.get(
        operands + len(beside), several
    )  # calls with stars take longer
    impl.reference = reference
    return impl


def implements(impl: Function, prim: Any) -> None:
    """Tell an implementation, if it is compiled, which primitive that is of."""
    if hasattr(impl, "reference"):
        impl.implemented = prim  # type: ignore[attr-defined]
