"""Elementwise primitives as universal functions of NumPy's, with the bits of compiled programs.

The kernel is the program of the one equation on a few elements; it is compiled once for each dtype, and
kept on disk like any program.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core.aval import ShapedArray
from fnx.core.errors import CompileError
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.core.primitive import Primitive
from fnx.lowering.cpu.backend import Compiled
from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.kernels import ufunc_loop
from fnx.lowering.cpu.runtime import call_wrapper_loader

_FROM_LOOPS = 1  # PyUFunc_FromFuncAndData in NumPy's table of functions


def compiled_ufunc(prim: Primitive, operands: tuple[np.dtype, ...]) -> Callable[..., Any]:
    """`prim` as a function of NumPy arrays of these dtypes; CompileError where there can be none."""
    if call_wrapper_loader.get() is None:
        raise CompileError("objects of this interpreter are laid out in another way")
    avals = [ShapedArray((ufunc_loop.BLOCK,), dtype) for dtype in operands]
    ins, outs = [Var(a) for a in avals], [Var(a) for a in prim.abstract(*avals)]
    kernel = Compiled(Jaxpr(ins, [Eqn(prim, ins, outs)], outs, name=prim.name)).executable
    dtypes = [*operands, outs[0].aval.dtype]
    if kernel.workspace_bytes > ufunc_loop.WORKSPACE:
        raise CompileError(
            f"the kernel of {prim.name} wants {kernel.workspace_bytes} bytes of memory"
        )
    function = _ufunc(prim.name, kernel, dtypes)
    if all(d.isbuiltin == 1 for d in dtypes):
        return function
    given = [np.dtype(_word(d)) for d in operands]

    def of_words(*xs: np.ndarray) -> Any:
        found = function(*[x.view(word) for x, word in zip(xs, given, strict=True)])
        return np.asarray(found).view(dtypes[-1])

    return of_words


def _word(dtype: np.dtype) -> str:
    """What NumPy sees of an element: bits, if it does not know the dtype."""
    return dtype.str if dtype.isbuiltin == 1 else f"u{dtype.itemsize}"


def _ufunc(name: str, kernel: Any, dtypes: list[np.dtype]) -> Callable[..., Any]:
    """The universal function of a kernel. NumPy keeps addresses, so what they point to stays."""
    nin = len(dtypes) - 1
    entry, params = kernel.code.addresses["entry"], kernel._params
    data = np.array([entry, params.ctypes.data, *[d.itemsize for d in dtypes]], np.int64)
    codes = np.array([np.dtype(_word(d)).num for d in dtypes], np.int8)
    table = np.array([ufunc_loop.address(nin), data.ctypes.data], np.int64)
    text = np.frombuffer(f"{name}\0".encode(), np.uint8)
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object,
        *[ctypes.c_void_p] * 3,
        *[ctypes.c_int] * 4,
        *[ctypes.c_void_p] * 2,
        ctypes.c_int,
    )(_numpys_table()[_FROM_LOOPS])
    loops = table.ctypes.data
    identity = -1  # none
    address = text.ctypes.data
    made = make(loops, loops + 8, codes.ctypes.data, 1, nin, 1, identity, address, address, 0)
    code_cache.keep_forever((kernel, params, data, codes, table, text, made))
    return made


def _numpys_table() -> Any:
    """NumPy's table of C functions for universal functions."""
    from numpy._core import _multiarray_umath

    get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    address = get_pointer(_multiarray_umath._UFUNC_API, None)
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_void_p))
