"""Printed programs compiled by Numba, with the interface that all native programs of fnx have.

A program's function takes typed pointers. What calls it is a function of C's types (as
`lowering/cpu/runtime/abi.py` says), made beside it in the same library, so that the loader of native
programs runs it: results are allocated, arguments checked and callbacks entered as for any other.
"""

import itertools
import linecache
import math
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import compiler, errors, types
from numba.core.registry import cpu_target

from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.ir.number_formats import KIND

from . import calls, memory, operations, passes, runtime, shortened

assert calls  # whose import tells Numba of host and stop
_count = itertools.count()
_files: deque[str] = deque()  # texts that debuggers find, the last ones
_functions: dict[str, Any] = {}  # compiled once a process, by their texts
_HELPER = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_BYTE, _WORD, _STATUS = ir.IntType(8), ir.IntType(64), ir.IntType(32)


def library(printed: Any, entry: str) -> Any:
    """Numba's library of a program, in which the function `entry` is that of fnx's interface.

    Within a session, so that nobody else compiles, and no interrupt leaves Numba's lock taken.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.NumbaWarning)
        with shortened.remembering(cpu_target.typing_context):
            return _compiled(_function(printed, entry), printed, entry)


def _function(printed: Any, name: str) -> Callable:
    """The Python function of a program, whose helpers are Numba's own functions."""
    space: dict[str, Any] = {"math": math, "np": np, "numba": numba}
    space |= {n: operations.get(n) for n in printed.imports["operations"]}
    space |= {n: getattr(runtime, n) for n in (*printed.imports["runtime"], "share")}
    for helper, text in printed.functions.items():
        if text not in _functions:
            _functions[text] = _helper(_defined(text, helper, space), text)
        space[helper] = _functions[text]
    function = _defined(printed.body, printed.entry, space)
    function.__qualname__ = name  # of which LLVM's names are made, one in a process
    return function


def _defined(text: str, name: str, space: dict[str, Any]) -> Any:
    """The function that a text defines; debuggers find its lines."""
    file = f"<fnx {name} {next(_count)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    _files.append(file)
    while len(_files) > thresholds.LOADED_PROGRAMS:
        linecache.cache.pop(_files.popleft(), None)
    own = dict(space, jit=lambda f: f)
    parts, code = shortened.functions(text, file, own)
    for part, compiled in parts.items():
        exec(compiled, own)
        own[part] = _helper(own[part], text)
    exec(code, own)
    return own[name]


def _helper(function: Callable, text: str) -> Any:
    return numba.njit(**_HELPER, pipeline_class=passes.of(text))(function)


def _compiled(function: Callable, printed: Any, entry: str) -> Any:
    flags = compiler.Flags()
    flags.error_model, flags.no_rewrites, flags.no_compile = "numpy", True, True
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.nrt = "np.empty(" in printed.body
    places = memory.regions(printed.buffers)
    kinds = [
        memory.Memory(_stored(b.dtype), k) for b, k in zip(printed.buffers, places, strict=True)
    ]
    kinds += [memory.Memory(types.int64)] * printed.calls
    context = cpu_target.target_context
    made = context.codegen().create_library(entry)
    made.enable_object_caching()
    result = compiler.compile_extra(
        cpu_target.typing_context,
        context,
        function,
        tuple(kinds),
        None,
        flags,
        {},
        library=made,
        pipeline_class=passes.of(printed.body),
    )
    _add_entry(context, made, result.fndesc, printed, entry)
    made.finalize()
    return made


def _stored(dtype: str) -> Any:
    bits = {"h": types.uint16, "s": types.uint8}.get(KIND[dtype])
    return getattr(types, dtype) if bits is None else bits


def _add_entry(context: Any, made: Any, described: Any, printed: Any, entry: str) -> None:
    """int32 entry(void **arguments, int64 *params, char *workspace, void *control)"""
    module = made.create_ir_module(entry)
    callee = context.declare_function(module, described)
    words = [_BYTE.as_pointer().as_pointer(), _WORD.as_pointer(), _BYTE.as_pointer()]
    function = ir.Function(module, ir.FunctionType(_STATUS, [*words, _BYTE.as_pointer()]), entry)
    arguments, params, workspace, _ = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    given = []
    for k, (buffer, kind) in enumerate(zip(printed.buffers, described.argtypes, strict=False)):
        if buffer.space == "argument":
            at = builder.load(builder.gep(arguments, [_WORD(k)]))
        else:
            at = builder.gep(workspace, [_WORD(buffer.place)])
        given.append(builder.bitcast(at, context.get_value_type(kind)))
    if printed.calls:
        given.append(params)
    status, result = context.call_conv.call_function(
        builder, callee, described.restype, described.argtypes, given
    )
    if described.restype == types.none:
        found = _STATUS(0)
    else:
        found = builder.trunc(result, _STATUS)
    # 3: Numba's code ended with an exception of its own
    builder.ret(builder.select(status.is_error, _STATUS(3), found))
    made.add_ir_module(module)
