"""`python benchmarks/pictures.py` draws benchmarks/results.json and writes tables to docs/benchmarks.md.

`--renew FILE` first takes the figures from what `run.py` wrote (out/benchmarks.json). A row's "of" says
which: those of a group, a metric and a rival, of all names or of some; the least and the greatest ratio, or
("mean") their geometric mean and the greatest. Rows of which nothing was measured stay as they are.
"""

import argparse
import json
import re
from fnmatch import fnmatch
from html import escape
from math import exp, log, log10
from pathlib import Path

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
LEAST, MOST = 0.002, 1.4  # ends of the axis
LABELS, AXIS, LINE = 470, 330, 20  # widths and heights in pixels
COLOURS = {"JAX": "jax", "Numba": "numba"}
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.tick { stroke: #8c959f; stroke-opacity: .35; fill: none }
.equal { stroke: #24292f; stroke-dasharray: 4 3 }
.jax { stroke: #2f6fdb }
.numba { stroke: #c4610a }
.both { stroke: #7a4fbf }
tspan.jax { stroke: none; fill: #2f6fdb }
tspan.numba { stroke: none; fill: #c4610a }
tspan.both { stroke: none; fill: #7a4fbf }
line.two { stroke-opacity: .45 }
@media (prefers-color-scheme: dark) {
  text { fill: #d7dde4 }
  .equal { stroke: #d7dde4 }
  .jax { stroke: #79aaff }
  .numba { stroke: #f2a154 }
  .both { stroke: #b99cf0 }
  tspan.jax { fill: #79aaff }
  tspan.numba { fill: #f2a154 }
  tspan.both { fill: #b99cf0 }
}
"""


def results() -> dict:
    return json.loads((HERE / "results.json").read_text(encoding="utf-8"))


def _among(value: object, wanted: str | list[str]) -> bool:
    return value in ([wanted] if isinstance(wanted, str) else wanted)


def figures(of: dict, rows: list[dict]) -> dict[str, list[float]]:
    """The ends of a line of the table for one thread, and for two where they were measured."""
    names = of.get("names", "*")
    names = [names] if isinstance(names, str) else names
    found: dict[str, list[float]] = {}
    for row in rows:
        if row["ratio"] is None or row["figure"] == "worst":
            continue
        if any(fnmatch(row["figure"], name) for name in names) and all(
            _among(row[key], of[key]) for key in ("group", "metric", "rival")
        ):
            if row["figure"] != "geometric mean" or of["group"] == "together":
                key = "two" if row["threads"] == 2 else "one"
                found.setdefault(key, []).append(row["ratio"]["median"])
    low = (lambda x: exp(sum(map(log, x)) / len(x))) if of.get("mean") else min
    return {k: [float(f"{f(v):.2g}") for f in (low, max)] for k, v in found.items()}


def renew(file: Path) -> None:
    """Take over what was measured, and on what."""
    measured, stored = json.loads(file.read_text(encoding="utf-8")), results()
    about = measured["machine"]
    machine = f"{about['cores']} cores ({about['processor']}), load {about['load'][0]:.1f}, "
    machine += f"JAX {about['versions']['jax']}, {about['when'][:10]}"
    for part in stored.values():
        new = [figures(row["of"], measured["rows"]) for row in part["rows"]]
        part["rows"] = [row | found for row, found in zip(part["rows"], new, strict=True)]
        if all(new):
            part["machine"] = machine
    lines = {
        name: ",\n".join(f"      {json.dumps(row, ensure_ascii=False)}" for row in part["rows"])
        for name, part in stored.items()
    }
    parts = ",\n".join(
        f'  "{name}": {{\n    "machine": {json.dumps(part["machine"])},\n'
        f'    "rows": [\n{lines[name]}\n    ]\n  }}'
        for name, part in stored.items()
    )
    (HERE / "results.json").write_text(f"{{\n{parts}\n}}\n", encoding="utf-8")


def at(ratio: float) -> float:
    """Where a ratio is on the axis."""
    return LABELS + AXIS * log10(ratio / LEAST) / log10(MOST / LEAST)


def bar(span: list[float], y: float, kind: str) -> str:
    low, high = at(span[0]), at(span[1])
    return (
        f'<line x1="{low - 1:.1f}" y1="{y}" x2="{max(high, low + 2):.1f}" y2="{y}" class="{kind}" '
        'stroke-width="5"/>'
    )


def drawing(rows: list[dict]) -> str:
    """Time over the rival's, on a logarithmic axis: a line from the least to the greatest ratio."""
    parts, top = [], 46
    bottom = top + LINE * len(rows)
    for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        kind = "equal" if tick == 1.0 else "tick"
        parts.append(f'<path class="{kind}" d="M{at(tick):.1f} {top} V{bottom}"/>')
        parts.append(f'<text x="{at(tick):.1f}" y="{top - 6}" text-anchor="middle">{tick:g}</text>')
    words = "time over the rival's (logarithmic; left of 1 fnx is faster)"
    parts.append(f'<text x="{LABELS}" y="16">{words}</text>')
    parts.append('<text x="10" y="16">over <tspan class="jax">JAX</tspan>, ')
    parts[-1] += '<tspan class="numba">hand-written Numba</tspan>, '
    parts[-1] += '<tspan class="both">the better of NumPy and JAX</tspan></text>'
    for k, row in enumerate(rows):
        y = top + LINE * k + LINE / 2
        kind = COLOURS.get(row["over"], "both")
        what = escape(row["what"].replace("`", ""))
        parts.append(f'<text x="{LABELS - 14}" y="{y + 4}" text-anchor="end">{what}</text>')
        two = "two" in row
        parts.append(bar(row["one"], y - 3 * two, kind))
        if two:
            parts.append(bar(row["two"], y + 3, f"{kind} two"))
    width, height = LABELS + AXIS + 24, bottom + 28
    note = "Where there are two lines, the upper one is for one thread, the lower for two."
    if any("two" in row for row in rows):
        parts.append(f'<text x="10" y="{bottom + 20}">{note}</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}">'
    )
    return f"{head}\n<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"


def table(rows: list[dict]) -> str:
    def shown(span: list[float] | None) -> str:
        if span is None:
            return ""
        return f"{span[0]:g}" if span[0] == span[1] else f"{span[0]:g} - {span[1]:g}"

    lines = ["| what | over | one thread | two threads |", "|---|---|---|---|"]
    for row in rows:
        spans = f"{shown(row['one'])} | {shown(row.get('two'))}"
        lines.append(f"| {row['what']} | {row['over']} | {spans} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page on benchmarks, with the tables of what is stored."""
    for name, part in results().items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        made = f"{begin}\nOn {part['machine']}:\n\n{table(part['rows'])}\n{end}"
        text = re.sub(f"{begin}.*?{end}", lambda _, made=made: made, text, flags=re.S)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--renew", type=Path, help="what run.py wrote")
    options = parser.parse_args()
    if options.renew:
        renew(options.renew)
    for name, part in results().items():
        (DOCS / "pictures" / f"{name}.svg").write_text(drawing(part["rows"]), encoding="utf-8")
    file = DOCS / "benchmarks.md"
    file.write_text(page(file.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
