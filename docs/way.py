"""`python docs/way.py` draws the way of a program, from the lists of passes in the code: docs/way.svg."""

import ast
from collections.abc import Callable
from html import escape
from pathlib import Path
from types import ModuleType

from fnx.core import interpreter, recipe
from fnx.interpreters import batching, jvp, linearize, spmd, trace
from fnx.interpreters.passes import simplify
from fnx.lowering import backends, portable
from fnx.lowering.cpu.target import CpuTarget

HERE = Path(__file__).parent
ROOT = HERE.parent
INTERPRETERS = (trace, jvp, linearize, batching, spmd)
TARGETS = (CpuTarget.name, portable.PortableTarget.name)
WIDTH, LINE, PAD, GAP = 640, 17, 10, 34  # pixels

STYLE = """
text { font: 12px ui-monospace, monospace; fill: #222 }
.title { font-weight: bold; font-size: 13px }
.room, .data { fill: #777; font-style: italic }
rect { fill: #f6f6f2; stroke: #999 }
path { stroke: #999; fill: none; marker-end: url(#tip) }
@media (prefers-color-scheme: dark) {
  text { fill: #ddd } .room, .data { fill: #999 } rect { fill: #262626; stroke: #666 }
}
"""


def of(function: Callable) -> str:
    """A pass by the file that it is in; one of the list's own by the pass that it calls."""
    if function.__module__ == simplify.__name__:
        called = [getattr(simplify, n, None) for n in function.__code__.co_names]
        function = next(f for f in called if f and f.__module__ != simplify.__name__)
    return function.__module__.rpartition(".")[2]


def subclasses(kind: type, *modules: ModuleType) -> list[str]:
    """The classes below a class that modules define, in order."""
    found = [v for m in modules for v in vars(m).values() if isinstance(v, type)]
    names = [m.__name__ for m in modules]
    return [v.__name__ for v in found if kind in v.__mro__[1:] and v.__module__ in names]


def imported(file: str, package: str) -> list[str]:
    """The modules of a package that a file imports."""
    found: dict[str, None] = {}
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
            rest = node.module[len(package) + 1 :]
            found.update(dict.fromkeys([rest] if rest else [a.name for a in node.names]))
    return list(found)


def steps() -> list[tuple[str, str, str, list[str]]]:
    """What is done, where, what comes of it, and with which parts in order; all read from the code."""
    interpreters = subclasses(interpreter.Interpreter, interpreter, *INTERPRETERS)
    recipes = subclasses(recipe.Recipe, recipe)
    last = [of(p) for p in simplify.OPTIMIZATIONS]
    passes = [of(p) for p in CpuTarget.passes]
    planning = imported("lowering/generate/builder.py", "fnx.lowering.planning")
    planning += imported("lowering/pipeline.py", "fnx.lowering.planning")
    first = ["value_numbering", "dce", "and again while it shrinks"]
    printers = ["module_printer", "program_printer"]
    jit = ["partition", "compiler", "linker", "image", "disk_cache"]
    return [
        ("trace", "interpreters", "jaxpr", interpreters),
        ("every jaxpr", "interpreters/passes", "jaxpr", first),
        ("what is compiled", "interpreters/passes", "jaxpr", last),
        ("order", "lowering/planning", "equations in order", list(dict.fromkeys(planning))),
        ("lower", "fnx/core/recipe.py", "recipes", recipes),
        ("generate", "lowering/generate", "Kernel IR", [f"for a target: {', '.join(TARGETS)}"]),
        ("transform", "lowering/transform", "Kernel IR", [*passes, "buffer_assignment"]),
        ("print", "lowering/cpu/llvm, lowering/numba", "LLVM IR, Python", printers),
        ("compile", "lowering/cpu/jit", "machine code", jit),
        ("load, call", "lowering/cpu/loader", "arrays", [f"by {', '.join(backends.NAMES)}"]),
    ]


def wrapped(words: list[str], width: int) -> list[str]:
    """Words in as few lines as they need, in order."""
    lines = [""]
    for word in words:
        longer = f"{lines[-1]}, {word}" if lines[-1] else word
        if len(longer) > width and lines[-1]:
            lines[-1] += ","
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def drawing() -> str:
    """The picture as SVG."""
    parts, y = [], PAD

    def text(x: int, at: int, words: str, kind: str = "", anchor: str = "start") -> None:
        parts.append(
            f'<text x="{x}" y="{at}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    middle = WIDTH // 2
    text(middle, y + 12, "a Python function and the types of its arguments", "data", "middle")
    y += 20
    for title, room, result, words in steps():
        parts.append(f'<path d="M{middle} {y} v{GAP - 14}"/>')
        y += GAP - 8
        lines = wrapped(", ".join(words).split(", "), 84)
        height = LINE * (len(lines) + 1) + PAD
        parts.append(
            f'<rect x="{PAD}" y="{y}" width="{WIDTH - 2 * PAD}" height="{height}" rx="4"/>'
        )
        text(2 * PAD, y + LINE, title, "title")
        text(WIDTH - 2 * PAD, y + LINE, room, "room", "end")
        for k, line in enumerate(lines):
            text(2 * PAD, y + LINE * (k + 2), line)
        y += height
        text(middle + PAD, y + 16, result, "data")
    y += GAP
    tip = '<marker id="tip" markerWidth="8" markerHeight="8" refX="6" refY="3" orient="auto">'
    tip += '<path d="M0 0 L6 3 L0 6" style="marker-end: none"/></marker>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}">'
    body = "\n".join(parts)
    return f"{head}\n<style>{STYLE}</style>\n<defs>{tip}</defs>\n{body}\n</svg>\n"


if __name__ == "__main__":
    (HERE / "way.svg").write_text(drawing())
