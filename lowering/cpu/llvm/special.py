"""Calls of scipy.special's functions, element by element: its C loops run on one element each."""

from fnx.core.scalar import Expr
from fnx.lowering.cpu.processor import ufunc_loops
from fnx.lowering.ir.number_formats import PART

from . import types as lt
from .emitter import Emitter
from .module import Module
from .types import Operand

_DTYPE = {letter: dtype for dtype, letter in ufunc_loops.LETTER.items()}


def call(code: Emitter, e: Expr) -> Operand:
    """The result of a `special` expression."""
    name, part = e.attr
    given = "".join([ufunc_loops.LETTER[a.dtype] for a in e.args])
    signature = ufunc_loops.special_types(name, given)
    function = _function(code.module, given, signature.split("->")[1], part)
    operands = [f"ptr {code.symbol(f'special:{name}/{signature}')}"]
    for a in e.args:
        pairs = zip(lt.types(a.dtype), lt.parts(code.memo[a]), strict=True)
        operands += [f"{t} {x}" for t, x in pairs]
    kind = lt.result_type(e.dtype)
    result = code.op(f"call {kind} {function}({', '.join(operands)})")
    if e.dtype not in PART:
        return result
    return tuple(code.op(f"extractvalue {kind} {result}, {k}") for k in range(2))


def _function(module: Module, given: str, outs: str, part: int) -> str:
    """The name of the function that calls any loop of these types, printed when it is first asked for."""
    key = ("special", f"{given}.{outs}.{part}")
    name = module.helpers.get(key)
    if name is None:
        name = module.helpers[key] = f"@special.{key[1]}"
        module.functions.append(_text(name, given, outs, part))
    return name


def _text(name: str, given: str, outs: str, part: int) -> str:
    """It computes the same from the same, so that LLVM may call it once, or not at all."""
    arguments, head, body = ["ptr %loop"], [], []
    count = len(given + outs)
    head += [f"%args = alloca [{count} x ptr], align 16", "%one = alloca i64, align 16"]
    head += [f"%steps = alloca [{count} x i64], align 16"]
    body.append("store i64 1, ptr %one")
    for k, letter in enumerate(given + outs):
        types = lt.types(_DTYPE[letter])
        head.append(f"%s{k} = alloca [{len(types)} x {types[0]}], align 16")
        body += [
            f"%p{k} = getelementptr inbounds ptr, ptr %args, i64 {k}",
            f"store ptr %s{k}, ptr %p{k}",
            f"%q{k} = getelementptr inbounds i64, ptr %steps, i64 {k}",
            f"store i64 0, ptr %q{k}",
        ]
        for j, t in enumerate(types) if k < len(given) else ():
            arguments.append(f"{t} %a{k}.{j}")
            body += [
                f"%s{k}.{j} = getelementptr inbounds {t}, ptr %s{k}, i64 {j}",
                f"store {t} %a{k}.{j}, ptr %s{k}.{j}",
            ]
    body += [
        "%function = load ptr, ptr %loop",
        "%second = getelementptr inbounds ptr, ptr %loop, i64 1",
        "%data = load ptr, ptr %second",
        "call void %function(ptr %args, ptr %one, ptr %steps, ptr %data)",
    ]
    kind = lt.result_type(_DTYPE[outs[part]])
    body += [f"%r = load {kind}, ptr %s{len(given) + part}", f"ret {kind} %r"]
    lines = "\n".join(f"  {line}" for line in head + body)
    pure = "noinline nounwind willreturn memory(none)"
    return f"define internal {kind} {name}({', '.join(arguments)}) {pure} {{\nentry:\n{lines}\n}}\n"
