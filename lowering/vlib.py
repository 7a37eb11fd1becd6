"""Vector functions: each mathematical function compiled once, by itself, for all programs.

They are compiled when they are first needed and kept on disk like any other program. The text of
a vector variant is that of the scalar function with every type widened. Functions that have a
cheaper way for usual arguments (vmath.USUAL) branch to it if all elements are such.
"""

import re
from functools import cache

from . import llvm_module, machine
from .vector_names import TYPE, exists, name, widths
from .vmath import USUAL

_SCALAR = r"double|float|i64|i32|i16|i8|i1"
_LITERAL = r"0x[0-9A-Fa-f]+|-?\d+|true|false"


# --- the modules of the functions themselves ---------------------------------------------------


def _widen(line: str, w: int) -> str:
    """One instruction on scalars as the same on vectors of `w` lanes."""
    line = re.sub(r"@llvm\.([\w.]+)\.(f64|f32|i64|i32|i16|i8)\(", rf"@llvm.\1.v{w}\2(", line)
    line = re.sub(rf"\b({_SCALAR}) ({_LITERAL})(?=[,)\s]|$)", rf"<{w} x \1> splat (\1 \2)", line)
    line = re.sub(
        rf"(?<![(<x] )(?<!x )(?<!splat \()\b({_SCALAR})\b(?= %|$|\)| @)", rf"<{w} x \1>", line
    )
    # The second operand of a binary instruction has no type of its own.
    head = re.match(rf"(.*<{w} x ({_SCALAR})> [^,]*), ({_LITERAL})$", line)
    if head:
        line = f"{head[1]}, splat ({head[2]} {head[3]})"
    return line


def _function(op: str, dtype: str, name: str, w: int) -> str:
    """The text of a function under another name, on vectors of `w` lanes if that is not 0."""
    lines = llvm_module.helper_text(op, dtype, True)[1].strip().split("\n")
    header = re.sub(r"@[\w.]+\(", f"@{name}(", lines[0])
    body = lines[2:-1]
    if w:
        header = re.sub(rf"\b({_SCALAR})\b(?= [%@])", rf"<{w} x \1>", header)
        body = [_widen(x, w) for x in body]
    return "\n".join([header, "entry:", *body, "}"])


_BRANCHING = """
define {t} @{name}({t} %x) nounwind {{
entry:
  %each = call {i1} @{name}.is_usual({t} %x)
  {all}
  br i1 %all, label %usual, label %rare
usual:
  %y = call {t} @{name}.usual({t} %x)
  ret {t} %y
rare:
  %z = call {t} @{name}.rare({t} %x)
  ret {t} %z
}}"""


def _variant(op: str, dtype: str, name: str, w: int) -> str:
    """The text of an exported function."""
    if (op + ".usual", dtype) not in USUAL:
        text = _function(op, dtype, name, w)
        return text.replace("define internal", "define").replace("alwaysinline ", "")
    sources = {".is_usual": op + ".is_usual", ".usual": op + ".usual", ".rare": op}
    parts = [_function(source, dtype, name + end, w) for end, source in sources.items()]
    t, i1, all_usual = TYPE[dtype], "i1", "%all = and i1 %each, true"
    if w:
        t, i1 = f"<{w} x {t}>", f"<{w} x i1>"
        all_usual = f"%all = call i1 @llvm.vector.reduce.and.v{w}i1({i1} %each)"
    return "\n".join([*parts, _BRANCHING.format(name=name, t=t, i1=i1, all=all_usual)])


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
    needs = llvm_module.helper_text(op, dtype, True)[3]
    exports, bodies = [base], [_variant(op, dtype, base, 0)]
    for other in needs:
        module.helper(*other)
    for w in widths(dtype) if not needs else []:
        exports.append(f"{base}_w{w}")
        bodies.append(_variant(op, dtype, exports[-1], w))
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
