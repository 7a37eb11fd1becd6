"""Functions of operations that are more than an instruction: each is printed once, without contraction."""

from functools import lru_cache

from fnx.core import scalar
from fnx.core.scalar import Function
from fnx.lowering.cpu.llvm import types as lt
from fnx.lowering.cpu.llvm import vector_abi
from fnx.lowering.cpu.llvm.function import Function as Printed
from fnx.lowering.cpu.llvm.module import Module
from fnx.lowering.cpu.processor.features import has_half
from fnx.lowering.math import expand

_HALF = {
    "half_bits": ("float32", "uint16", expand.half_bits),
    "half_value": ("uint16", "float32", expand.half_value),
}
# What stands before and after a function's name. Callers of one that stays keep their vectors in registers.
_INLINED = "", "alwaysinline nounwind"
_CALLED = "preserve_allcc ", "noinline nounwind willreturn memory(none)"


@lru_cache(maxsize=512)
def helper_text(
    op: str | Function, dtype: str, has_half: bool, shared: bool = False
) -> tuple[str, str, dict, tuple]:
    """Name, text, declarations and helpers of an operation's function; without contraction.

    One of a primitive's own stays a function, and lies in one part of the program only.
    """

    module = Module(helper_text, has_half=has_half, shared=False)
    needs: dict[tuple[str, str], str] = {}

    def other(*key: str) -> str:
        there = shared and vector_abi.exists(*key)
        name = vector_abi.name(*key) if there else "fnx." + ".".join(key)
        return needs.setdefault(key, f"@{name}")

    module.helper = other  # type: ignore[method-assign]
    code = Printed(module)
    code.flags = ""
    if isinstance(op, Function):
        variables = [scalar.var(d, "x") for d in op.dtypes]
        value = op.build(*variables)
        result = value.dtype
    elif op in _HALF:
        source, result, build = _HALF[op]
        variables = [scalar.var(source, "x")]
        value = build(*variables)
    else:
        variables = [scalar.var(dtype, "x") for _ in range(vector_abi.arity(op))]
        value = expand.body(op, dtype, variables)
        result = value.dtype
    arguments = []
    for k, v in enumerate(variables):
        names = [f"%a{k}.{j}" for j in range(len(lt.types(v.dtype)))]
        code.memo[v] = lt.whole(names)
        arguments += [f"{t} {x}" for t, x in zip(lt.types(v.dtype), names, strict=True)]
    code.returns(code.value(value), result)
    name = f"@fnx.{op}.{dtype}"
    kind = lt.result_type(result)
    before, after = _CALLED if isinstance(op, Function) else _INLINED
    head = f"define internal {before}{kind} {name}({', '.join(arguments)}) {after} {{"
    text = "\n".join([head, "entry:", *code.head, *code.lines, "}", ""])
    return name, text, dict(module.declarations), tuple(needs)


def function_lines(op: str, dtype: str) -> int:
    """The length of a mathematical function's text."""
    return helper_text(op, dtype, has_half(), True)[1].count("\n")
