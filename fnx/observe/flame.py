"""Events as a picture: a strip of time for each thread, in which what lies inside is drawn below."""

from collections.abc import Sequence
from html import escape

from fnx.observe.displays import markup
from fnx.observe.recorder import Event
from fnx.observe.units import seconds_of

WIDTH, HEIGHT = 960, 18  # of the picture, and of a row of it, in pixels
_LETTER = 6.5  # pixels of a letter
_COLORS = {
    "run": "#4c9f70", "compile": "#d1495b", "pass": "#e8919c", "trace": "#edae49",
    "transform": "#8d6a9f", "mark": "#9aa5b1",
}  # fmt: skip


def strip(events: Sequence[Event], seconds: float) -> str:
    """An SVG; what is too narrow to be seen is left out."""
    lanes: dict[int, int] = {}
    for e in events:
        lanes[e.thread] = max(lanes.get(e.thread, 0), e.depth + 1)
    tops, height = {}, 0
    for thread, rows in lanes.items():
        tops[thread] = height
        height += (rows + 1) * HEIGHT
    scale = WIDTH / seconds if seconds > 0 else 0.0
    boxes = [_box(e, scale, tops[e.thread]) for e in _visible(events, scale)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {max(height, HEIGHT)}" '
        f'width="100%" role="img" font-family="sans-serif" font-size="11">'
        f"<title>{seconds_of(seconds)}</title>{''.join(boxes)}</svg>"
    )


def _visible(events: Sequence[Event], scale: float) -> list[Event]:
    """Those of a pixel at least; of shorter ones the first in each pixel of a row."""
    seen: set[tuple] = set()
    found = []
    for e in sorted(events, key=lambda e: e.start):
        place = e.thread, e.depth, int(e.start * scale)
        if e.seconds * scale >= 1.0 or place not in seen:
            found.append(e)
            seen.add(place)
    return found


def _box(e: Event, scale: float, top: int) -> str:
    x, width = e.start * scale, max(e.seconds * scale, 0.5)
    y = top + e.depth * HEIGHT
    label = e.name if e.kind in ("mark", "pass", "transform") else f"{e.kind} {e.name}"
    letters = int(width / _LETTER)
    text = ""
    if letters >= 3:
        shown = label if len(label) <= letters else label[: letters - 1] + "…"
        text = f'<text x="{x + 3:.2f}" y="{y + 13}" fill="#fff">{escape(shown)}</text>'
    return (
        f"<g><title>{escape(label)}: {seconds_of(e.seconds)}</title>"
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{HEIGHT - 1}" '
        f'fill="{_COLORS.get(e.kind, "#9aa5b1")}"/>{text}</g>'
    )


def text(shown: str) -> str:
    """Text as HTML, in columns, which the style of a notebook would not keep."""
    return markup.page(markup.listing(shown))


__all__ = ["strip", "text"]
