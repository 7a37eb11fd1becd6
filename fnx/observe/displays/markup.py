"""Pieces of HTML that displays are made of: escaped text, tables, foldable texts, and their style."""

import math
import re
from collections.abc import Iterable
from html import escape
from typing import Any

from fnx.core import policy

_LIGHT = (
    "--fg:#1f2328;--soft:#59636e;--bg:#f6f8fa;--in:#ffffff;--line:#d1d9e0;--link:#0969da;--name:#0550ae;"
    "--type:#6639ba;--number:#953800;--op:#116329;--bad:#cf222e;--warn:#9a6700;--adj:#bf3989"
)
_DARK = (
    "--fg:#e6edf3;--soft:#9198a1;--bg:#151b23;--in:#0d1117;--line:#3d444d;--link:#4493f8;--name:#79c0ff;"
    "--type:#d2a8ff;--number:#ffa657;--op:#7ee787;--bad:#ff7b72;--warn:#d29922;--adj:#ff9bce"
)
# The browser's theme, which notebooks that have a theme of their own overrule. Those style tables, too, by
# two classes and more: what is said of ours names its class as often as it takes.
STYLE = f"""<style>
.fnx{{{_LIGHT};color:var(--fg);background:var(--bg);border:1px solid var(--line);border-radius:6px;
padding:8px 12px;font:13px/1.45 system-ui,sans-serif;display:inline-block;max-width:100%;
box-sizing:border-box;overflow:auto;text-align:left}}
@media (prefers-color-scheme:dark){{.fnx{{{_DARK}}}}}
[data-jp-theme-light="true"] .fnx,.vscode-light .fnx,[data-theme="light"] .fnx{{{_LIGHT}}}
[data-jp-theme-light="false"] .fnx,.vscode-dark .fnx,[data-theme="dark"] .fnx{{{_DARK}}}
.fnx code,.fnx pre{{font:12px/1.5 ui-monospace,Menlo,Consolas,monospace;color:inherit;background:none;
padding:0;margin:0;border:0}}
.fnx pre{{white-space:pre;overflow:auto;max-height:32em;background:var(--in);padding:6px 8px;margin:4px 0}}
.fnx.fnx.fnx table{{border-collapse:collapse;margin:4px 0;font:inherit;color:inherit}}
.fnx.fnx.fnx tr{{background:none}}
.fnx.fnx.fnx th,.fnx.fnx.fnx td{{text-align:left;padding:1px 14px 1px 0;border:0;vertical-align:top;
color:inherit;white-space:pre-wrap;max-width:60em;background:none}}
.fnx.fnx.fnx th{{color:var(--soft);font-weight:normal}}
.fnx summary{{cursor:pointer;color:var(--soft)}}
.fnx a{{color:inherit;text-decoration:none}}.fnx a:hover{{text-decoration:underline}}
.fnx .head{{font-weight:600}}.fnx .soft{{color:var(--soft)}}.fnx .bad{{color:var(--bad)}}
.fnx .warn{{color:var(--warn)}}.fnx .name{{color:var(--name)}}.fnx .type{{color:var(--type)}}
.fnx .number{{color:var(--number)}}.fnx .op{{color:var(--op);font-weight:600}}.fnx .adj{{color:var(--adj)}}
.fnx .sides{{display:flex;gap:16px}}.fnx .side{{flex:1 1 0;min-width:20em;overflow:auto}}
.fnx svg{{display:block;margin:4px 0;max-width:none}}.fnx svg text{{fill:var(--fg);
font:11px ui-monospace,Menlo,Consolas,monospace}}.fnx svg .box{{fill:var(--in);stroke:var(--line)}}
.fnx svg .box.adj{{stroke:var(--adj)}}.fnx svg .group{{fill:none;stroke:var(--soft);stroke-dasharray:4 3}}
.fnx svg .edge{{fill:none;stroke:var(--soft)}}.fnx svg .tip{{fill:var(--soft);stroke:none}}
.fnx svg .label{{fill:var(--type);font-size:10px;paint-order:stroke;stroke:var(--bg);stroke-width:4px}}
.fnx svg .small{{fill:var(--soft);font-size:10px}}
</style>"""

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text(value: Any) -> str:
    """Any value's text, escaped; characters that markup cannot hold are replaced."""
    return escape(_NOT_XML.sub("\ufffd", str(value)))


def span(kind: str, value: Any) -> str:
    """Escaped text of a style."""
    return f'<span class="{kind}">{text(value)}</span>'


def page(*parts: str) -> str:
    """A display: its style, and its parts."""
    return f'{STYLE}<div class="fnx">{"".join(parts)}</div>'


def head(title: Any, more: Any = "") -> str:
    """The first line of a display."""
    return f"<div>{span('head', title)} {span('soft', more)}</div>"


def note(value: Any, kind: str = "soft") -> str:
    """A line that says something of what is shown."""
    return f'<div class="{kind}">{text(value)}</div>'


def table(rows: Iterable[tuple[Any, ...]]) -> str:
    """Rows of escaped texts, the first of which names the row."""
    made = [
        f"<tr><th>{text(first)}</th>{''.join([f'<td>{text(x)}</td>' for x in rest])}</tr>"
        for first, *rest in rows
    ]
    return f"<table><tbody>{''.join(made)}</tbody></table>" if made else ""


def folded(title: Any, inside: str, shown: bool = False) -> str:
    """Markup that is folded away under a title."""
    is_open = ' open="open"' if shown else ""
    return f"<details{is_open}><summary>{text(title)}</summary>{inside}</details>"


def listing(source: str) -> str:
    """A program's text; a long one is cut, and says so."""
    most = policy.DISPLAYED_CHARACTERS
    if len(source) <= most:
        return f"<pre>{text(source)}</pre>"
    cut = source[:most].rpartition("\n")[0] or source[:most]
    left = len(source) - len(cut)
    return f"<pre>{text(cut)}</pre>" + note(f"cut: {left:,} more characters of {len(source):,}")


def counted(count: int, what: str) -> str:
    """So many of something, whose plural ends with s."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def bytes_text(count: int) -> str:
    """A number of bytes for people."""
    if count < 1024:
        return f"{count} B"
    steps = min(int(math.log2(count)) // 10, 4)
    unit = ("KiB", "MiB", "GiB", "TiB")[steps - 1]
    return f"{count / 1024**steps:.4g} {unit} ({count:,} B)"


def seconds_text(seconds: float) -> str:
    """A time for people."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
