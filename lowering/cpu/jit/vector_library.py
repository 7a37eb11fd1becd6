"""Vector functions: each mathematical function compiled once, by itself, for all programs.

A variant is compiled when a program first needs it and kept on disk like any other program. Its
text is that of the scalar function with every type widened. Functions that have a cheaper way for
usual arguments branch to it if all elements are such; the other way, where it is long or a routine
of C's, and rarely gone, is compiled for scalars only, quickly, and called for each lane.
"""

import re

from fnx.core.errors import CompileError
from fnx.lowering.cpu.llvm.vector_abi import BRANCHING, TYPE, arity, exists, name, parse

from . import code_cache
from .session import once

RARE = -1  # in place of a number of lanes: the way for unusual arguments
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
    from fnx.lowering.cpu.llvm import operation_functions

    lines = operation_functions.helper_text(op, dtype, True)[1].strip().split("\n")
    header = re.sub(r"@[\w.]+\(", f"@{name}(", lines[0])
    body = lines[2:-1]
    if w:
        header = re.sub(rf"\b({_SCALAR})\b(?= [%@])", rf"<{w} x \1>", header)
        body = [_widen(x, w) for x in body]
    return "\n".join([header, "entry:", *body, "}"])


_BRANCHING = """
define {t} @{name}({arguments}) nounwind {{
entry:
  %each = call {i1} @{name}.is_usual({arguments})
  {all}
  br i1 %all, label %usual, label %rare
usual:
  %found = call {t} @{name}.usual({arguments})
  ret {t} %found
rare:
  %other = call {t} @{rare}({arguments})
  ret {t} %other
}}"""


def _variant(op: str, dtype: str, w: int) -> str:
    """The text of an exported function."""
    name = _symbol(op, dtype, w)
    if op not in BRANCHING or w == RARE:
        return _public(_function(op, dtype, name, max(w, 0)))
    parts = [_function(op + end, dtype, name + end, w) for end in (".is_usual", ".usual")]
    t, i1, all_usual, n = TYPE[dtype], "i1", "%all = and i1 %each, true", arity(op)
    rare = f"{name}_rare"
    if not _is_apart(op, dtype):
        parts.append(_function(op, dtype, rare, w))
    elif w:
        parts.append(_lane_by_lane(rare, _symbol(op, dtype, RARE), t, w, n))
    else:
        parts.append(f"declare {t} @{rare}({', '.join([t] * n)})")
    if w:
        t, i1 = f"<{w} x {t}>", f"<{w} x i1>"
        all_usual = f"%all = call i1 @llvm.vector.reduce.and.v{w}i1({i1} %each)"
    arguments = ", ".join(f"{t} %x{k}" for k in range(n))
    whole = _BRANCHING.format(name=name, rare=rare, t=t, i1=i1, all=all_usual, arguments=arguments)
    return "\n".join([*parts, whole])


def _is_apart(op: str, dtype: str) -> bool:
    """Whether the way for unusual arguments is a function on scalars."""
    return op in BRANCHING and (dtype == "float64" or op == "rem")


def _public(text: str) -> str:
    return text.replace("define internal", "define").replace("alwaysinline ", "")


def _lane_by_lane(name: str, scalar: str, t: str, w: int, n: int) -> str:
    """The text of a function that calls a scalar one for each lane: slower, and soon compiled."""
    vectors = ", ".join(f"<{w} x {t}> %x{j}" for j in range(n))
    lines = [f"declare {t} @{scalar}({', '.join([t] * n)})"]
    lines += [f"define internal <{w} x {t}> @{name}({vectors}) noinline nounwind {{", "entry:"]
    for k in range(w):
        before = f"%y{k - 1}" if k else "poison"
        for j in range(n):
            lines.append(f"  %x{j}.{k} = extractelement <{w} x {t}> %x{j}, i32 {k}")
        arguments = ", ".join(f"{t} %x{j}.{k}" for j in range(n))
        lines.append(f"  %s{k} = call {t} @{scalar}({arguments})")
        lines.append(f"  %y{k} = insertelement <{w} x {t}> {before}, {t} %s{k}, i32 {k}")
    return "\n".join([*lines, f"  ret <{w} x {t}> %y{w - 1}", "}"])


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


def _symbol(op: str, dtype: str, w: int) -> str:
    if w == RARE:
        return f"{name(op, dtype)}_rare"
    return f"{name(op, dtype)}_w{w}" if w else name(op, dtype)


def _text(op: str, dtype: str, w: int) -> str:
    """The LLVM module of one variant."""
    from fnx.lowering.cpu.llvm import module as llvm_module
    from fnx.lowering.cpu.llvm import operation_functions

    if not exists(op, dtype):
        raise CompileError(f"there is no vector function {op} for {dtype}")
    module = llvm_module.Module(operation_functions.helper_text, has_half=True, shared=False)
    for other in operation_functions.helper_text(op, dtype, True)[3]:
        module.helper(*other)
    whole = "\n".join([_variant(op, dtype, w), module.text()])
    known = set(re.findall(r"^declare .*? (@[\w.]+)\(", whole, re.MULTILINE))
    more = [d for d in _declarations(whole) if re.search(r"(@[\w.]+)\(", d)[1] not in known]  # type: ignore[index]
    return "\n".join([whole, *more, ""])


@once
def _loaded(op: str, dtype: str, w: int) -> code_cache.Code:
    """The code of one variant, which stays: programs hold bare addresses."""
    symbol, rare = _symbol(op, dtype, w), _symbol(op, dtype, RARE)
    calls_rare = _is_apart(op, dtype) and w != RARE

    def imports(binary: bytes) -> dict[str, int]:
        return {rare: address(rare)} if calls_rare else {}

    if calls_rare:
        _loaded.soon(op, dtype, RARE)
    kind = "rare" if w == RARE else "function"
    code = code_cache.code(lambda: _text(op, dtype, w), [symbol], imports, kind, symbol)
    code_cache.keep_forever(code.keep)
    return code


def address(symbol: str) -> int | None:
    """The address of a function of this library, which is compiled if need be."""
    found = parse(symbol)
    if found is None:
        return None
    op, dtype, w = found
    w = RARE if symbol.endswith("_rare") else w
    return _loaded(op, dtype, w).addresses[_symbol(op, dtype, w)]
