"""A small printer of expressions as LLVM IR, to test and to time the library by itself."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import scalar
from fnx.core.scalar import Expr

_TYPES = {"bool": "i1", "int32": "i32", "int64": "i64", "float32": "float", "float64": "double"}
_COMPARE = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_SHIFTS = {"shift_left": "shl", "shift_right_logical": "lshr", "shift_right_arithmetic": "ashr"}
_CALLS = {"sqrt": "sqrt", "abs": "fabs", "floor": "floor", "round_even": "roundeven"}
_CALLS |= {"trunc": "trunc", "ceil": "ceil", "fma": "fma"}

_CASTS = {
    ("float32", "float64"): "fpext",
    ("float64", "float32"): "fptrunc",
    ("int32", "float32"): "sitofp",
    ("int32", "float64"): "sitofp",
    ("int64", "int32"): "trunc",
    ("int32", "int64"): "sext",
}


def _constant(e: Expr) -> str:
    if e.dtype == "bool":
        return "true" if e.attr else "false"
    if "int" in e.dtype:
        return str(e.attr)
    value = np.float32(e.attr) if e.dtype == "float32" else e.attr
    return f"0x{np.array(value, 'float64').view('uint64').item():016x}"


def _instruction(e: Expr, names: Sequence[str]) -> str:
    op, kind = e.op, _TYPES[e.dtype]
    is_float = "float" in e.dtype
    if op in _COMPARE:
        source = e.args[0].dtype
        if "float" in source:
            return f"fcmp {_COMPARE[op]} {_TYPES[source]} {names[0]}, {names[1]}"
        code = op if op in ("eq", "ne") else "s" + op
        return f"icmp {code} {_TYPES[source]} {names[0]}, {names[1]}"
    if op == "select":
        return f"select i1 {names[0]}, {kind} {names[1]}, {kind} {names[2]}"
    if op in ("bitcast", "cast"):
        source = e.args[0].dtype
        code = op if op == "bitcast" else _CASTS[source, e.dtype]
        return f"{code} {_TYPES[source]} {names[0]} to {kind}"
    if op == "neg":
        return f"fneg {kind} {names[0]}" if is_float else f"sub {kind} 0, {names[0]}"
    if op == "not":
        return f"xor {kind} {names[0]}, -1"
    if op in _CALLS:
        arguments = ", ".join(f"{kind} {name}" for name in names)
        return f"call {kind} @llvm.{_CALLS[op]}.f{kind == 'double' and 64 or 32}({arguments})"
    code = (_FLOAT if is_float else _INTEGER | _SHIFTS)[op]
    return f"{code} {kind} {names[0]}, {names[1]}"


def function_body(result: Expr, arguments: Sequence[Expr]) -> str:
    """Instructions that compute `result`, and its return."""
    names = {id(a): f"%a{i}" for i, a in enumerate(arguments)}
    lines: list[str] = []

    def name(e: Expr) -> str:
        if id(e) in names:
            return names[id(e)]
        if e.op in ("const", "size"):
            return _constant(e)
        text = _instruction(e, [name(a) for a in e.args])
        names[id(e)] = f"%t{len(names)}"
        lines.append(f"  {names[id(e)]} = {text}")
        return names[id(e)]

    last = name(result)
    lines.append(f"  ret {_TYPES[result.dtype]} {last}")
    return "\n".join(lines)


def module_text(function: Callable[..., Expr], dtype: str, count: int) -> str:
    """A module with `run(n, inputs..., output)`: a loop over contiguous arrays."""
    arguments = [scalar.var(dtype) for _ in range(count)]
    kind = _TYPES[dtype]
    body = function_body(function(*arguments), arguments)
    formal = ", ".join(f"{kind} %a{i}" for i in range(count))
    pointers = ", ".join(f"ptr noalias %p{i}" for i in range(count))
    loads = "\n".join(
        f"  %g{i} = getelementptr {kind}, ptr %p{i}, i64 %k\n  %v{i} = load {kind}, ptr %g{i}"
        for i in range(count)
    )
    actual = ", ".join(f"{kind} %v{i}" for i in range(count))
    return f"""
define private {kind} @f({formal}) alwaysinline {{
{body}
}}
define void @run(i64 %n, {pointers}, ptr noalias %out) {{
entry:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %loop, label %done
loop:
  %k = phi i64 [0, %entry], [%next, %loop]
{loads}
  %y = call {kind} @f({actual})
  %g = getelementptr {kind}, ptr %out, i64 %k
  store {kind} %y, ptr %g
  %next = add nsw i64 %k, 1
  %again = icmp slt i64 %next, %n
  br i1 %again, label %loop, label %done
done:
  ret void
}}
"""


class Compiled:
    """A vectorised loop over one of the library's functions."""

    def __init__(
        self, function: Callable[..., Expr], dtype: str, count: int = 1, features: str | None = None
    ):
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.ir = module_text(function, dtype, count)
        module = llvm.parse_assembly(self.ir)
        module.verify()
        if features is None:
            features = llvm.get_host_cpu_features().flatten()
        cpu = llvm.get_host_cpu_name()
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=cpu, features=features, opt=3
        )
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = options.slp_vectorization = True
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        self.assembly = machine.emit_assembly(module)
        self._engine = llvm.create_mcjit_compiler(module, machine)
        self._engine.finalize_object()
        address = self._engine.get_function_address("run")
        prototype = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (count + 1))
        self._run = prototype(address)
        self.dtype = np.dtype(dtype)

    def __call__(self, *inputs: Any, out: np.ndarray | None = None) -> np.ndarray:
        arrays = [np.ascontiguousarray(x, self.dtype) for x in inputs]
        result = np.empty_like(arrays[0]) if out is None else out
        self._run(result.size, *[a.ctypes.data for a in arrays], result.ctypes.data)
        return result
