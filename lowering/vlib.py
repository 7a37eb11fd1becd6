"""Vector functions: each mathematical function compiled once, by itself, for all programs.

They are compiled when they are first needed and kept on disk like any other program. The text of
a vector variant is that of the scalar function with every type widened.
"""

import re
from functools import cache

from . import llvm_module, machine
from .vector_names import exists, name, widths

_SCALAR = r"double|float|i64|i32|i16|i8|i1"
_LITERAL = r"0x[0-9A-Fa-f]+|-?\d+|true|false"


# --- the modules of the functions themselves ---------------------------------------------------------


def _widen(line: str, w: int) -> str:
    """One instruction on scalars as the same on vectors of `w` lanes."""
    line = re.sub(
        r"@llvm\.([\w.]+)\.(f64|f32|i64|i32|i16|i8)\(", rf"@llvm.\1.v{w}\2(", line
    )
    line = re.sub(
        rf"\b({_SCALAR}) ({_LITERAL})(?=[,)\s]|$)", rf"<{w} x \1> splat (\1 \2)", line
    )
    line = re.sub(rf"(?<![(<x] )(?<!x )(?<!splat \()\b({_SCALAR})\b(?= %|$|\)| @)", rf"<{w} x \1>", line)
    # The second operand of a binary instruction has no type of its own.
    head = re.match(rf"(.*<{w} x ({_SCALAR})> [^,]*), ({_LITERAL})$", line)
    if head:
        line = f"{head[1]}, splat ({head[2]} {head[3]})"
    return line


def _vector_function(text: str, base: str, w: int) -> str:
    """A vector variant from the text of the scalar function."""
    lines = text.strip().split("\n")
    header = re.sub(rf"\b({_SCALAR})\b(?= [%@])", rf"<{w} x \1>", lines[0])
    header = re.sub(r"define internal (.*) @[\w.]+\(", rf"define \1 @{base}_w{w}(", header)
    header = header.replace("alwaysinline ", "")
    return "\n".join([header, "entry:", *(_widen(x, w) for x in lines[2:-1]), "}"])


def _declarations(text: str) -> list[str]:
    """What the vector instructions need declared."""
    found = set()
    for kind, which, args in re.findall(r"call (<[^>]+>|\w+) (@llvm[\w.]+)\((.*)\)", text):
        types = [re.match(r"<[^>]+>|\w+", a.strip())[0] for a in _split(args)]  # type: ignore[index]
        found.add(f"declare {kind} {which}({', '.join(types)})")
    return sorted(found)


def _split(args: str) -> list[str]:
    """Arguments at the commas outside parentheses."""
    parts, depth, at = [], 0, 0
    for k, c in enumerate(args):
        depth += (c == "(") - (c == ")")
        if c == "," and not depth:
            parts.append(args[at:k])
            at = k + 1
    return [*parts, args[at:]]


@cache
def _module(op: str, dtype: str) -> tuple[str, tuple[str, ...]]:
    """The LLVM module of a function and its variants, and the names that it exports."""
    module = llvm_module.Module(has_half=True, shared=False)
    base = name(op, dtype)
    source, text, _, needs = llvm_module.helper_text(op, dtype, True)
    exports = [base]
    bodies = [text.replace("define internal", "define").replace(source, f"@{base}")]
    bodies[0] = bodies[0].replace("alwaysinline ", "")
    for other in needs:
        module.helper(*other)
    for w in widths(dtype) if not needs else []:
        bodies.append(_vector_function(text, base, w))
        exports.append(f"{base}_w{w}")
    whole = "\n".join([*bodies, module.text()])
    known = set(re.findall(r"^declare .*? (@[\w.]+)\(", whole, re.MULTILINE))
    more = [d for d in _declarations(whole) if re.search(r"(@[\w.]+)\(", d)[1] not in known]  # type: ignore[index]
    return "\n".join([whole, *more, ""]), tuple(exports)


@cache
def _loaded(op: str, dtype: str) -> machine.Code:
    """The code of a function and its variants, which stays: programs hold bare addresses."""
    code = machine.code(*_module(op, dtype))
    machine.keep_forever(code.keep)
    return code


@cache
def address(symbol: str) -> int | None:
    """The address of a function of this library, which is compiled if need be."""
    found = re.fullmatch(r"fnx_v_(\w+?)_(float32|float64)(_w\d+)?", symbol)
    if found is None or not exists(found[1], found[2]):
        return None
    return _loaded(found[1], found[2]).addresses.get(symbol)
